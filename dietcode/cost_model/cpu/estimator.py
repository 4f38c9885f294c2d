"""What the estimators of all forms with counted terms have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dietcode.cost_model.cpu.bandwidth import Bandwidth
from dietcode.cost_model.cpu.features import CpuEstimator
from dietcode.cost_model.cpu.terms import TermForm, bandwidth_of
from dietcode.cost_model.model import Extents, Feature, FloatArray, Table
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.problem import AnyProblem

_SERIAL_LAUNCH = 0.3  # of a launch, where no other core is woken


@dataclass(frozen=True)
class TermEstimator(ABC):
    """`dietcode.cost_model.model.Estimator` of a form whose seconds are a sum of counted terms.

    A form has `cycles`, `values`, and what both follow from.

    Attributes
    ----------
    cycles_per_sec : float
        Of a core, by the calibration.
    launch_secs : float
        Seconds of a call without work.
    calibration : mapping
        Of the device.
    form : TermForm
        What is counted.
    columns : tuple of Feature
        The last one is the log of the estimate.
    version : int
        Of the features; each form has a number of its own.
    """

    limits: Limits
    kappa: float
    cycles_per_sec: float
    launch_secs: float
    calibration: Mapping[str, Any]
    form: ClassVar[TermForm]
    columns: ClassVar[tuple[Feature, ...]]
    version: ClassVar[int]

    @classmethod
    def of(cls, limits: Limits, calibration: Mapping[str, Any]) -> Self:
        """Return a calibration's estimator."""
        known = CpuEstimator.of(limits, calibration)
        return cls(limits, known.kappa, known.cycles_per_sec, known.launch_secs, calibration)

    def bandwidth(self, micro_kernel: AnyMicroKernel) -> Bandwidth:
        """Return the bandwidth of copies that write as a micro-kernel does."""
        return bandwidth_of(micro_kernel, self.calibration)

    @abstractmethod
    def cycles(self, problem: Any, micro_kernel: Any, counts: Any) -> FloatArray:
        """Return the cycles of the most loaded core, [num_points]."""

    @abstractmethod
    def values(self, problem: Any, micro_kernel: Any, counts: Any, extents: Extents) -> Sequence[Any]:
        """Return all features but the last one, each a number or an array [num_points]."""

    def allows(self, problem: AnyProblem, micro_kernel: AnyMicroKernel) -> bool:
        """Whether the micro-kernel computes the problem."""
        return self.form.allows(problem, micro_kernel, self.limits)

    def estimate(self, problem: AnyProblem, micro_kernel: AnyMicroKernel, extents: Extents) -> FloatArray:
        """Return the seconds of a call by arithmetic alone, [num_points]."""
        counts = self.form.count(problem, micro_kernel, self.limits, extents)
        return self._secs(problem, micro_kernel, counts)

    def _secs(self, problem: AnyProblem, micro_kernel: AnyMicroKernel, counts: Any) -> FloatArray:
        launch = self.launch_secs * (_SERIAL_LAUNCH if micro_kernel.serial else 1.0)
        return launch + self.cycles(problem, micro_kernel, counts) / self.cycles_per_sec

    def features(
        self, problem: AnyProblem, micro_kernel: AnyMicroKernel, extents: Extents
    ) -> tuple[Table, FloatArray]:
        """Return features and estimate of one micro-kernel at many shapes.

        Returns
        -------
        float32 [num_points, num_features], float64 [num_points]
            Columns as in `columns`; seconds as in `estimate`.
        """
        counts = self.form.count(problem, micro_kernel, self.limits, extents)
        estimate = self._secs(problem, micro_kernel, counts)
        values = (*self.values(problem, micro_kernel, counts, extents), np.log2(estimate))
        table: Table = np.empty((len(estimate), len(self.columns)), dtype=np.float32)
        for column, value in enumerate(values):
            table[:, column] = value
        return table, estimate
