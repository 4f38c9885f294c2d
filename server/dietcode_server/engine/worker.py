"""The process that works on one job: ``python -m dietcode_server.engine.worker``, its request on stdin.

The job's row is the truth: the worker claims it (before the compiler is imported), prolongs its lease, puts
every step and every measurement into the database as it becomes known, and publishes the library in the
transaction that ends the job. Where the lease is lost nothing more is written, and the worker ends.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietcode.bench.confined import Compare
from dietcode.errors import DietCodeError, TargetError
from dietcode.lean import leave_disco_out
from dietcode.lifeline import die_with_parent
from dietcode.measure.engine_spec import EngineSpec
from dietcode.protocol import JobState, Progress
from dietcode.runtime.cache import cache_dir
from dietcode_server.engine.holding import Heartbeat, HeldChildren, clock_secs
from dietcode_server.engine.runner import runner_name
from dietcode_server.logs import configure_logs
from dietcode_server.store import architectures, comparisons, jobs, leases, libraries, slots
from dietcode_server.store import listings as code
from dietcode_server.store.clock import clock
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.leases import LEASE_SECS
from dietcode_server.store.patience import patiently
from dietcode_server.store.tables import JobRow
from dietcode_server.store.transitions import locked

if TYPE_CHECKING:
    from dietcode.measure.children import Children
    from dietcode.measure.engine import Device, Engine
    from dietcode.workload.spec import Spec

NOT_CLAIMED = 3  # exit status
_SAME_STEP_SECS = 5.0  # how often an unchanged step is noted again, for its time left
_log = logging.getLogger("dietcode.worker")


class Reporter:
    """Writes the tuner's events into the job's events."""

    def __init__(self, database: Database, job_id: str, runner: str) -> None:
        self._database = database
        self._job_id, self._runner = job_id, runner
        self._last: tuple[Any, ...] = ()
        self._last_at = 0.0
        self.best_gflops: float | None = None

    def on_event(self, event: Any) -> None:
        """Take in a `dietcode.tuner.events.Event`; unchanged steps are noted every few seconds."""
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
        patiently(lambda: self._add(progress, dict(event.data)))

    def on_wait(self, message: str) -> None:
        """Note what is waited for."""
        patiently(lambda: self._add(Progress(stage="calibrate", message=message), {}))

    def _add(self, progress: Progress, data: dict[str, Any]) -> None:
        with self._database.write() as session:
            jobs.add_progress(session, self._job_id, progress, data, runner=self._runner)


class _NotOursError(StoreError):
    """Somebody else has the job, or measures where this one would: nothing was claimed."""


def claim(
    database: Database, job_id: str, runner: str, lease_secs: float, slot: str | None = None
) -> JobRow | None:
    """Claim a job, and the slot where it measures, in one transaction.

    Parameters
    ----------
    slot : str or None
        None where it becomes known later: see `Heartbeat.take`.

    Returns
    -------
    JobRow or None
        The job's row; None where somebody else has the job or the slot.
    """

    def attempt() -> JobRow:
        with database.write() as session:
            locked(session, job_id)  # before the slot, which is reserved for as long as the job is queued
            if slot is not None and not slots.take(
                session, slot, runner, job_id, lease_secs, reserved_too=True
            ):
                raise _NotOursError(f"another job measures on {slot}")
            mine = jobs.claim(session, job_id, runner, lease_secs=lease_secs)
            row = jobs.get(session, job_id)
            # An earlier try may have got it, and lost its connection before it heard so.
            if not mine and not leases.holds(row, runner, clock(session)):
                raise _NotOursError(f"job {job_id} is not queued")  # so that the slot is not taken
            return row

    try:
        return patiently(attempt)
    except _NotOursError:
        return None


def work(
    database: Database,
    job_id: str,
    work_root: Path,
    heartbeat_secs: float,
    lease_secs: float = LEASE_SECS,
    slot: str | None = None,
    engine: EngineSpec | None = None,
    compare: Compare = "none",
) -> int:
    """Claim one job and carry it out; return the exit status.

    Parameters
    ----------
    work_root : Path
        Folder of what running jobs need.
    heartbeat_secs, lease_secs : float
        How often the leases are prolonged, and for how long.
    slot : str or None
        As `claim` takes it.
    engine : EngineSpec or None
        Where it builds and measures; by default this machine.
    compare : str
        What the library is measured beside.
    """
    runner, since = runner_name(), clock_secs()
    job = claim(database, job_id, runner, lease_secs, slot)
    if job is None:
        return NOT_CLAIMED
    heartbeat = Heartbeat(database, job_id, runner, heartbeat_secs, lease_secs, slot, since)
    heartbeat.start()
    try:
        _tune_and_publish(database, job, runner, work_root, heartbeat, engine or EngineSpec(), compare)
        return 0
    except DietCodeError as error:
        _finish(database, job_id, runner, JobState.FAILED, without_paths(str(error), work_root))
    except Exception as error:
        _log.exception("failed", extra={"job": job_id})
        what = without_paths(" ".join(str(error).split())[:300], work_root)
        what = f"internal error: {type(error).__name__}: {what}"
        _finish(database, job_id, runner, JobState.FAILED, what)
    finally:
        heartbeat.stop()
    return 1


def _tune_and_publish(
    database: Database,
    job: JobRow,
    runner: str,
    work_root: Path,
    heartbeat: Heartbeat,
    engine_spec: EngineSpec,
    compare: Compare,
) -> None:
    from dietcode.measure.opening import open_engine
    from dietcode.tuner.events import Event
    from dietcode.tuner.tune import make_library
    from dietcode.workload.parse import spec_from_data
    from dietcode_server.engine.comparing import compare_library
    from dietcode_server.engine.keeper import SqlKeeper, known_records

    spec = spec_from_data(job.spec)
    reporter = Reporter(database, job.id, runner)
    keeper = SqlKeeper(database, job, work_root)
    known = known_records(database, job)
    with ExitStack() as stack:
        children: Children | None = None
        engine: Engine | None = None
        if known is not None:
            line = f"from {len(known.measurements)} micro-kernels measured on {known.device['name']}"
            reporter.on_event(Event("select", line))
        else:
            engine = stack.enter_context(open_engine(engine_spec))
            device = _device_of(engine, spec, job)
            if device is None:
                _finish(database, job.id, runner, JobState.WAITING_FOR_RUNNER)
                return
            if job.measure:
                found = stack.enter_context(engine.children(device, reporter.on_wait))
                children = HeldChildren(
                    found, heartbeat.holds, lambda slot: heartbeat.take(slot, reporter.on_wait)
                )
            else:
                known = keeper.open(job.workload, device.record).records
        result = make_library(
            spec, known=known, keeper=keeper, on_event=reporter.on_event, children=children, engine=engine
        )
        # While the device is this job's alone.
        rows = compare_library(job, result, compare, engine_spec.kind, reporter.on_event, heartbeat.holds)
    shown = Shown(rows, _code_of(result.report))
    patiently(lambda: publish(database, job, runner, result, reporter.best_gflops, shown))


def _device_of(engine: Engine, spec: Spec, job: JobRow) -> Device | None:
    """Return a job's device; None where it is not the engine's, or records would have been needed."""
    if not job.measure and architectures.names_one(job.target):
        return None
    try:
        device = engine.resolve(spec.target)
    except TargetError as error:
        _log.warning("%s", error, extra={"job": job.id})
        return None
    is_same = device.target.to_json() == job.target and device.record["id"] == job.device_id
    return device if is_same else None


def _code_of(report: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Kind and text of the code of each micro-kernel; the library is published without it, too."""
    from dietcode.backends.listing import listings

    try:
        return listings(report)
    except Exception:
        _log.exception("the generated code is not shown")
        return {}


@dataclass(frozen=True)
class Shown:
    """What is kept beside a library for people to look at.

    Attributes
    ----------
    compared : sequence of Compared
        What it reached beside the vendor's kernels.
    listings : mapping of str to (str, str)
        Kind and text of the generated code, by micro-kernel.
    """

    compared: Sequence[Compared] = ()
    listings: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def publish(
    database: Database,
    job: JobRow,
    runner: str,
    result: Any,
    best_gflops: float | None,
    shown: Shown | None = None,
) -> None:
    """Publish what a job made, with what is shown of it, and end the job, in one transaction.

    Parameters
    ----------
    runner : str
        Who holds the job.
    result : TuneResult
    best_gflops : float or None
        The best throughput, for the last event.
    shown : Shown or None
        What is kept beside the library.

    Raises
    ------
    LeaseLostError
        The job is another's: nothing is published.
    """
    with database.write() as session:
        row = jobs.get(session, job.id)
        if row.state == JobState.SUCCEEDED.value and row.attempt == job.attempt:
            return  # by an earlier try, which lost its connection before it heard so
        row = leases.require(session, job.id, runner)
        library = libraries.publish(
            session, job=row, device_name=str(result.device["name"]), files=result.files
        )
        if row.device_id is None:
            row.device_id = str(result.device["id"])  # whose records they were
        if shown is not None:
            comparisons.keep(session, library.id, shown.compared)
            code.keep(session, library.id, shown.listings)
        size = sum(len(data) for name, data in result.files.items() if not name.startswith("blobs/"))
        message = f"{library.name}@{library.version}: {size} bytes"
        progress = Progress(stage="publish", message=message, done=1, total=1, best_gflops=best_gflops)
        jobs.add_progress(session, job.id, progress)
        jobs.finish(session, job.id, JobState.SUCCEEDED, library_id=library.id, runner=runner, ended=True)


def without_paths(text: str, work_root: Path) -> str:
    """An error as a client may read it: without the server's folders."""
    for path, name in ((work_root.parent, "DATA_DIR"), (cache_dir(), "CACHE"), (Path.home(), "~")):
        text = text.replace(str(path), name)
    return text


def _finish(database: Database, job_id: str, runner: str, state: JobState, error: str | None = None) -> None:
    """End the job, if it is still this worker's."""

    def attempt() -> None:
        with database.write() as session:
            jobs.finish(session, job_id, state, error=error, runner=runner)

    patiently(attempt)


def main() -> int:
    """Read the request and work."""
    request = json.load(sys.stdin)
    die_with_parent(request["parent_pid"])
    leave_disco_out()
    configure_logs(request.get("log_format", "text"))
    database = Database(request["database_url"])
    work_root = Path(request["work_root"])
    try:
        patiently(database.check_head)
        pace = (request["heartbeat_secs"], request["lease_secs"])
        engine = EngineSpec.from_json(request["engine"])
        asked = request["compare"]
        return work(database, request["job"], work_root, *pace, request["slot"], engine, asked)
    except DietCodeError as error:
        _log.error("%s", without_paths(str(error), work_root))
        return 1


if __name__ == "__main__":
    sys.exit(main())
