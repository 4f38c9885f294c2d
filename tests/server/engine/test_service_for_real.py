"""The service from end to end by its commands: a disk that fills up, a server that restarts, a pull."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from small_libraries import SAFE_ERROR, error, spec_data

import dietcode

BUDGET = {"trials": 8, "seconds": 120}
SPEC = spec_data(
    "real", shape_vars={"T": {"min": 1, "max": 4000}}, dims={"m": "4*T", "n": 32, "k": 24}, budget=BUDGET
)
WAL_LIMIT_BYTES = 2 << 20  # what is measured fits; a library whose report lists 4000 instances does not


class Place:
    """A server on one port and one folder, and commands that talk to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.environment = os.environ | {
            "DIETCODE_CACHE": str(folder / "cache"),
            "DIETCODE_SERVER": f"http://127.0.0.1:{self.port}",
        }
        self.server: subprocess.Popen[str] | None = None
        self.begun: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        self.server = self.begin("serve", "--port", self.port, "--data-dir", self.folder / "data")
        assert self.server.stderr is not None
        assert "serving http" in self.server.stderr.readline()

    def stop(self) -> None:
        assert self.server is not None
        self.server.send_signal(signal.SIGTERM)
        _, err = self.server.communicate(timeout=60)
        assert self.server.returncode == 0, err

    def begin(self, *arguments: object, stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dietcode", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        self.begun.append(process)
        return process

    def run(self, *arguments: object, status: int = 0) -> tuple[str, str]:
        process = self.begin(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == status, (arguments, out, err)
        return out, err

    def state(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("show", job, "--json")[0])
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.begun:  # a server's worker ends with it
        process.kill()
        process.communicate()


@pytest.mark.long
def test_a_full_disk_a_restart_and_a_pull(place: Place) -> None:
    (place.folder / "spec.json").write_text(json.dumps(SPEC))
    place.start()
    assert place.server is not None
    resource.prlimit(place.server.pid, resource.RLIMIT_FSIZE, (WAL_LIMIT_BYTES, resource.RLIM_INFINITY))
    out, err = place.run("submit", "spec.json", "--wait", status=1)
    job = out.splitlines()[-1]
    assert re.fullmatch(r"[0-9a-f]{16}", job)
    last = err.splitlines()[-1]
    assert last.startswith(f"dietcode: job {job}: failed: ") and "limit on file sizes" in last, err
    assert place.state(job)["measured"] > 0 and place.state(job)["library"] is None
    assert json.loads(place.run("jobs", "--json")[0])[0]["id"] == job
    with closing(sqlite3.connect(place.folder / "data" / "dietcode.db")) as database:
        for table in ("libraries", "library_files", "blobs", "blob_chunks", "dispatch_table"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table

    resource.prlimit(
        place.server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    measured = place.state(job)["measured"]
    log = place.folder / "watch.log"
    # With nothing left to measure the second attempt could end before the server does: it waits here.
    with FileLock(place.folder / "cache" / "locks" / "measure.lock"):
        place.run("resume", job)
        with log.open("w") as stream:
            watch = place.begin("watch", job, stderr=stream)
        until_said(watch, log, f"job {job}: running", times=2)  # the first attempt's is history
        place.stop()  # hands the job back
    time.sleep(1.0)
    place.start()
    out, _ = watch.communicate(timeout=120)
    err = log.read_text()
    assert watch.returncode == 0 and out == "real@1\n", err
    assert err.count("the server does not answer; trying again") == 1, err
    assert re.search(rf"job {job}: running[\s\S]*job {job}: queued[\s\S]*job {job}: succeeded", err), err
    now = place.state(job)
    assert now["measured"] == measured, "what was measured before is not measured again"
    assert now["attempt"] == 3

    again, err = place.run("submit", "spec.json")
    assert again == f"{job}\n" and "known already" in err
    place.run("cancel", job, status=2)
    place.run("show", "0123456789abcdef", status=2)
    records = num_records(place)
    out, _ = place.run("reselect", job, "--objective", "max_loss=0.5,binary_size=0.4")
    other = place.state(out.strip())
    assert other["library"] == {"name": "real", "version": 2} and other["measured"] == 0
    assert not other["measure"] and num_records(place) == records
    out, _ = place.run("pull", "real@1", "-o", "lib")
    assert out == "lib\n" and (place.folder / "dietcode.lock").is_file()
    place.stop()
    check(place.folder / "lib")
    place.run("pull", "real@1", "-o", "other")  # from the cache
    check(place.folder / "other")
    explained(place)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_worker_that_dies_while_it_compares_loses_only_that(place: Place) -> None:
    place.environment |= {"DIETCODE_SERVE_COMPARE": "numpy", "DIETCODE_SERVE_RETRY_SECS": "0.1"}
    spec = SPEC | {"budget": {"trials": 6, "seconds": 900}}  # it ends by trials, also where others work
    (place.folder / "spec.json").write_text(json.dumps(spec))
    place.start()
    job = place.run("submit", "spec.json")[0].strip()
    compares(place, job)
    measured = "SELECT count(*) FROM tuning_records WHERE kind = 'micro_kernel'"
    records, runner = ask(place, measured), ask(place, f"SELECT runner FROM jobs WHERE id = '{job}'")[0][0]
    os.kill(int(runner.split("/")[1]), signal.SIGKILL)
    assert place.run("watch", job)[0] == "real@1\n"
    assert ask(place, measured) == records, "nothing is measured again"
    assert ask(place, f"SELECT attempt FROM jobs WHERE id = '{job}'") == [(2,)]
    rows = ask(place, "SELECT position, measured_gflops, vendor, vendor_gflops FROM comparisons")
    assert 0 < len({row[0] for row in rows}) == len(rows) <= 16
    assert all(row[1] > 0 and row[2] == "numpy" and row[3] > 0 for row in rows)
    chosen = ask(place, "SELECT micro_kernel FROM micro_kernels WHERE category IS NOT NULL")
    assert set(chosen) <= set(ask(place, "SELECT micro_kernel FROM listings WHERE kind = 'tir'"))

    other = spec | {"objective": {"binary_size": 0.3}}  # of the same workload: all is measured
    (place.folder / "other.json").write_text(json.dumps(other))
    job = place.run("submit", "other.json")[0].strip()
    compares(place, job)
    worker = int(ask(place, f"SELECT runner FROM jobs WHERE id = '{job}'")[0][0].split("/")[1])
    os.kill(worker, signal.SIGSTOP)  # it could have compared all before the command has begun
    place.run("cancel", job)  # the server kills it as it is, perhaps before the command has ended
    begun = time.monotonic()
    while ask(place, f"SELECT state FROM jobs WHERE id = '{job}'") != [("cancelled",)]:
        assert time.monotonic() - begun < 10
        time.sleep(0.05)
    assert ask(place, "SELECT count(*) FROM libraries") == [(1,)]
    place.stop()


def ask(place: Place, query: str) -> list[Any]:
    with closing(sqlite3.connect(place.folder / "data" / "dietcode.db", timeout=10)) as database:
        return database.execute(query).fetchall()


def compares(place: Place, job: str) -> None:
    """Until an instance has been compared."""
    deadline = time.monotonic() + 250
    query = f"SELECT state, progress FROM jobs WHERE id = '{job}'"
    while True:
        ((state, progress),) = ask(place, query)
        step = json.loads(progress or "{}")
        if step.get("stage") == "compare" and step["done"] > 0:
            return
        assert state in {"queued", "running"} and time.monotonic() < deadline, (state, step)
        time.sleep(0.02)


def until_said(process: subprocess.Popen[str], log: Path, text: str, times: int = 1) -> None:
    deadline = time.monotonic() + 60
    while log.read_text().count(text) < times:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def num_records(place: Place) -> int:
    return int(ask(place, "SELECT count(*) FROM tuning_records")[0][0])


def explained(place: Place) -> None:
    """Which kernel serves T = 3, and why: with nothing but SQL."""
    with closing(sqlite3.connect(place.folder / "data" / "dietcode.db")) as database:
        database.row_factory = sqlite3.Row
        query = (
            "SELECT * FROM dispatch_explained WHERE library = 'real' AND version = 1 AND first_variable = 3"
        )
        (row,) = database.execute(query).fetchall()
    library = dietcode.load(place.folder / "lib")
    assert row["category"] == library.select(T=3)
    report = library.report["instances"][2]
    assert row["micro_kernel"] == report["micro_kernel"]
    assert row["predicted_gflops"] == pytest.approx(report["predicted_gflops"])
    assert row["best_predicted_gflops"] >= row["predicted_gflops"]
    factors = row["f_local"] * row["f_spatial"] * row["f_pad"]
    # A launch that costs nothing leaves the product itself, rounded once more.
    assert factors / 1e9 >= row["predicted_gflops"] * (1 - 1e-12), "the launch time comes on top"


def check(folder: Path) -> None:
    library = dietcode.load(folder)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 24), dtype=np.float32)
    for t in range(1, 5):
        x = rng.standard_normal((4 * t, 24), dtype=np.float32)
        y = library(X=x, W=library.pack(W=w))
        assert error(y, x.astype(np.float64) @ w.T.astype(np.float64)) <= SAFE_ERROR
