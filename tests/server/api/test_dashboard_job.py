"""A job's page: stages, best throughput and the log of decisions, put together from its events."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, insert

from dietcode.protocol import JobState, Progress
from dietcode.tuner.events import Event, not_run
from dietcode_server.store import jobs
from dietcode_server.store.tables import EventRow

ROUND = {
    "number": 3,
    "measured": ["8x16", "9x16", "4x8"],
    "pruned": ["9x16"],
    "failed": ["4x8"],
    "dropped": ["2x48"],
    "expansions": [{"shape": {"m": 37}, "cause": "padding", "served": 0.571, "micro_kernels": ["6x32"]}],
}
FIELDS = ("stage", "message", "done", "total", "best_gflops")
SAID = "round 3; tried 3, pruned 1, failed 1; stopped: the trials of the budget are used up"


@pytest.fixture
def story(service) -> str:
    """A job that was interrupted in its first attempt, rested for an hour, and works on its second."""
    job_id = service.add_job("story")
    service.run_job(job_id)
    with service.database.write() as session:
        row = jobs.get(session, job_id)
        start = row.num_events
        at = jobs.get(session, job_id).created_at
        told: list[tuple[float, Any]] = [
            (1, ("calibrate", "sweep", 0, 0, None)),
            (5, ("seed", "MetaSchedule", 0, 8, None)),
            (10, ("seed", "MetaSchedule", 4, 8, 50.0)),
            (20, JobState.INTERRUPTED),
            (3620, JobState.QUEUED),
            (3630, JobState.RUNNING),
            (3631, ("seed", "from the records", 1, 1, 50.0)),
            (3633, ("measure", "8x16: 60 GFLOP/s", 1, 9, 60.0)),
            (3643, ("measure", "9x16: 40 GFLOP/s, pruned after its first wave", 2, 9, 60.0)),
            (3644, ("measure", SAID, 3, 3, 60.0)),
            (3650, ("select", "choosing", 0, 0, 60.0)),
        ]
        for number, (after, what) in enumerate(told, start + 1):
            is_state = isinstance(what, JobState)
            step = None if is_state else dict(zip(FIELDS, what, strict=True))
            session.execute(
                insert(EventRow).values(
                    job_id=job_id,
                    seq=number,
                    at=at + timedelta(seconds=after),
                    kind="state" if is_state else "progress",
                    state=what.value if is_state else None,
                    message="" if step is None else step["message"],
                    progress=step,
                    data=ROUND if step and step["message"] == SAID else {},
                )
            )
            if step:
                row.progress = step
        row.num_events = start + len(told)
        row.started_at, row.updated_at = at, at + timedelta(seconds=3650)
    return job_id


def stages(text: str) -> dict[str, tuple[str, str]]:
    """Status and what is said of each stage."""
    found = re.findall(
        r'<li class="(\w+)"[^>]*>\s*<span class="stage-name">(\w+)<.*?class="stage-fact">([^<]*)</span>',
        text,
        re.DOTALL,
    )
    return {name: (status, fact) for status, name, fact in found}


def test_stages_are_those_of_the_newest_attempt(service, story):
    found = stages(service.client.get(f"/jobs/{story}").text)
    assert list(found) == ["calibrate", "seed", "measure", "select", "build", "verify", "compare", "publish"]
    assert found["calibrate"] == ("skipped", "not needed")
    assert found["seed"] == ("done", "2.0 s")
    assert found["measure"] == ("done", "17 s")
    assert found["select"][0] == "now"
    assert found["publish"] == ("ahead", "–")


def test_a_job_that_failed_shows_where(service, story):
    with service.database.write() as session:
        jobs.finish(session, story, JobState.FAILED, error="no space is left")
    page = service.client.get(f"/jobs/{story}").text
    found = stages(page)
    assert found["select"][0] == "stopped"
    assert found["calibrate"] == ("skipped", "not needed"), "it had its turn"
    assert {found[name] for name in ("build", "verify", "compare", "publish")} == {
        ("unreached", "not reached")
    }
    assert re.search(r'role="alert">.*no space is left', page) and "Resume it once the reason is gone" in page


def test_a_stage_that_was_not_run_says_so_and_why(service, story):
    """As the tuner and the worker say it; the same facts are in the events of the API."""
    told = [
        Event("build", "compiling 2 micro-kernels"),
        not_run("verify", "there is no GPU of sm_90a here"),
        not_run("compare", "DIETCODE_SERVE_COMPARE is none", "not compared with a vendor's kernels"),
        Event("publish", "small@1"),
    ]
    with service.database.write() as session:
        for step in told:
            progress = Progress(stage=step.stage, message=step.message)
            jobs.add_progress(session, story, progress, step.data)
        jobs.finish(session, story, JobState.SUCCEEDED)
    page = service.client.get(f"/jobs/{story}").text
    found = stages(page)
    assert found["verify"] == found["compare"] == ("passed", "not run")
    assert {found[name][0] for name in ("seed", "measure", "select", "build", "publish")} == {"done"}
    reasons = re.findall(r'<p class="[^"]*not-run"><strong>(\w+)</strong> was not run: ([^<]*)\.</p>', page)
    assert reasons == [
        ("verify", "there is no GPU of sm_90a here"),
        ("compare", "DIETCODE_SERVE_COMPARE is none"),
    ]
    assert "verify: not run" in re.sub(r"<[^>]*>", "", page), "also for who listens"


def test_a_stage_that_ended_before_anything_was_done_was_not_run(service, story):
    with service.database.write() as session:
        jobs.add_progress(session, story, Progress(stage="compare", message="beside numpy"))
        ended = not_run("compare", "it was killed", "the comparison ended early")
        jobs.add_progress(session, story, Progress(stage="compare", message=ended.message), ended.data)
        jobs.finish(session, story, JobState.SUCCEEDED)
    page = service.client.get(f"/jobs/{story}").text
    assert stages(page)["compare"] == ("passed", "not run") and "was not run: it was killed." in page


def test_a_job_that_waits_says_for_what(service):
    page = service.client.get(f"/jobs/{service.add_job()}").text
    assert "no runner can measure" in page and "<code>dietcode worker</code>" in page
    assert 'href="/devices"' in page


def test_the_chart_leaves_out_the_time_when_nobody_worked(service, story):
    series = service.client.get(f"/jobs/{story}/series").json()
    assert [(p[1], p[2]) for p in series["points"]] == [(50.0, "seed"), (60.0, "measure")]
    seed, measure = (p[0] for p in series["points"])
    assert measure - seed == pytest.approx(10 + 3, abs=0.1)  # in the one attempt, and in the next
    page = service.client.get(f"/jobs/{story}").text
    assert "Best so far 60.0 GFLOP/s" in page and "the first was 50.0 GFLOP/s" in page
    assert re.search(r"<td[^>]*>60.0</td><td>measure</td><td>8x16: 60 GFLOP/s</td>", page)


def test_the_log_of_decisions(service, story):
    page = service.client.get(f"/jobs/{story}/log").text
    assert "Round 3" in page and "stopped: the trials of the budget are used up" in page
    assert "4x8 failed" in page and "9x16 pruned" in page and "2x48" in page
    assert "added for m=37, where padding leaves 57%" in page and "6x32" in page
    assert "interrupted" in page and "from the records" in page and "choosing" in page
    assert "MetaSchedule" not in page and "8x16: 60 GFLOP/s" not in page
    measured = service.client.get(f"/jobs/{story}/log?log=measurements").text
    assert "8x16: 60 GFLOP/s" in measured and "Round 3" not in measured and "interrupted" not in measured
    everything = service.client.get(f"/jobs/{story}/log?log=all").text
    assert everything.count("data-seq") == jobs_events(service, story)
    assert service.client.get(f"/jobs/{story}/log?log=odd").status_code == 422


def jobs_events(service, job_id: str) -> int:
    with service.database.read() as session:
        return jobs.get(session, job_id).num_events


def test_the_log_is_newest_first_in_pages(service):
    job_id = service.add_job()
    with service.database.write() as session:
        for step in range(120):
            jobs.add_progress(session, job_id, Progress(stage="build", message=f"step no {step}."))
    page = service.client.get(f"/jobs/{job_id}").text
    assert "step no 119." in page and "step no 70." in page and "step no 69." not in page
    older = re.search(r'hx-get="(/jobs/[^"]*before=[^"]*)"', page)[1].replace("&amp;", "&")
    part = service.client.get(older).text
    assert "step no 69." in part and "step no 20." in part
    assert "step no 70." not in part and "<html" not in part
    link = re.search(r'id="older" href="([^"]*)#log"', page)[1].replace("&amp;", "&")
    assert "step no 69." in service.client.get(link).text, "without scripts, too"
    last = re.search(r'hx-get="(/jobs/[^"]*before=[^"]*)"', part)[1].replace("&amp;", "&")
    assert 'id="older"' not in service.client.get(last).text


def test_only_what_is_new_is_asked_for(service):
    job_id = service.add_job()
    with service.database.write() as session:
        for step in range(3):
            jobs.add_progress(session, job_id, Progress(stage="build", message=f"step no {step}."))
        last = jobs.get(session, job_id).num_events
    part = service.client.get(f"/jobs/{job_id}/log?after={last - 1}").text
    assert "step no 2." in part and "step no 1." not in part
    assert service.client.get(f"/jobs/{job_id}/log?after={last}").text.strip() == ""


def test_the_live_part_brings_its_neighbours_along(service, story):
    part = service.client.get(f"/jobs/{story}/live").text
    assert part.startswith('<div id="state"') and 'data-state="running"' in part and "<html" not in part
    assert part.count('hx-swap-oob="true"') == 2
    page = service.client.get(f"/jobs/{story}").text
    assert "hx-swap-oob" not in page and f'data-events="{jobs_events(service, story)}"' in page
    assert f'hx-get="/jobs/{story}/live"' in page


def test_the_result_is_asked_for_once_there_is_one(service, story):
    page = service.client.get(f"/jobs/{story}").text
    section = re.search(r'<section id="result"[^>]*>', page)[0]
    assert f'hx-get="/jobs/{story}/result"' in section and 'hx-trigger="succeeded from:body"' in section
    with service.database.write() as session:
        jobs.finish(session, story, JobState.SUCCEEDED)
    page = service.client.get(f"/jobs/{story}").text
    assert 'hx-trigger="load, succeeded from:body"' in re.search(r'<section id="result"[^>]*>', page)[0]
    assert {status for status, _ in stages(page).values()} == {"done", "skipped"}


def test_the_spec_is_shown_as_yaml_unless_it_is_long(service, monkeypatch):
    from dietcode_server.dashboard import job as job_page

    job_id = service.add_job("as-yaml")
    page = service.client.get(f"/jobs/{job_id}").text
    assert "name: as-yaml" in page and "einsum: mk,nk-&gt;mn" in page
    monkeypatch.setattr(job_page, "MAX_SHOWN_CHARS", 10)
    page = service.client.get(f"/jobs/{job_id}").text
    assert "name: as-yaml" not in page and f'href="/api/v1/jobs/{job_id}"' in page


def test_a_long_job_takes_as_many_questions_as_a_short_one(service, story):
    """And its answer is as long: what a page shows of the events is put together by the database."""
    long_one = service.add_job()
    service.run_job(long_one)
    with service.database.write() as session:
        row = jobs.get(session, long_one)
        step = {"stage": "measure", "message": "8x16: 60 GFLOP/s", "best_gflops": 60.0}
        common = {"job_id": long_one, "kind": "progress", "message": step["message"], "at": row.created_at}
        numbers = range(row.num_events + 1, row.num_events + 3001)
        session.execute(
            insert(EventRow),
            [common | {"seq": n, "progress": step | {"done": n}, "data": {}} for n in numbers],
        )
        row.num_events = numbers[-1]
    asked: list[str] = []

    def note(*args: Any) -> None:
        asked.append(args[2])

    counts = []
    event.listen(service.database.engine, "before_cursor_execute", note)
    try:
        for job_id in (story, long_one):
            asked.clear()
            pages = [service.client.get(f"/jobs/{job_id}{part}") for part in ("", "/live", "/log", "/series")]
            counts.append(len(asked))
            assert sum(len(page.content) for page in pages) < 60_000
    finally:
        event.remove(service.database.engine, "before_cursor_execute", note)
    assert 8 <= counts[0] == counts[1] <= 40
