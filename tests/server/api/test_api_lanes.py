"""Requests that wait for the compiler hold up nobody who does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plain_server import NoTargets
from small_libraries import spec_data
from starlette.testclient import TestClient

from dietcode.workload.spec import Spec
from dietcode_server.engine.targets import Resolved
from dietcode_server.settings import Settings
from dietcode_server.store.database import Database

NUM_WAITING = 45  # more than the threads of requests that have no lane of their own
TEXT = json.dumps(spec_data("waits"))


class LateTargets(NoTargets):
    """A compiler that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def resolve(self, spec: Spec) -> Resolved:
        self.asked.set()
        assert self.may_answer.wait(60.0)
        return super().resolve(spec)


@pytest.fixture
def late(service: Any, tmp_path: Path) -> Iterator[Any]:
    database = Database(f"sqlite:///{tmp_path}/dietcode.db")
    database.upgrade()
    made = replace(service, database=database, settings=Settings(data_dir=tmp_path), targets=LateTargets())
    yield made
    database.dispose()


def check(client: TestClient, job: str) -> Any:
    return client.post("/submit/check", json={"text": TEXT})


def submit(client: TestClient, job: str) -> Any:
    return client.post("/api/v1/jobs", json={"spec": spec_data("waits")})


def resume(client: TestClient, job: str) -> Any:
    return client.post(f"/api/v1/jobs/{job}/resume", json={})


@pytest.mark.parametrize("send", [check, submit, resume])
def test_who_waits_for_the_compiler_holds_up_nobody(late: Any, send: Callable[..., Any]) -> None:
    job = replace(late, targets=NoTargets()).add_job()
    with late.client as client, ThreadPoolExecutor(NUM_WAITING + 1) as pool:
        waiting = [pool.submit(send, client, job) for _ in range(NUM_WAITING)]
        try:
            assert late.targets.asked.wait(60.0)
            assert pool.submit(client.get, "/api/v1/jobs").result(20.0).status_code == 200
            assert not any(one.done() for one in waiting)
        finally:
            late.targets.may_answer.set()
        assert {one.result().status_code for one in waiting} <= {200, 201}
