"""How far predictions of blocks are from what is measured at instances that no fit has seen.

    python -m benchmarks.block_prediction build [ROW …]
    python -m benchmarks.block_prediction read [ROW …] [--seconds 240]
    python -m benchmarks.block_prediction report

The libraries are those of `benchmarks.blocks`. `build` compiles their micro-kernels one by one; `read` times
each at the waves that tuning measures, and at others that are drawn evenly over the logarithm of the work,
with nothing else on the machine, and keeps the readings; `report` fits the cost model on the waves and
compares it with the others, which takes no measuring: so a model can be compared with an earlier one on the
same readings. Writes ``block-prediction.json`` of this device in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.block_rows import ROWS
from benchmarks.blocks import BUILD
from benchmarks.facts import result_path, write
from benchmarks.held_out import draw
from benchmarks.stand import Stand
from dietcode.backends.cpu.forms import CPU_FORMS
from dietcode.measure.points import choose_anchors, wave_points
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import AnyProblem, instance_extents
from dietcode.target.cpu import CpuTarget
from dietcode.workload.instances import make_instances

_MOST_KERNELS = 2
_NUM_HELD_OUT = 24
_MIN_SECS, _REPEATS, _PASSES = 2e-3, 5, 2


def main() -> None:
    """Build, read or report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("command", choices=("build", "read", "report"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all with a library where none is named")
    parser.add_argument("--seconds", type=float, default=240.0, help="no further row begins after these")
    arguments = parser.parse_args()
    names = arguments.rows or [name for name in ROWS if (BUILD / name / "library.so").is_file()]
    if arguments.command == "report":
        found = {name: told for name in names if _readings(name).is_file() and (told := report(name))}
        write(result_path("block-prediction"), {"rows": found})
        return
    until = time.monotonic() + arguments.seconds
    for name in names:
        if arguments.command == "read" and _readings(name).is_file() and not arguments.rows:
            continue
        if time.monotonic() > until:
            print(f"{arguments.command}: the seconds are over before {name}; run it again")
            return
        with Stand(BUILD / name) as stand:
            kernels = _kernels(stand)
            if arguments.command == "build":
                stand.build(kernels, BUILD / "kernels" / name)
            else:
                _readings(name).write_text(json.dumps(read(stand, name, kernels)) + "\n")
        print(arguments.command, name, [kernel.name for kernel in kernels], flush=True)


def _readings(name: str) -> Path:
    return BUILD / f"{name}.readings.json"


def _kernels(stand: Stand) -> list[AnyMicroKernel]:
    """Return the micro-kernels of a library, those that are first in its report."""
    kernels = [cpu_micro_kernel(facts) for facts in stand.report["micro_kernels"]]
    chosen = stand.report["selection"]["micro_kernels"]
    return sorted(kernels, key=lambda kernel: kernel.name not in chosen)[:_MOST_KERNELS]


def read(stand: Stand, name: str, kernels: Sequence[AnyMicroKernel]) -> dict[str, Any]:
    """Return the readings of some micro-kernels, and this machine's calibration now."""
    extents = instance_extents(stand.spec, make_instances(stand.spec).columns())
    anchors = choose_anchors(stand.problem, extents)
    others = _held_out(stand.problem, extents, anchors)
    found: dict[AnyMicroKernel, dict[str, Any]] = {}
    for number in range(_PASSES):  # so that a slow second is not all readings of a point
        for kernel in kernels:
            path = str(BUILD / "kernels" / name / f"one_{kernel.name}.so")
            waves = wave_points(partial(stand.full_wave, kernel), anchors)
            points = [*waves, *others]
            watched = stand.watched(partial(stand.read_points, path, points, _MIN_SECS, _REPEATS))
            secs, disturbed = watched.value, watched.disturbed
            if number:
                secs = np.minimum(secs, found[kernel]["secs"]).tolist()
                disturbed = disturbed and found[kernel]["disturbed"]
            facts = {"kernel": kernel.to_json(), "points": points, "num_waves": len(waves)}
            found[kernel] = facts | {"secs": secs, "disturbed": disturbed}
    result = {"problem": stand.problem.to_json(), "target": stand.report["target"]}
    return result | {"calibration": stand.calibrate(), "kernels": list(found.values())}


def _held_out(problem: AnyProblem, extents: Any, anchors: Sequence[Any]) -> list[dict[str, int]]:
    """Return instances that are no anchors, drawn evenly over the logarithm of the work."""
    count = len(next(iter(extents.values())))
    points = [{index: int(values[i]) for index, values in extents.items()} for i in range(count)]
    flops = np.broadcast_to(problem.flops(extents), count)
    return [points[i] for i in draw(flops, [p not in anchors for p in points], _NUM_HELD_OUT, 0)]


def report(name: str) -> dict[str, Any] | None:
    """Return the error of a row's predictions at the instances that were held out, and of the fit.

    It is of those micro-kernels whose readings nothing disturbed in one of the passes; None without any.
    """
    data = json.loads(_readings(name).read_text())
    kernels = [one for one in data["kernels"] if not one.get("disturbed")]
    if not kernels:
        print(f"{name:<20} disturbed; read it again when nothing else runs")
        return None
    problem, target = problem_from_json(data["problem"]), CpuTarget.from_json(data["target"])
    domain = CPU_FORMS[problem.form].domain(problem, target)
    found, gaps, fits = [], [], []
    for one in kernels:
        kernel, number = cpu_micro_kernel(one["kernel"]), one["num_waves"]
        points, secs = one["points"], np.asarray(one["secs"])
        records = Records("", {}, calibration=data["calibration"])
        records.measurements[kernel] = Measurement(
            kernel, "hardware", tuple(points[:number]), tuple(one["secs"][:number])
        )
        extents = {k: np.asarray([p[k] for p in points], dtype=np.int64) for k in points[0]}
        fitted = domain.fit(records, extents)
        predicted = fitted.flops / fitted.throughput[:, 0]
        gap = predicted / secs - 1.0
        fits.append(float(np.abs(gap[:number]).mean()))
        gaps.append(np.abs(gap[number:]))
        found.append(
            {
                "kernel": kernel.name,
                "fitted": fitted.models[0].to_json(),
                "held_out": [
                    point | {"secs": s, "predicted": p}
                    for point, s, p in zip(
                        points[number:], secs[number:].tolist(), predicted[number:].tolist(), strict=True
                    )
                ],
            }
        )
    values = np.concatenate(gaps)
    facts = {"gap_mean": float(values.mean()), "gap_worst": float(values.max()), "fit": float(np.mean(fits))}
    figures = f"mean {facts['gap_mean']:.1%}, worst {facts['gap_worst']:.0%}; waves {facts['fit']:.1%}"
    print(f"{name:<20} {len(values)} held out: {figures}")
    return facts | {"kernels": found}


if __name__ == "__main__":
    main()
