"""The fit of every measured micro-kernel of a CPU, and predictions at every instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dietcode.cost_model.cpu.model import CountedWaves, fit_together
from dietcode.cost_model.model import Extents, Factors, Fitted, FittedLocal
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.records import Records
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.target.cpu import CpuTarget
from dietcode.target.fma import FMAS


def fit_all(problem: Problem, target: CpuTarget, records: Records, extents: Extents) -> Fitted:
    """Fit f_local of every measured micro-kernel of a contraction; arguments and errors as of `fit_each`."""
    measured = (records.calibration or {}).get("fmas_per_cycle")
    finish = partial(fit_together, fmas=FMAS if measured is None else (float(measured),))
    return fit_each(problem, target, records, extents, (allows, CountedWaves.of), finish)


def fit_each(
    problem: AnyProblem,
    target: CpuTarget,
    records: Records,
    extents: Extents,
    form: tuple[Callable[..., bool], Callable[..., Any]],
    finish: Callable[[Sequence[Any]], Sequence[FittedLocal]] = tuple,
) -> Fitted:
    """Fit f_local of every measured micro-kernel and predict every instance.

    Parameters
    ----------
    target : CpuTarget
        The device's.
    records : Records
        Of the workload on that device.
    extents : dict of str to int64 array [num_instances]
    form : (callable, callable)
        ``(problem, micro_kernel, limits) -> bool``, whether it computes the problem; and
        ``(problem, micro_kernel, limits, kappa, points, secs) -> FittedLocal``, or what `finish` takes.
    finish : callable
        Makes the fits of all that the second one returned; by default these are the fits.

    Raises
    ------
    TuningError
        No micro-kernel has a usable measurement.
    """
    if records.calibration is None:
        raise TuningError("the records hold no calibration of their device; measure again without --records")
    kappa, limits = float(records.calibration["kappa"]), Limits.of(target)
    models, fixed = [], records.fixed_bytes or 0
    is_allowed, fit = form
    for micro_kernel, measurement in records.measurements.items():
        if measurement.usable and is_allowed(problem, micro_kernel, limits):
            try:
                models.append(fit(problem, micro_kernel, limits, kappa, measurement.points, measurement.secs))
            except CandidateError:
                continue

    def predict_one(model: Any, extents: Extents) -> Factors:
        factors: Factors = model.predict(problem, limits, kappa, extents)
        return factors

    def size(micro_kernel: AnyMicroKernel) -> int:
        """Return what a micro-kernel adds: its object file less what every library has."""
        return records.measurements[micro_kernel].object_bytes - fixed

    return Fitted.of(problem, finish(models), predict_one, size, extents)
