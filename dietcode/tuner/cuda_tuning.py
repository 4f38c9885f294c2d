"""``dietcode tune`` for a GPU: measure where there is one, or take records; build; check on the GPU."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dietcode.errors import TargetError, TuningError
from dietcode.measure.children import Children
from dietcode.measure.gpu import Gpu, find_gpu, need_gpu
from dietcode.measure.gpu_device import gpu_device
from dietcode.measure.gpu_worker import LibraryCall
from dietcode.measure.local import LocalMachine
from dietcode.measure.records import Records
from dietcode.measure.requests import CheckRequest
from dietcode.measure.store import FileKeeper
from dietcode.runtime.manifest import CODE, MANIFEST
from dietcode.search_space.cuda.lowering import device_problem
from dietcode.search_space.task import Task
from dietcode.target.cuda import ARCHS, resolve_cuda
from dietcode.tuner.cuda import make_cuda_library, refuse_synthetic
from dietcode.tuner.cuda_measuring import measure_cuda
from dietcode.tuner.events import Event, Listener, silent
from dietcode.tuner.measuring import Keeper
from dietcode.tuner.result import TuneResult
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec

_NUM_VERIFIED = 8
_MAX_CHECKED_FLOPS = 1e11
_TIMEOUT_SECS = 300.0


def make_on_gpu(
    spec: Spec,
    *,
    known: Records | None = None,
    gpu: Gpu | None = None,
    keeper: Keeper | None = None,
    force: bool = False,
    listener: Listener = silent,
    children: Children | None = None,
    archs: tuple[str, ...] = tuple(ARCHS),
    allow_synthetic: bool = False,
) -> TuneResult:
    """Measure on this machine's GPU, or take what is known; select, build, and check the library on the GPU.

    Parameters
    ----------
    known : Records, optional
        Build from these measurements alone: no GPU is needed, and one that is here checks the library.
    gpu : Gpu, optional
        The GPU to measure on; by default the first one here of the spec's architecture.
    keeper : Keeper, optional
        Where records are kept; files under the cache folder by default.
    force, children
        As `measure_cuda` has them.
    archs, allow_synthetic
        As `make_cuda_library` has them.

    Raises
    ------
    RecordsError
        The records, or the GPU, are synthetic; or see `make_cuda_library`.
    TargetError
        No such GPU is here, or its driver is too old; or the compiler is missing.
    TuningError
        Nothing can be measured, or the library gives wrong numbers.
    """
    started, measured, asked = time.monotonic(), 0, resolve_cuda(spec.target)
    why = f"there is no GPU of {asked.arch} here"
    with contextlib.ExitStack() as stack:
        if known is None:
            gpu = gpu or need_gpu(asked)
            refuse_synthetic(gpu.record, allow_synthetic)
        elif gpu is None:
            try:
                gpu = find_gpu(asked)
            except TargetError as error:
                why = str(error)
            if gpu is not None and gpu.is_synthetic and not known.is_synthetic:
                gpu = None  # nothing would be said by what it computes
        if gpu is not None and children is None:
            device = gpu_device(gpu)
            children = stack.enter_context(
                LocalMachine().children(device, lambda m: listener(Event("calibrate", m)))
            )
            started = time.monotonic()
        if known is None and gpu is not None:
            keeper = keeper or FileKeeper()
            before = 0
            if not force:
                before = len(keeper.open(workload_digest(spec), gpu.record).records.measurements)
            known = measure_cuda(spec, gpu, keeper, force=force, listener=listener, children=children)
            measured = len(known.measurements) - before
        assert known is not None
        files, report, _ = make_cuda_library(
            spec, known, listener=listener, archs=archs, allow_synthetic=allow_synthetic
        )
        if gpu is not None and children is not None:
            verify_cuda(spec, files, children, listener)
        else:
            listener(Event("verify", f"not run here: {why}"))
    return TuneResult(files, report, known.device, time.monotonic() - started, measured)


def verify_cuda(spec: Spec, files: Mapping[str, bytes], children: Children, listener: Listener) -> None:
    """Run a finished library on the GPU at sampled instances against float64, which has to be computed here.

    Parameters
    ----------
    files : mapping of str to bytes
        The library's files by relative path.

    Raises
    ------
    TuningError
        It gives a wrong result; nothing may be written then.
    """
    task = Task.of(spec, device_problem)
    problem, instances, extents = task.problem, task.instances, task.extents
    columns, workspace = instances.columns(), json.loads(files[MANIFEST])["workspace_bytes"]
    flops = np.broadcast_to(problem.flops(dict(extents)), len(instances))
    small = np.flatnonzero(flops <= max(_MAX_CHECKED_FLOPS, float(flops.min())))
    picked = small[np.unique(np.linspace(0, len(small) - 1, _NUM_VERIFIED).astype(int))]
    with tempfile.TemporaryDirectory(prefix="dietcode-") as temporary:
        path = Path(temporary) / CODE
        path.write_bytes(files[CODE])
        for row in picked:
            binding = {name: int(values[row]) for name, values in columns.items()}
            point = {letter: int(extents[letter][row]) for letter in problem.extents}
            own = tuple(binding[name] for name in spec.variables)
            call = LibraryCall(int(workspace))
            request = CheckRequest(problem, str(path), call, (point,), (own,), int(row))
            error = children.check(request, _TIMEOUT_SECS).error
            if error is not None:
                raise TuningError(f"the finished library fails at {binding}: {error}")
    listener(Event("verify", f"right on {len(picked)} instances against float64", len(picked), len(picked)))
