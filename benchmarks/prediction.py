"""How far measured throughput is from what was predicted, at instances that no fit has seen.

    python -m benchmarks.prediction LIBRARY_DIR [--instances 32] [--rounds 5] [--random-state 0]

The instances are drawn by a seed, evenly over the logarithm of the work, among those at which tuning measured
nothing, and written to the result with what the library's report predicts for them; only then is anything
measured. Where tuning measured every instance, as where there are four, each is predicted by a fit without
it, its full wave left out as well.

Machines drift: the reference kernel, whose usual reading is part of the calibration, is read before and after
each reading, which is scaled by it; figures without that are given as well. A reading beside which it takes a
quarter longer than its fastest is taken again, four times at most, and else dropped; an instance with fewer
than two readings in a pass is disturbed, and no part of a figure, nor is one whose median, scaled, is a
quarter slower than its fastest reading: caches and memory are shared, too. All is timed in two passes;
predictions are compared with the median of both, from which each pass is half as far as from the other: the
repeat floor is half of the mean gap between the two, what no prediction can beat.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.facts import calm, result_path, write
from benchmarks.held_out import draw
from benchmarks.stand import Stand
from dietcode.backends.cpu.forms import CPU_FORMS
from dietcode.measure.disturbance import Signs, spread_of_readings
from dietcode.measure.records import Records
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.tuner.report import records_of

_MOST_SLOWER = 1.25  # of the reference kernel over its fastest reading
_TRIES, _REST_SECS = 4, 0.1  # of a reading, and before it is taken again
_LEAST_READINGS = 2  # of an instance in each pass
Row = dict[str, Any]


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--instances", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--random-state", type=int, default=0)
    arguments = parser.parse_args()
    with Stand(arguments.library) as stand:
        drawn = held_out(stand, arguments.instances, arguments.random_state)
        path = result_path(f"prediction-{stand.spec.name}")
        write(path, drawn)
        result = measure(stand, drawn, arguments.rounds)
        print({key: value for key, value in result.items() if key != "instances"})
        write(path, result)


def held_out(stand: Stand, num_instances: int, random_state: int) -> Row:
    """Instances with their predictions, before anything is measured."""
    rows, seen = stand.report["instances"], stand.seen()
    drawn = draw([row["flops"] for row in rows], [not known for known in seen], num_instances, random_state)
    if drawn:
        how = "not measured in tuning"
        found = [(rows[i], float(rows[i]["predicted_gflops"])) for i in drawn]
    else:
        how = "left out of the fit"
        found = [(row, _left_out(stand, row)) for row in rows[:num_instances]]
    return {
        "workload": stand.spec.name,
        "held_out": how,
        "random_state": random_state,
        "instances": [
            {
                "shape_vars": row["shape_vars"],
                "micro_kernel": row["micro_kernel"],
                "flops": row["flops"],
                "predicted": rate,
            }
            for row, rate in found
        ],
    }


def _left_out(stand: Stand, row: Row) -> float:
    """GFLOP/s of an instance's micro-kernel by a fit without that instance."""
    report = stand.report
    records, problem = records_of(report), stand.problem
    at = stand.extents(row["shape_vars"])
    others = Records("", records.device, calibration=records.calibration)
    for kernel, measurement in records.measurements.items():
        wave = stand.full_wave(kernel, at)
        pairs = zip(measurement.points, measurement.secs, strict=True) if measurement.usable else ()
        kept = [(p, secs) for p, secs in pairs if stand.full_wave(kernel, p) != wave]
        if kept:
            points, secs = zip(*kept, strict=True)
            others.measurements[kernel] = replace(measurement, points=points, secs=secs)
    domain = CPU_FORMS[problem.form].domain(problem, stand.target)
    fitted = domain.fit(others, {index: np.asarray([extent]) for index, extent in at.items()})
    chosen = next(k for k in report["micro_kernels"] if k["micro_kernel"] == row["micro_kernel"])
    names = [model.micro_kernel.name for model in fitted.models]
    return float(fitted.throughput[0, names.index(cpu_micro_kernel(chosen).name)]) / 1e9


def measure(stand: Stand, drawn: Row, num_rounds: int) -> Row:
    """Two passes over the instances that were drawn, each the median of `num_rounds` rounds."""
    rows: list[Row] = drawn["instances"]
    rounds = np.asarray([_round(stand, rows) for _ in range(2 * num_rounds)])
    secs, slower, slowest = np.moveaxis(rounds, -1, 0)  # [rounds, rows] each
    secs[slowest > _MOST_SLOWER * slower.min()] = np.nan
    measured = [_judged(row, *pair) for row, *pair in zip(rows, secs.T, slower.T, strict=True)]
    kept = calm(measured, drawn["workload"])
    ratios = np.asarray([row["predicted"] / row["measured"] for row in kept])
    gaps = np.abs(ratios - 1.0)
    passes = np.asarray([row["passes"] for row in kept])
    bare = np.asarray([row["predicted"] / row["measured_unscaled"] for row in kept])
    return drawn | {
        "num_instances": len(kept),
        "num_disturbed": len(rows) - len(kept),
        "gap_mean": float(gaps.mean()),
        "gap_worst": float(gaps.max()),
        "worst_at": kept[int(gaps.argmax())]["shape_vars"],
        "repeat_floor": float(np.abs(passes[:, 0] / passes[:, 1] - 1.0).mean()) / 2,
        "bias": float(np.median(ratios) - 1.0),
        "slower_than_at_calibration": float(np.median(slower)),
        "gap_mean_unscaled": float(np.abs(bare - 1.0).mean()),
        "instances": measured,
    }


def _judged(row: Row, secs: npt.NDArray[np.float64], slower: npt.NDArray[np.float64]) -> Row:
    """A row with its GFLOP/s, in all, in each pass and not scaled; or with what disturbed it.

    Parameters
    ----------
    secs : [num_rounds]
        NaN where a reading does not count.
    slower : [num_rounds]
        How much slower than at its calibration the machine was.
    """
    half = len(secs) // 2
    least = min(_LEAST_READINGS, half)
    if min(np.count_nonzero(~np.isnan(part)) for part in (secs[:half], secs[half:])) < least:
        return row | {"disturbed": "beside most readings a reference kernel took longer than usual"}
    known = (secs / slower)[~np.isnan(secs)].tolist()
    if reason := Signs(spread=spread_of_readings({"": known})).reason:
        return row | {"disturbed": reason}
    rates = row["flops"] / secs / 1e9
    passes = [float(np.nanmedian(part)) for part in ((rates * slower)[:half], (rates * slower)[half:])]
    return row | {
        "measured": float(np.nanmedian(rates * slower)),
        "measured_unscaled": float(np.nanmedian(rates)),
        "passes": passes,
        "disturbed": None,
    }


def _round(stand: Stand, rows: list[Row]) -> list[tuple[float, float, float]]:
    """Seconds of each row, and how much slower than at its calibration the machine was around it.

    Of the two readings of the reference kernel, before and after, the mean and the larger one; the least
    disturbed of up to four readings.
    """
    readings, before = [], stand.slower()
    for row in rows:
        found = []
        for number in range(_TRIES):
            if number:
                time.sleep(_REST_SECS)
                before = stand.slower()
            secs = stand.read(None, row["shape_vars"])
            after = stand.slower()
            found.append((secs, (before + after) / 2, max(before, after)))
            before = after
            if found[-1][2] <= _MOST_SLOWER * stand.fastest():
                break
        readings.append(min(found, key=lambda reading: reading[2]))
    return readings


if __name__ == "__main__":
    main()
