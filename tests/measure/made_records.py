"""Tuning records, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dietcode.measure.records import Measurement, Records, write_records
from dietcode.search_space.cpu.limits import MicroKernel

DEVICE = {"name": "a CPU", "id": "0123456789abcdef", "target": {}}
CALIBRATION = {"kappa": 0.5, "num_tiles": [1, 2], "tile_gflops": [1.0, 2.0], "reference_secs": 1e-3}
SEED = {"tile": [6, 16], "trials": 8, "best_gflops": 50.0}


def measurement(rows: int = 6, columns: int = 16, **changes: Any) -> Measurement:
    facts: dict[str, Any] = {
        "points": ({"m": 16, "n": 32, "k": 8},),
        "secs": (1.25e-5,),
        "object_bytes": 4321,
        "build_secs": 0.25,
        "drift": 1.01,
        "attempts": 2,
    }
    facts |= {"micro_kernel": MicroKernel(rows, columns), "provenance": "hardware"}
    return Measurement(**(facts | changes))


def records(*measurements: Measurement) -> Records:
    found = Records("sha256:" + "a" * 64, dict(DEVICE))
    found.calibration = dict(CALIBRATION)
    found.seed = dict(SEED)
    found.fixed_bytes = 777
    found.measurements = {m.micro_kernel: m for m in measurements}
    return found


FAILED = measurement(4, 24, points=(), secs=(), error="ValueError: wrong")


def spoil(path: Path, number: int, line: str) -> Path:
    write_records(path, records(measurement(), FAILED))
    lines = path.read_text().splitlines()
    lines[number] = line
    path.write_text("\n".join(lines) + "\n")
    return path
