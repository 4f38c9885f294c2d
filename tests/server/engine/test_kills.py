"""``kill -9`` of workers and servers at random moments, with real tuning in real processes.

DIETCODE_TEST_KILLS=100 makes it as many.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from small_libraries import ROOT, SAFE_ERROR, error, spec_data

import dietcode
from dietcode.client import Client
from dietcode.protocol import FINAL_STATES, Job, JobState

# Each kill comes at a random moment within so many seconds after its stage was reached, or a later one.
# The storm has many more, of jobs that tune nothing.
AFTER = [("measure", 1.2), ("seed", 2.0), ("start", 1.0), ("calibrate", 2.0)]
NUM_KILLS = int(os.environ.get("DIETCODE_TEST_KILLS", "1"))
STAGES = ("start", "seed", "calibrate", "measure", "select", "build", "verify", "compare", "publish")
MARK = "DIETCODE_TEST_MARK"
BUDGET = {"trials": 12, "seconds": 120}


def spec(number: int) -> dict[str, Any]:
    """Each number is a workload of its own."""
    data = spec_data("killed", shape_vars={"T": {"min": 1, "max": 4}}, budget=BUDGET)
    return data | {"dims": {"m": "4*T", "n": 32, "k": 16 + 8 * number}}


class Service:
    """A server process that can be killed and started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.process: subprocess.Popen[str] | None = None
        self.client: Client | None = None

    def start(self) -> Client:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dietcode", "serve", "--port", "0", "--data-dir", str(self.folder)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ
            | {MARK: self.mark, "DIETCODE_CACHE": str(self.folder / "cache")}
            | {"DIETCODE_SERVE_MAX_ATTEMPTS": "1"},  # each kill shows, and is resumed by hand
            start_new_session=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line.startswith("dietcode: serving http"), line
        self.close_client()
        self.client = Client(line.split()[2].rstrip(","))
        return self.client

    def close_client(self) -> None:
        if self.client is not None:
            self.client.close()

    def kill(self) -> None:
        assert self.process is not None and self.process.stderr is not None
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def stop(self) -> None:
        assert self.process is not None and self.process.stderr is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
        self.process.stderr.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        path = f"file:{self.folder / 'dietcode.db'}?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=10)) as connection:
            return connection.execute(query).fetchall()

    def worker_pid(self) -> int | None:
        found = self.rows("SELECT runner FROM jobs WHERE state = 'running'")
        return int(found[0][0].split("/")[1]) if found else None

    def known(self) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT id, workload, kind, micro_kernel, num_readings, line FROM tuning_records ORDER BY id"
        )

    def trials(self) -> dict[Path, int]:
        """Trials of MetaSchedule on disk."""
        found = (self.folder / "work").rglob("database_tuning_record.json")
        return {path: path.read_bytes().count(b"\n") for path in found}

    def processes(self) -> list[psutil.Process]:
        """All that descend from this service, orphans too."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path / "data")
    yield made
    if made.process is not None and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.kill()
    made.close_client()
    for left in made.processes():
        left.kill()


def reach(client: Client, job: Job, *states: JobState, timeout_secs: float = 90.0) -> Job:
    deadline = time.monotonic() + timeout_secs
    while (now := client.job(job.id)).state not in states:
        assert time.monotonic() < deadline, now
        assert now.state not in FINAL_STATES or now.state in states, now
        time.sleep(0.05)
    return now


def wait_for_stage(client: Client, job: Job, stage: str) -> None:
    """Until a running job has come as far as `stage`."""
    deadline = time.monotonic() + 90
    while (now := client.job(job.id)).state != JobState.SUCCEEDED:
        assert time.monotonic() < deadline, now
        at = now.progress.stage if now.progress else "start"
        begun = now.state == JobState.RUNNING and now.attempt > job.attempt
        if begun and STAGES.index(at) >= STAGES.index(stage):
            return
        time.sleep(0.02)


def wait_until_alone(service: Service, alone: int) -> None:
    """No process outlives what was killed."""
    deadline = time.monotonic() + 10
    while len(left := service.processes()) > alone:
        assert time.monotonic() < deadline, [p.cmdline() for p in left]
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(300 + 40 * NUM_KILLS)
def test_kills_lose_nothing_and_repeat_nothing(service: Service) -> None:
    rng = random.Random(time.time_ns())
    client = service.start()
    number, killed, hit = 0, 0, Counter[str]()
    job = client.submit(spec(number))
    while killed < NUM_KILLS:
        stage, within_secs = AFTER[killed % len(AFTER)]
        wait_for_stage(client, job, stage)
        time.sleep(rng.uniform(0.0, within_secs))
        now = client.job(job.id)
        pid = service.worker_pid()
        if now.state == JobState.SUCCEEDED or pid is None:
            check_library(client, reach(client, job, JobState.SUCCEEDED), number)
            number += 1
            job = client.submit(spec(number))
            continue
        known, trials = service.known(), service.trials()
        if rng.random() < 0.5:
            os.kill(pid, signal.SIGKILL)
            alone = 1
        else:
            service.kill()
            alone = 0
        killed += 1
        hit[now.progress.stage if now.progress else "start"] += 1
        if alone:
            now = reach(client, job, JobState.INTERRUPTED, JobState.SUCCEEDED, timeout_secs=60)
        wait_until_alone(service, alone)
        assert service.known()[: len(known)] == known, "a record was lost or changed"
        assert all(count >= trials.get(path, 0) for path, count in service.trials().items())
        if not alone:
            client = service.start()
            now = reach(client, job, JobState.INTERRUPTED, JobState.SUCCEEDED, timeout_secs=60)
        if now.state == JobState.INTERRUPTED:  # else it was done in the moment of the kill
            assert now.error is not None and "resume" in now.error
            assert now.measured == measured_by(service, job)
            job = client.resume(job.id)
    job = reach(client, job, JobState.SUCCEEDED)
    check_library(client, job, number)
    check_nothing_was_repeated(service)
    print("killed at", dict(hit), "over", number + 1, "jobs")  # noqa: T201 - shown where it fails
    service.stop()


def measured_by(service: Service, job: Job) -> int:
    query = (
        "SELECT count(*) FROM tuning_records WHERE kind = 'micro_kernel' AND num_readings = 1 AND job_id = "
    )
    return int(service.rows(f"{query}'{job.id}'")[0][0])


def check_nothing_was_repeated(service: Service) -> None:
    """One line of each number of readings of each micro-kernel; one calibration, one seed."""
    lines = Counter(
        (workload, kind, kernel, readings)
        for _, workload, kind, kernel, readings, _ in service.known()
        if kind != "round"  # of which a search has many
    )
    assert lines and set(lines.values()) == {1}, lines.most_common(3)
    rounds = [(row[1], json.loads(row[5])["number"]) for row in service.known() if row[2] == "round"]
    assert len(rounds) == len(set(rounds)), rounds
    limit = BUDGET["trials"] // 4
    assert all(count <= limit for count in service.trials().values()), service.trials()


def check_library(client: Client, job: Job, number: int) -> None:
    assert job.library is not None and job.library.version == number + 1
    folder = client.pull(f"{job.library.name}@{job.library.version}")
    library = dietcode.load(folder)
    rng = np.random.default_rng(number)
    w = rng.standard_normal((32, 16 + 8 * number), dtype=np.float32)
    for t in range(1, 5):
        x = rng.standard_normal((4 * t, 16 + 8 * number), dtype=np.float32)
        y = library(X=x, W=library.pack(W=w))
        assert error(y, x.astype(np.float64) @ w.T.astype(np.float64)) <= SAFE_ERROR
