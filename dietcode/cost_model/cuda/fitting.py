"""The fit of every measured micro-kernel of a GPU, and predictions at every instance."""

from __future__ import annotations

from dietcode.cost_model.cuda.model import CudaLocalModel, fit_local, wave_blocks
from dietcode.cost_model.cuda.waves import Spread, fit_sweep
from dietcode.cost_model.model import Extents, Factors, Fitted
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.records import Records
from dietcode.search_space.cuda.forms import classes_of
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem
from dietcode.target.cuda import CudaTarget


def fit_cuda(problem: AnyProblem, records: Records, extents: Extents) -> Fitted:
    """Fit f_local of every usable micro-kernel and predict every instance.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.

    Raises
    ------
    TuningError
        The records hold no κ of their device, or no usable measurement.
    """
    spread, target = spread_of(records), CudaTarget.from_json(records.device["target"])
    limits = CudaLimits.of(target)
    models, unused = [], {}
    for micro_kernel, measurement in records.measurements.items():
        reason = measurement.error or limits.why_not(problem, micro_kernel)
        if reason is None and measurement.facts is not None and not measurement.usable:
            spilled = measurement.facts.stack_bytes
            reason = f"spills {spilled} bytes a thread" if spilled else "given up after its first points"
        if reason is None and measurement.facts is not None:
            asked, timed = len(classes_of(problem, micro_kernel)), measurement.facts.classes
            if asked != timed:
                reason = f"timed with {timed} alignment class(es), but it has {asked}; measure it again"
        if reason is None and measurement.facts is None:
            reason = "the records do not have its registers"
        if reason is None and measurement.facts is not None:
            try:
                wave = wave_blocks(target, records.device["num_sms"], micro_kernel, measurement.facts)
                models.append(
                    fit_local(problem, micro_kernel, wave, spread, measurement.points, measurement.secs)
                )
                continue
            except CandidateError as error:
                reason = str(error)
        unused[micro_kernel.name] = str(reason)

    def predict_one(model: CudaLocalModel, extents: Extents) -> Factors:
        return model.predict(problem, extents)

    def size(micro_kernel: CudaMicroKernel) -> int:
        facts = records.measurements[micro_kernel].facts
        return 0 if facts is None else facts.code_bytes

    return Fitted.of(problem, models, predict_one, size, extents, unused)


def spread_of(records: Records) -> Spread:
    """Return how the device that measured spreads blocks.

    Raises
    ------
    TuningError
        The records hold no calibration, or it cannot be fitted.
    """
    if records.calibration is None:
        raise TuningError(
            "the records hold no calibration of their device, and so no κ; measure again without --records"
        )
    return fit_sweep(records.calibration, records.device["num_sms"]).spread
