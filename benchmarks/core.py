"""Tune the example workloads cold, then measure them beside PyTorch.

    python -m benchmarks.core [--instances N] [--workloads bert-dense,…] [--keep]

For each workload: seconds of `dietcode tune` with an empty cache, then `dietcode bench --vs torch`. The
vendor is also timed alone, in a process that never loads a library from here, to show that sharing a
process does not handicap it. Run it with nothing else on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import write

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = ("bert-dense", "dense-rows", "dense-odd")


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--instances", type=int, default=32, help="0 for all")
    parser.add_argument("--keep", action="store_true", help="use the library of an earlier run")
    arguments = parser.parse_args()
    for name in arguments.workloads.split(","):
        folder = ROOT / "build" / "benchmarks" / name
        secs = None if arguments.keep and folder.exists() else tune(name, folder)
        rows = bench(folder, arguments.instances)
        alone = vendor_alone(folder, [row["shape_vars"] for row in rows[:: max(1, len(rows) // 6)]])
        report = json.loads((folder / "report.json").read_text())
        result = {
            "workload": name,
            "tune_secs": secs,
            "num_micro_kernels": len(report["selection"]["micro_kernels"]),
            "library_bytes": (folder / "library.so").stat().st_size,
            "summary": summary(rows),
            "vendor_alone": alone,
            "instances": rows,
        }
        print(name, secs, result["summary"])
        for row in alone:
            print("  vendor alone", row)
        write(ROOT / "benchmarks" / "results" / f"core-{name}.json", result)


def tune(name: str, folder: Path) -> float:
    """Wall seconds of a cold run of the command."""
    with tempfile.TemporaryDirectory() as cache:
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "dietcode", "tune", f"examples/{name}.yaml", "-o", str(folder)],
            cwd=ROOT,
            env=dict(os.environ, DIETCODE_CACHE=cache),
            check=True,
        )
        return time.monotonic() - started


def bench(folder: Path, num_instances: int) -> list[dict[str, Any]]:
    """Records of ``dietcode bench --json``."""
    arguments = ("bench", str(folder), "--vs", "torch", "--json", "--instances", str(num_instances))
    return _json_of("dietcode", *arguments)


def vendor_alone(folder: Path, bindings: list[dict[str, int]]) -> list[dict[str, Any]]:
    """GFLOP/s of the vendor's paths in a process of their own."""
    return _json_of("benchmarks.vendor_alone", str(folder), json.dumps(bindings))


def _json_of(module: str, *arguments: str) -> list[dict[str, Any]]:
    """What ``python -m module`` prints, which is a JSON list."""
    command = [sys.executable, "-m", module, *arguments]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    rows: list[dict[str, Any]] = json.loads(output.stdout)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Ratios to the better vendor path, prediction gap, error."""
    ratios = np.array([row["measured_gflops"] / row["vendor_gflops"] for row in rows])
    gaps = np.array([abs(row["measured_gflops"] / row["predicted_gflops"] - 1) for row in rows])
    worst = int(ratios.argmin())
    return {
        "ratio_geomean": float(np.exp(np.log(ratios).mean())),
        "ratio_worst": float(ratios[worst]),
        "worst_at": rows[worst]["shape_vars"],
        "prediction_gap_mean": float(gaps.mean()),
        "max_rel_error": max(row["max_rel_error"] for row in rows),
    }


if __name__ == "__main__":
    main()
