"""What each source of micro-kernels brought to tuned libraries, MetaSchedule's seed beside its time.

    python -m benchmarks.sources LIBRARY_DIR …

Reads the reports of libraries that `benchmarks.cpu` tuned, and measures nothing. Writes
``benchmarks/results/<device>/sources.json``; rows of other workloads that it holds are kept. A source's gain
is what a free choice without its micro-kernels would lose of the predicted throughput.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.facts import facts, result_path, write
from dietcode.runtime.manifest import REPORT, read_json

Row = dict[str, Any]


def main() -> None:
    """Parse arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("libraries", type=Path, nargs="+")
    path, folders = result_path("sources"), parser.parse_args().libraries
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    commit = facts()["commit"]
    found = [{**row_of(folder), "commit": commit} for folder in folders]
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
    report, seed = read_json(folder / REPORT), read_json(folder / REPORT)["seed"]
    return {
        "workload": report["name"],
        "tuning_secs": json.loads(note.read_text())["secs"],
        "metaschedule_secs": float(seed["secs"]) if seed else 0.0,
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


if __name__ == "__main__":
    main()
