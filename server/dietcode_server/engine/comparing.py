"""The stage between verifying and publishing: what the library reaches beside the vendor's kernels.

It is no reason to fail: where it cannot be measured, an event says why, and the figures are absent. Only a
result that is wrong ends the job, as one in the stage before would.
"""

from __future__ import annotations

import contextlib
import logging
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dietcode.bench.confined import Compare, Vendor, confined_bench, vendor_of
from dietcode.errors import DietCodeError, TuningError
from dietcode.measure.cpu_worker import SAFE_ERROR
from dietcode.runtime.manifest import read_manifest
from dietcode.target.kinds import kind_of_target
from dietcode.tuner.events import Event, OnEvent, not_run
from dietcode.tuner.tune import TuneResult
from dietcode.workload.dtypes import UNIT_ROUNDOFF
from dietcode.workload.text import one_line
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import JobRow

COMPARE_SECS = 10.0
_LEAST_SECS = 2.0
_BEFORE_DEADLINE_SECS = 60.0  # for the hard limit of the process that measures, and for publishing
_NUM_INSTANCES = 16
_log = logging.getLogger("dietcode.worker")


def compare_library(
    job: JobRow,
    result: TuneResult,
    asked: Compare,
    engine: str,
    on_event: OnEvent,
    holds: Callable[[], bool],
    secs: float = COMPARE_SECS,
) -> list[Compared]:
    """Measure what a job has just built, alone on the device, which the caller holds.

    Parameters
    ----------
    asked : str
        What it is measured beside.
    engine : str
        Kind of the job's engine.
    holds : callable
        Whether the job's lease lasts; nothing is begun without it.
    secs : float
        About how long; less where the job's deadline is near.

    Returns
    -------
    list of Compared
        Those that were measured, however it ended; empty where none was.

    Raises
    ------
    TuningError
        The library gives a wrong result.
    """
    if job.deadline_at is not None:
        secs = min(secs, (job.deadline_at - utc_now()).total_seconds() - _BEFORE_DEADLINE_SECS)
    why = _why_not(job, asked, engine, secs)
    if why is not None:
        on_event(not_run("compare", why, "not compared with a vendor's kernels"))
        return []
    vendor = vendor_of(asked)
    found: list[Compared] = []
    why, folder = "", "the library"
    try:
        with tempfile.TemporaryDirectory(prefix="dietcode-built-", ignore_cleanup_errors=True) as folder:
            for path, data in result.files.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
            _measure(Path(folder), result.report["instances"], vendor, on_event, holds, secs, found)
    except TuningError:
        raise
    except OSError as error:
        why = error.strerror or type(error).__name__
    except DietCodeError as error:
        why = one_line(str(error).replace(folder, "the library"), 200)
    except Exception as error:
        _log.exception("the comparison failed", extra={"job": job.id})
        why = type(error).__name__
    if why and found:
        on_event(Event("compare", f"the comparison ended early: {why}", len(found)))
    elif why:
        on_event(not_run("compare", why, "the comparison ended early"))
    return found


def _why_not(job: JobRow, asked: Compare, engine: str, secs: float) -> str | None:
    """Return why a job's library is not measured; None where it is."""
    not_compared = kind_of_target(job.target).not_compared
    if not_compared is not None:
        return not_compared
    if not job.measure:
        return "this job measures nothing"
    if asked == "none":
        return "DIETCODE_SERVE_COMPARE is none"
    if engine != "local":
        return f"the engine {engine} measures on another machine than this one"
    if secs < _LEAST_SECS:
        return "the job's deadline is near"
    return None


def _measure(
    folder: Path,
    instances: Sequence[Mapping[str, Any]],
    vendor: Vendor,
    on_event: OnEvent,
    holds: Callable[[], bool],
    secs: float,
    found: list[Compared],
) -> None:
    """Fill `found`, one by one."""
    manifest = read_manifest(folder)
    positions = {_key(row["shape_vars"]): position for position, row in enumerate(instances)}
    total = min(_NUM_INSTANCES, len(instances))
    safe = SAFE_ERROR + UNIT_ROUNDOFF[manifest["output"]["dtype"]]
    on_event(Event("compare", f"beside {vendor}", 0, total))
    if not holds():
        return
    records = confined_bench(
        folder,
        vendor,
        int(manifest["num_threads"]),
        secs,
        total,
        lambda why: on_event(Event("compare", f"measured alone: {why}", 0, total)),
    )
    with contextlib.closing(records):
        for record in records:
            row = _checked(record, positions, safe)
            found.append(row)
            on_event(Event("compare", _line(record, row), len(found), total))
            if not holds():
                return


def _key(shape_vars: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(name), int(value)) for name, value in shape_vars.items()))


def _checked(record: Mapping[str, Any], positions: Mapping[Any, int], safe: float) -> Compared:
    """A record as it is kept.

    Raises
    ------
    TuningError
        The result was wrong.
    ValueError
        It is malformed: a process that ran generated code wrote it.
    """
    error = float(record["max_rel_error"])
    if not error <= safe:
        raise TuningError(f"the finished library is wrong at {dict(record['shape_vars'])}: error {error:.3g}")
    vendors = {str(name)[:64]: float(rate) for name, rate in dict(record["vendors"]).items()}
    measured = float(record["measured_gflops"])
    company = {str(name): float(rate) for name, rate in dict(record["in_company"] or {}).items()}
    roof = {name: float(record[name]) for name in ("peak_gflops", "roof_gflops")}
    if not all(
        math.isfinite(rate) and rate > 0
        for rate in (measured, *vendors.values(), *company.values(), *roof.values())
    ):
        raise ValueError(f"rates must be positive and finite: {measured}, {vendors}, {company}, {roof}")
    spread = float(record["spread"])
    if not (math.isfinite(spread) and spread >= 1):
        raise ValueError(f"a spread is 1 or more: {spread}")
    best = max(vendors, key=lambda name: vendors[name], default=None)
    return Compared(
        position=positions[_key(record["shape_vars"])],
        measured_gflops=measured,
        vendors=vendors,
        vendor=best,
        vendor_gflops=None if best is None else vendors[best],
        company_gflops=company.get("measured_gflops"),
        vendor_company_gflops=company.get("vendor_gflops"),
        max_rel_error=error,
        spread=spread,
        disturbed=one_line(str(record["disturbed"]), 300) if record.get("disturbed") else None,
        **roof,
        measured_at=utc_now(),
    )


def _line(record: Mapping[str, Any], row: Compared) -> str:
    shape = ", ".join(f"{name}={value}" for name, value in record["shape_vars"].items())
    line = f"{shape}: {row.measured_gflops:.1f} GFLOP/s"
    line = line if row.vendor is None else f"{line}; {row.vendor} {row.vendor_gflops:.1f}"
    return f"{line}; disturbed: {row.disturbed}" if row.disturbed else line
