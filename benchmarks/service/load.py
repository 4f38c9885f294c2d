"""Pulls and submissions while a job is tuning: how long metadata takes, and what the server holds.

The pulls are a process of their own; server, worker, pulls and questions share this machine's cores.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.service.asking import Asker, Seen, at_rate
from benchmarks.service.base import (
    ROOT,
    database_in,
    made_up_files,
    new_token,
    peak_rss_bytes,
    percentiles,
    served,
    spec_of,
)
from dietcode.client import Client
from dietcode.protocol import JobState
from dietcode_server.store import libraries

# Nobody is refused for asking too often: that is not what is measured.
_NO_QUOTAS = {
    "DIETCODE_SERVE_MAX_JOBS_PER_OWNER": "1000000",
    "DIETCODE_SERVE_MAX_SUBMISSIONS_PER_MINUTE": "1000000",
}
_QUIET_SECS = 10.0
_NOT_HERE = {"kind": "llvm", "mcpu": "diamondrapids"}


def measure(
    folder: Path,
    *,
    num_pulls: int = 200,
    library_bytes: int = 10_000_000,
    submissions: float = 50.0,
    questions: float = 20.0,
    secs: float = 60.0,
    tune: bool = True,
) -> dict[str, Any]:
    """Milliseconds of metadata calls and submissions, seconds of pulls, the server's memory, and errors.

    Parameters
    ----------
    num_pulls : int
        Pulls at any moment; each of as many connections begins its next when one has ended.
    submissions, questions : float
        A second; each submission is a new job.
    secs : float
        For so long new pulls begin. Submissions and questions go on until the last has ended.
    tune : bool
        Have a job tune meanwhile, from nothing; else all jobs ask for a device that is not here.
    """
    database = database_in(folder)
    token = new_token(database)
    with database.write() as session:
        libraries.publish(session, job=None, device_name="none", files=made_up_files(library_bytes))
    database.dispose()
    with served(folder, _NO_QUOTAS, token) as (client, process), Asker(client.server, token) as asker:
        target = {"kind": "llvm"} if tune else _NOT_HERE
        tuning = _tuning(client) if tune else client.submit(spec_of(0, target=target)).id
        asks = {
            "library": lambda _: asker.ask("/api/v1/libraries/pulled/1"),
            "job": lambda _: asker.ask(f"/api/v1/jobs/{tuning}"),
        }
        end = time.monotonic() + min(_QUIET_SECS, secs)
        before = at_rate(questions, lambda: time.monotonic() > end, asks)
        rss_before, cpu_before = process.memory_info().rss, _cpu_secs(process)
        told = folder / "pulls.json"
        with (
            _pulling(told, client.server, token, "pulled", num_pulls, secs) as pulls,
            ThreadPoolExecutor(1) as pool,
        ):
            submitter = pool.submit(_submit, asker, submissions, pulls, target)
            during = at_rate(questions, lambda: pulls.poll() is not None, asks)
            submitted = submitter.result()
            pulled = json.loads(told.read_text())
        state = client.job(tuning).state
        result = {
            "asked": {"num_pulls": num_pulls, "submissions": submissions, "secs": secs, "tune": tune},
            "metadata": _all(during),
            "metadata_by_call": {name: percentiles(millis) for name, millis in during.millis.items()},
            "metadata_before": _all(before),
            "submissions": _all(submitted) | {"per_sec": _count(submitted) / pulled["wall_secs"]},
            "pulls": _of_pulls(pulled),
            "statuses": dict(before.statuses + during.statuses + submitted.statuses),
            "errors": before.num_errors + during.num_errors + submitted.num_errors + len(pulled["errors"]),
            "server_rss_bytes": {"before": rss_before, "peak": peak_rss_bytes(process)},
            "server_cpu_secs": _cpu_secs(process) - cpu_before,
            "job_after": state.value,
        }
        _end(client, process, tuning)
    return result


def _tuning(client: Client) -> str:
    """A job that measures now."""
    job = client.submit(spec_of(0, budget={"trials": 1024, "seconds": 900}))
    while job.progress is None or job.progress.stage not in {"measure", "seed"}:
        if job.state not in {JobState.QUEUED, JobState.RUNNING}:
            raise RuntimeError(f"the job that was to tune meanwhile has {job.state}: {job.error}")
        time.sleep(0.5)
        job = client.job(job.id)
    return job.id


def _submit(asker: Asker, rate: float, pulls: subprocess.Popen[bytes], target: dict[str, str]) -> Seen:
    """New jobs until the pulls have ended; they wait, as one tunes or nobody here can measure them."""
    plain = spec_of(0, target=target)
    numbers = itertools.count(1)

    def submit(_: int) -> tuple[int, bytes]:
        number = next(numbers)
        budget = {"trials": 64, "seconds": 300 + number}
        return asker.ask("/api/v1/jobs", {"spec": plain | {"name": f"load-{number % 100}", "budget": budget}})

    return at_rate(rate, lambda: pulls.poll() is not None, {"submit": submit})


@contextmanager
def _pulling(told: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    with told.open("w") as output:
        pulls = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.service.pulls", *map(str, arguments)],
            stdout=output,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
    try:
        yield pulls
    finally:
        pulls.kill()
        pulls.wait()


def _cpu_secs(process: psutil.Process) -> float:
    """Of the server alone, without its worker."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _all(seen: Seen) -> dict[str, float]:
    return percentiles([millis for every in seen.millis.values() for millis in every])


def _count(seen: Seen) -> int:
    return sum(map(len, seen.millis.values()))


def _of_pulls(pulled: dict[str, Any]) -> dict[str, Any]:
    return {
        "all": percentiles([1e3 * secs for secs in pulled["pull_secs"]]),
        "wall_secs": pulled["wall_secs"],
        "mb_per_sec": pulled["bytes"] / pulled["wall_secs"] / 1e6,
        "errors": pulled["errors"][:5],
    }


def _end(client: Client, process: psutil.Process, job_id: str) -> None:
    """Cancel what tunes, so that the server ends at once."""
    workers = process.children(recursive=True)
    client.cancel(job_id)
    psutil.wait_procs(workers, timeout=20)
