"""Leases: who holds a job until when, what happens where they run out, and in which order jobs begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_helpers import ALL, C, F, I, Q, R, W, job, job_in, states, submit
from store_records import DEVICE, micro_kernel

from dietcode.errors import NotFoundError, RecordsError, RequestError
from dietcode.protocol import JobState, Progress
from dietcode_server.store import jobs, leases
from dietcode_server.store.database import ConnectionLostError, Database
from dietcode_server.store.leases import LEASE_SECS, LeaseLostError
from dietcode_server.store.patience import patiently
from dietcode_server.store.records import SqlRecords
from dietcode_server.store.tables import JobRow

STEP = Progress(stage="measure", message="")


def row(database: Database, job_id: str) -> JobRow:
    with database.read() as session:
        found = jobs.get(session, job_id)
        session.expunge(found)
        return found


def claimed(database: Database, ago_secs: float, runner: str = "me") -> str:
    """A job that was claimed so long ago."""
    job_id = job_in(database, Q)
    with database.write() as session:
        at = leases.clock(session) - timedelta(seconds=ago_secs)
        assert jobs.claim(session, job_id, runner, now=at)
    return job_id


def test_a_heartbeat_prolongs_the_lease(database: Database) -> None:
    job_id = claimed(database, 10.0)
    first = row(database, job_id).leased_until
    with database.write() as session:
        now = leases.clock(session)
        assert jobs.heartbeat(session, job_id, "me", lease_secs=60.0, now=now)
    assert first is not None and first < now + timedelta(seconds=LEASE_SECS)
    assert row(database, job_id).leased_until == now + timedelta(seconds=60)


def test_owners_take_turns_whoever_submitted_most(database: Database) -> None:
    with database.write() as session:
        many = [submit(session, f"many{n}", owner="alice")[0].id for n in range(4)]
        few = [submit(session, f"few{n}", owner="bob")[0].id for n in range(2)]
        urgent = submit(session, "urgent", owner="alice", priority=5)[0].id
    began = []
    for turn in range(7):
        with database.write() as session:
            now = leases.clock(session) + timedelta(seconds=turn)
            found = leases.reserve(session, f"host/{turn}/1.00", 3600.0, now=now)
            assert found is not None
            began.append(found)
    assert began == [urgent, few[0], many[0], few[1], many[1], many[2], many[3]]


def test_a_claim_is_a_turn_too(database: Database) -> None:
    with database.write() as session:
        first, second = (submit(session, f"a{n}", owner="alice")[0].id for n in range(2))
        other = submit(session, "b", owner="bob")[0].id
    with database.write() as session:
        assert jobs.claim(session, first, "me")
    with database.read() as session:
        found = jobs.next_queued(session)
        assert found is not None and found.id == other != second


def test_who_holds_an_expired_lease_has_lost_the_job(database: Database) -> None:
    """Nothing that it writes is taken any more, although nobody else has the job yet."""
    job_id = claimed(database, LEASE_SECS + 1)
    was, events = job(database, job_id), states(database, job_id)
    store = SqlRecords(database, was.workload, DEVICE, spec={}, job_id=job_id, attempt=1, runner="me")
    with database.write() as session:
        assert not jobs.heartbeat(session, job_id, "me")
        assert not jobs.finish(session, job_id, F, error="too late", runner="me")
    with pytest.raises(LeaseLostError, match="has run out"), database.write() as session:
        jobs.add_progress(session, job_id, STEP, runner="me")
    for call in (lambda: store.append(micro_kernel(1)), store.clear):
        with pytest.raises(RecordsError, match="has run out") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert (job(database, job_id), states(database, job_id)) == (was, events)
    assert not SqlRecords(database, was.workload, DEVICE, spec={}).records.measurements


def test_another_holds_it_by_then(database: Database) -> None:
    job_id = claimed(database, LEASE_SECS + 1, "old")
    with database.write() as session:
        assert jobs_lost(session, job_id, "old", retry_secs=0.0)
        assert jobs.claim(session, job_id, "new")
        assert not jobs_lost(session, job_id, "old")
        assert not jobs.heartbeat(session, job_id, "old") and jobs.heartbeat(session, job_id, "new")
        with pytest.raises(LeaseLostError):
            leases.require(session, job_id, "old")
        assert leases.require(session, job_id, "new").attempt == 2
        with pytest.raises(NotFoundError):
            leases.require(session, "0" * 16, "new")
    workload = job(database, job_id).workload
    new = SqlRecords(database, workload, DEVICE, spec={}, job_id=job_id, attempt=2, runner="new")
    new.append(micro_kernel(1))
    assert job(database, job_id).measured == 1


def jobs_lost(session: Any, job_id: str, runner: str, **options: Any) -> bool:
    return leases.lost(session, job_id, runner, "its worker died", **options)


def test_a_lost_job_waits_longer_each_time_until_its_attempts_are_used_up(database: Database) -> None:
    job_id = job_in(database, Q)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for number, delay in enumerate((5, 10, 20), 1):
        with database.write() as session:
            assert jobs.claim(session, job_id, "me", now=now)
            assert jobs_lost(session, job_id, "me", max_attempts=4, now=now)
            later = now + timedelta(seconds=delay)
            assert jobs.next_queued(session, now=later - timedelta(seconds=1)) is None
            found = jobs.next_queued(session, now=later)
            assert found is not None and (found.id, found.num_lost, found.error) == (job_id, number, None)
        message = f"its worker died; attempt {number + 1} of 4 begins in {delay} s"
        assert states(database, job_id)[-1] == (Q, message)
        now = later
    with database.write() as session:
        assert jobs.claim(session, job_id, "me", now=now)
        assert jobs_lost(session, job_id, "me", max_attempts=4, now=now)
    assert job(database, job_id).state == I
    assert job(database, job_id).error == f"its worker died; `dietcode resume {job_id}` goes on"
    with database.write() as session:
        jobs.resume(session, job_id)
        assert jobs.claim(session, job_id, "me", now=now)
        assert jobs_lost(session, job_id, "me", max_attempts=4, now=now)
    assert (row(database, job_id).num_lost, job(database, job_id).state) == (1, Q)
    with database.write() as session:
        jobs.resume(session, job_id)  # begins at once
        assert jobs.next_queued(session, now=now) is not None


@pytest.mark.parametrize("before", ALL)
def test_only_a_running_job_is_lost(database: Database, before: JobState) -> None:
    job_id = job_in(database, before)
    with database.write() as session:
        assert not jobs_lost(session, job_id, "another")
        assert jobs_lost(session, job_id, "me") == (before == R)
    assert job(database, job_id).state == (Q if before == R else before)


def test_a_lost_job_that_was_to_be_cancelled_is_cancelled(database: Database) -> None:
    job_id = job_in(database, R)
    with database.write() as session:
        jobs.request_cancel(session, job_id)
        assert jobs_lost(session, job_id, "me")
    assert (job(database, job_id).state, job(database, job_id).error) == (C, None)


def test_the_highest_priority_is_next_then_the_oldest(database: Database) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with database.write() as session:
        for name, priority in {"low": -100, "first": 0, "second": 0, "high": 100}.items():
            at += timedelta(seconds=1)
            submit(session, name, priority=priority, now=at)
        names = []
        while (found := jobs.next_queued(session)) is not None:
            names.append(found.name)
            assert jobs.claim(session, found.id, "me")
    assert names == ["high", "first", "second", "low"]


def test_jobs_for_other_devices_are_passed_over(database: Database) -> None:
    with database.write() as session:
        submit(session, "there", device=("d2", "another", {}), priority=5)
        here, _ = submit(session, "here")
        found = jobs.next_queued(session, not_for=["d2"])
        assert found is not None and found.id == here.id
        assert jobs.next_queued(session, not_for=["d2", "cpu0"]) is None


@pytest.mark.parametrize(
    "wrong", [{"priority": 101}, {"priority": -101}, {"deadline": timedelta(0)}, {"deadline": "past"}]
)
def test_what_cannot_be_asked_for(database: Database, wrong: dict[str, Any]) -> None:
    wrong = {
        key: datetime(2020, 1, 1, tzinfo=UTC) if value == "past" else value for key, value in wrong.items()
    }
    with pytest.raises(RequestError, match="allowed: ") as caught, database.write() as session:
        submit(session, **wrong)
    assert "\n" not in str(caught.value)
    with database.read() as session:
        assert jobs.list_jobs(session) == ([], None)


@pytest.mark.parametrize("state", ALL)
def test_a_deadline_that_passes(database: Database, state: JobState) -> None:
    now = datetime.now(UTC)
    with database.write() as session:
        made, _ = submit(session, deadline=timedelta(seconds=60), runnable=state != W, now=now)
        if state not in {Q, W}:
            jobs.claim(session, made.id, "me")
        if state not in {Q, W, R}:
            jobs.finish(session, made.id, state)
    assert job(database, made.id).deadline_at == now + timedelta(seconds=60)
    with database.write() as session:
        assert not leases.has_overdue(session, now) and leases.fail_overdue(session, now=now) == []
        later = now + timedelta(seconds=61)
        assert leases.has_overdue(session, later) == (state in {Q, W})
        assert leases.fail_overdue(session, now=later) == ([made.id] if state in {Q, W} else [])
        jobs_lost(session, made.id, "me", now=later)
    after = job(database, made.id)
    assert after.state == (F if state in {Q, W, R} else state)
    if state in {Q, W, R}:
        assert (
            after.error is not None and ("before it began" if state != R else "while it ran") in after.error
        )
        with database.write() as session:
            jobs.resume(session, made.id)
        assert (job(database, made.id).state, job(database, made.id).deadline_at) == (Q, None)


def test_a_lost_connection_is_tried_again(database: Database) -> None:
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        if len(tries) < 4:
            raise ConnectionLostError("gone")
        return "done"

    assert patiently(work) == "done" and len(tries) == 4
    with pytest.raises(ConnectionLostError, match="gone"):
        patiently(lambda: (_ for _ in ()).throw(ConnectionLostError("gone")), secs=0.2)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_connections_that_are_cut(database: Database, url: str, request: pytest.FixtureRequest) -> None:
    """In the middle of a transaction it is an error that says so; between two it is no error at all."""
    postgres = request.getfixturevalue("postgres")
    job_id = job_in(database, R)
    with pytest.raises(ConnectionLostError) as caught, database.write() as session:
        jobs.heartbeat(session, job_id, "me")
        postgres.cut(url)
        jobs.heartbeat(session, job_id, "me")
    assert "\n" not in str(caught.value) and "postgres:***@" in str(caught.value)
    store = SqlRecords(database, "sha256:" + "01" * 32, DEVICE, spec={}, job_id=job_id, runner="me")
    for rows in range(1, 6):
        assert postgres.cut(url) > 0
        store.append(micro_kernel(rows))
    assert job(database, job_id).measured == 5


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_commit_that_was_not_heard_of_is_not_repeated(
    database: Database, url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the transaction was committed: the row is there, once."""
    job_id = job_in(database, R)
    store = SqlRecords(database, "sha256:" + "01" * 32, DEVICE, spec={}, job_id=job_id, runner="me")
    real, broken = store._store, []

    def store_and_break(columns: dict[str, Any], again: bool) -> None:
        real(columns, again)
        if not broken:
            broken.append(True)
            raise ConnectionLostError("gone")

    monkeypatch.setattr(store, "_store", store_and_break)
    store.append(micro_kernel(1))
    store.append(micro_kernel(1, num_readings=5))
    store.append(micro_kernel(2))
    assert job(database, job_id).measured == 2
    again = SqlRecords(database, "sha256:" + "01" * 32, DEVICE, spec={})
    assert again.records == store.records
