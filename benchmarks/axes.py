"""What each axis of the space is worth: pairs of micro-kernels that differ in one, timed in turns.

    python -m benchmarks.axes [--only TEXT] [--rounds 9]

Each row names a workload, an instance and two ways to compute it; `gain` is the time of the first over that
of the second. Calls come from Python on prepared tensors, with all cores. Writes
``axes.json`` of this device in ``benchmarks/results``. Run it with nothing else on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tvm

from benchmarks.facts import result_path, write
from dietcode.measure.turns import interleave
from dietcode.measure.tvm_threads import set_num_threads
from dietcode.runtime.cpu import available_cores
from dietcode.search_space.cpu.column_sources import ColumnsInPlace, PackedAhead
from dietcode.search_space.cpu.compiling import compile_module
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.row_sources import GatheredRows, RowsInPlace
from dietcode.search_space.cpu.windowing import LineBuffer
from dietcode.search_space.problem import Problem, extents_of, problem_from_spec
from dietcode.target.cpu import resolve_target
from dietcode.workload.parse import load_spec
from dietcode.workload.spec import TargetSpec

ROOT = Path(__file__).resolve().parent.parent
# What emits each kind of prefetch, as its owner and name.
_PREFETCHES: dict[str, list[tuple[type, str]]] = {
    "rows": [(source, "next_rows") for source in (RowsInPlace, GatheredRows, LineBuffer)],
    "columns": [(source, "next_columns") for source in (PackedAhead, ColumnsInPlace)],
    "output": [(Output, "prefetch")],
}


@dataclass(frozen=True)
class Way:
    """One way to compute an instance.

    Attributes
    ----------
    asks_not_for : str
        What is not asked for ahead: ``rows``, ``columns`` or ``output``. No axis of the space, where nothing
        is left out.
    l2_bytes : int or None
        What blocks of rows are made for; the machine's where None.
    constant : bool or None
        Whether the column operand is packed ahead; as the spec says where None.
    """

    kernel: MicroKernel
    asks_not_for: str = ""
    l2_bytes: int | None = None
    constant: bool | None = None


@dataclass(frozen=True)
class Pair:
    """Two ways, and where they are compared."""

    axis: str
    workload: str
    instance: dict[str, int]
    without: Way
    with_it: Way


M = MicroKernel
_TILE = Way(M(14, 32, "partition"))
_WIDE = Way(M(9, 48, "partition"))
_SHAPES = (("bert-dense", {"T": 128}), ("bert-dense", {"T": 1}), ("bert-bmm-qk", {"T": 128}))
PAIRS = (
    Pair("register tile 8x16 → 14x32", "bert-dense", {"T": 128}, Way(M(8, 16, "partition")), _TILE),
    Pair("tile of few rows 14x32 → 8x48", "bert-dense", {"T": 1}, _TILE, Way(M(8, 48, "partition"))),
    Pair("tails local → partition", "dense-rows", {"M": 101}, Way(M(14, 32)), _TILE),
    Pair("weight packed ahead", "bert-dense", {"T": 1}, replace(_TILE, constant=False), _TILE),
    Pair("weight packed ahead", "bert-dense", {"T": 24}, replace(_TILE, constant=False), _TILE),
    Pair("blocks of rows in L2", "bert-dense", {"T": 128}, replace(_TILE, l2_bytes=1 << 40), _TILE),
    Pair("ranges of 512 steps", "bert-dense", {"T": 128}, _WIDE, Way(M(9, 48, "partition", 512))),
    Pair("ranges of 512 steps", "bert-dense-ffn2", {"T": 128}, _WIDE, Way(M(9, 48, "partition", 512))),
    Pair("ranges of 512 steps", "resnet50-conv-late", {"B": 32}, _WIDE, Way(M(9, 48, "partition", 512))),
    Pair(
        "gather rows of ranges",
        "bert-dense-ffn2",
        {"T": 128},
        Way(M(9, 48, "partition", 512)),
        Way(M(9, 48, "partition", 512, gather=True)),
    ),
    *(
        Pair(f"{what} asked for ahead", name, instance, replace(_WIDE, asks_not_for=what), _WIDE)
        for what in ("rows", "columns", "output")
        for name, instance in (
            ("bert-dense", {"T": 128}),
            ("bert-dense", {"T": 1}),
            ("bert-bmm-qk", {"T": 128}),
        )
    ),
    Pair(
        "rows asked for ahead",
        "resnet50-conv1x1",
        {"B": 16},
        Way(M(6, 64, "partition"), asks_not_for="rows"),
        Way(M(6, 64, "partition")),
    ),
    Pair("direct columns", "bert-bmm-pv", {"T": 5}, _TILE, Way(M(14, 32, "partition", direct=True))),
    Pair("direct columns", "bert-bmm-pv", {"T": 62}, _TILE, Way(M(14, 32, "partition", direct=True))),
    Pair("narrow vectors", "bert-bmm-qk", {"T": 5}, Way(M(5, 16, "partition")), Way(M(5, 8, "partition"))),
    Pair(
        "window rather than gather",
        "resnet50-conv3x3",
        {"B": 16},
        _TILE,
        Way(M(14, 32, "partition", window=True)),
    ),
)


def main() -> None:
    """Parse arguments, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", help="axes whose name holds this")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    set_num_threads(available_cores())
    rows = []
    for pair in PAIRS:
        if arguments.only in pair.axis:
            rows.append(measure(pair, arguments.rounds))
            where = f"{pair.workload} {pair.instance}"
            marked = "  disturbed" if rows[-1]["disturbed"] else ""
            print(f"{pair.axis:32} {where:32} {rows[-1]['gain']:.2f}{marked}", flush=True)
    write(result_path("axes"), {"rows": rows})


def measure(pair: Pair, rounds: int) -> dict[str, Any]:
    """Time both ways in turns."""
    spec = load_spec(ROOT / "examples" / f"{pair.workload}.yaml")
    extents = extents_of(spec, pair.instance)
    problem = problem_from_spec(spec)
    calls = {
        "without": prepare(pair.without, problem, extents, pair.instance),
        "with": prepare(pair.with_it, problem, extents, pair.instance),
    }
    secs = interleave(calls, rounds)
    flops = float(problem.flops(extents))
    return {
        "axis": pair.axis,
        "workload": pair.workload,
        "instance": pair.instance,
        "without": pair.without.kernel.name,
        "with": pair.with_it.kernel.name,
        "gflops": {name: flops / value / 1e9 for name, value in secs.items()},
        "gain": secs["without"] / secs["with"],
        "disturbed": secs.disturbed,
    }


def prepare(
    way: Way, problem: Problem, extents: dict[str, int], instance: dict[str, int]
) -> Callable[[], Any]:
    """A call of one way on tensors of its own."""
    target = resolve_target(TargetSpec(kind="llvm"))
    limits = Limits.of(target)
    if way.l2_bytes is not None:
        limits = replace(limits, l2_bytes=way.l2_bytes)
    if way.constant is not None:
        problem = replace(problem, column_operand_constant=way.constant)
    with _asking_not_for(way.asks_not_for):
        module = build_module(problem, [way.kernel], 0, tuple(instance), limits)
    code = compile_module(module, target).mod
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal(problem.shape(name, extents), dtype=np.float32)
        for name in problem.arguments
    }
    operand = problem.column_operand
    for layout in problem.packed.values():
        batch, columns, reduction = (
            int(problem.product(letters, extents))
            for letters in (layout.batch, layout.columns, layout.reduction)
        )
        packed = np.empty((batch, -(-columns // limits.lanes), reduction, limits.lanes), np.float32)
        code["pack"](arrays[operand], packed)
        arrays[operand] = packed
    output = np.full(problem.shape(problem.output, extents), np.nan, np.float32)
    tensors = [tvm.runtime.tensor(array) for array in (*arrays.values(), output)]
    run = code["run"]
    return lambda: run(*tensors, *instance.values())


@contextmanager
def _asking_not_for(what: str) -> Iterator[None]:
    """Generate code without one kind of prefetch."""
    with ExitStack() as patches:
        for owner, name in _PREFETCHES[what] if what else ():
            patches.enter_context(mock.patch.object(owner, name, lambda *_: ()))
        yield


if __name__ == "__main__":
    main()
