"""Jobs: which requests are the same job."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from small_libraries import spec_data
from store_helpers import ALL, DEVICE, Q, R, W, job, states, submit

from dietcode.errors import ConflictError
from dietcode.protocol import JobState
from dietcode.workload.identity import job_digest, workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.tables import DeviceRow, Workload


def test_a_new_job(database: Database) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with database.write() as session:
        row, new = submit(session, now=now)
    assert new
    spec = spec_from_data(spec_data("dense"))
    assert row.digest == job_digest(spec, {"kind": "llvm", "mcpu": "test"})
    made = job(database, row.id)
    assert made.model_dump() == {
        "id": row.id,
        "name": "dense",
        "kind": "spec",
        "parts": None,
        "owner": "local",
        "state": Q,
        "workload": workload_digest(spec),
        "device_id": "cpu0",
        "device": "A test CPU",
        "target": {"kind": "llvm", "mcpu": "test"},
        "spec": spec.to_json(),
        "force": False,
        "measure": True,
        "attempt": 0,
        "measured": 0,
        "cancel_requested": False,
        "priority": 0,
        "deadline_at": None,
        "progress": None,
        "error": None,
        "waits_for": None,
        "standing": None,
        "library": None,
        "created_at": now,
        "started_at": None,
        "finished_at": None,
        "updated_at": now,
    }
    assert len(row.id) == 16 and set(row.id) <= set("0123456789abcdef")
    assert list(made.spec["tensors"]) == ["X", "W"]  # their order matters
    assert states(database, row.id) == [(Q, "")]
    with database.read() as session:
        assert session.get_one(Workload, made.workload).spec == spec.to_json()
        assert session.get_one(DeviceRow, "cpu0").name == DEVICE[1]


def test_a_job_without_a_runner_or_a_device_waits(database: Database) -> None:
    with database.write() as session:
        row, _ = submit(session, device=None, runnable=False)
        assert jobs.next_queued(session) is None
    made = job(database, row.id)
    assert (made.state, made.device_id, made.device) == (W, None, None)
    assert states(database, row.id) == [(W, made.waits_for)]


@pytest.mark.parametrize("state", ALL)
def test_the_same_request_gives_the_same_job_whatever_its_state(database: Database, state: JobState) -> None:
    with database.write() as session:
        row, _ = submit(session, runnable=state != W)
        if state not in {Q, W}:
            jobs.claim(session, row.id, "me")
        if state not in {Q, W, R}:
            jobs.finish(session, row.id, state)
        again, new = submit(session)
    assert (again.id, new, again.state) == (row.id, False, state.value)


def test_force_makes_a_new_job_each_time(database: Database) -> None:
    with database.write() as session:
        first, _ = submit(session)
        forced, new = submit(session, force=True)
        another, new_too = submit(session, force=True)
        again, new_again = submit(session)
    assert new and new_too and not new_again
    assert len({first.id, forced.id, another.id}) == 3
    assert again.id == another.id  # the newest measurements


def test_another_name_or_target_is_another_job_on_the_same_workload(database: Database) -> None:
    with database.write() as session:
        rows = [
            submit(session)[0],
            submit(session, "other")[0],
            submit(session, target={"kind": "llvm", "mcpu": "another"})[0],
        ]
    assert len({row.id for row in rows}) == 3
    assert len({row.workload for row in rows}) == 1


@pytest.mark.parametrize("force", [False, True])
def test_an_idempotency_key_gives_its_job_again(database: Database, force: bool) -> None:
    with database.write() as session:
        row, new = submit(session, idempotency_key="k", force=force)
        again, new_again = submit(session, idempotency_key="k", force=force)
        other, _ = submit(session, idempotency_key="another", force=True)
    assert (new, new_again, again.id) == (True, False, row.id)
    assert other.id != row.id


@pytest.mark.parametrize("change", [{"force": True}, {"name": "other"}, {"measure": False}])
def test_an_idempotency_key_of_another_request(database: Database, change: dict[str, Any]) -> None:
    with database.write() as session:
        row, _ = submit(session, idempotency_key="k")
    with (
        pytest.raises(ConflictError, match=rf"Idempotency-Key 'k' was used.*{row.id}"),
        database.write() as session,
    ):
        submit(session, idempotency_key="k", **change)
    with database.read() as session:
        assert len(jobs.list_jobs(session)[0]) == 1


def test_an_idempotency_key_gives_its_job_whatever_runners_there_are_by_then(database: Database) -> None:
    with database.write() as session:
        row, _ = submit(session, idempotency_key="k", target={"kind": "llvm"}, device=None, runnable=False)
        again, new = submit(session, idempotency_key="k")
    assert (again.id, new) == (row.id, False)


def test_a_key_that_found_a_known_job_belongs_to_it_from_then_on(database: Database) -> None:
    with database.write() as session:
        row, _ = submit(session)
        assert submit(session, idempotency_key="k")[0].id == row.id
        assert submit(session, idempotency_key="another")[0].id == row.id
    with pytest.raises(ConflictError), database.write() as session:
        submit(session, "other", idempotency_key="k")


def test_a_job_that_measures_nothing_is_another_job(database: Database) -> None:
    with database.write() as session:
        measuring, _ = submit(session)
        other, is_new = submit(session, measure=False)
        assert is_new and other.id != measuring.id and other.workload == measuring.workload
        again, is_new = submit(session, measure=False)
        assert not is_new and again.id == other.id
    assert job(database, measuring.id).measure and not job(database, other.id).measure


def test_threads_submit_the_same_request(database: Database) -> None:
    begin = threading.Barrier(6)

    def post(_: int) -> tuple[str, bool]:
        begin.wait(timeout=10)
        with database.write() as session:
            row, new = submit(session)
            return row.id, new

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(post, range(6)))
    assert len({job_id for job_id, _ in answers}) == 1
    assert sum(new for _, new in answers) == 1
