"""The fit of every measured micro-kernel of a CPU, and predictions at every instance."""

from __future__ import annotations

from dietcode.cost_model.cpu.model import LocalModel, fit_local
from dietcode.cost_model.model import Extents, Factors, Fitted
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.records import Records
from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget


def fit_all(problem: Problem, target: CpuTarget, records: Records, extents: Extents) -> Fitted:
    """Fit f_local of every measured micro-kernel and predict every instance.

    Parameters
    ----------
    target : CpuTarget
        The device's.
    records : Records
        Of the workload on that device.
    extents : dict of str to int64 array [num_instances]

    Raises
    ------
    TuningError
        No micro-kernel has a usable measurement.
    """
    if records.calibration is None:
        raise TuningError("the records hold no calibration of their device; measure again without --records")
    kappa, limits = float(records.calibration["kappa"]), Limits.of(target)
    models, fixed = [], records.fixed_bytes or 0
    for micro_kernel, measurement in records.measurements.items():
        if measurement.usable and allows(problem, micro_kernel, limits):
            try:
                models.append(
                    fit_local(problem, micro_kernel, limits, kappa, measurement.points, measurement.secs)
                )
            except CandidateError:
                continue

    def predict_one(model: LocalModel, extents: Extents) -> Factors:
        return model.predict(problem, limits, kappa, extents)

    def size(micro_kernel: MicroKernel) -> int:
        """Return what a micro-kernel adds: its object file less what every library has."""
        return records.measurements[micro_kernel].object_bytes - fixed

    return Fitted.of(problem, models, predict_one, size, extents)
