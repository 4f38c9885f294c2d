"""What a kind of device provides: its problem and space, how it is measured, what is built for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dietcode.cost_model.model import Estimator, Extents, Fitted
from dietcode.library.parts import Parts
from dietcode.measure.children import Children
from dietcode.measure.engine import Device
from dietcode.measure.measurer import RunResult
from dietcode.measure.records import Records
from dietcode.measure.requests import BuildResult, Point
from dietcode.measure.seed_search import Progress, SeedResult
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.task import Task
from dietcode.target.cubin import KernelFacts
from dietcode.workload.spec import Spec

Facts = Mapping[str, Any]
MeasureSecs = Callable[[list[AnyMicroKernel]], list[float | None]]
"""Seconds of micro-kernels at the largest instance, None for each that cannot be measured."""


class Domain(Protocol):
    """One problem on one target: its space and its cost model.

    Attributes
    ----------
    problem : AnyProblem
        As the device's code sees it.
    """

    problem: AnyProblem

    def hardware_seeds(self) -> list[Any]:
        """Return seeds that follow from the hardware's limits."""

    def seed_of(self, facts: Facts, source: str) -> Any:
        """Return the seed that a line of records holds."""

    def starting(self, seeds: Sequence[Any], extents: Extents, mutate: bool) -> list[Candidate]:
        """Return the space around seeds, in the order in which it is tried.

        Parameters
        ----------
        extents : dict of str to int64 array [num_instances]
        mutate : bool
            Whether to take [T0/2, 2·T0] rather than T0 alone.
        """

    def allows(self, micro_kernel: AnyMicroKernel) -> bool:
        """Whether the micro-kernel computes the problem on the target."""

    def micro_kernel(self, facts: Facts) -> AnyMicroKernel:
        """Return a micro-kernel of plain data; the inverse of its ``to_json``."""

    def tails(self, micro_kernel: AnyMicroKernel) -> list[AnyMicroKernel]:
        """Return the tile with other treatments of tails; none unless it has the first one."""

    def neighbours(self, micro_kernel: AnyMicroKernel, longest: int) -> list[AnyMicroKernel]:
        """Return micro-kernels one step away along the other axes.

        Parameters
        ----------
        longest : int
            Longest reduction of all instances.
        """

    def fitting_tiles(self, rows: int, columns: int) -> list[AnyMicroKernel]:
        """Return tiles that cut one shape into equal parts with least padding."""

    def ways(self, micro_kernel: AnyMicroKernel) -> frozenset[str]:
        """Return how it computes; predictions for ways that were not tried have a larger spread."""

    def estimator(self, records: Records) -> Estimator | None:
        """Return what estimates micro-kernels before they are measured; None without a calibration."""

    def fit(self, records: Records, extents: Extents) -> Fitted:
        """Fit every usable measurement and predict every instance.

        Raises
        ------
        TuningError
            The records hold no calibration, or no usable measurement.
        """


@dataclass(frozen=True)
class SeedSought:
    """Bounds and means of a search for T0 on the largest instance.

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


class MeasuringDevice(Protocol):
    """A device while candidates of one task are measured on it.

    Attributes
    ----------
    seed_trials_are_candidates : bool
        Whether what a search for T0 measures are micro-kernels of the space, each on record by itself.
    """

    seed_trials_are_candidates: bool

    def num_seed_trials(self, num_trials: int) -> int:
        """Return how many trials of a budget a search for T0 may take; 0 where they are too few."""

    def find_seed(self, sought: SeedSought) -> SeedResult:
        """Find T0 by MetaSchedule on the largest instance."""

    def calibrate(self, most_secs: float = math.inf) -> dict[str, Any]:
        """Return a calibration line: the sweep that κ is fitted on.

        Parameters
        ----------
        most_secs : float
            How long a sweep may be read again, where its readings are noisy.

        Raises
        ------
        TuningError
            The sweep does not run.
        """

    def recalibrate(self, earlier: Facts) -> dict[str, Any] | None:
        """Return an earlier workload's calibration as of now; None where it is not trusted."""

    def describe(self, calibration: Facts) -> str:
        """Describe a calibration in one line."""

    def full_gflops(self, calibration: Facts) -> float | None:
        """Return what a search for T0 is worth running for: the reference kernel's GFLOP/s on full waves.

        None where MetaSchedule runs whatever the first round reaches.
        """

    def attach(self, calibration: Facts) -> None:
        """Prepare, once, to compare readings with those of the calibration."""

    def build(self, micro_kernels: Sequence[AnyMicroKernel], prefix: str) -> list[BuildResult]:
        """Build each micro-kernel alone, side by side.

        Parameters
        ----------
        prefix : str
            Of the names of the files.
        """

    def facts(self, micro_kernel: AnyMicroKernel, built: BuildResult) -> KernelFacts | None:
        """Return the compiler's facts for records; None where there are none."""

    def full_wave(self, micro_kernel: AnyMicroKernel, facts: KernelFacts | None, anchor: Point) -> Point:
        """Return an instance grown until nothing is padded and no core is idle, as far as possible."""

    def finals_between(self, problem: AnyProblem, extents: Extents) -> list[Point]:
        """Return instances between the anchors that the leaders are read at; none where waves are enough."""

    def check(
        self, micro_kernel: AnyMicroKernel, built: BuildResult, points: Sequence[Point], max_flops: float
    ) -> str | None:
        """Return why the micro-kernel gives wrong numbers; None where they are right.

        Parameters
        ----------
        max_flops : float
            As `CheckRequest` has it.
        """

    def time(self, micro_kernel: AnyMicroKernel, built: BuildResult, points: Sequence[Point]) -> RunResult:
        """Time a micro-kernel at each point."""

    def fixed_bytes(self, records: Records) -> int | None:
        """Return the bytes that any library has; None where machine code is counted exactly."""


class Backend(Protocol):
    """One kind of device.

    Attributes
    ----------
    kind : str
        As ``target.kind`` and the format of records have it.
    archs : tuple of str
        Architectures that a library holds code for beside the target's, by default.
    """

    kind: ClassVar[str]
    archs: ClassVar[tuple[str, ...]]

    def availability(self) -> dict[str, Any]:
        """Return whether it can be built for and measured on here, as ``dietcode targets`` shows it."""

    def check_ready(self, spec: Spec) -> None:
        """Refuse early a spec that cannot be built here.

        Raises
        ------
        SpecError, TargetError, TuningError
            A compiler is missing, or does not take the spec.
        """

    def task(self, spec: Spec) -> Task:
        """Return the task of a spec, with the problem as the device's code sees it."""

    def target_of(self, records: Records, where: str) -> Any:
        """Return the target that records were measured for.

        Raises
        ------
        RecordsError
            The header names no target.
        """

    def check_asked(self, spec: Spec, records: Records, where: str) -> None:
        """Refuse records of another target than a spec asks for.

        Raises
        ------
        RecordsError
            They are of another one.
        """

    def domain(self, problem: AnyProblem, target: Any, device: Facts) -> Domain:
        """Return the space and cost model of a problem.

        Parameters
        ----------
        device : mapping
            As the header of records has it.
        """

    def measuring(
        self, task: Task, device: Device, children: Children
    ) -> AbstractContextManager[MeasuringDevice]:
        """Return what measures a task on a device; the children stay open."""

    def checking_device(self, spec: Spec, records: Records) -> tuple[Device | None, str]:
        """Return the device here that can run a library made from records, or why there is none."""

    def report_facts(self, task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
        """Return what a report holds for this kind of device alone."""

    def doubt(self, report: Facts) -> str | None:
        """Return why the calibration looks disturbed by other work on the machine; None where it does not."""

    def sum_order(self, problem: AnyProblem, micro_kernel: AnyMicroKernel) -> Hashable:
        """Return what the order of additions depends on: micro-kernels with the same give the same bits."""

    def divisors(self, problem: AnyProblem, micro_kernels: Sequence[AnyMicroKernel]) -> tuple[int, ...]:
        """Return by whose remainders a rule may tell shapes apart, the largest first; maybe none."""

    def least_size(
        self, records: Records, target: Any, archs: tuple[str, ...], cap: int | None
    ) -> tuple[int, float]:
        """Return the least bytes of a library without micro-kernels, and of its file for each byte of theirs.

        Parameters
        ----------
        archs : tuple of str
            As `Parts` has them.
        cap : int or None
            Largest file; None where sizes are only compared with each other.
        """

    def code_of(self, report: Facts) -> tuple[str, Callable[[Facts], str]]:
        """Return the language of generated code, and what writes it for a micro-kernel's row of a report."""

    def code_digest(self, problem: AnyProblem, target: Any, micro_kernel: AnyMicroKernel) -> str:
        """Return the digest of the source that would be generated now, as `BuildResult.code` has it.

        Raises
        ------
        CandidateError
            None would be.
        """

    def emit(self, parts: Parts) -> dict[str, bytes]:
        """Return all files of a library by relative path; the same parts give the same bytes."""

    def library_call(self, parts: Parts, files: Mapping[str, bytes]) -> Any:
        """Return how a finished library is called, as `CheckRequest.call` has it."""
