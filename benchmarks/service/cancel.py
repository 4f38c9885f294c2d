"""A job that tunes at one server is cancelled at another, over one PostgreSQL: until all of it is gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.service.base import served, spec_of
from benchmarks.service.postgres import postgres
from dietcode.client import Client
from dietcode.protocol import JobState
from dietcode_server.store import jobs
from dietcode_server.store.database import Database

_TRIES_SECS = 120.0


def measure(folder: Path, *, rounds: int = 3) -> dict[str, Any]:
    """Seconds from the request until no process of the job is left, and until its state says so."""
    with postgres() as url:
        environment = {"DIETCODE_SERVE_DATABASE_URL": url}
        with (
            served(folder / "one", environment) as (one, first),
            served(folder / "two", environment) as (two, second),
        ):
            database = Database(url)
            servers = {first.pid: one, second.pid: two}
            results = [_cancel(database, servers, number) for number in range(rounds)]
            database.dispose()
    return {
        "rounds": results,
        "worst_gone_secs": max(result["gone_secs"] for result in results),
        "worst_state_secs": max(result["state_secs"] for result in results),
    }


def _cancel(database: Database, servers: dict[int, Client], number: int) -> dict[str, Any]:
    """Submit a job, wait until it has processes of its own, cancel it where it does not run."""
    client = next(iter(servers.values()))
    job_id = client.submit(spec_of(number, budget={"trials": 1024, "seconds": 600 + number})).id
    processes = _processes(database, client, job_id)
    other = next(asked for pid, asked in servers.items() if pid != processes[0].ppid())
    begun = time.perf_counter()
    other.cancel(job_id)
    _, alive = psutil.wait_procs(processes, timeout=30)
    gone_secs = time.perf_counter() - begun
    while other.job(job_id).state != JobState.CANCELLED:
        time.sleep(0.02)
    return {
        "processes": len(processes),
        "alive": len(alive),
        "gone_secs": gone_secs,
        "state_secs": time.perf_counter() - begun,
    }


def _processes(database: Database, client: Client, job_id: str) -> list[psutil.Process]:
    """The job's worker and its descendants, once it measures."""
    deadline = time.monotonic() + _TRIES_SECS
    while time.monotonic() < deadline:
        time.sleep(0.2)
        job = client.job(job_id)
        if job.progress is None or job.progress.stage not in {"measure", "seed"}:
            continue
        with database.read() as session:
            runner = jobs.get(session, job_id).runner
        worker = psutil.Process(int(str(runner).split("/")[1]))
        children = worker.children(recursive=True)
        if children:
            return [worker, *children]
    raise RuntimeError(f"job {job_id} did not begin to measure within {_TRIES_SECS:.0f} s")
