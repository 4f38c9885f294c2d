"""Readings of some micro-kernels by which cost models are compared: waves to fit, and held-out instances.

    python -m benchmarks.readings read SPEC MICRO_KERNEL … [--secs 100]
    python -m benchmarks.readings report

`read` builds micro-kernels by name (``14x32-partition``) and reads each at the waves that tuning measures and
at instances drawn evenly over the logarithm of the work, pass after pass until the seconds are over; of each
point the fastest reading counts, since disturbances only ever add time: that of a machine which others share
is found so, too. How far the fastest of every second pass is from that of the others says whether there were
passes enough; calls of many milliseconds are never fast on such a machine. It writes
``benchmarks/results/<device>/readings-<workload>.json``. `report` fits today's cost model on the waves and
says how far it is off at the held-out instances, and what the choice that follows from it loses there beside
the fastest of these micro-kernels, in the table of docs/method.md; it measures nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import RESULTS, ROOT, between_marks, device_name, result_path, write
from benchmarks.held_out import draw
from benchmarks.markdown import table
from dietcode.backends.cpu.forms import CPU_FORMS
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.measure.calibration import calibrate
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.local import LocalChildren
from dietcode.measure.points import choose_anchors, wave_points
from dietcode.measure.records import Measurement, Records
from dietcode.measure.requests import TimeRequest
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import instance_extents, problem_from_spec
from dietcode.search_space.tails import TAILS
from dietcode.target.cpu import CpuTarget, resolve_target
from dietcode.workload.instances import make_instances
from dietcode.workload.parse import load_spec

_NUM_HELD_OUT = 24
_MIN_SECS, _REPEATS, _TIMEOUT_SECS = 1e-3, 3, 120.0
_CALIBRATION_SECS = 20.0
_AXES = ("gather", "direct", "window")
_SHARES = {"gap_mean": 1, "gap_worst": 0, "choice_loses": 1, "choice_loses_worst": 0}  # and their decimals
PAGE = ROOT / "docs" / "method.md"
Row = dict[str, Any]


def main() -> None:
    """Read or report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser("read", help="measure")
    reading.add_argument("spec", type=Path)
    reading.add_argument("micro_kernels", nargs="+", type=named)
    reading.add_argument("--secs", type=float, default=100.0)
    commands.add_parser("report", help="compare with today's cost model")
    arguments = parser.parse_args()
    if arguments.command == "read":
        found = read(arguments.spec, arguments.micro_kernels, arguments.secs)
        write(result_path(f"readings-{found['workload']}"), found)
        return
    PAGE.write_text(with_table(PAGE.read_text()))


def with_table(text: str) -> str:
    """Return docs/method.md with what today's cost model makes of all readings between its marks.

    Raises
    ------
    SystemExit
        It has no marks.
    """
    head = ["device", "workload", "micro-kernels", "κ", "passes", "repeat floor", "mean gap", "worst"]
    head += ["its choice loses, mean", "worst", "commit"]
    rows = []
    for path in sorted(RESULTS.glob("*/readings-*.json")):
        data = json.loads(path.read_text())
        found = judged(data)
        floor = "not read" if found["repeat_floor"] is None else f"{found['repeat_floor']:.1%}"
        shares = [f"{found[key]:.{places}%}" for key, places in _SHARES.items()]
        fitted = f"{found['num_micro_kernels']} of {len(data['kernels'])}"
        counts = [fitted, f"{data['calibration']['kappa']:.2f}", found["num_passes"]]
        made = f"{data['commit']}, {data['date']}"
        rows.append([device_name(data), data["workload"], *counts, floor, *shares, made])
    return between_marks(text, "benchmarks.readings", [table(head, rows).rstrip()], PAGE)


def named(name: str) -> MicroKernel:
    """The micro-kernel of a name."""
    tile, *ways = name.split("-")
    rows, columns = (int(extent) for extent in tile.split("x"))
    tails = next((way for way in ways if way in TAILS), TAILS[0])
    k_tile = next((int(way[1:]) for way in ways if way[:1] == "k" and way[1:].isdigit()), 0)
    return MicroKernel(rows, columns, tails, k_tile, *(axis in ways for axis in _AXES))


def read(path: Path, kernels: list[MicroKernel], secs: float) -> Row:
    """Read all points of all micro-kernels, the fastest of each counts; and the calibration."""
    spec = load_spec(path)
    problem, target = problem_from_spec(spec), resolve_target(spec.target)
    instances = make_instances(spec).columns()
    count = len(next(iter(instances.values())))
    extents = {k: np.broadcast_to(v, count) for k, v in instance_extents(spec, instances).items()}
    anchors = choose_anchors(problem, extents)
    points = [{index: int(values[i]) for index, values in extents.items()} for i in range(count)]
    allowed = [point not in anchors for point in points]
    others = [points[i] for i in draw(problem.flops(extents), allowed, _NUM_HELD_OUT, 0)]
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        children = LocalChildren(CpuWorker(target.num_cores))
        measuring = MeasuringCpu(children, problem, spec.variables, target, Path(folder))
        built = measuring.build(kernels, "one")
        for kernel in kernels:
            waves = wave_points(partial(measuring.full_wave, kernel, None), anchors)
            found.append({"kernel": kernel.to_json(), "points": [*waves, *others], "num_waves": len(waves)})
        began, passes = time.monotonic(), 0
        while passes < 2 or time.monotonic() - began < secs:
            for one, library in zip(found, built, strict=True):
                values = ((0,) * len(spec.variables),) * len(one["points"])
                request = TimeRequest(
                    problem, str(library.path), Limits.of(target), tuple(one["points"]), values,
                    _MIN_SECS, _REPEATS, keeps=True,
                )  # fmt: skip
                result = children.time(request, _TIMEOUT_SECS)
                if result.error is not None:
                    raise SystemExit(f"{library.path}: {result.error}")
                half = one.setdefault("halves", [[np.inf] * len(result.secs)] * 2)
                half[passes % 2] = np.minimum(result.secs, half[passes % 2]).tolist()
            passes += 1
        calibration = calibrate(measuring.measurer, measuring.reference, least_secs=_CALIBRATION_SECS)
        children.close()
    for one in found:
        one["secs"] = np.min(one["halves"], axis=0).tolist()
    facts = {"workload": spec.name, "problem": problem.to_json(), "target": target.to_json()}
    return facts | {"num_passes": passes, "calibration": calibration, "kernels": found}


def judged(data: Row) -> Row:
    """How far today's cost model is off at the held-out instances, and what its choice loses there."""
    problem, target = problem_from_json(data["problem"]), CpuTarget.from_json(data["target"])
    records, held = Records("", {}, calibration=data["calibration"]), []
    for one in data["kernels"]:
        kernel, number = cpu_micro_kernel(one["kernel"]), one["num_waves"]
        waves = tuple(one["points"][:number]), tuple(one["secs"][:number])
        records.measurements[kernel] = Measurement(kernel, "hardware", *waves)
        held.append((kernel, one["points"][number:], one["secs"][number:]))
    points = held[0][1]
    extents = {index: np.asarray([p[index] for p in points], dtype=np.int64) for index in points[0]}
    fitted = CPU_FORMS[problem.form].domain(problem, target).fit(records, extents)
    order = [model.micro_kernel for model in fitted.models]
    secs = {kernel: np.asarray(readings) for kernel, _, readings in held}
    measured = np.stack([secs[kernel] for kernel in order], axis=1)  # [num_instances, num_micro_kernels]
    gaps = np.abs(fitted.flops[:, None] / fitted.throughput / measured - 1.0)
    chosen = measured[np.arange(len(points)), fitted.throughput.argmax(axis=1)]
    losses = chosen / measured.min(axis=1) - 1.0
    return {
        "num_passes": data["num_passes"],
        "num_held_out": len(points),
        "num_micro_kernels": len(order),
        "repeat_floor": _repeat_floor(data["kernels"]),
        "gap_mean": float(gaps.mean()),
        "gap_worst": float(gaps.max()),
        "worst_secs": float(measured.flat[gaps.argmax()]),
        "choice_loses": float(losses.mean()),
        "choice_loses_worst": float(losses.max()),
    }


def _repeat_floor(kernels: list[Row]) -> float | None:
    """Half of the mean gap of both halves of the passes at held-out instances; None where none are kept."""
    if any("halves" not in one for one in kernels):
        return None
    first, second = (
        np.concatenate([one["halves"][half][one["num_waves"] :] for one in kernels]) for half in (0, 1)
    )
    return float(np.abs(first / second - 1.0).mean()) / 2


if __name__ == "__main__":
    main()
