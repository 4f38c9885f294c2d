"""From records to a library: fit, predict, select, rule, code. Measures nothing, so it needs no device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dietcode.cost_model.counts import FloatArray
from dietcode.cost_model.model import Factors, LocalModel, cost_array, fit_local
from dietcode.dispatcher.rule import Rule, fit_rule, regret
from dietcode.dispatcher.select import Objective, Selection, select_categories, smooth_assignment
from dietcode.dispatcher.table import dispatch_table
from dietcode.errors import CandidateError, TuningError
from dietcode.library.build import Parts
from dietcode.measure.records import Records
from dietcode.search_space.limits import Limits, MicroKernel
from dietcode.search_space.problem import IntArray, Problem, instance_extents
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.report import build_report
from dietcode.workload.instances import Instances
from dietcode.workload.spec import Spec

_SMOOTHING = 0.005  # an instance may lose this much so that the rule stays short


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


def fit_all(
    problem: Problem, target: CpuTarget, records: Records, extents: dict[str, IntArray]
) -> Fitted:
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
        if measurement.error is not None:
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
    models.sort(key=lambda m: (m.micro_kernel.rows, m.micro_kernel.columns))
    factors = [model.predict(problem, limits, kappa, extents) for model in models]
    sizes = _sizes(records, [m.micro_kernel for m in models])
    batch, rows, columns, reduction = problem.sizes({k: v.astype(np.float64) for k, v in extents.items()})
    flops = np.broadcast_to(2.0 * batch * rows * columns * reduction, factors[0].throughput.shape)
    return Fitted(tuple(models), tuple(factors), cost_array(factors), flops, sizes)


def _sizes(records: Records, kernels: list[MicroKernel]) -> IntArray:
    """Bytes that each micro-kernel adds: its object file less what every library has."""
    fixed = records.fixed_bytes or 0
    return np.asarray([max(1, records.measurements[k].object_bytes - fixed) for k in kernels], dtype=np.int64)


def assemble(
    spec: Spec, problem: Problem, target: CpuTarget, instances: Instances, records: Records
) -> Parts:
    """Choose categories and fit the rule; deterministic in its arguments.

    Raises
    ------
    TuningError
        The records are not enough, or the objective's hard caps cannot be met.
    """
    extents = instance_extents(spec, instances.columns())
    fitted = fit_all(problem, target, records, extents)
    selection = select_categories(
        fitted.throughput,
        fitted.flops,
        instances.weights,
        fitted.sizes,
        Objective(
            binary_size=spec.objective.binary_size,
            max_loss=spec.objective.max_loss,
            max_kernels=spec.objective.max_kernels,
            max_bytes=spec.objective.max_bytes,
            weight=spec.objective.weight,
        ),
        fixed_bytes=records.fixed_bytes or 0,
    )
    rule, assignment, losses = _rule(spec, instances, fitted, selection)
    kernels = tuple(fitted.models[i].micro_kernel for i in selection.chosen)
    table = dispatch_table(
        spec.variables, instances.bindings, assignment, names=[k.name for k in kernels]
    )
    report = build_report(spec, target, records, instances, fitted, selection, rule, assignment, losses)
    return Parts(spec, target, problem, kernels, rule, table, report)


def _rule(
    spec: Spec, instances: Instances, fitted: Fitted, selection: Selection
) -> tuple[Rule, IntArray, tuple[float, float]]:
    """The rule, the category it gives each instance, and its (mean, worst) loss against the best chosen."""
    chosen = fitted.throughput[:, list(selection.chosen)]
    smoothed = smooth_assignment(chosen, instances.bindings, selection.assignment, tolerance=_SMOOTHING)
    rule = fit_rule(spec.variables, instances.bindings, smoothed, chosen, instances.weights)
    assignment = rule.predict(instances.bindings)
    return rule, assignment, regret(assignment, chosen, instances.weights)
