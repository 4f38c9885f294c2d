"""The list of jobs as a page: what its URL filters, and what each row offers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dietcode.protocol import JobState, Progress
from dietcode_server.dashboard.jobs import NUM_ROWS
from dietcode_server.dashboard.render import secs
from dietcode_server.store import jobs
from dietcode_server.store.database import Database


@pytest.fixture
def own(tmp_path, service) -> Iterator[Any]:
    """A service without jobs."""
    database = Database(f"sqlite:///{tmp_path}/own.db")
    database.upgrade()
    yield replace(service, database=database)
    database.dispose()


def listed(text: str) -> list[str]:
    return re.findall(r'id="job-([0-9a-f]{16})"', text)


def test_no_jobs_yet_says_what_to_do(own):
    page = own.client.get("/").text
    assert "No jobs yet" in page and 'href="/submit"' in page
    assert "dietcode submit examples/bert-dense.yaml --wait" in page


def test_jobs_are_listed_and_found(own):
    first, second = own.add_job("dense-small"), own.add_job("bmm-large")
    with own.database.write() as session:
        jobs.request_cancel(session, second)
    get = own.client.get
    assert listed(get("/").text) == [second, first]
    assert listed(get("/?order=oldest").text) == [first, second]
    assert listed(get("/?q=SMALL").text) == [first]
    assert listed(get("/?q=%20large%20").text) == [second]
    assert listed(get("/?state=cancelled").text) == [second]
    assert listed(get("/?state=cancelled&q=dense").text) == []
    assert listed(get("/?owner=local").text) == [second, first]
    assert "No job fits" in get("/?owner=nobody").text
    assert listed(get("/?order=finished").text) == [second]


def test_chips_count_what_the_other_filters_leave(own):
    own.add_job("dense-1"), own.add_job("dense-2")
    cancelled = own.add_job("bmm")
    with own.database.write() as session:
        jobs.request_cancel(session, cancelled)
    chip = r'<a class="chip" id="chip-(\w+)"[^>]*>[^<]*<span class="count">(\d+)<'
    chips = dict(re.findall(chip, own.client.get("/").text))
    assert chips == {"any": "3", "waiting_for_runner": "2", "cancelled": "1"}
    page = own.client.get("/?q=dense&state=waiting_for_runner").text
    assert 'id="chip-any" href="/?q=dense"' in page
    assert re.search(r'id="chip-waiting_for_runner" href="[^"]*" aria-current="true"', page)


def test_pages_are_walked_and_keep_the_filters(own):
    added = [own.add_job(f"many-{number}") for number in range(NUM_ROWS + 3)]
    first = own.client.get("/?q=many&order=oldest").text
    assert listed(first) == added[:NUM_ROWS] and 'id="previous"' not in first
    following = re.search(r'id="next" rel="next" href="([^"]+)"', first)[1].replace("&amp;", "&")
    assert "q=many" in following and "order=oldest" in following
    second = own.client.get(following).text
    assert listed(second) == added[NUM_ROWS:] and 'id="next"' not in second
    back = re.search(r'id="previous" rel="prev" href="([^"]+)"', second)[1].replace("&amp;", "&")
    assert listed(own.client.get(back).text) == added[:NUM_ROWS]


def test_htmx_gets_the_list_alone_and_the_address_where_somebody_typed(own):
    own.add_job("typed")
    polled = own.client.get("/?q=typed", headers={"hx-request": "true", "hx-trigger": "jobs"})
    assert polled.text.startswith('<section id="jobs"') and "<html" not in polled.text
    assert "hx-replace-url" not in polled.headers
    typed = own.client.get("/?q=typed&owner=", headers={"hx-request": "true", "hx-trigger": "filters"})
    assert typed.headers["hx-replace-url"] == "/?q=typed"
    restored = {"hx-request": "true", "hx-history-restore-request": "true"}
    assert "<html" in own.client.get("/", headers=restored).text


def test_a_running_job_shows_its_step(own):
    job_id = own.add_job("steps")
    own.run_job(job_id)
    step = Progress(stage="measure", message="8x16", done=3, total=12, best_gflops=123.44, secs_left=125.0)
    with own.database.write() as session:
        jobs.add_progress(session, job_id, step)
    page = own.client.get("/").text
    assert '<progress max="12" value="3"' in page
    assert "measure 3/12" in page and "2 min 5 s left" in page and "123.4" in page


@pytest.mark.parametrize(
    ("state", "buttons"),
    [
        (JobState.QUEUED, ["cancel"]),
        (JobState.WAITING_FOR_RUNNER, ["cancel"]),
        (JobState.RUNNING, ["cancel"]),
        (JobState.INTERRUPTED, ["resume"]),
        (JobState.FAILED, ["resume"]),
        (JobState.CANCELLED, ["resume"]),
    ],
)
def test_a_row_offers_what_leads_on(own, state, buttons):
    job_id = own.add_job()
    if state != JobState.WAITING_FOR_RUNNER:
        own.run_job(job_id)
        if state == JobState.QUEUED:
            with own.database.write() as session:
                jobs.finish(session, job_id, JobState.INTERRUPTED)
                jobs.resume(session, job_id)
        elif state != JobState.RUNNING:
            with own.database.write() as session:
                jobs.finish(session, job_id, state)
    for path in ("/", f"/jobs/{job_id}"):
        page = own.client.get(path).text
        assert re.findall(rf'data-post="/api/v1/jobs/{job_id}/(\w+)"', page) == buttons
        assert f'href="/submit?from={job_id}"' in page
        assert ("data-confirm" in page) == ("cancel" in buttons)


@pytest.mark.parametrize(
    ("duration", "said"),
    [
        (0.0, "0.0 s"),
        (9.94, "9.9 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (7200, "2 h"),
        (7800, "2 h 10 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations(duration, said):
    assert secs(duration) == said
