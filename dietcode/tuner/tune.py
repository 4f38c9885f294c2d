"""``dietcode tune`` without its terminal: the whole pipeline in this process."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from dietcode.errors import RecordsError, RequestError, TuningError
from dietcode.library.build import Parts, check_linker, library_files
from dietcode.measure.calibration import is_plausible
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.cuda_records import read_cuda_records
from dietcode.measure.engine import Device, Engine
from dietcode.measure.engine_spec import EngineSpec
from dietcode.measure.local import LocalMachine
from dietcode.measure.opening import open_engine
from dietcode.measure.records import Records, check_belongs, read_records
from dietcode.measure.requests import CheckRequest
from dietcode.measure.store import FileKeeper
from dietcode.runtime.manifest import CODE, check_writable
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.problem import instance_extents, problem_from_spec
from dietcode.target.cpu import CpuTarget
from dietcode.target.cuda import is_cuda
from dietcode.tuner.assembly import assemble
from dietcode.tuner.cuda_tuning import make_on_gpu
from dietcode.tuner.events import Event, Listener, silent
from dietcode.tuner.measuring import Keeper, check_measurable, explore, open_records
from dietcode.tuner.result import TuneResult, write_library
from dietcode.tuner.search import Search
from dietcode.workload.checks import check_operand_dtypes
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import Instances, make_instances
from dietcode.workload.spec import Spec

__all__ = ["TuneResult", "make_library", "tune", "write_library"]
_NUM_VERIFIED = 8
_MAX_FIT_ERROR = 0.1  # 0.01 to 0.03 were seen on quiet CPUs


def tune(
    spec: Spec,
    folder: Path,
    *,
    records: Path | None = None,
    force: bool = False,
    listener: Listener = silent,
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
    force, listener, children, engine
        As `make_library` has them; a GPU has children of its own, see `make_on_gpu`.

    Raises
    ------
    SpecError, TargetError, RecordsError, LibraryError, TuningError
        See `dietcode.errors`; the folder is untouched then.
    RequestError
        An engine is named for a GPU, which only this machine's own is measured on.
    """
    check_writable(folder)
    if is_cuda(spec):
        if engine is not None and engine.kind != "local":
            raise RequestError(
                f"target: cuda is measured on a GPU of this machine, and given the engine {engine.kind}; "
                "leave out --ray and --rpc-tracker"
            )
        measured = None if records is None else read_cuda_records(records)
        result = make_on_gpu(spec, known=measured, force=force, listener=listener)
        write_library(result, folder, listener)
        return result
    known = None
    if records is not None:
        known = read_records(records)
        check_belongs(known, workload_digest(spec), None, records)
        _check_target(_target_of(known, str(records)), spec, records)
    with open_engine(engine or EngineSpec()) as opened:
        result = make_library(
            spec, known=known, force=force, listener=listener, children=children, engine=opened
        )
    write_library(result, folder, listener)
    return result


def make_library(
    spec: Spec,
    *,
    known: Records | None = None,
    keeper: Keeper | None = None,
    force: bool = False,
    listener: Listener = silent,
    children: Children | None = None,
    engine: Engine | None = None,
    search: Search | None = None,
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
        What resolves the target, builds and measures; this machine by default, and where nothing is measured.
    search : Search, optional
        Parts of the search to switch off, for an ablation.

    Raises
    ------
    SpecError, TargetError, RecordsError, TuningError
        See `dietcode.errors`.
    """
    check_operand_dtypes(spec)  # of a TVM tag only its resolution told that it is a CPU
    problem = problem_from_spec(spec)
    instances = make_instances(spec)
    check_linker()
    here: Engine = LocalMachine()
    with contextlib.ExitStack() as stack:
        if known is None:
            engine = engine or here
            device = engine.resolve(spec.target)
            check_measurable(device)
            target = cast(CpuTarget, device.target)  # of a spec for a CPU
        else:
            engine = here
            target = _target_of(known, "the records")
            device = Device(target, known.device, CpuWorker(target.num_cores))
        if children is None:
            children = stack.enter_context(engine.children(device, lambda m: listener(Event("calibrate", m))))
        started, measured = time.monotonic(), 0
        can_run = known is None or target.runs_here
        if known is None:
            kept = open_records(spec, device, keeper or FileKeeper(), force)
            known, measured = explore(
                spec, problem, target, instances, kept, started, listener, children, search or Search()
            )
        listener(Event("select", "fitting the cost model and choosing categories"))
        parts = assemble(spec, problem, target, instances, known)
        listener(Event("select", _selection_line(parts), 1, 1, data=parts.report["selection"]))
        doubt = doubt_of(parts.report) if measured else None
        if doubt is not None:
            listener(Event("select", doubt))
        listener(Event("build", f"compiling {len(parts.micro_kernels)} micro-kernels and the dispatch rule"))
        files = library_files(parts)
        if can_run:
            _verify(parts, files[CODE], instances, listener, children)
        else:
            listener(Event("verify", "not run here: this CPU lacks the target's instruction sets"))
    return TuneResult(files, parts.report, known.device, time.monotonic() - started, measured)


def _target_of(records: Records, place: str) -> CpuTarget:
    try:
        return CpuTarget.from_json(records.device["target"])
    except (KeyError, TypeError, ValueError) as error:
        raise RecordsError(f"{place}: its header names no target") from error


def _check_target(target: CpuTarget, spec: Spec, path: Path) -> None:
    asked = spec.target
    if asked.mcpu is not None and asked.mcpu != target.mcpu:
        raise RecordsError(f"{path}: measured for mcpu {target.mcpu}; the spec asks for {asked.mcpu}")
    if asked.num_cores is not None and asked.num_cores != target.num_cores:
        raise RecordsError(
            f"{path}: measured on {target.num_cores} cores; the spec asks for {asked.num_cores}"
        )


def _verify(parts: Parts, code: bytes, instances: Instances, listener: Listener, children: Children) -> None:
    """Run the finished library on sampled instances against float64, where it is measured.

    Raises
    ------
    TuningError
        It gives a wrong result; nothing is written then.
    """
    columns = instances.columns()
    picked = np.unique(np.linspace(0, len(instances) - 1, _NUM_VERIFIED).astype(int))
    extents = instance_extents(parts.spec, columns)
    with tempfile.TemporaryDirectory(prefix="dietcode-") as temporary:
        path = Path(temporary) / CODE
        path.write_bytes(code)
        for row in picked:
            binding = {name: int(values[row]) for name, values in columns.items()}
            point = {letter: int(values[row]) for letter, values in extents.items()}
            own = tuple(binding[name] for name in parts.spec.variables)
            limits = Limits.of(parts.target)
            request = CheckRequest(parts.problem, str(path), limits, (point,), (own,), int(row))
            error = children.check(request, 60.0).error
            if error is not None:
                raise TuningError(f"the finished library fails at {binding}: {error}")
    listener(Event("verify", f"right on {len(picked)} instances against float64", len(picked), len(picked)))


def doubt_of(report: Mapping[str, Any]) -> str | None:
    """Why the measurements behind a report look disturbed by other work on the machine; None where not."""
    chosen = [k for k in report["micro_kernels"] if k["category"] is not None]
    errors = [k["f_local"]["median_fit_error"] for k in chosen]
    kappa = report["calibration"]["kappa"]
    if not is_plausible(kappa, report["target"]["num_cores"]):
        reason = f"κ = {kappa:.2f}: the cores did not run side by side"
    elif float(np.median(errors)) > _MAX_FIT_ERROR:
        reason = f"the model misses them by {float(np.median(errors)):.0%}"
    else:
        return None
    return f"the measurements look disturbed ({reason}); measure again with --force when nothing else runs"


def _selection_line(parts: Parts) -> str:
    facts = parts.report["selection"]
    return (
        f"{len(parts.micro_kernels)} micro-kernels for {parts.report['num_instances']} instances, "
        f"predicted loss {facts['loss_mean']:.1%} mean, {facts['loss_worst']:.1%} worst "
        f"({facts['num_free_choice']} with free choice)"
    )
