"""The process that works on one job: ``python -m dietcode_server.engine.worker``, its request on stdin.

The job's row is the truth: the worker claims it (before the compiler is imported), prolongs its lease, puts
every step and every measurement into the database as it becomes known, and publishes the library in the
transaction that ends the job. Where the lease is lost nothing more is written, and the worker ends.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dietcode.bench.confined import Compare
from dietcode.confinement.parents import hide_secrets
from dietcode.errors import DietCodeError
from dietcode.lean import collect_seldom, import_less_of_tvm
from dietcode.lifeline import adopt_orphans, die_with_parent
from dietcode.measure.engine_spec import EngineSpec
from dietcode.protocol import JobState
from dietcode.runtime.cache import cache_dir
from dietcode_server.engine.assignment import Assignment
from dietcode_server.engine.holding import Heartbeat, clock_secs
from dietcode_server.engine.publishing import Shown, code_of, publish
from dietcode_server.engine.runner import end_descendants, runner_name
from dietcode_server.limits import SizeLimits
from dietcode_server.logs import configure_logs
from dietcode_server.store import jobs, leases, slots
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.leases import LEASE_SECS
from dietcode_server.store.patience import patiently
from dietcode_server.store.tables import MODEL, JobRow
from dietcode_server.store.transitions import locked

if TYPE_CHECKING:
    from dietcode.measure.children import Children
    from dietcode.measure.engine import Engine

NOT_CLAIMED = 3  # exit status
_log = logging.getLogger("dietcode.worker")


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
    limits: SizeLimits | None = None,
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
    limits : SizeLimits or None
        What the parts of a model are compared with.
    """
    runner, since = runner_name(), clock_secs()
    job = claim(database, job_id, runner, lease_secs, slot)
    if job is None:
        return NOT_CLAIMED
    heartbeat = Heartbeat(database, job_id, runner, heartbeat_secs, lease_secs, slot, since)
    heartbeat.start()
    engine = engine or EngineSpec()
    own = Assignment(database, job, runner, work_root, heartbeat, engine, compare, limits)
    try:
        if job.kind == MODEL:
            from dietcode_server.engine.modelling import compile_and_publish

            compile_and_publish(own)
        else:
            _tune_and_publish(own)
        return 0
    except DietCodeError as error:
        own.finish(JobState.FAILED, without_paths(str(error), work_root))
    except Exception as error:
        _log.exception("failed", extra={"job": job_id})
        what = without_paths(" ".join(str(error).split())[:300], work_root)
        what = f"internal error: {type(error).__name__}: {what}"
        own.finish(JobState.FAILED, what)
    finally:
        heartbeat.stop()
    return 1


def _tune_and_publish(own: Assignment) -> None:
    from dietcode.measure.opening import open_engine
    from dietcode.tuner.events import Event
    from dietcode.tuner.tune import make_library
    from dietcode.workload.parse import spec_from_data
    from dietcode_server.engine.comparing import compare_library
    from dietcode_server.engine.keeper import SqlKeeper, known_records

    database, job, heartbeat = own.database, own.job, own.heartbeat
    spec = spec_from_data(job.spec)
    reporter = own.reporter()
    keeper = SqlKeeper(database, job, own.work_root)
    known = known_records(database, job)
    with ExitStack() as stack:
        children: Children | None = None
        engine: Engine | None = None
        if known is not None:
            line = f"from {len(known.measurements)} micro-kernels measured on {known.device['name']}"
            reporter.on_event(Event("select", line))
        else:
            engine = stack.enter_context(open_engine(own.engine))
            device = own.device_of(engine, spec.target)
            if device is None:
                own.finish(JobState.WAITING_FOR_RUNNER)
                return
            if job.measure:
                children = own.children(engine, device, stack, reporter)
            else:
                known = keeper.open(job.workload, device.record).records
        result = make_library(
            spec, known=known, keeper=keeper, on_event=reporter.on_event, children=children, engine=engine
        )
        # While the device is this job's alone.
        rows = compare_library(job, result, own.compare, own.engine.kind, reporter.on_event, heartbeat.holds)
    shown = Shown(rows, code_of(result.report))
    patiently(lambda: publish(database, job, own.runner, result, reporter.best_gflops, shown))


def without_paths(text: str, work_root: Path) -> str:
    """An error as a client may read it: without the server's folders."""
    folders: tuple[tuple[Callable[[], Path], str], ...] = (
        (lambda: work_root.parent, "DATA_DIR"),
        (cache_dir, "CACHE"),
        (Path.home, "~"),
    )
    for find, name in folders:
        with suppress(RuntimeError):  # a user without a home
            path = find()
            if path.is_absolute() and path != path.parent:  # a slash alone, or a word, is in any text
                text = re.sub(rf"{re.escape(str(path))}(?![\w-]|\.\w)", name, text)
    return text


def main() -> int:
    """Read the request and work."""
    request = json.load(sys.stdin)
    die_with_parent(request["parent_pid"])
    hide_secrets()
    adopt_orphans()
    import_less_of_tvm()
    collect_seldom()
    configure_logs(request.get("log_format", "text"))
    database = Database(request["database_url"])
    work_root = Path(request["work_root"])
    try:
        patiently(database.check_head)
        pace = (request["heartbeat_secs"], request["lease_secs"])
        engine = EngineSpec.from_json(request["engine"])
        asked = request["compare"]
        limits = None if request.get("limits") is None else SizeLimits.from_json(request["limits"])
        return work(database, request["job"], work_root, *pace, request["slot"], engine, asked, limits)
    except DietCodeError as error:
        _log.error("%s", without_paths(str(error), work_root))
        return 1
    finally:
        end_descendants()  # whatever a compiler has left


if __name__ == "__main__":
    sys.exit(main())
