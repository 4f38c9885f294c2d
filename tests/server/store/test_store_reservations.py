"""A queued job that a supervisor reserved: nobody else begins with it, and nobody else sees a difference."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from how_many import examples
from hypothesis import HealthCheck, given, settings
from sqlalchemy.orm import Session
from store_helpers import C, F, Q, R, job, job_in, states, submit

from dietcode_server.store import jobs, leases, slots, waiting
from dietcode_server.store.database import Database

SECS = 15.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("one", "two", "three", "four")


def after(secs: float) -> datetime:
    return NOW + timedelta(seconds=secs)


def reserve(session: Session, by: str, at: datetime = NOW, **options: Any) -> str | None:
    return leases.reserve(session, by, SECS, now=at, **options)


def some(database: Database, *priorities: int) -> list[str]:
    """Jobs that were queued one after the other."""
    with database.write() as session:
        return [
            submit(session, name, priority=priority, now=after(number - 60))[0].id
            for number, (name, priority) in enumerate(zip(NAMES, priorities, strict=False))
        ]


def test_each_gets_another_job_by_priority_then_by_age(database: Database) -> None:
    low, high, old = some(database, -1, 7, -1)
    with database.write() as session:
        assert [reserve(session, f"s{n}") for n in range(4)] == [high, low, old, None]
        assert jobs.next_queued(session, now=NOW) is None


def test_a_reserved_job_is_queued_to_everybody(database: Database) -> None:
    (job_id,) = some(database, 0)
    before = job(database, job_id), states(database, job_id)
    with database.write() as session:
        assert leases.reserve(session, "mine", SECS) == job_id
    assert (job(database, job_id), states(database, job_id)) == before
    with database.write() as session:
        assert jobs.claim(session, job_id, "worker")
        leases.release(session, job_id, "mine")
        assert jobs.heartbeat(session, job_id, "worker"), "it is the worker's"
    assert (job(database, job_id).state, job(database, job_id).attempt) == (R, 1)


def test_a_reservation_that_ran_out_is_offered_again(database: Database) -> None:
    (job_id,) = some(database, 0)
    with database.write() as session:
        assert reserve(session, "dead") == job_id
        assert reserve(session, "next", after(SECS - 1)) is None
        assert jobs.next_queued(session, now=after(SECS)) is not None
        assert reserve(session, "next", after(SECS)) == job_id
        leases.release(session, job_id, "dead")
        assert reserve(session, "third", after(SECS + 1)) is None, "another's is not given back"
        assert jobs.claim(session, job_id, "slow", now=after(SECS + 1)), "or it might never begin"
        assert not jobs.claim(session, job_id, "slower", now=after(SECS + 2))


def test_what_is_given_back_is_offered_at_once(database: Database) -> None:
    one, two = some(database, 0, 0)
    with database.write() as session:
        assert reserve(session, "mine") == one
        assert slots.take(session, "rack1", "mine", one, SECS)
        assert slots.take(session, "rack2", "mine", two, SECS)
        leases.release(session, one, "mine")
        assert list(slots.holders(session)) == ["rack2"]
        assert reserve(session, "another") == one


def test_a_reserved_slot_goes_to_the_first_that_measures(database: Database) -> None:
    one, two = some(database, 0, 0)
    with database.write() as session:
        assert [reserve(session, by) for by in ("mine", "another")] == [one, two]
        now = leases.clock(session)
        assert slots.take(session, "rack1", "mine", one, SECS)
        assert not slots.take(session, "rack1", "another", two, SECS)
        assert jobs.claim(session, two, "late", now=now)
        assert not slots.take(session, "rack1", "late", two, SECS)
        assert slots.take(session, "rack1", "late", two, SECS, reserved_too=True)
        assert not slots.take(session, "rack1", "worker", one, SECS, reserved_too=True), "it is measured in"
        assert slots.holders(session) == {"rack1": two}
        assert leases.finish(session, two, Q), "taken away, and perhaps still measured"
        assert not slots.take(session, "rack1", "worker", one, SECS, reserved_too=True)


def test_only_jobs_for_these_devices_and_for_none(database: Database) -> None:
    with database.write() as session:
        submit(session, "there", device=("d2", "another", {}), priority=5)
        anywhere = submit(session, "anywhere", device=None)[0].id
        here = submit(session, "here", priority=1)[0].id
        now = leases.clock(session)
        assert [reserve(session, "mine", now, of=["cpu0"]) for _ in range(3)] == [here, anywhere, None]
        assert reserve(session, "mine", now, of=[]) is None


def test_a_job_that_waits_for_its_next_attempt_is_not_reserved(database: Database) -> None:
    (job_id,) = some(database, 0)
    with database.write() as session:
        reserve(session, "mine")
        assert jobs.claim(session, job_id, "worker", now=NOW)
        assert leases.lost(session, job_id, "worker", "it died", retry_secs=5.0, now=NOW)
        assert reserve(session, "mine", after(4)) is None
        jobs.resume(session, job_id, now=after(4))  # begins at once
        assert reserve(session, "mine", after(4)) == job_id
        jobs.resume(session, job_id, now=after(4))
        assert reserve(session, "another", after(4)) is None, "to resume a queued job changes nothing"


def test_a_reserved_job_is_cancelled_and_is_too_late_as_any_other(database: Database) -> None:
    now = datetime.now(UTC)
    with database.write() as session:
        cancelled = submit(session, "one", priority=1, now=now)[0].id
        late = submit(session, "two", deadline=timedelta(seconds=5), now=now)[0].id
        assert [reserve(session, "mine", now) for _ in range(2)] == [cancelled, late]
        jobs.request_cancel(session, cancelled)
        assert leases.fail_overdue(session, now=now + timedelta(seconds=6)) == [late]
        for job_id in (cancelled, late):
            assert not jobs.claim(session, job_id, "worker")
            assert jobs.resume(session, job_id).state == Q
        assert [reserve(session, "next", now) for _ in range(2)] == [cancelled, late]
    assert [state for state, _ in states(database, cancelled)] == [Q, C, Q]
    assert [state for state, _ in states(database, late)] == [Q, F, Q]


def test_who_reserved_a_job_can_measure_it(database: Database) -> None:
    """Although nobody announces its device: it is not set aside before that runs out."""
    (job_id,) = some(database, 0)
    with database.write() as session:
        reserve(session, "mine")
        assert waiting.set_aside(session, 1.0, now=after(SECS - 1)) == []
        assert waiting.set_aside(session, 1.0, now=after(SECS)) == [job_id]


def test_many_that_reserve_at_once(database: Database) -> None:
    ids = [job_in(database, Q) for _ in range(6)]
    begin = threading.Barrier(8)

    def one(number: int) -> str | None:
        begin.wait(timeout=10)
        with database.write() as session:
            return leases.reserve(session, f"s{number}", SECS)

    with ThreadPoolExecutor(8) as pool:
        found = [each for each in pool.map(one, range(8)) if each is not None]
    assert len(found) == len(set(found)) and set(found) <= set(ids)
    with database.write() as session:  # one may have been passed over while another looked at it
        while (left := reserve(session, "last", leases.clock(session))) is not None:
            found.append(left)
    assert sorted(found) == sorted(ids)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_nobody_waits_for_one_who_is_slow(database: Database) -> None:
    """A job whose row another transaction holds is passed over, without waiting for that one's end."""
    first, second = some(database, 0, 0)
    with database.write() as slow, database.write() as quick:
        assert reserve(slow, "slow") == first
        assert reserve(quick, "quick") == second
        assert reserve(quick, "quick") is None


STEPS = st.tuples(
    st.sampled_from(["reserve", "reserve", "claim", "release", "lose", "wait"]),
    st.integers(0, 2),
    st.integers(0, 3),
)


class UndoneError(Exception):
    """Ends a transaction of which nothing stays."""


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_whatever_happens_in_any_order(database: Database, steps: list[tuple[str, int, int]]) -> None:
    """Against a model: for each job who has it (a supervisor or its worker), until when, and how often."""
    with pytest.raises(UndoneError), database.write() as session:
        ids = [submit(session, name, priority=-(n % 2), now=after(n))[0].id for n, name in enumerate(NAMES)]
        order = sorted(ids, key=lambda one: (ids.index(one) % 2, ids.index(one)))
        held: dict[str, tuple[str, datetime]] = {}
        runs: set[str] = set()
        attempts = dict.fromkeys(ids, 0)
        now = after(10)
        for what, who, which in steps:
            by, job_id = f"s{who}", ids[which]
            free = [one for one in order if one not in runs and (one not in held or held[one][1] <= now)]
            if what == "reserve":
                assert reserve(session, by, now) == (free[0] if free else None)
                held |= {one: (by, now + timedelta(seconds=SECS)) for one in free[:1]}
            elif what == "claim":
                queued = job_id not in runs
                assert jobs.claim(session, job_id, f"w{who}", now=now) == queued
                if queued:
                    held[job_id] = (f"w{who}", now)
                    runs.add(job_id)
                    attempts[job_id] += 1
            elif what == "release":
                leases.release(session, job_id, by)
                if job_id not in runs and held.get(job_id, ("",))[0] == by:
                    del held[job_id]
            elif what == "lose":
                was = job_id in runs and held[job_id][0] == f"w{who}"
                assert (
                    leases.lost(session, job_id, f"w{who}", "", max_attempts=99, retry_secs=0, now=now) == was
                )
                if was:
                    runs.remove(job_id)
                    del held[job_id]
            else:
                now += timedelta(seconds=6)
            assert jobs.get(session, job_id).attempt == attempts[job_id]
        raise UndoneError


@pytest.mark.parametrize("finds", ["next_queued", "reserve"])
def test_turns_look_at_no_running_job(finds: str, tmp_path: Path) -> None:
    """The steps of SQLite's machine are the same beside 3 running jobs and beside 60."""
    database = Database(f"sqlite:///{tmp_path}/jobs.db")
    database.upgrade()

    def steps() -> int:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        with database.write() as session:
            connection: Any = session.connection().connection.driver_connection
            connection.set_progress_handler(step, 10)
            if finds == "reserve":
                assert reserve(session, "h/1/1") is not None
            else:
                assert leases.next_queued(session, now=NOW) is not None
            connection.set_progress_handler(None, 10)
            session.rollback()
        return 10 * count

    def run(first: int, end: int) -> None:
        with database.write() as session:
            for number in range(first, end):
                row, _ = submit(session, f"running{number}", now=after(-600))
                row.priority = 9
                assert leases.claim(session, row.id, f"h/{number}/1", lease_secs=1e6, now=after(-500))

    run(0, 3)
    with database.write() as session:
        submit(session, "waits", now=after(-60))
    few = steps()
    run(3, 60)
    assert steps() <= few + 60, "a row that is looked at takes ten steps or more"
    database.dispose()
