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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import calm, done_once, result_path, write
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
    folders = {name: build / name for name in ("second", "alone")}
    rows = compare(folders, arguments.instances, arguments.rounds)
    ratios = np.asarray([row["ratio"] for row in calm(rows, arguments.second)])
    result = {
        "first": arguments.first,
        "second": arguments.second,
        "jobs": jobs,
        "throughput_over_alone": float(np.exp(np.log(ratios).mean())),
        "throughput_over_alone_worst": float(np.min(ratios)),
        "instances": rows,
    }
    print(result)
    write(result_path("second-job"), result)


def tune(spec: str, folder: Path, cache: str) -> dict[str, Any]:
    """Wall seconds of the command, what it measured, and what the report says of its records."""
    command = [sys.executable, "-m", "dietcode", "tune", spec, "-o", str(folder), "--json"]
    environment = dict(os.environ, DIETCODE_CACHE=cache)
    done, secs, disturbed = done_once(
        lambda: subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    )
    report = json.loads((folder / "report.json").read_text())
    seed = report["seed"] or {}
    return {
        "secs": secs,
        "secs_disturbed": disturbed,
        "measured": json.loads(done.stdout)["measured"],
        "on_record": report["space"]["measured"],
        "pruned_on_record": len(report["space"]["pruned"]),
        "seed": {key: seed.get(key) for key in ("tile", "trials", "reason")},
        "rounds": [decision["message"] for decision in report["rounds"]],
    }


def compare(folders: dict[str, Path], num_instances: int, num_rounds: int) -> list[dict[str, Any]]:
    """Throughput of the second job's library over that of the same workload tuned alone, at each instance."""
    with Stand(folders["second"]) as stand:
        paths: dict[str, str | None] = {name: str(one / "library.so") for name, one in folders.items()}
        rows = []
        for row in stand.instances(num_instances):
            secs = stand.in_turns(paths, row["shape_vars"], num_rounds)
            ratio = secs["alone"] / secs["second"]
            rows.append({"shape_vars": row["shape_vars"], "ratio": ratio, "disturbed": secs.disturbed})
    return rows


if __name__ == "__main__":
    main()
