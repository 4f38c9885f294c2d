"""The process that works on one job: ``python -m dietcode_server.engine.worker``, its request on stdin.

The job's row is the truth: the worker claims it (before the compiler is imported), stamps its heartbeat, puts
every step and every measurement into the database as it becomes known, and publishes the library in the
transaction that ends the job.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dietcode.errors import DietCodeError
from dietcode.lifeline import die_with_parent
from dietcode.protocol import JobState, Progress
from dietcode.runtime.cache import cache_dir
from dietcode_server.engine.runner import end_tree, runner_name
from dietcode_server.logs import configure_logs
from dietcode_server.store import jobs, libraries
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.tables import JobRow

NOT_CLAIMED = 3  # exit status
_SAME_STEP_SECS = 5.0  # how often an unchanged step is told again, for its time left
_log = logging.getLogger("dietcode.worker")


class Reporter:
    """A listener that puts what it hears into the job's events."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database = database
        self._job_id = job_id
        self._last: tuple[Any, ...] = ()
        self._last_at = 0.0
        self.best_gflops: float | None = None

    def hear(self, event: Any) -> None:
        """Take in a `dietcode.tuner.events.Event`; steps that say nothing new are told every few seconds."""
        step = (event.stage, event.message, event.done, event.total)
        now = time.monotonic()
        if step == self._last and now - self._last_at < _SAME_STEP_SECS:
            return
        self._last, self._last_at = step, now
        if event.best_gflops is not None and event.stage == "measure":
            self.best_gflops = event.best_gflops
        progress = Progress(
            stage=event.stage,
            message=event.message,
            done=event.done,
            total=event.total,
            best_gflops=self.best_gflops if event.best_gflops is None else event.best_gflops,
            secs_left=event.secs_left,
        )
        with self._database.write() as session:
            jobs.add_progress(session, self._job_id, progress, dict(event.data))


class Heartbeat(threading.Thread):
    """Says that this worker lives; ends it where the job is no longer its own."""

    def __init__(self, database: Database, job_id: str, runner: str, interval_secs: float) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._database, self._job_id, self._runner = database, job_id, runner
        self._interval_secs = interval_secs
        self._done = threading.Event()

    def run(self) -> None:
        """Stamp until `stop`; a database that is busy or full for a while does not end the work."""
        while not self._done.wait(self._interval_secs):
            try:
                with self._database.write() as session:
                    mine = jobs.heartbeat(session, self._job_id, self._runner)
            except StoreError as error:
                _log.warning("heartbeat: %s", error, extra={"job": self._job_id})
                continue
            if not mine and not self._done.is_set():
                _log.warning("cancelled, or given to another worker", extra={"job": self._job_id})
                end_tree(os.getpid())

    def stop(self) -> None:
        """No more stamps."""
        self._done.set()


def work(database: Database, job_id: str, work_root: Path, heartbeat_secs: float) -> int:
    """Claim one job and carry it out; the exit status."""
    runner = runner_name()
    with database.write() as session:
        if not jobs.claim(session, job_id, runner):
            return NOT_CLAIMED
    with database.read() as session:
        job = jobs.get(session, job_id)
        session.expunge(job)
    heartbeat = Heartbeat(database, job_id, runner, heartbeat_secs)
    heartbeat.start()
    try:
        _tune_and_publish(database, job, runner, work_root)
        return 0
    except DietCodeError as error:
        _finish(database, job_id, runner, without_places(str(error), work_root))
    except Exception as error:
        _log.exception("failed", extra={"job": job_id})
        what = without_places(" ".join(str(error).split())[:300], work_root)
        _finish(database, job_id, runner, f"internal error: {type(error).__name__}: {what}")
    finally:
        heartbeat.stop()
    return 1


def _tune_and_publish(database: Database, job: JobRow, runner: str, work_root: Path) -> None:
    from dietcode.target.cpu import device_record, resolve_target
    from dietcode.tuner.tune import make_library
    from dietcode.workload.parse import spec_from_data
    from dietcode_server.engine.keeper import SqlKeeper

    spec = spec_from_data(job.spec)
    target = resolve_target(spec.target)
    device = device_record(target)
    if target.to_json() != job.target or device["id"] != job.device_id:
        with database.write() as session:  # the data folder moved to another machine
            jobs.finish(session, job.id, JobState.WAITING_FOR_RUNNER, runner=runner)
        return
    reporter = Reporter(database, job.id)
    keeper = SqlKeeper(database, job, work_root)
    known = None if job.measure else keeper.open(job.workload, device).records
    result = make_library(spec, known=known, keeper=keeper, listener=reporter.hear)
    with database.write() as session:
        row = jobs.get(session, job.id)
        library = libraries.publish(
            session, job=row, device_name=str(result.device["name"]), files=result.files
        )
        size = sum(len(data) for name, data in result.files.items() if not name.startswith("blobs/"))
        message = f"{library.name}@{library.version}: {size} bytes"
        progress = Progress(
            stage="publish", message=message, done=1, total=1, best_gflops=reporter.best_gflops
        )
        jobs.add_progress(session, job.id, progress)
        jobs.finish(session, job.id, JobState.SUCCEEDED, library_id=library.id, runner=runner)


def without_places(text: str, work_root: Path) -> str:
    """An error as a client may read it: without the server's folders."""
    for place, name in ((work_root.parent, "DATA_DIR"), (cache_dir(), "CACHE"), (Path.home(), "~")):
        text = text.replace(str(place), name)
    return text


def _finish(database: Database, job_id: str, runner: str, error: str) -> None:
    with database.write() as session:
        jobs.finish(session, job_id, JobState.FAILED, error=error, runner=runner)


def main() -> int:
    """Read the request and work."""
    request = json.load(sys.stdin)
    die_with_parent(request["parent_pid"])
    configure_logs(request["log_format"])
    database = Database(request["database_url"])
    return work(database, request["job"], Path(request["work_root"]), request["heartbeat_secs"])


if __name__ == "__main__":
    sys.exit(main())
