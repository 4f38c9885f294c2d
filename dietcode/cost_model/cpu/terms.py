"""f_local of the forms whose seconds are a sum of counted terms: one fit and one prediction for all of them.

t_work = Σᵢ cᵢ·termᵢ                           seconds of a balanced core
t      = c₀ + t_work · (κ·x + 1 − κ)           seconds of a call
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dietcode.cost_model.cpu.bandwidth import Bandwidth
from dietcode.cost_model.cpu.fitting import fit_each
from dietcode.cost_model.model import Extents, Factors, Fitted, FloatArray
from dietcode.cost_model.regression import measured
from dietcode.measure.least_squares import fit_terms
from dietcode.measure.records import Records
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.problem import AnyProblem
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class TermForm:
    """What a form counts.

    Attributes
    ----------
    terms : tuple of str
        Names of the coefficients c₁, c₂, …
    count : callable
        ``(problem, micro_kernel, limits, extents) -> counts``: `CoreCounts` with ``tiles``, and with
        ``work(bandwidth)``, the terms, float64 [num_instances, num_terms]. The bandwidth is that of copies as
        the micro-kernel writes its outputs.
    allows : callable
        ``(problem, micro_kernel, limits) -> bool``: whether a micro-kernel computes the problem.
    """

    terms: tuple[str, ...]
    count: Callable[..., Any]
    allows: Callable[..., bool]

    def fit(self, problem: AnyProblem, target: CpuTarget, records: Records, extents: Extents) -> Fitted:
        """Fit f_local of every measured micro-kernel; arguments and errors as of `fit_each`."""
        fit = partial(self.fit_one, calibration=records.calibration)
        return fit_each(problem, target, records, extents, (self.allows, fit))

    def fit_one(
        self,
        problem: AnyProblem,
        micro_kernel: AnyMicroKernel,
        limits: Limits,
        kappa: float,
        points: Sequence[Mapping[str, int]],
        secs: Sequence[float],
        calibration: Mapping[str, Any] | None = None,
    ) -> TermModel:
        """Fit f_local of one micro-kernel on its measured waves.

        Parameters
        ----------
        kappa : float
            κ of f_spatial.
        points : sequence of dict
            Extent of every index at each wave.
        secs : sequence of float
            Seconds of one call at each.
        calibration : mapping, optional
            Of the device: its bandwidth.

        Raises
        ------
        CandidateError
            Too few of them are usable.
        """
        waves, times = measured(problem, micro_kernel, points, secs)
        counts = self.count(problem, micro_kernel, limits, waves)
        bandwidth = bandwidth_of(micro_kernel, calibration)
        work = counts.work(bandwidth) * counts.stretch(kappa)[:, None]
        coefficients, error = fit_terms(np.column_stack([np.ones_like(times), work]), times)
        return TermModel(self, micro_kernel, coefficients, error, bandwidth)


def bandwidth_of(micro_kernel: AnyMicroKernel, calibration: Mapping[str, Any] | None) -> Bandwidth:
    """Return the bandwidth of copies that write as a micro-kernel does."""
    return Bandwidth.of(calibration, streamed=getattr(micro_kernel, "stream", False))


@dataclass(frozen=True)
class TermModel:
    """The fitted f_local of one micro-kernel.

    Attributes
    ----------
    coefficients : float64 array [1 + num_terms]
        c₀, then one for each of the form's terms.
    fit_error : float
        Median relative error on the measured waves.
    bandwidth : Bandwidth
        Of the device.
    """

    form: TermForm
    micro_kernel: AnyMicroKernel
    coefficients: FloatArray
    fit_error: float
    bandwidth: Bandwidth

    def predict(self, problem: AnyProblem, limits: Limits, kappa: float, extents: Extents) -> Factors:
        """Return the three factors and their product for every instance.

        Parameters
        ----------
        limits : Limits
            Of the target.
        kappa : float
            κ of f_spatial.
        extents : dict of str to int64 array [num_instances]
        """
        counts = self.form.count(problem, self.micro_kernel, limits, extents)
        work = np.maximum(counts.work(self.bandwidth) @ self.coefficients[1:], 1e-12)
        f_spatial, f_pad = 1.0 / counts.stretch(kappa), counts.f_pad
        f_local = counts.padded_flops / work
        secs = self.coefficients[0] + work / f_spatial
        return Factors(f_local, f_spatial, f_pad, counts.flops / secs, counts.imbalance, counts.tiles)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the report."""
        names = ("launch_secs", *self.form.terms)
        return dict(zip(names, (float(c) for c in self.coefficients), strict=True)) | {
            "median_fit_error": self.fit_error
        }
