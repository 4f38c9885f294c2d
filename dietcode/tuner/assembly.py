"""From records to a library: fit, predict, select, rule, code. Measures nothing, so it needs no device."""

from __future__ import annotations

from typing import Any

import numpy as np

from dietcode.cost_model.fitting import Fitted, fit_all, predict_all
from dietcode.dispatcher.rule import Rule, fit_rule, regret
from dietcode.dispatcher.select import Objective, Selection, select_categories, smooth_assignment
from dietcode.dispatcher.table import dispatch_table
from dietcode.library.build import Parts
from dietcode.measure.records import Records
from dietcode.search_space.problem import IntArray, Problem, instance_extents
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.report import build_report
from dietcode.workload.instances import Instances, make_instances
from dietcode.workload.spec import Spec

_MAX_UNSEEN = 2048
_SMOOTHING = 0.005  # an instance may lose this much so that the rule stays short


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
    unseen = _unseen_regret(spec, problem, target, instances, records, fitted, selection, rule)
    kernels = tuple(fitted.models[i].micro_kernel for i in selection.chosen)
    table = dispatch_table(spec.variables, instances.bindings, assignment, names=[k.name for k in kernels])
    report = build_report(
        spec, target, records, instances, fitted, selection, rule, assignment, losses, unseen
    )
    return Parts(spec, target, problem, kernels, rule, table, report)


def _unseen_regret(
    spec: Spec,
    problem: Problem,
    target: CpuTarget,
    instances: Instances,
    records: Records,
    fitted: Fitted,
    selection: Selection,
    rule: Rule,
) -> dict[str, Any] | None:
    """Predicted loss of the rule on sampled shapes that it was not fitted on; None where it saw them all."""
    if instances.exhaustive:
        return None
    fresh = make_instances(spec, limit=_MAX_UNSEEN, seed=1)
    seen = set(map(tuple, instances.bindings.tolist()))
    new = np.asarray([tuple(row) not in seen for row in fresh.bindings.tolist()])
    if not new.any() or fresh.weights[new].sum() <= 0:
        return None
    bindings = fresh.bindings[new]
    columns = {name: bindings[:, i] for i, name in enumerate(spec.variables)}
    models = [fitted.models[i] for i in selection.chosen]
    throughput = predict_all(models, problem, target, records, instance_extents(spec, columns))
    mean, worst = regret(rule.predict(bindings), throughput, fresh.weights[new])
    return {"num_shapes": len(bindings), "loss_mean": float(mean), "loss_worst": float(worst)}


def _rule(
    spec: Spec, instances: Instances, fitted: Fitted, selection: Selection
) -> tuple[Rule, IntArray, tuple[float, float]]:
    """The rule, the category it gives each instance, and its (mean, worst) loss against the best chosen."""
    chosen = fitted.throughput[:, list(selection.chosen)]
    smoothed = smooth_assignment(chosen, instances.bindings, selection.assignment, tolerance=_SMOOTHING)
    rule = fit_rule(spec.variables, instances.bindings, smoothed, chosen, instances.weights)
    assignment = rule.predict(instances.bindings)
    return rule, assignment, regret(assignment, chosen, instances.weights)
