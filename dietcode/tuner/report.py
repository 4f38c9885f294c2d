"""``report.json``: everything ``dietcode inspect`` shows, predictions made before anything is benchmarked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.cost_model.model import Fitted, FloatArray
from dietcode.dispatcher.problem import weighted_sum
from dietcode.dispatcher.rule import Rule
from dietcode.dispatcher.select import Selection
from dietcode.errors import LibraryError
from dietcode.measure import checks
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.problem import IntArray
from dietcode.search_space.task import Task
from dietcode.workload.instances import Instances
from dietcode.workload.stops import uncompared

_MAX_INSTANCE_ROWS = 4096
# Fields that a report leaves out of some measurements.
_UNSAID: dict[str, Any] = {
    "points": [],
    "secs": [],
    "object_bytes": 0,
    "build_secs": 0.0,
    "drift": 1.0,
    "attempts": 1,
    "num_readings": 1,
    "error": None,
}


@dataclass(frozen=True, eq=False)
class Choice:
    """Categories, and the rule over them.

    Attributes
    ----------
    assignment : int64 [num_instances]
        Category of each instance, by the rule.
    losses : tuple of float
        Mean and worst loss of the rule on the instances.
    unseen : dict or None
        Its loss on shapes that it was not fitted on; None where it saw all.
    table : dict
        The dispatch table.
    """

    selection: Selection
    rule: Rule
    assignment: IntArray
    losses: tuple[float, float]
    unseen: dict[str, Any] | None
    table: dict[str, Any]


def build_report(task: Task, records: Records, fitted: Fitted, choice: Choice) -> dict[str, Any]:
    """Return the report as plain data, without any clock reading: the same records give the same bytes.

    Parameters
    ----------
    fitted : Fitted
        Predictions from the records.
    choice : Choice
        What was chosen by them.
    """
    instances, selection, rule, unused = task.instances, choice.selection, choice.rule, fitted.unused
    failed = [m for m in records.measurements.values() if m.error or m.micro_kernel.name in unused]
    num_instances = len(choice.assignment)
    report = {
        "format": "dietcode-report/1",
        "name": task.spec.name,
        "workload_digest": task.digest,
        "device": records.device,
        "target": dict(records.device["target"]),
        "calibration": records.calibration,
        "seed": records.seed,
        "fixed_bytes": records.fixed_bytes,
        "space": {
            "measured": sum(m.usable for m in records.measurements.values()),
            "failed": [_failure(m, unused) for m in failed],
            "pruned": [_pruned(m) for m in records.measurements.values() if m.pruned],
        },
        "problem": task.problem.to_json(),
        "rounds": records.rounds,
        "provenance": _provenance(records, instances, fitted, selection),
        "selection": {
            "num_votes": selection.num_votes,
            "micro_kernels": [fitted.models[i].micro_kernel.name for i in selection.chosen],
            "loss_mean": float(selection.loss_mean),
            "loss_worst": float(selection.loss_worst),
            "kernel_bytes": int(sum(int(fitted.sizes[i]) for i in selection.chosen)),
            "num_free_choice": len(np.unique(fitted.throughput.argmax(axis=1))),
            "objective_met": selection.objective_met,
            "reason": selection.reason,
            "curve": [point.to_json() for point in selection.curve],
        },
        "rule": {
            "num_leaves": rule.num_leaves,
            "depth": rule.depth,
            "loss_mean": float(choice.losses[0]),
            "loss_worst": float(choice.losses[1]),
            "unseen": choice.unseen,
        },
        "micro_kernels": _micro_kernels(records, fitted, selection, choice.assignment),
        "num_instances": num_instances,
        "instances_are_exhaustive": instances.exhaustive,
        "instances": [
            _instance(row, instances, fitted, choice) for row in range(min(num_instances, _MAX_INSTANCE_ROWS))
        ],
    }
    caveat = uncompared(report)
    if caveat:
        report["selection"]["loss_not_known"] = caveat
    return report


def _provenance(
    records: Records, instances: Instances, fitted: Fitted, selection: Selection
) -> dict[str, dict[str, Any]]:
    """Return what each source of micro-kernels contributed.

    ``gain`` is the mean loss, a fraction, of free choice among all others against free choice among all; None
    where nothing else was measured.
    """
    sources = [records.measurements[model.micro_kernel].provenance for model in fitted.models]
    logs = np.log(fitted.throughput)
    best = logs.max(axis=1)
    facts = {}
    for source in sorted(set(sources)):
        others = np.asarray([other != source for other in sources])
        gain = None
        if others.any():
            gain = -float(np.expm1(weighted_sum(instances.weights, logs[:, others].max(axis=1) - best)))
        facts[source] = {
            "measured": sources.count(source),
            "chosen": [fitted.models[i].micro_kernel.name for i in selection.chosen if sources[i] == source],
            "gain": gain,
        }
    return facts


def _pruned(measurement: Measurement) -> dict[str, Any]:
    return {
        "micro_kernel": measurement.micro_kernel.name,
        **measurement.micro_kernel.to_json(),
        "provenance": measurement.provenance,
        "object_bytes": measurement.object_bytes,
        "points": list(measurement.points),
        "secs": list(measurement.secs),
        "drift": measurement.drift,
        "pruned": True,
    } | _facts(measurement)


def _facts(measurement: Measurement) -> dict[str, Any]:
    facts = {} if measurement.facts is None else {"facts": measurement.facts.to_json()}
    return facts | measurement.origin()


def _failure(measurement: Measurement, unused: Mapping[str, str]) -> dict[str, Any]:
    kernel = measurement.micro_kernel
    facts = {"micro_kernel": kernel.name, **kernel.to_json()}
    return facts | {"provenance": measurement.provenance, "error": measurement.error or unused[kernel.name]}


def records_of(report: Mapping[str, Any]) -> Records:
    """Return the measurements that a report was made from; the inverse of `build_report`.

    Raises
    ------
    LibraryError
        They are not in it, as in a report of another version.
    """
    try:
        records = Records(str(report["workload_digest"]), dict(report["device"]))
        records.format.check_device(records.device)
        if report["calibration"] is not None:
            records.apply({"kind": "calibration", **report["calibration"]})
        records.seed, records.fixed_bytes = report["seed"], report.get("fixed_bytes")
        records.problem, records.rounds = report.get("problem"), list(report.get("rounds", []))
        space = report["space"]
        for row in [*report["micro_kernels"], *space["failed"], *space.get("pruned", [])]:
            records.apply(_UNSAID | row | {"kind": "micro_kernel"})
    except checks.WRONG as error:
        what = f"{type(error).__name__}: {error}"
        raise LibraryError(f"the report does not hold its measurements ({what[:120]}); tune again") from error
    return records


def _micro_kernels(
    records: Records, fitted: Fitted, selection: Selection, assignment: IntArray
) -> list[dict[str, Any]]:
    category = {index: position for position, index in enumerate(selection.chosen)}
    preferred = np.bincount(fitted.throughput.argmax(axis=1), minlength=len(fitted.models))
    served = np.bincount(assignment, minlength=len(selection.chosen))
    rows = []
    for index, model in enumerate(fitted.models):
        measurement = records.measurements[model.micro_kernel]
        rows.append(
            {
                "micro_kernel": model.micro_kernel.name,
                **model.micro_kernel.to_json(),
                "provenance": measurement.provenance,
                "bytes": int(fitted.sizes[index]),
                "object_bytes": measurement.object_bytes,
                "num_readings": measurement.num_readings,
                "category": category.get(index),
                "instances_preferring": int(preferred[index]),
                "instances_served": int(served[category[index]]) if index in category else 0,
                "f_local": model.to_json() | {"measured_points": len(measurement.points)},
                "points": list(measurement.points),
                "secs": list(measurement.secs),
                "drift": measurement.drift,
            }
            | _facts(measurement)
        )
    return rows


def _instance(row: int, instances: Instances, fitted: Fitted, choice: Choice) -> dict[str, Any]:
    category = int(choice.assignment[row])
    index = choice.selection.chosen[category]
    names = [model.micro_kernel.name for model in fitted.models]
    factors, throughput, binding = fitted.factors[index], fitted.throughput[row], instances.bindings[row]
    best, reached = int(throughput.argmax()), throughput[index]
    return {
        "shape_vars": {name: int(v) for name, v in zip(instances.variables, binding, strict=True)},
        "weight": float(instances.weights[row]),
        "category": category,
        "micro_kernel": names[index],
        "flops": float(fitted.flops[row]),
        "f_local": float(factors.f_local[row]),
        "f_local_is": "predicted from measured waves",
        "f_spatial": float(factors.f_spatial[row]),
        "f_pad": float(factors.f_pad[row]),
        "padding_ratio": float(1.0 / factors.f_pad[row]),
        "imbalance": float(factors.imbalance[row]),
        "waves": float(factors.waves[row]),
        "predicted_gflops": float(reached / 1e9),
        "best_micro_kernel": names[best],
        "best_predicted_gflops": float(throughput[best] / 1e9),
        "predicted_loss": float(1.0 - reached / throughput[best]),
        **runner_up(names, throughput, index),
    }


def runner_up(names: Sequence[str], throughput: FloatArray, index: int) -> dict[str, Any]:
    """Return the best micro-kernel beside the one that serves an instance; empty where there is no other.

    Parameters
    ----------
    throughput : float64 array [num_micro_kernels]
        Predicted FLOP/s of the instance.
    index : int
        Of the micro-kernel that serves it.
    """
    if len(names) < 2:
        return {}
    others = throughput.copy()
    others[index] = -np.inf
    other = int(others.argmax())
    return {"other_micro_kernel": names[other], "other_predicted_gflops": float(others[other] / 1e9)}
