"""What the library's choice reaches of an oracle that has every measured micro-kernel.

    python -m benchmarks.oracle LIBRARY_DIR [--instances 16] [--top 5] [--rounds 7]

At each instance every measured micro-kernel is timed once; the fastest and the chosen one are timed again, in
turns, and the medians of those compared. The winner of many single readings is partly luck, which the second
timing takes away.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import calm, result_path, write
from benchmarks.stand import Stand
from dietcode.search_space.cpu.limits import MicroKernel


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with Stand(arguments.library) as stand:
        kernels = [MicroKernel.from_json(row) for row in stand.report["micro_kernels"]]
        paths = stand.build(kernels)
        missing = [name for name in stand.report["selection"]["micro_kernels"] if name not in paths]
        if missing:
            raise SystemExit(f"{arguments.library}: chosen but not built now: {', '.join(missing)}")
        rows = [
            compare(stand, paths, row, arguments.top, arguments.rounds)
            for row in stand.instances(arguments.instances)
        ]
        ratios = np.asarray([row["ratio"] for row in calm(rows, stand.spec.name)])
        result = {
            "workload": stand.spec.name,
            "num_micro_kernels": len(paths),
            "num_chosen": len(stand.report["selection"]["micro_kernels"]),
            "ratio_geomean": float(np.exp(np.log(ratios).mean())),
            "ratio_worst": float(ratios.min()),
            "num_disturbed": len(rows) - len(ratios),
            "instances": rows,
        }
        print({key: value for key, value in result.items() if key != "instances"})
        write(result_path(f"oracle-{stand.spec.name}"), result)


def compare(
    stand: Stand, paths: dict[str, str], row: dict[str, Any], num_top: int, num_rounds: int
) -> dict[str, Any]:
    """The chosen micro-kernel against the fastest of all at one instance."""
    binding, chosen = row["shape_vars"], row["micro_kernel"]
    once = {name: stand.read(path, binding) for name, path in paths.items()}
    leaders = sorted(once, key=lambda name: once[name])[:num_top]
    secs = stand.in_turns({name: paths[name] for name in (*leaders, chosen)}, binding, num_rounds)
    best = min(secs, key=lambda name: secs[name])
    return {
        "shape_vars": binding,
        "chosen": chosen,
        "oracle": best,
        "ratio": secs[best] / secs[chosen],
        "gflops": row["flops"] / secs[chosen] / 1e9,
        "oracle_gflops": row["flops"] / secs[best] / 1e9,
        "disturbed": secs.disturbed,
    }


if __name__ == "__main__":
    main()
