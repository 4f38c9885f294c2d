"""How a worker stops in time where its lease is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from child_processes import gone
from simple_server import Server
from sqlalchemy import text

from dietcode.protocol import JobState
from dietcode_server.engine import holding
from dietcode_server.engine.holding import Heartbeat, HeldChildren, clock_secs
from dietcode_server.engine.worker import claim
from dietcode_server.store import jobs, slots
from dietcode_server.store.leases import LeaseLostError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, lease_secs=1.0)
    yield made
    made.close()


class Counting:
    """Children that count what they were asked."""

    slot = "device"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.seeds = self

    def build(self, requests: Any) -> Iterator[Any]:
        self.asked.append("build")
        return iter(requests)

    def time(self, request: Any, timeout_secs: float) -> Any:
        self.asked.append("time")
        return request

    def check(self, request: Any, timeout_secs: float) -> Any:
        self.asked.append("check")
        return request

    def find(self, request: Any, *_: Any) -> Any:
        self.asked.append("find")
        return request

    def close(self) -> None:
        self.asked.append("close")


def test_nothing_begins_after_the_lease(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    children, ahead_secs = Counting(), 0.0
    monkeypatch.setattr(holding, "clock_secs", lambda: clock_secs() + ahead_secs)
    heartbeat = Heartbeat(server.database, "0" * 16, "me", 20.0, 60.0)
    taken: list[str] = []
    with HeldChildren(children, heartbeat.holds, taken.append) as held:  # type: ignore[arg-type]
        seeds: Any = held.seeds
        calls: list[Callable[[], Any]] = [
            lambda: next(held.build(["x"])),  # type: ignore[list-item]
            lambda: held.time("x", 1.0),  # type: ignore[arg-type]
            lambda: held.check("x", 1.0),  # type: ignore[arg-type]
            lambda: seeds.find("x", None, None),
        ]
        assert [call() for call in calls] == ["x"] * 4
        assert heartbeat.holds()
        ahead_secs = 61.0
        assert not heartbeat.holds()
        for call in calls:
            with pytest.raises(LeaseLostError):
                call()
    assert children.asked == ["build", "time", "check", "find", "close"] and set(taken) == {"device"}


def test_a_lease_counts_from_before_it_was_asked_for(server: Server) -> None:
    began = clock_secs() - 2.0
    assert not Heartbeat(server.database, "0" * 16, "me", 0.1, 1.0, since=began).holds()


@pytest.mark.thorough
def test_who_wakes_up_too_late_ends_by_its_own_clock(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the database does not answer, which could say that its lease is over."""
    server.supervisor.start()
    server.submit("waits")
    processes = server.processes("waits")
    monkeypatch.setattr(server.supervisor, "_turn", lambda: None)
    processes[0].suspend()
    time.sleep(1.2)
    with server.database.write() as session:
        session.execute(text("SELECT 1"))  # from here on no other can write
        processes[0].resume()
        assert gone(processes, 5.0)


def test_a_slot_that_becomes_known_later_is_waited_for(server: Server) -> None:
    job_id = server.submit("waits")
    runner = "elsewhere/1/1.00"
    assert claim(server.database, job_id, runner, 60.0) is not None
    heartbeat = Heartbeat(server.database, job_id, runner, 0.1, 60.0)
    with server.database.write() as session:
        assert slots.take(session, "device", "another", "0" * 16, 60.0)
    said: list[str] = []
    taker = threading.Thread(target=heartbeat.take, args=("device", said.append))
    taker.start()
    server.wait(lambda: said)
    assert taker.is_alive() and said == ["another job measures on device; waiting for it"]
    with server.database.write() as session:
        slots.free(session, "another")
    taker.join(60)
    with server.database.read() as session:
        assert slots.holders(session) == {"device": job_id}
    heartbeat.take("device", said.append)
    assert len(said) == 1


def test_a_worker_that_let_its_job_go_and_stays_is_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stands still keeps the lock on measuring, which is a file's."""
    monkeypatch.setattr("dietcode_server.engine.supervisor._LET_GO_SECS", 0.5)
    server.supervisor.start()
    server.submit("waits")
    processes = server.processes("waits")
    server.wait(lambda: server.supervisor._worker is not None and server.supervisor._worker.has_claimed)
    processes[0].suspend()
    with server.database.write() as session:
        job = jobs.running(session)[0]
        assert jobs.finish(session, job.id, JobState.INTERRUPTED, error="by a test")
    assert gone(processes)


def test_a_job_that_took_its_slot_with_its_claim_needs_no_other(server: Server) -> None:
    job_id = server.submit("waits")
    assert claim(server.database, job_id, "elsewhere/1/1.00", 60.0, "rack1") is not None
    heartbeat = Heartbeat(server.database, job_id, "elsewhere/1/1.00", 0.1, 60.0, "rack1")
    heartbeat.take("device", lambda line: None)
    with server.database.read() as session:
        assert slots.holders(session) == {"rack1": job_id}
