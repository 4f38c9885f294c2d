"""A runner takes jobs for the device behind its RPC tracker, once that has said what it is; and no others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simple_server import Server
from small_libraries import spec_data

from dietcode.errors import ServerError
from dietcode.measure.engine_spec import EngineSpec
from dietcode.protocol import JobState
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import TargetSpec
from dietcode_server.engine import placement, targets
from dietcode_server.engine.announcer import announced
from dietcode_server.engine.placement import Placement
from dietcode_server.engine.rpc_targets import RpcTargets
from dietcode_server.engine.targets import Resolved
from dietcode_server.store import jobs
from dietcode_server.store.database import Database

SPEC = EngineSpec("rpc", None, "10.0.0.1:9190", "board")
HOST = {"name": "board over RPC", "mcpu": "alpha", "num_cores": 2}
PLACE = "rpc/10.0.0.1:9190/board"


class Session:
    """What the child process answers that asks the device; each answer waits for `may_answer`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.may_answer = threading.Event()

    def ask(self, question: bytes) -> list[Resolved | str]:
        asked = json.loads(question)
        if asked["target"] is None:
            self.asked.append(asked)
            assert self.may_answer.wait(20.0)
            if self.errors:
                raise ServerError(self.errors.pop(0))
        else:
            assert asked["engine"]["rpc_host"] == HOST, "who resolves a target knows the device"
        given = asked["target"] or {}
        target = {name: given.get(name, HOST[name]) for name in ("mcpu", "num_cores")} | {"kind": "llvm"}
        runnable = target["mcpu"] == HOST["mcpu"] and int(target["num_cores"]) <= 2
        device = (f"{target['mcpu']}-{target['num_cores']}", str(HOST["name"]), target)
        return [Resolved(target, device if runnable else None, runnable, HOST, PLACE)]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    made = Session()
    monkeypatch.setattr(targets, "_answers_of_child", made.ask)
    monkeypatch.setattr(placement, "_TAKE_UP_SECS", 0.0)
    yield made
    made.may_answer.set()


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


def submitted(database: Database, name: str, mcpu: str | None, queued: bool = False) -> str:
    """A job on a target that names a processor, or none; its id."""
    given = {"kind": "llvm"} | ({} if mcpu is None else {"mcpu": mcpu, "num_cores": 2})
    target = {"mcpu": mcpu, "num_cores": 2, "kind": "llvm"} if queued else given
    with database.write() as writing:
        row, _ = jobs.submit(
            writing,
            spec=spec_from_data(spec_data(name, target=given)),
            target=target,
            device=(f"{mcpu}-2", "board over RPC", target) if queued else None,
            runnable=queued,
            force=False,
            idempotency_key=None,
            priority=10 if mcpu == "beta" else 0,
        )
        return str(row.id)


def test_nobody_waits_for_the_device_s_answer_which_is_remembered(session: Session) -> None:
    behind = RpcTargets(SPEC)
    assert announced(behind, "own slot") == [] and not behind.is_ready() and not behind.has_tried()
    session.may_answer.set()
    until(behind.is_ready)
    for _ in range(3):
        (one,) = announced(behind, "own slot")
    assert (one.name, one.host, one.slot) == ("board over RPC", HOST, PLACE)
    assert len(session.asked) == 1 and behind.engine.rpc_host == HOST
    assert not behind.on(TargetSpec(kind="llvm", mcpu="beta", num_cores=2)).runnable


def test_where_it_does_not_answer_it_is_asked_again_later_and_later(session: Session) -> None:
    session.errors = ["no server is registered as board"] * 3
    session.may_answer.set()
    behind, began = RpcTargets(SPEC, first_pause_secs=0.1), time.monotonic()
    until(behind.has_tried)
    assert not behind.is_ready() and behind.devices() == []
    until(behind.is_ready)
    assert len(session.asked) == 4
    assert time.monotonic() - began >= 0.1 + 0.2 + 0.4


def test_jobs_are_taken_that_the_device_can_measure_and_no_others(session: Session, tmp_path: Path) -> None:
    database = Server(tmp_path).database
    own, none = submitted(database, "own", "alpha"), submitted(database, "none", None)
    other = submitted(database, "other", "beta")
    queued = submitted(database, "queued", "beta", queued=True)
    behind = RpcTargets(SPEC)
    here = Placement(behind)
    assert here.take_up(database) == [] and here.next_job(database) is None and not here.knows()
    assert here.here() == []
    session.may_answer.set()
    until(behind.is_ready)
    assert here.take_up(database) == [own, none]
    found = here.next_job(database)
    assert found is not None and found.id == own and here.here() == ["alpha-2"]
    with database.read() as reading:
        states = {job_id: jobs.get(reading, job_id).state for job_id in (own, none, other, queued)}
        assert jobs.get(reading, none).device_id == "alpha-2"
    assert states[other] == JobState.WAITING_FOR_RUNNER.value and states[queued] == JobState.QUEUED.value
    database.dispose()


def test_a_worker_for_one_job_waits_until_the_device_was_asked(session: Session, tmp_path: Path) -> None:
    """It would find no job that it can measure before."""
    server = Server(tmp_path)
    session.errors = ["the RPC tracker cannot be reached"]
    supervisor = server.new_supervisor()
    supervisor._placement, supervisor._only_one = Placement(RpcTargets(SPEC)), True
    supervisor.start()
    assert not supervisor.finished.wait(1.5)
    session.may_answer.set()
    assert supervisor.finished.wait(20.0)
    supervisor.stop()
    server.database.dispose()
