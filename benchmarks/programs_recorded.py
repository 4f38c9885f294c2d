"""Programs that CPython runs and records, beside the same ones compiled to code, in one process.

    python -m benchmarks.programs_recorded FOLDER tree_lstm tree_lstm_32 … [--batches 8,64] [--threads 2]

Bundles of code are those of `benchmarks.programs`; the others have ``_recorded`` behind their name. What is
not there yet is tuned by `--seconds` a kernel, equal kernels once. Results are compared with eager ones
first. Calls of all ways take turns, and the medians of the rounds count. A call's host time is what it takes
less the runs of its blocks in the same call. Writes
``programs_recorded.json`` of this device in ``benchmarks/results``; with ``--append`` other rows of the file
stay, and those of this commit that nothing disturbed are not measured again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.facts import facts, result_path, rows_before, write
from benchmarks.program_sizes import program_of, samples_of, sized
from benchmarks.programs import arrays_of, error_of
from benchmarks.programs_dynet import calls_in_dynet
from dietcode.frontends.python.compiling import compile_recorded
from dietcode.frontends.python.modeling import record
from dietcode.measure.turns import interleave
from dietcode.models.compiling import Options
from dietcode.programs.compiling import compile_program
from dietcode.programs.modeling import model_of
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.opening import load

_MAX_ERROR = 2e-4  # of float32, relative to the largest
_TRACED_CALLS = 5


def main() -> None:
    """Measure both ways of each program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", metavar="NAME", help="as benchmarks.program_sizes has it")
    parser.add_argument("--batches", default="8,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--output", type=Path, default=result_path("programs_recorded"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    before = rows_before(arguments.output) if arguments.append else []
    rows = {(row["program"], row["hidden"], row["batch"], row["threads"]): row for row in before}
    now = {name: facts()[name] for name in ("commit", "date")}
    for name in arguments.names:
        ways: dict[str, Any] = {}
        for batch in map(int, arguments.batches.split(",")):
            key = (*sized(name), batch, arguments.threads)
            old = rows.get(key)
            if old and old["commit"] == now["commit"] and not old["disturbed"]:
                continue
            ways = ways or both_ways(name, arguments.folder / name, arguments.seconds, arguments.threads)
            row = measured(name, ways, batch, arguments.rounds)
            rows[key] = dict(zip(("program", "hidden", "batch", "threads"), key, strict=True)) | row | now
            print(rows[key], flush=True)
            write(arguments.output, {"rows": list(rows.values())})


def both_ways(name: str, folder: Path, seconds: float, threads: int) -> dict[str, Any]:
    """Return the program compiled to code, and recorded."""
    program, samples, options = program_of(name), samples_of(name), Options(seconds=seconds)
    recorded = folder.with_name(f"{folder.name}_recorded")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        compile_program(*model_of(program, samples, name), folder, options=options)
    if not recorded.exists():
        model, formed = record(program, samples, name)
        compile_recorded(model, formed.blocks.weights.arrays, recorded, options=options)
    return {
        "code": load(folder, num_threads=threads),
        "recorded": load(recorded, num_threads=threads, program=program),
        "eager": program.eager,
    }


def measured(name: str, ways: dict[str, Any], batch: int, rounds: int) -> dict[str, Any]:
    """Return the times of both ways and of their parts, in a call of some instances.

    Parameters
    ----------
    name : str
        Of the example, and its size.
    ways : dict
        As `both_ways` returns them.
    batch : int
        How many instances a call has.
    rounds : int
    """
    instances = samples_of(name, batch)
    calls: dict[str, Callable[[], Any]] = {
        side: partial(ways[side], instances) for side in ("code", "recorded")
    }
    calls |= calls_in_dynet(sized(name)[0], program_of(name), instances)
    wanted = arrays_of([ways["eager"](one) for one in instances])
    errors = {side: error_of(arrays_of(call()), wanted) for side, call in calls.items()}
    if max(errors.values()) > _MAX_ERROR:
        raise SystemExit(f"{name}, batch {batch}: the sides differ: {errors}")
    times = interleave(calls, rounds)
    kernels = [set(ways[side].manifest["libraries"]) for side in ("code", "recorded")]
    return {
        **{f"{side}_ms": 1e3 * secs for side, secs in times.items()},
        "ratio": times["recorded"] / times["code"],
        **{side: parts_of(ways[side], instances) for side in ("code", "recorded")},
        "eager": sum(one["count"] for one in ways["recorded"].explain()),
        "kernels": {"both": len(kernels[0] & kernels[1]), "one": len(kernels[0] ^ kernels[1])},
        "max_error": max(errors.values()),
        "disturbed": times.disturbed,
    }


def parts_of(way: Any, instances: Sequence[Any]) -> dict[str, Any]:
    """Return runs, rows and kernels of a call, and nanoseconds of all else for each row."""
    kernels, host = [], []
    for _ in range(_TRACED_CALLS):
        begin = time.perf_counter()
        runs = way.block_runs(instances)
        secs = time.perf_counter() - begin
        kernels.append(sum(one.secs for one in runs))
        host.append(secs - kernels[-1])
    rows = sum(one.rows for one in runs)
    return {
        "block_runs": len(runs),
        "rows": rows,
        "kernel_ms": 1e3 * statistics.median(kernels),
        "host_nsecs_a_row": 1e9 * statistics.median(host) / rows,
    }


if __name__ == "__main__":
    main()
