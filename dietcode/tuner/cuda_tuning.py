"""``dietcode tune`` for a GPU: measure where there is one, or take records; build; check on the GPU."""

from __future__ import annotations

import contextlib
import json
import time

from dietcode.errors import TargetError
from dietcode.measure.cuda_records import CudaRecords
from dietcode.measure.gpu import Gpu, find_gpu, need_gpu
from dietcode.measure.gpu_children import GpuChildren, gpu_children
from dietcode.measure.store import CudaFileKeeper
from dietcode.runtime.manifest import MANIFEST
from dietcode.search_space.cuda.lowering import device_problem
from dietcode.search_space.problem import problem_from_spec
from dietcode.target.cuda import ARCHS, resolve_cuda
from dietcode.tuner.cuda import make_cuda_library, refuse_synthetic
from dietcode.tuner.cuda_measuring import CudaKeeper, measure_cuda
from dietcode.tuner.events import Event, Listener, not_run, silent
from dietcode.tuner.result import TuneResult
from dietcode.tuner.verification import verify
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import make_instances
from dietcode.workload.spec import Spec

_CHECK_SECS = 300.0  # of one instance of the finished library


def make_on_gpu(
    spec: Spec,
    *,
    known: CudaRecords | None = None,
    gpu: Gpu | None = None,
    keeper: CudaKeeper | None = None,
    force: bool = False,
    listener: Listener = silent,
    children: GpuChildren | None = None,
    archs: tuple[str, ...] = tuple(ARCHS),
    allow_synthetic: bool = False,
) -> TuneResult:
    """Measure on this machine's GPU, or take what is known; select, build, and check the library on the GPU.

    Parameters
    ----------
    known : CudaRecords, optional
        Build from these measurements alone: no GPU is needed, and one that is here checks the library.
    gpu : Gpu, optional
        The GPU to measure on; by default the first one here of the spec's architecture.
    keeper : CudaKeeper, optional
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
            children = stack.enter_context(gpu_children(gpu, lambda m: listener(Event("calibrate", m))))
            started = time.monotonic()
        if known is None and gpu is not None:
            keeper = keeper or CudaFileKeeper()
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
            facts = {"workspace_bytes": int(json.loads(files[MANIFEST])["workspace_bytes"])}
            problem, instances = device_problem(problem_from_spec(spec)), make_instances(spec)
            verify(spec, problem, instances, files, facts, children.run, _CHECK_SECS, listener)
        else:
            listener(not_run("verify", why))
    return TuneResult(files, report, known.device, time.monotonic() - started, measured)
