"""How far measured throughput is from what the report predicted before anything was benchmarked.

    python -m benchmarks.prediction LIBRARY_DIR [--instances 32] [--rounds 5]

Instances at which tuning measured nothing (all of them where there are none such), timed in two passes.
Machines drift: the reference kernel, whose usual reading is part of the calibration, is read before and after
each reading, which is scaled by it; figures without that are given as well. Predictions are compared with the
mean of both passes, from which each pass is half as far as from the other: the repeat floor is half of the
mean gap between the two, what no prediction can beat.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import write
from benchmarks.stand import Stand

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--instances", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with Stand(arguments.library) as stand:
        result = measure(stand, arguments.instances, arguments.rounds)
        print({key: value for key, value in result.items() if key != "instances"})
        write(ROOT / "benchmarks" / "results" / f"prediction-{stand.spec.name}.json", result)


def measure(stand: Stand, num_instances: int, num_rounds: int) -> dict[str, Any]:
    """Two passes over the instances, each the median of `num_rounds` rounds."""
    rows = stand.instances(num_instances, unseen=True)
    unseen = bool(rows)
    if not unseen:  # few instances, every one of them measured
        rows = stand.instances(num_instances, unseen=False)
    flops = np.asarray([row["flops"] for row in rows])
    predicted = np.asarray([row["predicted_gflops"] for row in rows])
    rounds = np.asarray(
        [_round(stand, rows) for _ in range(2 * num_rounds)]
    )  # [rounds, rows, (secs, slower)]
    raw = np.median(rounds[..., 0], axis=0)
    scaled = rounds[..., 0] / rounds[..., 1]
    passes = [np.median(half, axis=0) for half in (scaled[:num_rounds], scaled[num_rounds:])]
    rates = flops / np.mean(passes, axis=0) / 1e9
    gaps = np.abs(predicted / rates - 1.0)
    floor = float(np.abs(passes[0] / passes[1] - 1.0).mean()) / 2
    return {
        "workload": stand.spec.name,
        "num_instances": len(rows),
        "unseen": unseen,
        "gap_mean": float(gaps.mean()),
        "gap_worst": float(gaps.max()),
        "repeat_floor": floor,
        "gap_above_floor": float(gaps.mean()) - floor,
        "bias": float(np.median(predicted / rates) - 1.0),
        "slower_than_at_calibration": float(np.median(rounds[..., 1])),
        "gap_mean_unscaled": float(np.abs(predicted / (flops / raw / 1e9) - 1.0).mean()),
        "instances": [
            {**row["shape_vars"], "micro_kernel": row["micro_kernel"], "predicted": p, "measured": m}
            for row, p, m in zip(rows, predicted.tolist(), rates.tolist(), strict=True)
        ],
    }


def _round(stand: Stand, rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Seconds of each row, and how much slower than at its calibration the machine was around it."""
    readings, before = [], stand.slower()
    for row in rows:
        secs = stand.read(None, row["shape_vars"])
        after = stand.slower()
        readings.append((secs, (before + after) / 2))
        before = after
    return readings


if __name__ == "__main__":
    main()
