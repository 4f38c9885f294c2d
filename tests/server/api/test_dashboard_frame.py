"""What every page of the dashboard keeps to: escaping, its policy, errors, who may change something."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from small_libraries import library_bytes, spec_data
from sqlalchemy import update

from dietcode.protocol import JobState, Progress
from dietcode_server.store import jobs, libraries, tokens
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

HOSTILE = "<script>alert('x')</script>\"&'>{{ 7*7 }}`<b>`"
ORIGIN = "http://127.0.0.1:8000"
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ALL = ("read", "submit", "publish")


@pytest.fixture
def hostile(service) -> str:
    """A job whose name, error, messages and decisions try to become markup."""
    job_id = service.add_job()
    service.run_job(job_id)
    evil = Progress(stage=HOSTILE, message=HOSTILE, done=1, total=2, best_gflops=3.0)
    grown = {"shape": {HOSTILE: 1}, "cause": HOSTILE, "served": 0.5, "micro_kernels": [HOSTILE]}
    facts = {"number": 1, "measured": [HOSTILE], "pruned": [], "failed": [], "dropped": [HOSTILE]}
    with service.database.write() as session:
        jobs.add_progress(session, job_id, evil)
        jobs.add_progress(session, job_id, evil, facts | {"expansions": [grown]})
        jobs.finish(session, job_id, JobState.FAILED, error=HOSTILE)
        changes = {"name": HOSTILE, "spec": spec_data() | {"name": HOSTILE}, "target": {"mcpu": HOSTILE}}
        session.execute(update(JobRow).where(JobRow.id == job_id).values(**changes))
    return job_id


def paths_of(job_id: str) -> tuple[str, ...]:
    return ("/", f"/jobs/{job_id}", *(f"/jobs/{job_id}/{part}" for part in ("live", "log?log=all")))


def test_pages_escape_everything(service, hostile):
    with service.database.write() as session:
        libraries.publish(session, job=None, device_name=HOSTILE, files=library_bytes("dense"))
    for path in paths_of(hostile):
        page = service.client.get(path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "&lt;script&gt;alert(" in page.text
        assert "<script>" not in page.text and "<b>" not in page.text
        assert "alert('x')" not in page.text
        assert "{{ 7*7 }}" in page.text
    series = service.client.get(f"/jobs/{hostile}/series")
    assert series.headers["content-type"] == "application/json" and HOSTILE in series.json()["points"][0]


def test_what_a_reader_types_is_escaped(client):
    page = client.get("/", params={"q": HOSTILE, "owner": HOSTILE})
    assert page.status_code == 200
    assert "<script>" not in page.text and "alert('x')" not in page.text and "No job fits" in page.text


def test_pages_load_nothing_from_elsewhere_and_nothing_inline(client, hostile):
    for path in (*paths_of(hostile)[:2], "/nowhere"):
        page = client.get(path, headers=BROWSER)
        policy = page.headers["content-security-policy"]
        assert (
            "default-src 'none'" in policy and "style-src 'self'" in policy and "script-src 'self'" in policy
        )
        assert "unsafe" not in policy
        for outside in ("http://", "https://", "//", "style=", "onclick", "javascript:", "hx-on"):
            assert outside not in page.text.replace("<!doctype html>", ""), outside
        loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
        assert len(loaded) >= 4 and page.text.count("<script") == sum(name.endswith(".js") for name in loaded)
        for name in loaded:
            found = client.get(name)
            assert found.status_code == 200 and "immutable" in found.headers["cache-control"]
            assert found.headers["content-encoding"] == "gzip"
            if name.endswith(".css"):
                assert found.headers["content-type"].startswith("text/css") and "url(" not in found.text


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/jobs/none", 404, "no such job"),
        ("/jobs/0123456789abcdef", 404, "no such job"),
        ("/jobs/0123456789abcdef/live", 404, "no such job"),
        ("/nowhere", 404, "no such route"),
        ("/?state=odd", 422, "given &#39;odd&#39;"),
        ("/?cursor=none", 422, "cursor: given"),
        ("/?q=" + "x" * 200, 422, "q: given"),
    ],
)
def test_errors_of_pages_are_pages(client, problem, path, status, says):
    page = client.get(path, headers=BROWSER)
    assert page.status_code == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert says in page.text and "<h1>" in page.text and 'href="/"' in page.text
    assert page.headers.get_list("content-security-policy") == [page.headers["content-security-policy"]]
    assert "style-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["cache-control"] == "no-store"
    assert int(page.headers["content-length"]) == len(page.content)
    # A program, and a script of a page, get the problem document.
    for headers in ({}, BROWSER | {"hx-request": "true"}, {"accept": "application/json"}):
        assert client.get(path, headers=headers).headers["content-type"] == "application/problem+json"


def test_errors_of_the_api_stay_problem_documents(client, problem):
    problem(client.get("/api/v1/jobs/none", headers=BROWSER), 404, "not-found")


def test_a_failing_page_says_no_more_than_the_api(service, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(jobs, "get", fail)
    page = service.client.get("/jobs/0123456789abcdef", headers=BROWSER)
    assert page.status_code == 500 and "<h1>" in page.text and "a secret" not in page.text
    assert page.headers["x-content-type-options"] == "nosniff"


# Who may change something


@pytest.fixture(scope="module")
def closed(tmp_path_factory, service) -> Iterator[Any]:
    """A service that asks for tokens, also under a name that a proxy has."""
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('closed')}/dietcode.db")
    database.upgrade()
    made = replace(service, database=database)
    basic(made, "somebody", *ALL)
    yield made
    database.dispose()


def basic(service, owner: str, *scopes: str) -> dict[str, str]:
    """What a browser sends that was given a new token as password."""
    with service.database.write() as session:
        _, token = tokens.create(session, owner, scopes, timedelta(days=1))
    return {"authorization": "Basic " + base64.b64encode(f"me:{token}".encode()).decode()}


def job_of(service, owner: str) -> str:
    job_id = service.add_job()
    with service.database.write() as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(owner=owner))
    return job_id


def test_a_page_asks_for_the_password(closed):
    page = closed.client.get("/jobs/0123456789abcdef", headers=BROWSER)
    assert page.status_code == 401 and "<h1>" in page.text
    assert page.headers["www-authenticate"].startswith("Basic ")
    assert closed.client.get(re.findall(r'href="(/static/[^"]+css)"', page.text)[0]).status_code == 200


def test_what_a_live_page_asks_for_opens_no_prompt(closed):
    for headers in (BROWSER | {"hx-request": "true"}, {"accept": "application/json"}):
        for path in ("/", "/jobs/0123456789abcdef/live"):
            answer = closed.client.get(path, headers=headers)
            assert answer.status_code == 401 and "Basic" not in answer.headers["www-authenticate"]


def test_a_button_of_an_own_page_works(closed):
    headers = basic(closed, "alice", *ALL) | {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    cancel = f"/api/v1/jobs/{job_of(closed, 'alice')}/cancel"
    assert closed.client.post(cancel, headers=headers | {"origin": ORIGIN}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),  # no browser leaves it out where a page writes
        ({"sec-fetch-site": "none"}, 401),
        ({"origin": "null"}, 403),  # of a sandboxed frame, or a file
        ({"origin": ""}, 403),
        ({"origin": "http://127.0.0.1:8001"}, 403),
        ({"origin": "http://localhost:8000"}, 403),
        ({"origin": "https://127.0.0.1:8000"}, 403),
        ({"origin": "http://127.0.0.1:8000.evil.example"}, 403),
        ({"origin": "http://evil.example", "host": "127.0.0.1:8000"}, 403),
        ({"origin": ORIGIN, "sec-fetch-site": "cross-site"}, 403),
        ({"origin": ORIGIN, "sec-fetch-site": "same-site"}, 403),
        ({"origin": ORIGIN, "host": "evil.example"}, 421),
        ({"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}, 415),
        ({"origin": ORIGIN, "content-type": "text/plain"}, 415),
    ],
)
def test_other_pages_change_nothing(closed, headers, status):
    """By a form or a script, though the browser adds the password that it knows."""
    job_id = job_of(closed, "alice")
    known = basic(closed, "alice", *ALL)
    answer = closed.client.post(f"/api/v1/jobs/{job_id}/cancel", headers=known | headers)
    assert answer.status_code == status
    assert closed.client.get(f"/api/v1/jobs/{job_id}", headers=known).json()["state"] == "waiting_for_runner"


def test_two_origins_are_no_own_one(closed):
    cancel = f"/api/v1/jobs/{job_of(closed, 'alice')}/cancel"
    both = [*basic(closed, "alice", *ALL).items(), ("origin", ORIGIN), ("origin", "http://evil.example")]
    assert closed.client.post(cancel, headers=both).status_code == 403


def test_buttons_work_behind_a_proxy_that_speaks_tls(closed):
    """It passes `Host` on, and the browser's Origin has the scheme that the proxy speaks."""
    known = basic(closed, "alice", *ALL) | {"host": "lab.example"}
    for origin, status in (
        ("https://lab.example", 200),
        ("http://lab.example", 200),
        ("https://lab.example:444", 403),
        ("ftp://lab.example", 403),
        ("https://other.example", 403),
    ):
        cancel = f"/api/v1/jobs/{job_of(closed, 'alice')}/cancel"
        assert closed.client.post(cancel, headers=known | {"origin": origin}).status_code == status, origin


@pytest.mark.parametrize(
    ("owner", "scopes", "reason"),
    [
        ("alice", ("read",), "needs a token with submit; yours has read"),
        ("bob", ALL, "belongs to alice; only its owner or an admin steers it"),
        ("alice", ALL, None),
        ("root", ("admin",), None),
    ],
)
def test_buttons_that_a_caller_may_not_use_say_why(closed, owner, scopes, reason):
    job_id = job_of(closed, "alice")
    known = basic(closed, owner, *scopes)
    for path in ("/?owner=alice", f"/jobs/{job_id}"):
        page = closed.client.get(path, headers=known).text
        button = re.search(rf'<button[^>]*data-post="/api/v1/jobs/{job_id}/cancel"[^>]*>', page)[0]
        assert ('aria-disabled="true"' in button) == (reason is not None)
        assert reason is None or f'title="{reason}"' in button
    answer = closed.client.post(f"/api/v1/jobs/{job_id}/cancel", headers=known | {"origin": ORIGIN})
    assert answer.status_code == (200 if reason is None else 403)
