"""From records to a library: fit, predict, select, rule, code. Measures nothing, so it needs no device.

`choose` needs no compiler either: benchmarks of GPUs choose where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dietcode.cost_model.model import Fitted, FloatArray
from dietcode.dispatcher.orders import one_order
from dietcode.dispatcher.rule import Rule, regret
from dietcode.dispatcher.sample import FittingSample, best_rule
from dietcode.dispatcher.select import Objective, select_categories
from dietcode.dispatcher.table import dispatch_table
from dietcode.library.parts import Parts
from dietcode.measure.records import Records
from dietcode.search_space.problem import IntArray, instance_extents
from dietcode.search_space.task import Task
from dietcode.tuner.report import Choice, build_report
from dietcode.tuner.size_cap import FileSize
from dietcode.workload.instances import Instances, make_instances
from dietcode.workload.spec import Spec

if TYPE_CHECKING:
    from dietcode.backends.protocol import Backend

_MAX_UNSEEN = 2048
_NUM_FITTED = 32768  # predicting is cheap, and a rule fitted on more shapes loses less on those between them
_MAX_LEAVES = 1024  # of a rule over sampled shapes: more cost compile time and gain nothing on unseen ones
_FIRST = 1000.0  # how many times more the instances that selection bounded weigh
_PART = 4096


def assemble(
    task: Task,
    backend: Backend,
    target: Any,
    records: Records,
    archs: tuple[str, ...] | None = None,
    size: FileSize | None = None,
) -> Parts:
    """Choose categories and fit the rule; deterministic in its arguments.

    Parameters
    ----------
    archs : tuple of str, optional
        As `Parts` has them; by default all that the backend has.
    size : FileSize, optional
        Size of a library's file; by default as far as it was measured.

    Raises
    ------
    TuningError
        The records are not enough, or the objective's hard caps cannot be met.
    """
    fitted = backend.domain(task.problem, target, records.device).fit(records, task.extents)
    allowed = fitted
    if task.spec.objective.reproducible:
        orders = [backend.sum_order(task.problem, model.micro_kernel) for model in fitted.models]
        kept = one_order(orders, fitted.throughput, task.instances.weights)
        allowed = replace(fitted, throughput=np.where(kept, fitted.throughput, 0.0))
    divisors = backend.divisors(task.problem, [model.micro_kernel for model in fitted.models])
    choice = choose(task, allowed, size or FileSize(records.fixed_bytes or 0), divisors)
    kernels = tuple(fitted.models[i].micro_kernel for i in choice.selection.chosen)
    report = build_report(task, records, fitted, choice) | backend.report_facts(task, records, fitted)
    archs = backend.archs if archs is None else archs
    return Parts(task, target, kernels, choice.rule, choice.table, report, archs)


def choose(task: Task, fitted: Fitted, size: FileSize, divisors: Sequence[int] = ()) -> Choice:
    """Choose categories from predictions and fit the rule.

    Parameters
    ----------
    size : FileSize
        Size of a library's file.
    divisors : sequence of int
        By whose remainders the rule may tell shapes apart, the largest first.

    Raises
    ------
    TuningError
        The objective's hard caps cannot be met.
    """
    spec, instances = task.spec, task.instances
    selection = select_categories(
        fitted.throughput,
        fitted.flops,
        instances.weights,
        size.sizes(fitted.sizes),
        Objective(
            binary_size=spec.objective.binary_size,
            max_loss=spec.objective.max_loss,
            max_kernels=spec.objective.max_kernels,
            max_bytes=spec.objective.max_bytes,
            weight=spec.objective.weight,
        ),
        fixed_bytes=size.fixed,
    )

    def predict(bindings: IntArray) -> FloatArray:
        """Predict FLOP/s of the chosen, [n, num_categories]; in parts, to save memory."""
        parts = np.split(bindings, range(_PART, len(bindings), _PART))
        columns = [{name: part[:, i] for i, name in enumerate(spec.variables)} for part in parts]
        return np.concatenate(
            [fitted.predict(selection.chosen, instance_extents(spec, some)) for some in columns]
        )

    chosen = fitted.throughput[:, list(selection.chosen)]
    sample = _fitting_sample(spec, instances, chosen, selection.assignment, predict)
    rule = best_rule(spec.variables, sample, divisors)
    assignment = rule.predict(instances.bindings)
    losses = regret(assignment, chosen, instances.weights)
    unseen = _unseen_regret(spec, instances, sample, rule, predict)
    names = [fitted.models[i].micro_kernel.name for i in selection.chosen]
    table = dispatch_table(spec.variables, instances.bindings, assignment, names=names)
    return Choice(selection, rule, assignment, losses, unseen, table)


def _fitting_sample(
    spec: Spec,
    instances: Instances,
    chosen: FloatArray,
    best: IntArray,
    predict: Callable[[IntArray], FloatArray],
) -> FittingSample:
    """Return all instances where they are exhaustive; otherwise those, and many that selection did not see.

    Half of a point's weight is its probability and half is the same for all, so that rare small shapes count.
    Under ``max_loss`` the instances that selection bounded weigh more than all others.
    """
    if instances.exhaustive:
        return FittingSample(instances.bindings, chosen, best, instances.weights, None)
    more = further_instances(spec)
    bindings = np.concatenate([instances.bindings, more.bindings])
    weights = np.concatenate([instances.weights * len(instances), more.weights * len(more)]) / len(bindings)
    further = predict(more.bindings)
    weights = (weights + 1 / len(bindings)) / 2
    if spec.objective.max_loss is not None:
        weights[: len(instances)] *= _FIRST
    return FittingSample(
        bindings,
        np.concatenate([chosen, further]),
        np.concatenate([best, further.argmax(axis=1)]),
        weights,
        None if spec.objective.max_loss is not None else _MAX_LEAVES,
    )


def further_instances(spec: Spec) -> Instances:
    """Return shapes that a rule is fitted on beside sampled instances; each of its categories serves one."""
    return make_instances(spec, limit=_NUM_FITTED, seed=2)


def _unseen_regret(
    spec: Spec,
    instances: Instances,
    sample: FittingSample,
    rule: Rule,
    predict: Callable[[IntArray], FloatArray],
) -> dict[str, Any] | None:
    """Return the predicted loss on shapes that the rule was not fitted on; None where there are none."""
    if instances.exhaustive:
        return None
    fresh = make_instances(spec, limit=_MAX_UNSEEN, seed=1)
    seen = set(map(tuple, sample.bindings.tolist()))
    new = np.asarray([tuple(row) not in seen for row in fresh.bindings.tolist()])
    if not new.any() or fresh.weights[new].sum() <= 0:
        return None
    bindings = fresh.bindings[new]
    mean, worst = regret(rule.predict(bindings), predict(bindings), fresh.weights[new])
    return {"num_shapes": len(bindings), "loss_mean": float(mean), "loss_worst": float(worst)}
