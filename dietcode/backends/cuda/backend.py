"""The backend of GPUs by CUDA."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

from dietcode.backends.cuda.availability import gpu_availability
from dietcode.backends.cuda.domain import CUDA_DOMAINS, CudaDomain
from dietcode.backends.cuda.measuring import MeasuringGpu
from dietcode.backends.protocol import Backend
from dietcode.cost_model.cuda.fitting import spread_of
from dietcode.cost_model.model import Fitted
from dietcode.errors import RecordsError, SpecError, TargetError
from dietcode.library.cuda.build import cuda_library_files
from dietcode.library.files import find_linker
from dietcode.library.parts import Parts
from dietcode.measure.children import Children
from dietcode.measure.engine import Device
from dietcode.measure.gpu import find_gpu
from dietcode.measure.gpu_device import gpu_device
from dietcode.measure.gpu_worker import LibraryCall
from dietcode.measure.records import Records
from dietcode.runtime.manifest import MANIFEST
from dietcode.search_space.cuda.forms import classes_of, cuda_form, device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.task import Task
from dietcode.target.cuda import ARCHS, CudaTarget, resolve_cuda
from dietcode.target.nvrtc import check_compiler
from dietcode.workload.identity import source_digest
from dietcode.workload.operators import CPU_ALONE
from dietcode.workload.spec import Spec

SYNTHETIC = "synthetic: no device measured this"


class CudaBackend(Backend):
    """`dietcode.backends.protocol.Backend` of GPUs."""

    kind: ClassVar[str] = "cuda"
    archs: ClassVar[tuple[str, ...]] = tuple(ARCHS)

    def availability(self) -> dict[str, Any]:
        return gpu_availability()

    def check_ready(self, spec: Spec) -> None:
        _refuse_block(spec)
        check_compiler()
        find_linker()

    def task(self, spec: Spec) -> Task:
        _refuse_block(spec)
        return Task.of(spec, device_problem)

    def target_of(self, records: Records, where: str) -> CudaTarget:
        try:
            return CudaTarget.from_json(records.device["target"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordsError(f"{where}: its header names no target") from error

    def check_asked(self, spec: Spec, records: Records, where: str) -> None:
        asked, measured = resolve_cuda(spec.target), self.target_of(records, where)
        if asked.number != measured.number:
            raise RecordsError(f"{where}: measured on {measured.arch}; the spec asks for {asked.arch}")

    def domain(self, problem: AnyProblem, target: CudaTarget, device: Mapping[str, Any]) -> CudaDomain:
        return CUDA_DOMAINS[problem.form](problem, target, int(device["num_sms"]))

    @contextmanager
    def measuring(self, task: Task, device: Device, children: Children) -> Iterator[MeasuringGpu]:
        target = cast(CudaTarget, device.target)  # of this backend's kind
        with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
            num_sms = int(device.record["num_sms"])
            yield MeasuringGpu(task.problem, target, num_sms, children, Path(folder))

    def checking_device(self, spec: Spec, records: Records) -> tuple[Device | None, str]:
        """As `Backend` has it: a GPU of the architecture here; an emulated one for records of such alone."""
        asked = resolve_cuda(spec.target)
        try:
            gpu = find_gpu(asked)
        except TargetError as error:
            return None, str(error)
        if gpu is None or (gpu.is_synthetic and not records.is_synthetic):
            return None, f"there is no GPU of {asked.arch} here"
        return gpu_device(gpu), ""

    def report_facts(self, task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
        """As `Backend` has it: what is multiplied and added in, who measured, and κ."""
        spec, spread = task.spec, spread_of(records)
        return {
            "dtypes": {
                "operands": task.problem.operand_dtype,
                "accumulate": spec.accumulate,
                "output": task.problem.dtype(task.problem.outputs[0]),
            },
            "standing": SYNTHETIC if records.is_synthetic else f"measured on {records.device['name']}",
            "calibration": spread.to_json() | (records.calibration or {}),
        }

    def doubt(self, report: Mapping[str, Any]) -> str | None:
        """Return None: a GPU's sweep is read from its own clock."""
        return None

    def sum_order(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> tuple[str, int, int]:
        return cuda_form(problem).sum_order(micro_kernel)

    def divisors(self, problem: AnyProblem, micro_kernels: Sequence[CudaMicroKernel]) -> tuple[int, ...]:
        """As `Backend` has it: the multiples of alignment classes."""
        known = {own.multiple for tile in micro_kernels for own in classes_of(problem, tile)[:-1]}
        return tuple(sorted(known, reverse=True))

    def least_size(
        self, records: Records, target: CudaTarget, archs: tuple[str, ...], cap: int | None
    ) -> tuple[int, float]:
        """As `Backend` has it: a copy for each architecture, and PTX, which is as long."""
        return 0, 1.0 if cap is None else len({target.arch, *archs}) + 1.0

    def code_of(self, report: Mapping[str, Any]) -> tuple[str, Callable[[Mapping[str, Any]], str]]:
        """As `Backend` has it: what the CUDA compiler is given."""
        problem, target = problem_from_json(report["problem"]), CudaTarget.from_json(report["target"])
        return "cuda", lambda row: cuda_text(problem, [CudaMicroKernel.from_json(row)], target)

    def code_digest(self, problem: AnyProblem, target: CudaTarget, micro_kernel: CudaMicroKernel) -> str:
        return source_digest(cuda_text(problem, [micro_kernel], target))

    def emit(self, parts: Parts) -> dict[str, bytes]:
        return cuda_library_files(parts)

    def library_call(self, parts: Parts, files: Mapping[str, bytes]) -> LibraryCall:
        return LibraryCall(int(json.loads(files[MANIFEST])["workspace_bytes"]))


def _refuse_block(spec: Spec) -> None:
    """Refuse a block of a kind that has no code for GPUs."""
    if spec.block is None:
        return
    given = f"given {spec.target.tag or spec.target.kind}, a GPU"
    if spec.block.inner:
        allowed = f"a CPU where {spec.block.columns} are not the last indices"
        raise SpecError("target", f"{given}; allowed for reductions: {allowed}")
    for node in spec.block.nodes.values():
        if node.operator in CPU_ALONE:
            raise SpecError("target", f"{given}; allowed for a block with {node.operator}: a CPU")
