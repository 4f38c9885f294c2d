"""Programs beside eager PyTorch, instance by instance or batched by hand, DyNet, and a recursion.

    dietcode compile examples/programs/tree_lstm.py:encode --samples samples -o build/benchmarks/tree_lstm
    python -m benchmarks.programs build/benchmarks tree_lstm birnn … [--batches 8,64] [--threads 2]

A bundle lies in a folder of its example's name, with ``_512`` behind it in that size, as
`benchmarks.program_sizes` has it; that of the recursion of `benchmarks.program_recursion`, where there is
one, in ``tree_lstm_recursion``. Results are compared with eager ones first; calls of all sides
take turns, and the medians of the rounds count. DyNet computes on one thread, so ours is timed on one, too;
without it (an extra, `bench`) it is left out. Writes ``programs.json`` of this device in
``benchmarks/results``; with ``--append`` other rows of this file stay, and those of this commit that nothing
disturbed are not measured again.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.facts import facts, result_path, rows_before, write
from benchmarks.program_peers import calls_by_hand, calls_of_recursion
from benchmarks.program_sizes import program_of, samples_of, sized
from benchmarks.programs_dynet import calls_in_dynet
from dietcode.measure.turns import interleave
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.opening import load

_MAX_ERROR = 2e-4  # of what three programs compute in float32, relative to the largest


def main() -> None:
    """Measure the bundles of examples."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--batches", default="8,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--output", type=Path, default=result_path("programs"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    before = rows_before(arguments.output) if arguments.append else []
    rows = {(row["program"], row["hidden"], row["batch"], row["threads"]): row for row in before}
    now = {name: facts()[name] for name in ("commit", "date")}
    for name in arguments.names:
        for batch in map(int, arguments.batches.split(",")):
            key = (*sized(name), batch, arguments.threads)
            old = rows.get(key)
            if old and old["commit"] == now["commit"] and not old["disturbed"]:
                continue
            row = measured(name, arguments.folder / name, batch, arguments.rounds, arguments.threads)
            rows[key] = row | now
            print(row, flush=True)
            write(arguments.output, {"rows": list(rows.values())})


def measured(name: str, bundle: Path, batch: int, rounds: int, threads: int) -> dict[str, Any]:
    """Return the times of one program and batch.

    Parameters
    ----------
    name : str
        Of the example, and its size.
    bundle : Path
    batch : int
        How many instances a call has.
    rounds, threads : int
    """
    program, instances = program_of(name), samples_of(name, batch)
    name, hidden = sized(name)
    ours = load(bundle, num_threads=threads)
    calls: dict[str, Callable[[], Any]] = {
        "dietcode": lambda: ours(instances),
        "eager": lambda: [program.eager(one) for one in instances],
    }
    if threads > 1:
        alone = load(bundle, num_threads=1)
        calls["one_thread"] = lambda: alone(instances)
    calls |= calls_in_dynet(name, program, instances)
    calls |= calls_by_hand(name, program, instances)
    if name == "tree_lstm":
        calls |= calls_of_recursion(bundle.with_name(f"{bundle.name}_recursion"), instances, threads)
    wanted = arrays_of(calls["eager"]())
    errors = {side: error_of(arrays_of(call()), wanted) for side, call in calls.items()}
    worst = max(errors.values())
    if worst > _MAX_ERROR:
        raise SystemExit(f"{name}, batch {batch}: the sides differ: {errors}")
    times = interleave(calls, rounds)
    runs = ours.block_runs(instances)
    return {
        "program": name,
        "hidden": hidden,
        "batch": batch,
        "threads": threads,
        **{f"{side}_ms": 1e3 * secs for side, secs in times.items()},
        "block_runs": len(runs),
        "rows": sum(one.rows for one in runs),
        "kernel_ms": 1e3 * sum(one.secs for one in runs),
        "runs_of_blocks": dict(Counter(one.block for one in runs)),
        "max_error": worst,
        "disturbed": times.disturbed,
    }


def arrays_of(value: Any) -> list[Any]:
    """Return all tensors in a result, in order, as arrays."""
    if isinstance(value, list | tuple):
        return [array for one in value for array in arrays_of(one)]
    if isinstance(value, torch.Tensor | np.ndarray):
        return [np.asarray(value)]
    fields = getattr(value, "fields", None) or getattr(value, "__dict__", {})
    return [array for name in sorted(fields) for array in arrays_of(fields[name])]


def error_of(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Return the largest difference between arrays, relative to the largest element of each, or to 1."""
    if len(found) != len(wanted):
        raise SystemExit(f"{len(found)} tensors, and {len(wanted)} of eager PyTorch")
    worst = 0.0
    for own, right in zip(found, wanted, strict=True):
        scale = max(1.0, float(np.abs(right).max(initial=0)))
        worst = max(worst, float(np.abs(own - right).max(initial=0)) / scale)
    return worst


if __name__ == "__main__":
    main()
