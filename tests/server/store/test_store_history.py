"""What a job's events tell when they are put together, on both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from store_helpers import submit

from dietcode.errors import RequestError
from dietcode.protocol import JobState, Progress
from dietcode_server.store import history, jobs
from dietcode_server.store.subjects import utc_now

ROUND = {"number": 1, "measured": ["8x16"], "pruned": [], "failed": []}


@pytest.fixture
def story(database) -> str:
    """Two attempts with an hour between them."""
    start = utc_now()
    with database.write() as session:
        row, _ = submit(session, now=start)
        job_id = row.id

        def at(secs: float) -> Any:
            return start + timedelta(seconds=secs)

        def tell(secs: float, stage: str, message: str, best: float | None = None, **data: Any) -> None:
            step = Progress(stage=stage, message=message, done=1, total=2, best_gflops=best)
            jobs.add_progress(session, job_id, step, data, now=at(secs))

        assert jobs.claim(session, job_id, "me", now=at(10))
        tell(11, "seed", "searching")
        tell(15, "seed", "searching", 40.0)
        last = Progress(stage="seed", message="searching", done=2, total=2, best_gflops=40.0, secs_left=1.0)
        jobs.add_progress(session, job_id, last, now=at(16))
        jobs.finish(session, job_id, JobState.INTERRUPTED, now=at(20))
        jobs.resume(session, job_id, now=at(3600))
        assert jobs.claim(session, job_id, "me", now=at(3610))
        tell(3612, "measure", "8x16: 50 GFLOP/s", 50.0, gflops=50.0)
        tell(3613, "measure", "9x16: 45 GFLOP/s", 50.0, gflops=45.0)
        tell(3614, "measure", "round 1; measured 2", None, **ROUND)
        tell(3620, "select", "choosing", 50.0)
    return job_id


def test_steps_leave_out_what_repeats_and_count_the_time_of_workers(database, story):
    with database.read() as session:
        told = history.history_of(session, story).timeline
    assert [(s.name, s.is_state, s.attempt, round(s.worked_secs)) for s in told] == [
        ("queued", True, 0, 0),
        ("running", True, 1, 0),
        ("seed", False, 1, 1),
        ("interrupted", True, 1, 10),
        ("queued", True, 1, 10),
        ("running", True, 2, 10),
        ("measure", False, 2, 12),
        ("select", False, 2, 20),
    ]
    first = told[0].at
    for secs, worked in ((5, 0), (15, 5), (100, 10), (3615, 15), (3630, 30)):
        assert round(history.worked_secs_at(told, first + timedelta(seconds=secs))) == worked


def test_the_best_throughput_where_it_changes(database, story):
    with database.read() as session:
        points = history.history_of(session, story).points
    assert [(round(p.worked_secs), p.gflops, p.stage, p.message) for p in points] == [
        (5, 40.0, "seed", "searching"),
        (12, 50.0, "measure", "8x16: 50 GFLOP/s"),
    ]


def test_each_trial_is_a_point(database, story):
    with database.read() as session:
        trials = history.trials_of(session, story, history.history_of(session, story).timeline)
    assert [(round(t.worked_secs), t.gflops, t.message) for t in trials] == [
        (12, 50.0, "8x16: 50 GFLOP/s"),
        (13, 45.0, "9x16: 45 GFLOP/s"),
    ]


def test_views_of_the_log(database, story):
    with database.read() as session:

        def messages(view: Any, **given: Any) -> list[str]:
            return [event.message or event.state for event in history.log(session, story, view, **given)[0]]

        assert messages("decisions") == [
            "choosing",
            "round 1; measured 2",
            "running",
            "resumed",
            "interrupted",
            "running",
            "queued",
        ]
        assert messages("measurements") == ["9x16: 45 GFLOP/s", "8x16: 50 GFLOP/s"]
        assert len(messages("all")) == 12
        assert messages("decisions", after=10) == ["choosing", "round 1; measured 2"]
        assert messages("decisions", before=3) == ["running", "queued"]
        _, older = history.log(session, story, "all", limit=11)
        _, oldest = history.log(session, story, "all", limit=12)
        assert older and not oldest


@pytest.mark.parametrize("given", [{"view": "odd"}, {"limit": 0}, {"limit": history.MAX_LOG + 1}])
def test_what_no_log_takes(database, given):
    with database.read() as session, pytest.raises(RequestError, match="allowed"):
        history.log(session, "none", **given)


def test_no_such_job_has_no_history(database):
    with database.read() as session:
        for job_id in ("0123456789abcdef", "none\0"):
            assert history.history_of(session, job_id) == history.History([], [])
            assert history.log(session, job_id) == ([], False)
