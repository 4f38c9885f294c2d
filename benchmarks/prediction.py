"""How far measured throughput is from what was predicted, at instances that no fit has seen.

    python -m benchmarks.prediction LIBRARY_DIR [--instances 32] [--rounds 5] [--secs 200] [--random-state 0]

The instances are drawn by a seed, evenly over the logarithm of the work, among those at which tuning measured
nothing, and written to the result with what the library's report predicts for them; only then is anything
measured. Where tuning measured every instance, as where there are four, each is predicted by a fit without
it, its full wave left out as well.

Machines drift: the reference kernel, whose usual reading is part of the calibration, is read before and after
each reading, which is scaled by it; figures without that are given as well. A reading beside which it takes a
quarter longer than is usual in this run does not count. Rounds go on until the 95 % interval of each
instance's median reaches 3 % to either side, or the seconds are over, so that a machine which others share is
read more often. An instance whose interval then reaches further than 5 % is disturbed, and no part of a
figure. The rounds are two passes, one after the other; predictions are compared with the median of both, from
which each pass is half as far as from the other: the repeat floor is half of the mean gap between the two,
what no prediction can beat.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.facts import calm, median_interval, result_path, write
from benchmarks.held_out import draw
from benchmarks.stand import Stand
from dietcode.backends.cpu.forms import CPU_FORMS
from dietcode.measure.records import Records
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.tuner.report import records_of

_MOST_SLOWER = 1.25  # of the reference kernel beside a reading over what is usual in the run
_ENOUGH, _MOST = 0.03, 0.05  # of the interval of a median to either side: is read enough; is no figure
_MOST_SECS = 200.0  # in which rounds begin
_LEAST_READINGS = 2  # of an instance in each pass
Row = dict[str, Any]
Reading = tuple[float, float, float]


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--instances", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=_MOST_SECS, help="rounds begin for so long, at most")
    parser.add_argument("--random-state", type=int, default=0)
    arguments = parser.parse_args()
    with Stand(arguments.library) as stand:
        drawn = held_out(stand, arguments.instances, arguments.random_state)
        path = result_path(f"prediction-{stand.spec.name}")
        write(path, drawn)
        result = measure(stand, drawn, arguments.rounds, arguments.secs)
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


def measure(stand: Stand, drawn: Row, num_rounds: int, most_secs: float = _MOST_SECS) -> Row:
    """Two passes of `num_rounds` rounds or more over the instances that were drawn."""
    rows: list[Row] = drawn["instances"]
    rounds: list[list[Reading]] = []
    until = time.monotonic() + most_secs
    while len(rounds) < 2 * num_rounds or (time.monotonic() < until and not _is_enough(*_counted(rounds))):
        rounds.append(_round(stand, rows))
    secs, slower = _counted(rounds)
    measured = [_judged(row, *pair) for row, *pair in zip(rows, secs.T, slower.T, strict=True)]
    kept = calm(measured, drawn["workload"])
    ratios = np.asarray([row["predicted"] / row["measured"] for row in kept])
    gaps = np.abs(ratios - 1.0)
    passes = np.asarray([row["passes"] for row in kept])
    bare = np.asarray([row["predicted"] / row["measured_unscaled"] for row in kept])
    return drawn | {
        "num_rounds": len(rounds),
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


def _counted(rounds: list[list[Reading]]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Seconds, NaN where a reading does not count, and how slow the machine was: [rounds, rows] each."""
    secs, before, after = np.moveaxis(np.asarray(rounds), -1, 0)
    slower = (before + after) / 2
    secs[np.maximum(before, after) > _MOST_SLOWER * np.median(slower)] = np.nan
    return secs, slower


def _is_enough(secs: npt.NDArray[np.float64], slower: npt.NDArray[np.float64]) -> bool:
    """Whether the median of every row is known, and each pass has readings of it."""
    return all(_fewest(row) >= _LEAST_READINGS and _reach(row) <= _ENOUGH for row in (secs / slower).T)


def _halves(readings: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The readings of each pass."""
    half = len(readings) // 2
    return readings[:half], readings[half:]


def _fewest(readings: npt.NDArray[np.float64]) -> int:
    """How many of a row count, in the pass with fewer."""
    return min(int(np.count_nonzero(~np.isnan(half))) for half in _halves(readings))


def _reach(readings: npt.NDArray[np.float64]) -> float:
    """Half of the interval of the readings' median, as a share of it; infinite where none counts."""
    known = readings[~np.isnan(readings)]
    if not len(known):
        return float("inf")
    low, high = median_interval(known)
    return (high - low) / 2 / float(np.median(known))


def _judged(row: Row, secs: npt.NDArray[np.float64], slower: npt.NDArray[np.float64]) -> Row:
    """A row with its GFLOP/s, in all, in each pass and not scaled; or with what disturbed it.

    Parameters
    ----------
    secs : [num_rounds]
        NaN where a reading does not count.
    slower : [num_rounds]
        How much slower than at its calibration the machine was.
    """
    if _fewest(secs) < _LEAST_READINGS:
        return row | {"disturbed": "beside most readings a reference kernel took longer than usual"}
    if (reach := _reach(secs / slower)) > _MOST:
        return row | {"disturbed": f"its median is known to {reach:.0%} only"}
    rates = row["flops"] / secs / 1e9
    scaled = rates * slower
    return row | {
        "measured": float(np.nanmedian(scaled)),
        "measured_unscaled": float(np.nanmedian(rates)),
        "passes": [float(np.nanmedian(half)) for half in _halves(scaled)],
        "num_readings": int(np.count_nonzero(~np.isnan(secs))),
        "reach": reach,
        "disturbed": None,
    }


def _round(stand: Stand, rows: list[Row]) -> list[Reading]:
    """Seconds of each row, and how much slower than at calibration the machine was before and after it."""
    readings, before = [], stand.slower()
    for row in rows:
        secs = stand.read(None, row["shape_vars"])
        after = stand.slower()
        readings.append((secs, before, after))
        before = after
    return readings


if __name__ == "__main__":
    main()
