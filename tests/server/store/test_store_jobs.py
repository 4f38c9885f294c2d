"""Jobs: every change of state, claims and events."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_helpers import ALL, C, F, I, Q, R, S, W, go, job, job_in, start, states, submit

from dietcode.errors import ConflictError, NotFoundError
from dietcode.protocol import FINAL_STATES, JobState, Progress
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, libraries, wire
from dietcode_server.store.database import Database


@pytest.mark.parametrize("job_id", ["", "0123456789abcdef", "x" * 10_000, "'; DROP TABLE jobs", "\x00"])
def test_no_such_job(database: Database, job_id: str) -> None:
    calls: list[Any] = [
        lambda session: jobs.get(session, job_id),
        lambda session: jobs.request_cancel(session, job_id),
        lambda session: jobs.resume(session, job_id),
        lambda session: jobs.finish(session, job_id, F),
        lambda session: jobs.add_progress(session, job_id, Progress(stage="seed", message="")),
    ]
    for call in calls:
        with (
            pytest.raises(NotFoundError, match=r"no such job; `dietcode jobs` lists them") as caught,
            database.write() as session,
        ):
            call(session)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    with database.write() as session:
        assert not jobs.claim(session, job_id, "me")
        assert not jobs.heartbeat(session, job_id, "me")
        assert job_events.events_after(session, job_id, 0) == []


CANCEL = {Q: C, W: C, I: C, R: R, C: C, S: ConflictError, F: ConflictError}
RESUME = {I: Q, F: Q, C: Q, Q: Q, R: R, W: Q, S: ConflictError}
RESUME_WITHOUT_RUNNER = RESUME | {I: W, F: W, C: W, W: W}


@pytest.mark.sampled(keep=16)
@pytest.mark.parametrize("before", ALL)
@pytest.mark.parametrize(
    ("call", "table"),
    [
        (jobs.request_cancel, CANCEL),
        (jobs.resume, RESUME),
        (lambda session, job_id: jobs.resume(session, job_id, runnable=False), RESUME_WITHOUT_RUNNER),
    ],
    ids=["cancel", "resume", "resume without a runner"],
)
def test_what_people_ask_for(
    database: Database, call: Any, table: dict[JobState, Any], before: JobState
) -> None:
    job_id = job_in(database, before)
    was, events = job(database, job_id), states(database, job_id)
    after = table[before]
    if after is ConflictError:
        with (
            pytest.raises(ConflictError, match=rf"{job_id}.* has {before.value} already;"),
            database.write() as session,
        ):
            call(session, job_id)
        assert (job(database, job_id), states(database, job_id)) == (was, events)
        return
    with database.write() as session:
        row = call(session, job_id)
    now = job(database, job_id)
    assert row.state == after.value == now.state.value
    if after == before:
        changed = (
            {"cancel_requested": True, "updated_at": now.updated_at} if call is jobs.request_cancel else {}
        )
        assert now == was.model_copy(update=changed if before == R else {})
        assert states(database, job_id) == events
        return
    said = "resumed" if call is not jobs.request_cancel else ""
    if after == W:
        said += f"; {now.waits_for}"
    assert states(database, job_id) == [
        *events,
        (after, said),
    ]
    assert (now.finished_at is not None) == (after in FINAL_STATES)
    assert now.error is None and not now.cancel_requested
    assert (now.attempt, now.started_at) == (was.attempt, was.started_at)


@pytest.mark.parametrize("before", ALL)
def test_a_claim(database: Database, before: JobState) -> None:
    job_id = job_in(database, before)
    was, events = job(database, job_id), states(database, job_id)
    now = datetime.now(UTC)
    with database.write() as session:
        claimed = jobs.claim(session, job_id, "host/1/2", now=now)
    assert claimed == (before == Q)
    if not claimed:
        assert (job(database, job_id), states(database, job_id)) == (was, events)
        return
    after = job(database, job_id)
    assert (after.state, after.attempt, after.started_at, after.updated_at) == (R, 1, now, now)
    assert states(database, job_id) == [*events, (R, "")]
    with database.read() as session:
        row = jobs.get(session, job_id)
        assert (row.runner, row.heartbeat_at) == ("host/1/2", now)


@pytest.mark.sampled(keep=24)
@pytest.mark.parametrize("before", ALL)
@pytest.mark.parametrize("after", ALL)
def test_the_end_of_a_run(database: Database, before: JobState, after: JobState) -> None:
    job_id = job_in(database, before)
    was, events = job(database, job_id), states(database, job_id)
    now = datetime.now(UTC)
    if after == R:
        with pytest.raises(ValueError, match="cannot end"), database.write() as session:
            jobs.finish(session, job_id, after)
        return
    with database.write() as session:
        applied = jobs.finish(session, job_id, after, error="a\nreason", now=now)
    assert applied == (before == R)
    if not applied:
        assert (job(database, job_id), states(database, job_id)) == (was, events)
        return
    is_now = job(database, job_id)
    assert is_now.state == after
    assert is_now.finished_at == (now if after in FINAL_STATES else None)
    assert is_now.error == (None if after in {Q, W} else "a reason")
    said = f"a reason; {is_now.waits_for}" if after == W else "a reason"
    assert states(database, job_id) == [*events, (after, said)]
    with database.read() as session:
        assert jobs.get(session, job_id).runner is None
        assert jobs.running(session) == []


@pytest.mark.parametrize("runner", ["another", ""])
def test_only_the_runner_that_holds_a_job_ends_it(database: Database, runner: str) -> None:
    job_id = job_in(database, R)
    with database.write() as session:
        assert not jobs.finish(session, job_id, F, runner=runner)
        assert not jobs.heartbeat(session, job_id, runner)
        assert jobs.get(session, job_id).state == "running"
        assert jobs.finish(session, job_id, F, runner="me")
        assert not jobs.heartbeat(session, job_id, "me")


@pytest.mark.parametrize(("after", "becomes"), [(Q, C), (W, C), (I, C), (C, C), (S, S), (F, F)])
def test_a_cancel_that_was_asked_for_is_kept(database: Database, after: JobState, becomes: JobState) -> None:
    job_id = job_in(database, R)
    with database.write() as session:
        jobs.request_cancel(session, job_id)
        jobs.request_cancel(session, job_id)
        assert not jobs.heartbeat(session, job_id, "me")
        assert jobs.finish(session, job_id, after, error="its worker died")
    ended = job(database, job_id)
    assert (ended.state, ended.finished_at is not None) == (becomes, True)
    assert ended.error == (None if becomes == C and after != C else "its worker died")
    assert [state for state, _ in states(database, job_id)] == [Q, R, becomes]


def test_a_heartbeat(database: Database) -> None:
    job_id = job_in(database, R)
    was = job(database, job_id)
    now = datetime.now(UTC) + timedelta(seconds=5)
    with database.write() as session:
        assert jobs.heartbeat(session, job_id, "me", now=now)
    with database.read() as session:
        assert jobs.get(session, job_id).heartbeat_at == now
    assert job(database, job_id) == was  # nothing that people see


def test_a_second_attempt(database: Database) -> None:
    job_id = job_in(database, I)
    first = job(database, job_id)
    with database.write() as session:
        jobs.resume(session, job_id)
        assert jobs.claim(session, job_id, "another")
        assert jobs.finish(session, job_id, Q)  # handed back
        assert jobs.claim(session, job_id, "a third")
    now = job(database, job_id)
    assert (now.attempt, now.started_at) == (3, first.started_at)
    assert [state for state, _ in states(database, job_id)] == [Q, R, I, Q, R, Q, R]


def test_the_library_of_a_job(database: Database) -> None:
    from store_helpers import library_files

    job_id = job_in(database, R)
    with database.write() as session:
        row = jobs.get(session, job_id)
        library = libraries.publish(session, job=row, device_name="cpu", files=library_files("dense"))
        assert jobs.finish(session, job_id, S, library_id=library.id)
    made = job(database, job_id)
    assert made.library is not None and made.library.model_dump() == {"name": "dense", "version": 1}


def test_progress(database: Database) -> None:
    job_id = job_in(database, R)
    steps = [
        Progress(stage="measure", message=f"{n} of 3", done=n, total=3, best_gflops=n / 3) for n in (1, 2)
    ]
    with database.write() as session:
        jobs.add_progress(session, job_id, steps[0], {"micro_kernel": "4x32"})
        jobs.add_progress(session, job_id, steps[1])
        job_events.count_measured(session, job_id)
    now = job(database, job_id)
    assert (now.progress, now.measured, now.state) == (steps[1], 1, R)
    with database.read() as session:
        events = [wire.event_to_wire(row) for row in job_events.events_after(session, job_id, 2)]
    assert [(e.id, e.kind, e.progress, e.state, e.message, e.data) for e in events] == [
        (3, "progress", steps[0], None, "1 of 3", {"micro_kernel": "4x32"}),
        (4, "progress", steps[1], None, "2 of 3", {}),
    ]


def test_events_after_a_number_and_at_most_so_many(database: Database) -> None:
    job_id, other = job_in(database, R), job_in(database, R)
    with database.write() as session:
        for done in range(5):
            jobs.add_progress(session, job_id, Progress(stage="seed", message="", done=done))
    with database.read() as session:
        assert [row.seq for row in job_events.events_after(session, job_id, 3)] == [4, 5, 6, 7]
        assert [row.seq for row in job_events.events_after(session, job_id, 3, limit=2)] == [4, 5]
        assert job_events.events_after(session, job_id, 7) == []
        assert [row.seq for row in job_events.events_after(session, other, 0)] == [1, 2]


def test_the_oldest_of_the_queue_is_next(database: Database) -> None:
    start_at = datetime(2026, 1, 1, tzinfo=UTC)
    with database.write() as session:
        ids = [submit(session, force=True, now=start_at - timedelta(days=n))[0].id for n in range(3)]
        order = []
        while (row := jobs.next_queued(session)) is not None:
            order.append(row.id)
            assert jobs.claim(session, row.id, f"runner {row.id}")
        assert order == ids[::-1]
        assert [row.id for row in jobs.running(session)] == ids[::-1]


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
def test_two_processes_claim_the_same_jobs(database: Database, url: str) -> None:
    ids = [job_in(database, Q) for _ in range(40)]
    first, second = go(*(start("claim", url, runner, *ids) for runner in ("first", "second")))
    assert sorted(first + second) == sorted(ids)  # each by one of them
    with database.read() as session:
        for row in jobs.running(session):
            assert row.id in (first if row.runner == "first" else second)
            assert row.attempt == 1
    assert all([state for state, _ in states(database, job_id)] == [Q, R] for job_id in ids)


def test_threads_claim_the_same_job(database: Database) -> None:
    job_id = job_in(database, Q)
    begin = threading.Barrier(8)

    def claim(index: int) -> bool:
        begin.wait(timeout=10)
        with database.write() as session:
            return jobs.claim(session, job_id, f"thread {index}")

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claim, range(8))) == 1
