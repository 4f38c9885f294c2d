"""The backend of CPUs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

from dietcode.backends.cpu.forms import CPU_FORMS
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.backends.protocol import Backend, Domain
from dietcode.cost_model.model import Fitted
from dietcode.errors import RecordsError
from dietcode.library.build import library_files
from dietcode.library.files import find_linker
from dietcode.library.parts import Parts
from dietcode.measure.calibration import is_plausible
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.engine import Device
from dietcode.measure.records import Records
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.lowerings import lower_micro_kernel
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.search_space.depthwise import with_channels_as_columns
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.task import Task
from dietcode.search_space.tir import script_of
from dietcode.target.cpu import CpuTarget, Host, device_record, resolve_target
from dietcode.workload.identity import source_digest
from dietcode.workload.spec import Spec, TargetSpec
from dietcode.workload.spec_checks import check_operand_dtypes


class CpuBackend(Backend):
    """`dietcode.backends.protocol.Backend` of CPUs."""

    kind: ClassVar[str] = "llvm"
    archs: ClassVar[tuple[str, ...]] = ()

    def availability(self) -> dict[str, Any]:
        """As `Backend` has it: this machine's CPU."""
        spec, host = TargetSpec(kind="llvm"), Host.here()
        target = resolve_target(spec, host)
        record = device_record(target, host, spec)
        return {
            "kind": self.kind,
            "mcpu": target.mcpu,
            "device": record["name"],
            "device_id": record["id"],
            "num_cores": target.num_cores,
            "features": list(target.features),
            "vector_bits": target.vector_bytes * 8,
            "l2_bytes": target.l2_bytes,
            "build": True,
            "measure": target.runs_here,
        }

    def check_ready(self, spec: Spec) -> None:
        check_operand_dtypes(spec)  # only the resolution of a TVM tag shows that it is a CPU
        find_linker()

    def task(self, spec: Spec) -> Task:
        return Task.of(spec, with_channels_as_columns)

    def target_of(self, records: Records, where: str) -> CpuTarget:
        try:
            return CpuTarget.from_json(records.device["target"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordsError(f"{where}: its header names no target") from error

    def check_asked(self, spec: Spec, records: Records, where: str) -> None:
        asked, target = spec.target, self.target_of(records, where)
        is_same = asked.mcpu in {None, target.mcpu} or resolve_target(asked).features == target.features
        if not is_same:
            raise RecordsError(f"{where}: measured for mcpu {target.mcpu}; the spec asks for {asked.mcpu}")
        if asked.num_cores is not None and asked.num_cores != target.num_cores:
            raise RecordsError(
                f"{where}: measured on {target.num_cores} cores; the spec asks for {asked.num_cores}"
            )

    def domain(self, problem: AnyProblem, target: CpuTarget, device: Mapping[str, Any]) -> Domain:
        return CPU_FORMS[problem.form].domain(problem, target)

    @contextmanager
    def measuring(self, task: Task, device: Device, children: Children) -> Iterator[MeasuringCpu]:
        target = cast(CpuTarget, device.target)  # of this backend's kind
        with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
            yield MeasuringCpu(children, task.problem, task.variables, target, Path(folder))

    def checking_device(self, spec: Spec, records: Records) -> tuple[Device | None, str]:
        """As `Backend` has it: this machine's CPU, where it has what the code needs."""
        target = self.target_of(records, "the records")
        if not target.runs_here:
            return None, "this CPU lacks the target's instruction sets"
        return Device(target, records.device, CpuWorker(target.num_cores)), ""

    def report_facts(self, task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
        """As `Backend` has it: what the form of the problem has of its own."""
        return dict(CPU_FORMS[task.problem.form].report_facts(task, records, fitted))

    def doubt(self, report: Mapping[str, Any]) -> str | None:
        kappa = report["calibration"]["kappa"]
        if is_plausible(kappa, report["target"]["num_cores"]):
            return None
        return f"κ = {kappa:.2f}: the cores did not run side by side"

    def sum_order(self, problem: AnyProblem, micro_kernel: AnyMicroKernel) -> int:
        """Return 0: all of a form add in one order."""
        return 0

    def divisors(self, problem: AnyProblem, micro_kernels: Sequence[AnyMicroKernel]) -> tuple[int, ...]:
        """Return none: unaligned vector loads cost nothing."""
        return ()

    def least_size(
        self, records: Records, target: CpuTarget, archs: tuple[str, ...], cap: int | None
    ) -> tuple[int, float]:
        return records.fixed_bytes or 0, 1.0

    def code_of(self, report: Mapping[str, Any]) -> tuple[str, Callable[[Mapping[str, Any]], str]]:
        """As `Backend` has it: TVMScript of the function before TVM's passes."""
        problem = problem_from_json(report["problem"])
        limits = Limits.of(CpuTarget.from_json(report["target"]))

        def write(row: Mapping[str, Any]) -> str:
            kernel = cpu_micro_kernel(row)
            text = script_of(lower_micro_kernel(problem, kernel, limits, kernel.name))
            symbol = f"micro_kernel_{kernel.name}".replace("-", "_")
            return text.replace("def main(", f"def {symbol}(", 1) + "\n"

        return "tir", write

    def code_digest(self, problem: AnyProblem, target: CpuTarget, micro_kernel: AnyMicroKernel) -> str:
        limits = Limits.of(target)
        return source_digest(script_of(lower_micro_kernel(problem, micro_kernel, limits, micro_kernel.name)))

    def emit(self, parts: Parts) -> dict[str, bytes]:
        return library_files(parts)

    def library_call(self, parts: Parts, files: Mapping[str, bytes]) -> Limits:
        return Limits.of(parts.target)
