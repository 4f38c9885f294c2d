"""Lines of tuning records, made up."""

from __future__ import annotations

from typing import Any

DEVICE = {"id": "cpu0", "name": "A test CPU", "target": {"kind": "llvm"}}
CALIBRATION = {
    "kind": "calibration",
    "kappa": 0.25,
    "num_tiles": [1, 2],
    "tile_gflops": [1.0, 2.0],
    "reference_secs": 1.5e-5,
}
SEED = {"kind": "seed", "tile": [4, 32], "best_gflops": 1.0, "trials": 3}
FIXED_BYTES = {"kind": "fixed_bytes", "bytes": 4096}


def micro_kernel(rows: int, columns: int = 16, **changes: Any) -> dict[str, Any]:
    """A line of a measured micro-kernel."""
    line = {
        "kind": "micro_kernel",
        "rows": rows,
        "columns": columns,
        "tails": "local",
        "provenance": "a test",
        "points": [{"m": 16 * rows, "n": columns, "k": 48}],
        "secs": [1e-6 * rows],
        "object_bytes": 1000 + rows,
        "build_secs": 0.1,
        "drift": 1.0,
        "attempts": 1,
        "num_readings": 1,
        "error": None,
    }
    return line | changes
