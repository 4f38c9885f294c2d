"""What a kind of device has to say: its problem and space, what is measured on it, what is built for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dietcode.cost_model.model import Estimator, Extents, Fitted
from dietcode.library.parts import Parts
from dietcode.measure.children import Children
from dietcode.measure.engine import Device
from dietcode.measure.measurer import RunResult
from dietcode.measure.records import Records
from dietcode.measure.requests import BuildResult, Point
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.problem import Problem
from dietcode.search_space.task import Task
from dietcode.target.cubin import KernelFacts
from dietcode.workload.spec import Spec

Facts = Mapping[str, Any]
MeasureSecs = Callable[[list[AnyMicroKernel]], list[float | None]]
"""Seconds of micro-kernels at the largest instance, None for each that cannot be measured."""
Progress = Callable[[int, float | None], None]
"""Told the finished trials and the best GFLOP/s so far."""


class Domain(Protocol):
    """One problem on one target: its space and its cost model."""

    @property
    def problem(self) -> Problem:
        """As the device's code sees it."""

    def hardware_seeds(self) -> list[Any]:
        """Seeds that follow from the hardware's limits."""

    def seed_of(self, facts: Facts, source: str) -> Any:
        """The seed that a line of records holds."""

    def starting(self, seeds: Sequence[Any], extents: Extents, mutate: bool) -> list[Candidate]:
        """The space around seeds, in the order in which it is tried.

        Parameters
        ----------
        extents : dict of str to int64 array [num_instances]
        mutate : bool
            Take [T0/2, 2·T0] rather than T0 alone.
        """

    def allows(self, micro_kernel: AnyMicroKernel) -> bool:
        """Whether the micro-kernel computes the problem on the target."""

    def micro_kernel(self, facts: Facts) -> AnyMicroKernel:
        """The inverse of a micro-kernel's ``to_json``."""

    def tails(self, micro_kernel: AnyMicroKernel) -> list[AnyMicroKernel]:
        """The same tile with other treatments of tails; none where it has another one itself."""

    def neighbours(self, micro_kernel: AnyMicroKernel, longest: int) -> list[AnyMicroKernel]:
        """Micro-kernels one step along the other axes.

        Parameters
        ----------
        longest : int
            Longest reduction there is.
        """

    def fitting_tiles(self, rows: int, columns: int) -> list[AnyMicroKernel]:
        """Tiles that cut one shape into equal parts with least padding."""

    def ways(self, micro_kernel: AnyMicroKernel) -> frozenset[str]:
        """How it computes: the model knows less than its spread says of ways that were not tried."""

    def estimator(self, records: Records) -> Estimator | None:
        """What is told of micro-kernels before they are measured; None without a calibration."""

    def fit(self, records: Records, extents: Extents) -> Fitted:
        """Fit every usable measurement, and predict every instance.

        Raises
        ------
        TuningError
            The records hold no calibration, or no usable measurement.
        """


@dataclass(frozen=True)
class SeedSought:
    """What a search for T0 on the largest instance may take.

    Attributes
    ----------
    work_dir : Path
        Where MetaSchedule keeps its database.
    measure : callable
        Measures micro-kernels of the space, for a search that proposes them.
    """

    task: Task
    target: Any
    work_dir: Path
    num_trials: int
    max_secs: float
    progress: Progress
    measure: MeasureSecs


@dataclass(frozen=True)
class SeedFound:
    """T0 as a line of records holds it, or why there is none."""

    facts: Facts | None
    error: str | None = None


class MeasuringDevice(Protocol):
    """A device while candidates of one task are measured on it."""

    @property
    def seed_trials_are_candidates(self) -> bool:
        """Whether what a search for T0 measures are micro-kernels of the space, each on record by itself."""

    def num_seed_trials(self, num_trials: int) -> int:
        """Trials of a budget that a search for T0 may take; 0 where these are too few for one."""

    def find_seed(self, sought: SeedSought) -> SeedFound:
        """T0 by MetaSchedule on the largest instance."""

    def calibrate(self) -> dict[str, Any]:
        """A calibration line: the sweep that κ is fitted on.

        Raises
        ------
        TuningError
            It does not run.
        """

    def recalibrate(self, earlier: Facts) -> dict[str, Any] | None:
        """An earlier workload's calibration as of today; None where it is not to be trusted."""

    def describe(self, calibration: Facts) -> str:
        """One line for a person."""

    def attach(self, calibration: Facts) -> None:
        """Get ready to compare readings with the calibration's, once."""

    def build(self, micro_kernels: Sequence[AnyMicroKernel], prefix: str) -> list[BuildResult]:
        """Build each alone, side by side."""

    def facts(self, micro_kernel: AnyMicroKernel, built: BuildResult) -> KernelFacts | None:
        """What the compiler tells, as records keep it."""

    def full_wave(self, micro_kernel: AnyMicroKernel, facts: KernelFacts | None, anchor: Point) -> Point:
        """An instance grown until nothing is padded and no core is idle, as far as it can grow."""

    def check(
        self, micro_kernel: AnyMicroKernel, built: BuildResult, points: Sequence[Point], max_flops: float
    ) -> str | None:
        """Why it gives wrong numbers; None where it is right.

        Parameters
        ----------
        max_flops : float
            As `CheckRequest` has it.
        """

    def time(self, micro_kernel: AnyMicroKernel, built: BuildResult, points: Sequence[Point]) -> RunResult:
        """Time it at each point."""

    def fixed_bytes(self, records: Records) -> int | None:
        """Bytes that any library has; None where machine code is counted exactly."""


class Backend(Protocol):
    """One kind of device.

    Attributes
    ----------
    kind : str
        As ``target.kind`` has it; of the format of its records.
    archs : tuple of str
        Architectures that a library holds code for beside the target's, where none are named.
    """

    @property
    def kind(self) -> str: ...

    @property
    def archs(self) -> tuple[str, ...]: ...

    def check_ready(self, spec: Spec) -> None:
        """Refuse early what cannot be built here.

        Raises
        ------
        SpecError, TargetError, TuningError
            A compiler is missing, or does not take the spec.
        """

    def task(self, spec: Spec) -> Task:
        """What follows from a spec, with the problem as the device's code sees it."""

    def target_of(self, records: Records, where: str) -> Any:
        """What was measured for.

        Raises
        ------
        RecordsError
            The header names none.
        """

    def check_asked(self, spec: Spec, records: Records, where: str) -> None:
        """Refuse records of another target than a spec asks for.

        Raises
        ------
        RecordsError
            They are.
        """

    def domain(self, problem: Problem, target: Any, device: Facts) -> Domain:
        """The space and cost model of a problem.

        Parameters
        ----------
        device : mapping
            Of the header of records.
        """

    def measuring(
        self, task: Task, device: Device, children: Children
    ) -> AbstractContextManager[MeasuringDevice]:
        """What measures a task on a device; the children are their opener's."""

    def checking_device(self, spec: Spec, records: Records) -> tuple[Device | None, str]:
        """What a library made from records is run on, on this machine; or why there is nothing."""

    def report_facts(self, task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
        """What a report says of this kind of device alone."""

    def doubt(self, report: Facts) -> str | None:
        """Why the calibration looks disturbed by other work on the machine; None where not."""

    def sum_order(self, micro_kernel: AnyMicroKernel) -> Hashable:
        """What the order of additions depends on: micro-kernels alike in it give the same bits."""

    def least_size(
        self, records: Records, target: Any, archs: tuple[str, ...], cap: int | None
    ) -> tuple[int, float]:
        """Bytes of a library without micro-kernels, and in its file for each byte of theirs, at least.

        Parameters
        ----------
        archs : tuple of str
            As `Parts` has them.
        cap : int or None
            What the file may take; None: sizes are held against each other alone.
        """

    def emit(self, parts: Parts) -> dict[str, bytes]:
        """All files of a library by relative path; the same parts give the same bytes."""

    def library_call(self, parts: Parts, files: Mapping[str, bytes]) -> Any:
        """How a finished library is called, as `CheckRequest.call` has it."""
