"""A database with some of everything in it, and what a test expects to read of it.

``python store_rows.py 0003`` writes ``revisions/0003.sql``: for each revision, as soon as another follows it.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from store_helpers import library_files, submit
from store_records import CALIBRATION, DEVICE, SEED, micro_kernel

from dietcode.protocol import JobState, Progress
from dietcode_server.store import blobs, comparisons, jobs, libraries, listings, wire
from dietcode_server.store import events as job_events
from dietcode_server.store.backup import copy_rows, reflected
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.database import Database
from dietcode_server.store.records import SqlRecords
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import Base

REVISIONS = Path(__file__).with_name("revisions")
STATES = [state for state in JobState if state != JobState.SUCCEEDED]


def fill(database: Database) -> None:
    """Jobs in every state, a workload with records, two versions of a library."""
    with database.write() as session:
        for state in STATES:
            row, _ = submit(session, state.value, runnable=state != JobState.WAITING_FOR_RUNNER)
            if state in {JobState.QUEUED, JobState.WAITING_FOR_RUNNER}:
                continue
            jobs.claim(session, row.id, "host/1/1.00")
            jobs.add_progress(session, row.id, Progress(stage="measure", message="one", done=1, total=3))
            if state != JobState.RUNNING:
                jobs.finish(session, row.id, state, error="a reason")
        made, _ = submit(session, "made")
        jobs.claim(session, made.id, "host/1/1.00")
    store = SqlRecords(database, made.workload, DEVICE, spec=made.spec, job_id=made.id, attempt=1)
    for line in (CALIBRATION, SEED, micro_kernel(4), micro_kernel(6, points=[], secs=[], error="slow")):
        store.append(line)
    with database.write() as session:
        for code in (b"one", b"two"):
            row = libraries.publish(session, job=made, device_name="a CPU", files=library_files("made", code))
        compared = Compared(3, 12.5, {"numpy": 9.0}, "numpy", 9.0, 1e-7, utc_now())
        comparisons.keep(session, row.id, [compared])
        listings.keep(session, row.id, {"3x16": ("tir", "def micro_kernel_3x16():\n")})
        jobs.finish(session, made.id, JobState.SUCCEEDED, library_id=row.id)


def facts(database: Database) -> dict[str, Any]:
    """All that a reader of today's version finds."""
    with database.read() as session:
        found, _ = jobs.list_jobs(session)
        by_name = {row.name: wire.to_wire(session, row) for row in found}
        rows = session.execute(select(func.count()).select_from(Base.metadata.tables["dispatch_table"]))
        made = libraries.get(session, "made")
        return {
            "jobs": by_name,
            "events": {
                row.name: [wire.event_to_wire(event) for event in job_events.events_after(session, row.id, 0)]
                for row in found
            },
            "libraries": [wire.library_to_wire(session, libraries.get(session, "made", n)) for n in (1, 2)],
            "manifest": b"".join(blobs.read(session, made.manifest_digest)),
            "dispatch": rows.scalar_one(),
            "compared": _compared(session, made.id),
            "code": listings.code_of(session, made.id, "3x16"),
            "records": _records(database, session, by_name["made"].workload),
        }


def _compared(session: Session, library_id: int) -> list[tuple[Any, ...]]:
    found = comparisons.of_library(session, library_id)
    return [(row.position, row.measured_gflops, row.vendors, row.measured_at) for row in found]


def _records(database: Database, session: Session, workload: str) -> list[dict[str, Any]]:
    return list(SqlRecords(database, workload, DEVICE, spec={}).records.lines())


def load(path: Path, place: Path) -> None:
    """A SQLite database from its dump."""
    with closing(sqlite3.connect(place)) as made:
        made.executescript(path.read_text(encoding="utf-8"))


def main(revision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        head, old = (Database(f"sqlite:///{folder}/{name}.db") for name in ("head", "old"))
        head.upgrade()
        fill(head)
        old.upgrade(revision)
        with head.snapshot() as given, old.begin() as made:
            copy_rows(given, made, reflected(made))
        for database in (head, old):
            database.dispose()
        with closing(sqlite3.connect(f"{folder}/old.db")) as written:
            text = "\n".join(written.iterdump()) + "\n"
    REVISIONS.mkdir(exist_ok=True)
    (REVISIONS / f"{revision}.sql").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
