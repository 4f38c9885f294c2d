"""``dietcode tune`` without its terminal: the whole pipeline in this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.backends.protocol import Backend
from dietcode.backends.table import backend_of
from dietcode.errors import RecordsError, TuningError
from dietcode.library.parts import Parts
from dietcode.measure.children import Children
from dietcode.measure.engine import Device, Engine
from dietcode.measure.engine_spec import EngineSpec
from dietcode.measure.local import LocalMachine
from dietcode.measure.opening import open_engine
from dietcode.measure.records import Records, check_belongs, check_kind, read_records
from dietcode.measure.store import FileKeeper
from dietcode.runtime.manifest import CODE, check_writable
from dietcode.search_space.task import Task
from dietcode.tuner.assembly import assemble
from dietcode.tuner.events import Event, OnEvent, not_run, silent
from dietcode.tuner.measuring import Keeper, explore
from dietcode.tuner.result import TuneResult, write_library
from dietcode.tuner.search import Search
from dietcode.tuner.size_cap import Built, FileSize, build_within
from dietcode.tuner.stale import stale_line, stale_message
from dietcode.tuner.verification import verify
from dietcode.workload.spec import Spec
from dietcode.workload.stops import against, uncompared
from dietcode.workload.text import counted

__all__ = ["TuneResult", "make_library", "tune", "write_library"]
_MAX_FIT_ERROR = 0.1  # 0.01 to 0.03 were seen on quiet CPUs


def tune(
    spec: Spec,
    folder: Path,
    *,
    records: Path | None = None,
    force: bool = False,
    on_event: OnEvent = silent,
    children: Children | None = None,
    engine: EngineSpec | None = None,
) -> TuneResult:
    """Tune a workload for its whole range and write a library.

    Parameters
    ----------
    folder : Path
        Where the library goes; an older library there is replaced.
    records : Path, optional
        Build from the measurements in this file alone.
    force, on_event, children, engine
        As `make_library` has them.

    Raises
    ------
    SpecError, TargetError, RecordsError, LibraryError, TuningError
        See `dietcode.errors`; the folder stays as it was.
    """
    check_writable(folder)
    known, backend = None, backend_of(spec)
    if records is not None:
        known = read_records(records)
        check_kind(known, backend.kind, records)
        check_belongs(known, backend.task(spec).digest, None, records)
        backend.check_asked(spec, known, str(records))
    with open_engine(engine or EngineSpec()) as opened:
        result = make_library(
            spec, known=known, force=force, on_event=on_event, children=children, engine=opened
        )
    write_library(result, folder, on_event)
    return result


def make_library(
    spec: Spec,
    *,
    known: Records | None = None,
    keeper: Keeper | None = None,
    force: bool = False,
    on_event: OnEvent = silent,
    children: Children | None = None,
    engine: Engine | None = None,
    search: Search | None = None,
    archs: tuple[str, ...] | None = None,
    allow_synthetic: bool = False,
) -> TuneResult:
    """Tune a workload for its whole range; alone on the device, so that nothing disturbs a timing.

    Parameters
    ----------
    known : Records, optional
        Build from these measurements alone: nothing is measured and no device is needed.
    keeper : Keeper, optional
        Where records are kept; files under the cache folder by default.
    force : bool
        Forget what was measured before.
    children : Children, optional
        Builder and runner; those of the engine by default.
    engine : Engine, optional
        Where the target is resolved and candidates are measured; this machine by default.
    search : Search, optional
        Parts of the search to switch off, for an ablation.
    archs : tuple of str, optional
        As `Parts` has them; by default all that the backend has.
    allow_synthetic : bool
        For tests: accept records that no device measured. The report says so.

    Raises
    ------
    SpecError, TargetError, RecordsError, TuningError
        See `dietcode.errors`.
    """
    backend = backend_of(spec)
    if known is None:
        backend.check_ready(spec)
    task = backend.task(spec)
    if known is not None:  # errors in them are reported without a compiler
        _refuse_synthetic(known.device, allow_synthetic)
        check_belongs(known, task.digest, None, "the records")
        backend.check_asked(spec, known, "the records")
        backend.check_ready(spec)
    started, measured = time.monotonic(), 0
    device: Device | None
    with contextlib.ExitStack() as stack:
        engine = engine if known is None and engine is not None else LocalMachine()
        why = ""
        if known is None:
            device = engine.resolve(spec.target)
            if device.refusal is not None:
                raise TuningError(device.refusal)
            _refuse_synthetic(device.record, allow_synthetic)
        else:
            device, why = backend.checking_device(spec, known)
            known = _of_todays_code(backend, task, known, on_event)
        if device is not None and children is None:
            children = stack.enter_context(engine.children(device, lambda m: on_event(Event("calibrate", m))))
            started = time.monotonic()
        if known is None:
            assert device is not None and children is not None
            keeper, search = keeper or FileKeeper(), search or Search()
            deadline = started + spec.budget.seconds
            known, measured = explore(
                task, backend, device, keeper, children, deadline, on_event, search, force
            )
        parts, files = _build(task, backend, known, on_event, bool(measured), archs)
        if device is None or children is None:
            on_event(not_run("verify", why))
        else:
            verify(task, files, backend.library_call(parts, files), children, on_event)
    return TuneResult(files, parts.report, known.device, time.monotonic() - started, measured)


def _refuse_synthetic(device: Mapping[str, Any], allow_synthetic: bool) -> None:
    if device.get("synthetic") and not allow_synthetic:
        raise RecordsError(
            f"the records are synthetic ({device['name']}): no device measured them; measure on a GPU"
        )


def _of_todays_code(backend: Backend, task: Task, known: Records, on_event: OnEvent) -> Records:
    """Return records without what was measured of code that is generated differently now.

    Raises
    ------
    RecordsError
        Nothing is left of them.
    """
    line = stale_line(backend, task.problem, known, backend.target_of(known, "the records"))
    if line is None or not line["stale"]:
        return known
    left = replace(known, measurements=dict(known.measurements), rounds=list(known.rounds))
    left.apply(line)
    if not any(m.usable for m in left.measurements.values()):
        raise RecordsError(f"the records: {stale_message(line)}, and nothing else; tune again to measure")
    on_event(Event("select", stale_message(line)))
    return left


def _build(
    task: Task,
    backend: Backend,
    known: Records,
    on_event: OnEvent,
    is_new: bool,
    archs: tuple[str, ...] | None,
) -> tuple[Parts, dict[str, bytes]]:
    """Select categories and build the files of the library, again where the code is larger than asked."""
    target = backend.target_of(known, "the records")
    archs = backend.archs if archs is None else archs

    def build(size: FileSize) -> tuple[tuple[Parts, dict[str, bytes]], Built]:
        on_event(Event("select", "fitting the cost model and choosing categories"))
        parts = assemble(task, backend, target, known, archs, size)
        on_event(Event("select", _selection_line(parts), 1, 1, data=parts.report["selection"]))
        doubt = doubt_of(parts.report, backend) if is_new else None
        if doubt is not None:
            on_event(Event("select", doubt))
        on_event(
            Event("build", f"compiling {counted(len(parts.micro_kernels), 'micro-kernel')} and the rule")
        )
        files = backend.emit(parts)
        return (parts, files), Built(parts.report["selection"]["kernel_bytes"], len(files[CODE]))

    cap = task.spec.objective.max_bytes
    return build_within(cap, FileSize(*backend.least_size(known, target, archs, cap)), build)


def doubt_of(report: Mapping[str, Any], backend: Backend) -> str | None:
    """Return why the measurements of a report look disturbed by other work on the machine, or None."""
    chosen = [k for k in report["micro_kernels"] if k["category"] is not None]
    errors = [k["f_local"]["median_fit_error"] for k in chosen]
    reason = backend.doubt(report)
    if reason is None and float(np.median(errors)) > _MAX_FIT_ERROR:
        reason = f"the model misses them by {float(np.median(errors)):.0%}"
    if reason is None:
        return None
    return f"the measurements look disturbed ({reason}); measure again with --force when nothing else runs"


def _selection_line(parts: Parts) -> str:
    facts, kept = parts.report["selection"], counted(len(parts.micro_kernels), "micro-kernel")
    losses, caveat = (
        f"{facts['loss_mean']:.1%} mean, {facts['loss_worst']:.1%} worst",
        uncompared(parts.report),
    )
    said = f"not known: {caveat}" if caveat else f"{losses}, {against(parts.report)}"
    return (
        f"{kept} for {counted(parts.report['num_instances'], 'instance')} "
        f"({facts['num_free_choice']} with free choice), predicted loss {said}"
    )
