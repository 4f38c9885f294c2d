"""What several micro-kernels earn: a library beside the best single ones for all its shapes, measured.

    python -m benchmarks.single LIBRARY_DIR … [--instances 16] [--singles 3] [--rounds 5]

The measured micro-kernels whose predicted mean throughput is highest are built by themselves and timed in
turns with the library, at instances of its whole range. The one that is fastest in geometric mean counts as
the best single one, so that a wrong prediction does not pass for a gain. The library's own dispatch is in its
time, and none in the others'. Writes ``benchmarks/results/<device>/single-<workload>.json``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import calm, result_path, write
from benchmarks.sources import fitted_of, free_over_single
from benchmarks.stand import Stand

_LIBRARY = "library"
Row = dict[str, Any]


def main() -> None:
    """Parse arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("libraries", type=Path, nargs="+")
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--singles", type=int, default=3, help="micro-kernels to build by themselves")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for folder in arguments.libraries:
        result = measure(folder, arguments.instances, arguments.singles, arguments.rounds)
        print({key: value for key, value in result.items() if key != "instances"}, flush=True)
        write(result_path(f"single-{result['workload']}"), result)


def measure(folder: Path, num_instances: int, num_singles: int, rounds: int) -> Row:
    """The library and the singles at some instances, in turns."""
    fitted = fitted_of(folder)
    logs = np.log(fitted.throughput).mean(axis=0)
    kernels = [fitted.models[i].micro_kernel for i in np.argsort(-logs, kind="stable")[:num_singles]]
    with Stand(folder) as stand:
        paths: dict[str, str | None] = {_LIBRARY: None, **stand.build(kernels)}
        rows = [_timed(stand, paths, row, rounds) for row in stand.instances(num_instances)]
        workload, chosen = stand.spec.name, stand.report["selection"]["micro_kernels"]
    return {
        "workload": workload,
        "num_chosen": len(chosen),
        "over_single_predicted": free_over_single(fitted.throughput),
        **over_best(calm(rows, workload)),
        "rounds": rounds,
        "instances": rows,
    }


def over_best(rows: list[Row]) -> Row:
    """The library's rate over that of the single micro-kernel that is fastest in geometric mean."""
    rates = {name: np.asarray([row["gflops"][name] for row in rows]) for name in rows[0]["gflops"]}
    own = rates.pop(_LIBRARY)
    means = {name: float(np.exp(np.log(own / rate).mean())) for name, rate in rates.items()}
    best = min(means, key=lambda name: means[name])
    ratios = own / rates[best]
    return {
        "best_single": best,
        "over_single": means[best],
        "most": float(ratios.max()),
        "most_at": rows[int(ratios.argmax())]["shape_vars"],
        "least": float(ratios.min()),
        "least_at": rows[int(ratios.argmin())]["shape_vars"],
        "num_timed": len(rows),
        "over_each": means,
    }


def _timed(stand: Stand, paths: dict[str, str | None], row: Row, rounds: int) -> Row:
    """GFLOP/s of each at one instance."""
    secs = stand.in_turns(paths, row["shape_vars"], rounds)
    rates = {name: row["flops"] / value / 1e9 for name, value in secs.items()}
    return {"shape_vars": row["shape_vars"], "gflops": rates, "disturbed": secs.disturbed}


if __name__ == "__main__":
    main()
