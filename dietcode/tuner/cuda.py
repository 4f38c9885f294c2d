"""From records of a GPU to a library: fit, predict, select, rule, machine code. Needs no GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dietcode.cost_model.cuda.fitting import fit_cuda, kappa_of
from dietcode.cost_model.model import Fitted
from dietcode.errors import RecordsError
from dietcode.library.build import check_linker
from dietcode.library.cuda.build import CudaParts, cuda_library_files
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cuda.lowering import device_problem
from dietcode.search_space.task import Task
from dietcode.target.cuda import ARCHS, CudaTarget, resolve_cuda
from dietcode.target.nvrtc import check_compiler
from dietcode.tuner.assembly import choose
from dietcode.tuner.events import Event, Listener, silent
from dietcode.tuner.report import Choice, runner_up
from dietcode.workload.instances import Instances
from dietcode.workload.spec import Spec

EXPERIMENTAL = "experimental: no record from a device yet"
SYNTHETIC = "synthetic: no device measured this"
_MAX_INSTANCE_ROWS = 4096


def refuse_synthetic(device: Mapping[str, Any], allow_synthetic: bool) -> None:
    """Refuse what no device measures.

    Parameters
    ----------
    device : mapping
        Of the header of records.

    Raises
    ------
    RecordsError
        It is synthetic, and that is not allowed.
    """
    if device["synthetic"] and not allow_synthetic:
        raise RecordsError(
            f"the records are synthetic ({device['name']}): no device measured them; measure on a GPU"
        )


def make_cuda_library(
    spec: Spec,
    records: Records,
    *,
    listener: Listener = silent,
    archs: tuple[str, ...] = tuple(ARCHS),
    allow_synthetic: bool = False,
) -> tuple[dict[str, bytes], dict[str, Any], float]:
    """Select and build from what a GPU measured; runs nothing of it.

    Parameters
    ----------
    archs : tuple of str
        Architectures to hold machine code for, beside the one that was measured.
    allow_synthetic : bool
        For tests: whether records that no device measured will do. The report says so then.

    Returns
    -------
    dict, dict, float
        The library's files by relative path, its report, and seconds taken.

    Raises
    ------
    RecordsError
        The records are synthetic, of another workload, or of another architecture than the spec asks for.
    TargetError, TuningError
        See `dietcode.errors`.
    """
    started = time.monotonic()
    refuse_synthetic(records.device, allow_synthetic)
    task = Task.of(spec, device_problem)
    if records.workload != task.digest:
        raise RecordsError(f"records of another workload ({records.workload}); this one is {task.digest}")
    asked = resolve_cuda(spec.target)
    measured = CudaTarget.from_json(records.device["target"])
    if asked.number != measured.number:
        raise RecordsError(f"measured on {measured.arch}; the spec asks for {asked.arch}")
    check_compiler()
    check_linker()
    listener(Event("select", "fitting the cost model and choosing categories"))
    fitted = fit_cuda(task.problem, records, task.extents)
    choice = choose(task, fitted, 0)
    chosen = tuple(fitted.models[i].micro_kernel for i in choice.selection.chosen)
    targets = tuple(CudaTarget(arch) for arch in dict.fromkeys([measured.arch, *archs]))
    report = _report(task, records, fitted, choice)
    listener(Event("build", f"compiling {len(chosen)} micro-kernels for {len(targets)} architectures"))
    parts = CudaParts(task, targets, chosen, choice.rule, choice.table, report)
    files = cuda_library_files(parts)
    return files, report, time.monotonic() - started


def _report(task: Task, records: Records, fitted: Fitted, choice: Choice) -> dict[str, Any]:
    """Plain data; holds no clock reading, so that the same records give the same bytes."""
    spec, instances = task.spec, task.instances
    selection, rows = choice.selection, range(min(len(instances), _MAX_INSTANCE_ROWS))
    categories = {index: category for category, index in enumerate(selection.chosen)}
    preferred = np.bincount(fitted.throughput.argmax(axis=1), minlength=len(fitted.models))
    served = np.bincount(choice.assignment, minlength=len(selection.chosen))
    return {
        "format": "dietcode-report/1",
        "name": spec.name,
        "workload_digest": task.digest,
        "problem": task.problem.to_json(),
        "device": records.device,
        "target": dict(records.device["target"]),
        "dtypes": {
            "operands": spec.operand_dtype,
            "accumulate": spec.accumulate,
            "output": spec.output.dtype,
        },
        "standing": SYNTHETIC if records.is_synthetic else f"measured on {records.device['name']}",
        "calibration": {"kappa": kappa_of(records.calibration or {})} | (records.calibration or {}),
        "seed": None,
        "space": {
            "measured": len(fitted.models),
            "failed": [_failure(m, fitted.unused[m.micro_kernel.name]) for m in _dropped(records, fitted)],
        },
        "rounds": records.rounds,
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
            "num_leaves": choice.rule.num_leaves,
            "depth": choice.rule.depth,
            "loss_mean": float(choice.losses[0]),
            "loss_worst": float(choice.losses[1]),
            "unseen": choice.unseen,
        },
        "micro_kernels": [
            _micro_kernel(records.measurements[model.micro_kernel])
            | {
                "bytes": int(fitted.sizes[index]),
                "category": categories.get(index),
                "instances_preferring": int(preferred[index]),
                "instances_served": int(served[categories[index]]) if index in categories else 0,
                "f_local": model.to_json()
                | {"measured_points": len(records.measurements[model.micro_kernel].secs)},
            }
            for index, model in enumerate(fitted.models)
        ],
        "num_instances": len(instances),
        "instances_are_exhaustive": instances.exhaustive,
        "instances": [_instance(row, instances, fitted, choice) for row in rows],
    }


def _dropped(records: Records, fitted: Fitted) -> list[Measurement]:
    return [m for m in records.measurements.values() if m.micro_kernel.name in fitted.unused]


def _failure(measurement: Measurement, why: str) -> dict[str, Any]:
    tile = measurement.micro_kernel
    facts = {"micro_kernel": tile.name, **tile.to_json()}
    return facts | {"provenance": measurement.provenance, "error": why}


def _micro_kernel(measurement: Measurement) -> dict[str, Any]:
    facts = measurement.to_json()
    return {"micro_kernel": measurement.micro_kernel.name} | {k: v for k, v in facts.items() if k != "kind"}


def _instance(row: int, instances: Instances, fitted: Fitted, choice: Choice) -> dict[str, Any]:
    index = choice.selection.chosen[int(choice.assignment[row])]
    factors, best = fitted.factors[index], int(fitted.throughput[row].argmax())
    binding = instances.bindings[row]
    return {
        "shape_vars": {name: int(v) for name, v in zip(instances.variables, binding, strict=True)},
        "weight": float(instances.weights[row]),
        "category": int(choice.assignment[row]),
        "micro_kernel": fitted.models[index].micro_kernel.name,
        "flops": float(fitted.flops[row]),
        "f_local": float(factors.f_local[row]),
        "f_local_is": "predicted from measured waves",
        "f_spatial": float(factors.f_spatial[row]),
        "f_pad": float(factors.f_pad[row]),
        "padding_ratio": float(1.0 / factors.f_pad[row]),
        "waves": float(factors.waves[row]),
        "predicted_gflops": float(fitted.throughput[row, index] / 1e9),
        "best_micro_kernel": fitted.models[best].micro_kernel.name,
        "best_predicted_gflops": float(fitted.throughput[row, best] / 1e9),
        "predicted_loss": float(1.0 - fitted.throughput[row, index] / fitted.throughput[row, best]),
        **runner_up([model.micro_kernel.name for model in fitted.models], fitted.throughput[row], index),
    }
