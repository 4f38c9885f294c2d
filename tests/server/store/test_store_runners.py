"""Announcements, and the jobs that wait for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from store_helpers import C, Q, R, W, job, job_in, states, submit

from dietcode.protocol import JobState
from dietcode_server.store import jobs, runners, waiting, wire
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database
from dietcode_server.store.retention import Policy, sweep
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.tables import DeviceRow

AT = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = {"kind": "llvm", "mcpu": "test", "num_cores": 4, "features": ["avx2", "fma"]}
HOST = {"name": "A CPU", "mcpu": "test", "num_cores": 4, "features": ["avx2", "fma"]}
CPU = AnnouncedDevice("test-4", "A CPU", TARGET, HOST, "rack1")
HERE = (CPU.id, CPU.name, CPU.target)


def announced(database: Database, name: str = "one", ago_secs: float = 0.0, **changes: Any) -> bool:
    """Whether a runner could announce itself, for 10 s since so long ago."""
    facts = {"process": f"{name}/1/1.00", "engine": "local", "version": "1", "devices": [CPU]}
    with database.write() as session:
        at = clock(session) - timedelta(seconds=ago_secs)
        facts = facts | {"started_at": AT, "lease_secs": 10.0, "now": at} | changes
        return runners.announce(session, name=name, **facts)


def there(database: Database) -> list[str]:
    with database.read() as session:
        return [row.name for row in runners.live(session)]


def test_who_announces_itself_is_there_until_it_leaves_or_falls_silent(database: Database) -> None:
    assert announced(database, "two") and announced(database, "one", 9.0, job_id="0" * 16)
    assert announced(database, "old", 11.0)
    assert there(database) == ["one", "two"]
    with database.read() as session:
        found = [wire.runner_to_wire(row) for row in runners.live(session)]
        assert runners.devices(session) == [CPU], "each once"
        assert session.get_one(DeviceRow, CPU.id).target == TARGET
    assert [(one.host, one.job, one.started_at) for one in found] == [
        ("one", "0" * 16, AT),
        ("two", None, AT),
    ]
    assert [device.slot for device in found[0].devices] == ["rack1"]
    with database.write() as session:
        runners.withdraw(session, "two/1/1.00")
    assert there(database) == ["one"]
    sweep(database, Policy())
    assert announced(database, "old", process="another/2/2.00"), "what does not count is nobody's"


def test_a_name_is_one_process_s(database: Database) -> None:
    assert announced(database) and announced(database), "it says so again and again"
    assert not announced(database, process="another/2/2.00")
    with database.read() as session:
        (row,) = runners.live(session)
        assert row.process == "one/1/1.00"


def waits(database: Database, **changes: Any) -> str:
    given = {"target": {"kind": "llvm"}, "device": None, "runnable": False}
    with database.write() as session:
        return submit(session, **(given | changes))[0].id


def test_a_job_that_waited_is_taken_up_for_the_device_that_came(database: Database) -> None:
    job_id = waits(database)
    text = "no runner can measure llvm; run `dietcode worker` on a machine that can"
    assert states(database, job_id) == [(W, text)] and job(database, job_id).waits_for == text
    with database.write() as session:
        assert waiting.take_up(session, job_id, TARGET, HERE)
        assert not waiting.take_up(session, job_id, TARGET, HERE), "once"
    found = job(database, job_id)
    assert (found.state, found.device_id, found.target) == (Q, CPU.id, TARGET)
    assert found.waits_for is None
    with database.write() as session:
        again, new = submit(session, target=TARGET, device=HERE)
    assert (again.id, new) == (job_id, False), "it is the job of that target now"


def test_a_job_that_waits_names_the_runners_whose_device_is_silent(database: Database) -> None:
    assert announced(database) and announced(database, "two", devices=[], engine="ray")
    assert announced(database, "board1", devices=[], engine="rpc")
    job_id = waits(database)
    text = (
        "no runner can measure llvm; run `dietcode worker` on a machine that can, or start the RPC server "
        "behind board1, which has not answered"
    )
    assert states(database, job_id) == [(W, text)] and job(database, job_id).waits_for == text


def test_a_job_that_had_a_device_is_measured_for_its_own_target_only(database: Database) -> None:
    job_id = job_in(database, R)
    with database.write() as session:
        assert jobs.finish(session, job_id, W)
        assert not waiting.take_up(session, job_id, TARGET, HERE)
        target = jobs.get(session, job_id).target
        assert waiting.take_up(session, job_id, target, ("other", "Another CPU", target))
    assert job(database, job_id).device == "Another CPU"


def test_only_jobs_that_wait_are_looked_at(database: Database) -> None:
    ids = [waits(database, name=name) for name in ("one", "two", "three")]
    for state in (Q, R, C):
        job_in(database, state)
    with database.read() as session:
        assert [row.id for row in waiting.waiting(session)] == ids
        assert [row.id for row in waiting.waiting(session, but={ids[0]}, limit=1)] == [ids[1]]


def queued(database: Database, name: str, ago_secs: float, **target: Any) -> str:
    """A job that was queued so long ago for a device of the same processor."""
    whole = TARGET | target
    with database.write() as session:
        at = clock(session) - timedelta(seconds=ago_secs)
        device = (f"{name}-d", "A CPU", whole)
        return submit(session, name, target=whole, device=device, now=at)[0].id


def test_jobs_that_nobody_can_measure_any_more_are_set_aside(database: Database) -> None:
    old, young = queued(database, "old", 60), queued(database, "young", 5)
    part = queued(database, "part", 60, num_cores=1)
    more = queued(database, "more", 60, num_cores=8)
    features = queued(database, "features", 60, features=["avx512f"])
    assert announced(database)
    with database.write() as session:
        assert set(waiting.set_aside(session, 30.0)) == {more, features}
    assert job(database, more).waits_for == (
        "no runner can measure mcpu test with 8 cores; run `dietcode worker` on a machine that can"
    )
    with database.write() as session:
        later = clock(session) + timedelta(seconds=11)  # the runner fell silent
        assert set(waiting.set_aside(session, 30.0, now=later)) == {old, part}
    assert job(database, young).state == JobState.QUEUED
