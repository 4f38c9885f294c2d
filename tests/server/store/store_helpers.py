"""Jobs, library files and child processes for the tests of the store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from small_libraries import spec_data, with_manifest
from sqlalchemy.orm import Session

from dietcode.protocol import Job, JobState
from dietcode.workload.parse import spec_from_data
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, wire
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

Q, W, R, I, S, F, C = (  # noqa: E741
    JobState.QUEUED,
    JobState.WAITING_FOR_RUNNER,
    JobState.RUNNING,
    JobState.INTERRUPTED,
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.CANCELLED,
)
ALL = tuple(JobState)
DEVICE = ("cpu0", "A test CPU", {"kind": "llvm"})
CHILDREN = Path(__file__).with_name("store_children.py")


def submit(session: Session, name: str = "dense", **changes: Any) -> tuple[JobRow, bool]:
    """Submit a job; jobs of different names are different jobs."""
    request: dict[str, Any] = {
        "spec": spec_from_data(spec_data(name)),
        "target": {"kind": "llvm", "mcpu": "test"},
        "device": DEVICE,
        "runnable": True,
        "force": False,
        "idempotency_key": None,
    }
    return jobs.submit(session, **(request | changes))


def job_in(database: Database, state: JobState) -> str:
    """The id of a new job that came into `state` as jobs do."""
    with database.write() as session:
        row, _ = submit(session, force=True, runnable=state != JobState.WAITING_FOR_RUNNER)
        if state not in {JobState.QUEUED, JobState.WAITING_FOR_RUNNER}:
            assert jobs.claim(session, row.id, "me")
        if state not in {JobState.QUEUED, JobState.WAITING_FOR_RUNNER, JobState.RUNNING}:
            assert jobs.finish(session, row.id, state, error="why" if state == JobState.FAILED else None)
        return row.id


def start(command: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a function of store_children.py; it prints "ready" and waits for a line on its standard input."""
    process = subprocess.Popen(
        [sys.executable, str(CHILDREN), command, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise AssertionError(process.communicate(timeout=60)[1])
    return process


def go(*processes: subprocess.Popen[str]) -> list[Any]:
    """Let all go on at once; what each printed, as JSON."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = []
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        results.append(json.loads(out))
    return results


def library_files(name: str = "dense", code: bytes = b"code", **report_changes: Any) -> dict[str, bytes]:
    """Files that fit each other: 3x16 serves T = 1..4, 4x32 T = 5..8; 6x16 would be best for T = 5."""
    report: dict[str, Any] = {
        "micro_kernels": [
            _micro_kernel("3x16", 0, "seed"),
            _micro_kernel("4x32", 1, "mutation of 3x16"),
            _micro_kernel("6x16", None, "random"),
        ],
        "instances": [_instance(t) for t in range(1, 9)],
    }
    dispatch = {
        "categories": [
            {"category": 0, "micro_kernel": "3x16", "rows": 3, "columns": 16},
            {"category": 1, "micro_kernel": "4x32", "rows": 4, "columns": 32},
        ],
        "rule": {"root": {"variable": "T", "threshold": 4, "below": 0, "above": 1}},
    }
    files = {
        "library.so": code,
        "dispatch.json": json.dumps(dispatch).encode(),
        "report.json": json.dumps(report | report_changes).encode(),
    }
    return with_manifest(files, name)


def _micro_kernel(name: str, category: int | None, provenance: str) -> dict[str, Any]:
    return {
        "micro_kernel": name,
        "provenance": provenance,
        "bytes": 1234,
        "category": category,
        "instances_preferring": 4,
        "instances_served": 4 if category is not None else 0,
        "f_local": {"median_fit_error": 0.01},
    }


def _instance(t: int) -> dict[str, Any]:
    small = t <= 4
    return {
        "shape_vars": {"T": t},
        "weight": 0.125,
        "category": 0 if small else 1,
        "micro_kernel": "3x16" if small else "4x32",
        "f_local": 2e9,
        "f_spatial": 0.75,
        "f_pad": 0.9,
        "predicted_gflops": 30.0,
        "best_micro_kernel": "6x16" if t == 5 else ("3x16" if small else "4x32"),
        "best_predicted_gflops": 40.0 if t == 5 else 30.0,
    }


def job(database: Database, job_id: str) -> Job:
    """A job as it travels."""
    with database.read() as session:
        return wire.to_wire(session, jobs.get(session, job_id))


def states(database: Database, job_id: str) -> list[tuple[JobState | None, str]]:
    """State and message of each state event; checks that the numbers have no gaps."""
    with database.read() as session:
        events = [wire.event_to_wire(row) for row in job_events.events_after(session, job_id, 0)]
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    return [(event.state, event.message) for event in events if event.kind == "state"]
