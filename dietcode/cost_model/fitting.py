"""Every measured micro-kernel fitted, every instance predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dietcode.cost_model.counts import FloatArray
from dietcode.cost_model.model import Factors, LocalModel, cost_array, fit_local
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.records import Records
from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import IntArray, Problem
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class Fitted:
    """The cost array and what it was made from.

    Attributes
    ----------
    throughput : float64 array [num_instances, num_micro_kernels]
        Predicted FLOP/s.
    sizes : int64 array [num_micro_kernels]
        Compiled bytes of each micro-kernel.
    """

    models: tuple[LocalModel, ...]
    factors: tuple[Factors, ...]
    throughput: FloatArray
    flops: FloatArray
    sizes: IntArray


def fit_all(problem: Problem, target: CpuTarget, records: Records, extents: dict[str, IntArray]) -> Fitted:
    """Fit f_local of every measured micro-kernel and predict every instance.

    Raises
    ------
    TuningError
        No micro-kernel has a usable measurement.
    """
    if records.calibration is None:
        raise TuningError("the records hold no calibration of their device; measure again without --records")
    kappa, limits = float(records.calibration["kappa"]), Limits.of(target)
    models = []
    for measurement in records.measurements.values():
        if not measurement.usable or not allows(problem, measurement.micro_kernel, limits):
            continue
        try:
            models.append(
                fit_local(
                    problem, measurement.micro_kernel, limits, kappa, measurement.points, measurement.secs
                )
            )
        except CandidateError:
            continue
    if not models:
        raise TuningError("the records hold no usable measurement of this workload")
    models.sort(key=lambda m: m.micro_kernel.order)
    factors = [model.predict(problem, limits, kappa, extents) for model in models]
    sizes = _sizes(records, [m.micro_kernel for m in models])
    flops = np.broadcast_to(problem.flops(extents), factors[0].throughput.shape)
    return Fitted(tuple(models), tuple(factors), cost_array(factors), flops, sizes)


def predict_all(
    models: Sequence[LocalModel],
    problem: Problem,
    target: CpuTarget,
    records: Records,
    extents: dict[str, IntArray],
) -> FloatArray:
    """Predicted FLOP/s of some micro-kernels at further instances, [num_instances, num_models]."""
    assert records.calibration is not None
    kappa, limits = float(records.calibration["kappa"]), Limits.of(target)
    return cost_array([model.predict(problem, limits, kappa, extents) for model in models])


def _sizes(records: Records, kernels: list[MicroKernel]) -> IntArray:
    """Bytes that each micro-kernel adds: its object file less what every library has."""
    fixed = records.fixed_bytes or 0
    return np.asarray([max(1, records.measurements[k].object_bytes - fixed) for k in kernels], dtype=np.int64)
