"""Every measured micro-kernel of a GPU fitted, every instance predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.cost_model.cuda import (
    CudaFactors,
    CudaLocalModel,
    FloatArray,
    fit_kappa,
    fit_local,
    wave_blocks,
)
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.records import Records
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.problem import IntArray, Problem
from dietcode.target.cuda import CudaTarget


@dataclass(frozen=True)
class CudaFitted:
    """The cost array and what it was made from.

    Attributes
    ----------
    throughput : float64 array [num_instances, num_micro_kernels]
        Predicted FLOP/s.
    sizes : int64 array [num_micro_kernels]
        Bytes of machine code.
    dropped : dict of str to str
        Micro-kernels that were not used, and why: failed, spilling, not for this architecture.
    """

    kappa: float
    models: tuple[CudaLocalModel, ...]
    factors: tuple[CudaFactors, ...]
    throughput: FloatArray
    flops: FloatArray
    sizes: IntArray
    dropped: dict[str, str]

    def predict(self, problem: Problem, chosen: list[int], extents: Mapping[str, IntArray]) -> FloatArray:
        """Predicted FLOP/s of some micro-kernels at further instances, [num_instances, num_chosen]."""
        factors = [self.models[i].predict(problem, self.kappa, extents) for i in chosen]
        return np.stack([f.throughput for f in factors], axis=1)


def fit_cuda(problem: Problem, records: Records, extents: Mapping[str, IntArray]) -> CudaFitted:
    """Fit f_local of every usable micro-kernel and predict every instance.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.lowering.device_problem` gives it.

    Raises
    ------
    TuningError
        The records hold no κ of their device, or no usable measurement.
    """
    if records.calibration is None:
        raise TuningError("the records hold no calibration of their device: no κ can be told")
    target = CudaTarget.from_json(records.device["target"])
    limits, kappa = CudaLimits.of(target), _kappa(records.calibration)
    models, dropped = [], {}
    for tile, measurement in records.measurements.items():
        reason = measurement.error or limits.why_not(problem, tile)
        if reason is None and measurement.facts is not None and not measurement.usable:
            reason = f"spills {measurement.facts.stack_bytes} bytes a thread"
        if reason is None and measurement.facts is None:
            reason = "nothing is known of its registers"
        if reason is None and measurement.facts is not None:
            try:
                wave = wave_blocks(target, records.device["num_sms"], tile, measurement.facts)
                models.append(fit_local(problem, tile, wave, kappa, measurement.points, measurement.secs))
                continue
            except CandidateError as error:
                reason = str(error)
        dropped[tile.name] = str(reason)
    if not models:
        raise TuningError("the records hold no usable measurement of this workload")
    models.sort(key=lambda model: model.micro_kernel.order)
    factors = tuple(model.predict(problem, kappa, extents) for model in models)
    throughput = np.stack([f.throughput for f in factors], axis=1)
    sizes = [records.measurements[model.micro_kernel].facts for model in models]
    return CudaFitted(
        kappa,
        tuple(models),
        factors,
        throughput,
        np.broadcast_to(np.asarray(problem.flops(dict(extents)), dtype=np.float64), throughput.shape[:1]),
        np.asarray([max(1, facts.code_bytes) for facts in sizes if facts is not None], dtype=np.int64),
        dropped,
    )


def _kappa(calibration: Mapping[str, Any]) -> float:
    try:
        return fit_kappa(calibration["num_blocks"], calibration["secs"], calibration["wave_blocks"])
    except CandidateError as error:
        raise TuningError(str(error)) from error
