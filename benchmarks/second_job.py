"""What a second dense job gains from the records of the first on the same device.

    python -m benchmarks.second_job [FIRST_SPEC SECOND_SPEC] [--rounds 3]

The second workload is tuned with the first one's records in the cache, and with an empty cache; both
libraries are then timed in turns.
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
from benchmarks.stand import Stand

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("first", nargs="?", default="examples/bert-dense.yaml")
    parser.add_argument("second", nargs="?", default="examples/bert-dense-proj.yaml")
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    build = ROOT / "build" / "benchmarks" / "second"
    build.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as shared, tempfile.TemporaryDirectory() as empty:
        jobs = {
            "first": tune(arguments.first, build / "first", shared),
            "second": tune(arguments.second, build / "second", shared),
            "second alone": tune(arguments.second, build / "alone", empty),
            "first again": tune(arguments.first, build / "again", shared),
        }
    ratios = compare(build / "second", build / "alone", arguments.instances, arguments.rounds)
    result = {
        "first": arguments.first,
        "second": arguments.second,
        "jobs": jobs,
        "throughput_over_alone": float(np.exp(np.log(ratios).mean())),
        "throughput_over_alone_worst": float(np.min(ratios)),
    }
    print(result)
    write(ROOT / "benchmarks" / "results" / "second-job.json", result)


def tune(spec: str, folder: Path, cache: str) -> dict[str, Any]:
    """Wall seconds of the command, what it measured, and what the report says of its records."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "dietcode", "tune", spec, "-o", str(folder), "--json"],
        cwd=ROOT,
        env=dict(os.environ, DIETCODE_CACHE=cache),
        stdout=subprocess.PIPE,
        check=True,
    )
    secs = time.monotonic() - started
    report = json.loads((folder / "report.json").read_text())
    seed = report["seed"] or {}
    return {
        "secs": secs,
        "measured": json.loads(done.stdout)["measured"],
        "on_record": report["space"]["measured"],
        "pruned_on_record": len(report["space"]["pruned"]),
        "seed": {key: seed.get(key) for key in ("tile", "trials", "reason")},
        "rounds": [decision["message"] for decision in report["rounds"]],
    }


def compare(first: Path, second: Path, num_instances: int, num_rounds: int) -> np.ndarray[Any, Any]:
    """Throughput of the first library over the second's at each instance."""
    with Stand(first) as stand:
        rows = stand.instances(num_instances)
        paths = [str(folder / "library.so") for folder in (first, second)]
        readings = np.asarray(
            [
                [[stand.read(path, row["shape_vars"]) for path in paths] for row in rows]
                for _ in range(num_rounds)
            ]
        )
    secs = np.median(readings, axis=0)
    ratios: np.ndarray[Any, Any] = secs[:, 1] / secs[:, 0]
    return ratios


if __name__ == "__main__":
    main()
