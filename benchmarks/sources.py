"""What each source of micro-kernels brought to tuned libraries, MetaSchedule's seed beside its time.

    python -m benchmarks.sources LIBRARY_DIR …

Reads the reports of libraries that `benchmarks.cpu` tuned, and measures nothing. Writes
``benchmarks/results/<device>/sources.json``; rows of other workloads that it holds are kept. A source's gain
is what a free choice without its micro-kernels would lose of the predicted throughput. Beside them, what a
free choice gains over the best single micro-kernel, by today's cost model: a prediction, which
`benchmarks.single` measures.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import facts, result_path, write
from dietcode.backends.cpu.forms import CPU_FORMS
from dietcode.cost_model.model import Fitted, FloatArray
from dietcode.runtime.manifest import REPORT, read_json, read_manifest
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import instance_extents
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.report import records_of
from dietcode.workload.instances import make_instances
from dietcode.workload.parse import spec_of

Row = dict[str, Any]


def main() -> None:
    """Parse arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("libraries", type=Path, nargs="+")
    path, folders = result_path("sources"), parser.parse_args().libraries
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    commit = facts()["commit"]
    found = [
        {**row_of(folder), "over_single": free_over_single(fitted_of(folder).throughput), "commit": commit}
        for folder in folders
    ]
    new = {row["workload"] for row in found}
    rows = [row for row in rows if row["workload"] not in new] + found
    write(path, {"rows": sorted(rows, key=lambda row: str(row["workload"]))})


def row_of(folder: Path) -> Row:
    """One library: seconds of its tuning and of MetaSchedule, and its sources.

    Raises
    ------
    SystemExit
        `benchmarks.cpu` did not note how long the tuning took.
    """
    note = folder.with_name(f"{folder.name}.tuning.json")
    if not note.is_file():
        raise SystemExit(f"{note}: not there; tune with python -m benchmarks.cpu --tune-only")
    report, tuning = read_json(folder / REPORT), json.loads(note.read_text())
    seed = report["seed"]
    return {
        "workload": report["name"],
        "tuning_secs": tuning["secs"],
        "disturbed": tuning.get("disturbed"),
        "metaschedule_secs": float(seed["secs"]) if seed else 0.0,
        "seed_reason": seed.get("reason") if seed else None,
        "num_chosen": len(report["selection"]["micro_kernels"]),
        "sources": {
            name: {
                "num_chosen": len(source["chosen"]),
                "num_measured": source["measured"],
                "gain": source["gain"],
            }
            for name, source in report["provenance"].items()
        },
    }


def fitted_of(folder: Path) -> Fitted:
    """Every measured micro-kernel of a library at every instance, by today's cost model."""
    report, spec = read_json(folder / REPORT), spec_of(read_manifest(folder))
    problem, target = problem_from_json(report["problem"]), CpuTarget.from_json(report["target"])
    given = instance_extents(spec, make_instances(spec).columns())
    extents = dict(zip(given, np.broadcast_arrays(*given.values()), strict=True))
    return CPU_FORMS[problem.form].domain(problem, target).fit(records_of(report), extents)


def free_over_single(throughput: FloatArray) -> float:
    """Geometric mean of the best micro-kernel's throughput at each instance over that of one for all.

    Parameters
    ----------
    throughput : float64 array [num_instances, num_micro_kernels]
    """
    logs = np.log(throughput)
    return float(np.exp((logs.max(axis=1) - logs.T).mean(axis=1).min()))


if __name__ == "__main__":
    main()
