"""What the tests of the store run in processes of their own: ``python store_children.py FUNCTION ARGUMENT…``.

Each prints "ready", waits for a line, does its work and prints what came of it as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from dietcode.errors import DietCodeError
from dietcode.protocol import Progress
from dietcode_server.store import blobs, jobs
from dietcode_server.store import events as job_events
from dietcode_server.store.database import Database


def say(data: object) -> None:
    sys.stdout.write(data if isinstance(data, str) else json.dumps(data) + "\n")
    sys.stdout.flush()


def wait() -> None:
    say("ready\n")
    sys.stdin.readline()


def upgrade(*urls: str) -> None:
    """Upgrade several databases, one after the other."""
    wait()
    for url in urls:
        database = Database(url)
        database.upgrade()
        database.dispose()
    say(True)


def claim(url: str, runner: str, *job_ids: str) -> None:
    """Try to get each job; prints those that it got."""
    database = Database(url)
    got = []
    wait()
    for job_id in job_ids:
        with database.write() as session:
            if jobs.claim(session, job_id, runner):
                got.append(job_id)
    say(got)


def progress(url: str, job_id: str, count: str) -> None:
    """Add many events, each in a transaction of its own."""
    database = Database(url)
    wait()
    for done in range(int(count)):
        with database.write() as session:
            jobs.add_progress(session, job_id, Progress(stage="measure", message="", done=done))
            job_events.count_measured(session, job_id)
    say(True)


def fill(url: str, limit_bytes: str) -> None:
    """Put blobs until a limit on file sizes stops it; then go on with what still fits."""
    import resource

    database = Database(url)
    wait()
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (int(limit_bytes), resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )
    error, kept = "", 0
    while not error and kept < 1000:
        try:
            with database.write() as session:
                blobs.add(session, kept.to_bytes(8, "big") * 8192)
            kept += 1
        except DietCodeError as caught:
            error = str(caught)
            kind = type(caught).__name__
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
    with database.write() as session:
        blobs.add(session, b"after")
    say({"error": error, "kind": kind, "kept": kept})


def append(url: str, workload: str) -> None:
    """Append tuning records for ever; prints the number of each one that was stored."""
    from store_records import DEVICE, micro_kernel

    from dietcode_server.store.records import SqlRecords

    store = SqlRecords(Database(url), workload, DEVICE, spec={})
    wait()
    for rows in range(1, 1_000_000):
        store.append(micro_kernel(rows))
        say(rows)


def main(name: str, *arguments: str) -> None:
    functions: dict[str, Any] = {f.__name__: f for f in (upgrade, claim, progress, fill, append)}
    functions[name](*arguments)


main(*sys.argv[1:])
