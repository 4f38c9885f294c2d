"""The backend of CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from dietcode.backends.cpu.domain import CpuDomain
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.cost_model.model import Fitted
from dietcode.errors import RecordsError
from dietcode.library.build import check_linker, library_files
from dietcode.library.parts import Parts
from dietcode.measure.calibration import is_plausible
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.engine import Device
from dietcode.measure.measurer import Measurer
from dietcode.measure.records import Records
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import Problem
from dietcode.search_space.task import Task
from dietcode.target.cpu import CpuTarget
from dietcode.workload.checks import check_operand_dtypes
from dietcode.workload.spec import Spec


class CpuBackend:
    """`dietcode.backends.protocol.Backend` of CPUs."""

    kind: ClassVar[str] = "llvm"
    archs: ClassVar[tuple[str, ...]] = ()

    def check_ready(self, spec: Spec) -> None:
        """As `Backend` has it."""
        check_operand_dtypes(spec)  # of a TVM tag only its resolution told that it is a CPU
        check_linker()

    def task(self, spec: Spec) -> Task:
        """As `Backend` has it."""
        return Task.of(spec)

    def target_of(self, records: Records, where: str) -> CpuTarget:
        """As `Backend` has it."""
        try:
            return CpuTarget.from_json(records.device["target"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordsError(f"{where}: its header names no target") from error

    def check_asked(self, spec: Spec, records: Records, where: str) -> None:
        """As `Backend` has it."""
        asked, target = spec.target, self.target_of(records, where)
        if asked.mcpu is not None and asked.mcpu != target.mcpu:
            raise RecordsError(f"{where}: measured for mcpu {target.mcpu}; the spec asks for {asked.mcpu}")
        if asked.num_cores is not None and asked.num_cores != target.num_cores:
            raise RecordsError(
                f"{where}: measured on {target.num_cores} cores; the spec asks for {asked.num_cores}"
            )

    def domain(self, problem: Problem, target: CpuTarget, device: Mapping[str, Any]) -> CpuDomain:
        """As `Backend` has it."""
        return CpuDomain(problem, target)

    @contextmanager
    def measuring(self, task: Task, device: Device, children: Children) -> Iterator[MeasuringCpu]:
        """As `Backend` has it."""
        target = cast(CpuTarget, device.target)  # of this backend's kind
        with Measurer(children, task.problem, task.variables, target) as measurer:
            yield MeasuringCpu(measurer)

    def checking_device(self, spec: Spec, records: Records) -> tuple[Device | None, str]:
        """As `Backend` has it: this machine's CPU, where it has what the code needs."""
        target = self.target_of(records, "the records")
        if not target.runs_here:
            return None, "this CPU lacks the target's instruction sets"
        return Device(target, records.device, CpuWorker(target.num_cores)), ""

    def report_facts(self, task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
        """Nothing more."""
        return {}

    def doubt(self, report: Mapping[str, Any]) -> str | None:
        """As `Backend` has it."""
        kappa = report["calibration"]["kappa"]
        if is_plausible(kappa, report["target"]["num_cores"]):
            return None
        return f"κ = {kappa:.2f}: the cores did not run side by side"

    def sum_order(self, micro_kernel: MicroKernel) -> int:
        """As `Backend` has it: all add one step after the other."""
        return 0

    def least_size(
        self, records: Records, target: CpuTarget, archs: tuple[str, ...], cap: int | None
    ) -> tuple[int, float]:
        """As `Backend` has it."""
        return records.fixed_bytes or 0, 1.0

    def emit(self, parts: Parts) -> dict[str, bytes]:
        """As `Backend` has it."""
        return library_files(parts)

    def library_call(self, parts: Parts, files: Mapping[str, bytes]) -> Limits:
        """As `Backend` has it."""
        return Limits.of(parts.target)
