"""Slots: one job at a time measures in each, until its lease ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from store_helpers import F, Q, R, job, job_in

from dietcode_server.engine.worker import claim
from dietcode_server.store import jobs, slots
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database

JOB = "0" * 16


def taken(database: Database, runner: str, slot: str = "rack1", ago_secs: float = 0.0) -> bool:
    """Whether a runner gets a slot, for 10 s since so long ago."""
    with database.write() as session:
        at = clock(session) - timedelta(seconds=ago_secs)
        return slots.take(session, slot, runner, JOB, 10.0, now=at)


def test_one_runner_has_a_slot_until_it_gives_it_back(database: Database) -> None:
    assert taken(database, "one") and taken(database, "one"), "again is no other"
    assert not taken(database, "two") and taken(database, "two", "rack2")
    with database.write() as session:
        assert slots.holders(session) == {"rack1": JOB, "rack2": JOB}
        assert slots.holder(session, "rack1") and not slots.holder(session, "rack3")
        slots.free(session, "one")
        assert slots.holders(session) == {"rack2": JOB}
    assert taken(database, "two")


def test_who_renews_keeps_it(database: Database) -> None:
    assert taken(database, "one", ago_secs=9.0)
    with database.write() as session:
        assert slots.renew(session, "rack1", "one", 10.0)
        assert not slots.renew(session, "rack1", "two", 10.0)
        assert not slots.renew(session, "rack2", "one", 10.0)
        later = clock(session) + timedelta(seconds=9)
        assert not slots.take(session, "rack1", "two", JOB, 10.0, now=later)


def test_a_lease_that_ran_out_is_taken_over_and_not_renewed(database: Database) -> None:
    assert taken(database, "one", ago_secs=11.0)
    with database.write() as session:
        assert not slots.holder(session, "rack1") and slots.holders(session) == {}
        assert not slots.renew(session, "rack1", "one", 10.0), "also before another has it"
    assert taken(database, "two") and not taken(database, "one")
    with database.write() as session:
        slots.free(session, "one")
        assert slots.holder(session, "rack1"), "it is not the earlier holder's to give back"


def test_of_many_that_try_at_once_one_gets_it(database: Database) -> None:
    for slot in ("rack1", "rack2", "rack3"):
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda number, slot=slot: taken(database, f"r{number}", slot), range(8)))
        assert won.count(True) == 1


def test_a_job_and_its_slot_are_claimed_together_or_not_at_all(database: Database) -> None:
    first, second = job_in(database, Q), job_in(database, Q)
    assert claim(database, first, "one", 10.0, "rack1") is not None
    assert claim(database, second, "two", 10.0, "rack1") is None
    found = job(database, second)
    assert (found.state, found.attempt) == (Q, 0)
    assert claim(database, second, "two", 10.0, "rack2") is not None
    with database.read() as session:
        assert slots.holders(session) == {"rack1": first, "rack2": second}


@pytest.mark.parametrize("state", [F, Q])
def test_the_end_of_a_job_frees_its_slot(database: Database, state: object) -> None:
    job_id = job_in(database, Q)
    assert claim(database, job_id, "one", 10.0, "rack1") is not None
    with database.write() as session:
        assert not jobs.finish(session, job_id, state, runner="another")
        assert slots.holder(session, "rack1")
        assert jobs.finish(session, job_id, state, runner="one")
        assert not slots.holder(session, "rack1")


def test_a_job_that_is_taken_away_leaves_the_slot_to_its_lease(database: Database) -> None:
    """Its worker may still measure: it ends itself, and nobody knows when it did."""
    job_id = job_in(database, Q)
    assert claim(database, job_id, "one", 10.0, "rack1") is not None
    with database.write() as session:
        assert jobs.finish(session, job_id, Q)
        assert slots.holder(session, "rack1")
    assert claim(database, job_id, "two", 10.0, "rack1") is None
    assert job(database, job_id).state != R


def test_rows_that_ran_out_are_swept(database: Database) -> None:
    assert taken(database, "one", "old", 11.0) and taken(database, "one", "new")
    with database.write() as session:
        assert slots.forget_stale(session) == 1 and slots.forget_stale(session) == 0
        assert list(slots.holders(session)) == ["new"]
