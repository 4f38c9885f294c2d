"""What a call costs beyond its kernel: dispatch over an empty call of the runtime, and Python's part.

python -m benchmarks.overhead DIR
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

import dietcode
from benchmarks.facts import write
from dietcode.runtime.tensors import accept

_CALLS, _ROUNDS = 5000, 21


def empty_function() -> Any:
    """A packed function of one integer that does nothing."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("empty")
        T.func_attr({"global_symbol": "empty"})
        T.arg("value", T.int64())
        T.evaluate(tvm.tirx.IntImm("int32", 0))
    return tvm.compile(tvm.IRModule({"empty": builder.get()}), target="llvm")["empty"]


def main(folder: Path) -> None:
    """Measure in turns and write JSON; times in microseconds."""
    library = dietcode.load(folder)
    smallest = library.report["instances"][0]["shape_vars"]
    largest = library.report["instances"][-1]["shape_vars"]
    empty, select = empty_function(), library._select
    values = list(largest.values())
    array = np.zeros((16, 16), np.float32)
    paths: dict[str, Callable[[], Any]] = {
        "empty_call": lambda: empty(*values[:1]),
        "select": lambda: select(*values),
        "select_checked": lambda: library.select(**smallest),
        "accept_numpy": lambda: accept("X", array, "float32"),
    }
    readings: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(_ROUNDS):
        for name, call in paths.items():
            started = time.perf_counter()
            for _ in range(_CALLS):
                call()
            readings[name].append((time.perf_counter() - started) / _CALLS * 1e6)
    medians = {name: statistics.median(values) for name, values in readings.items()}
    result = {
        "library": folder.name,
        "categories": len(library.dispatch["categories"]),
        "microseconds": medians,
        "dispatch_beyond_empty_call": medians["select"] - medians["empty_call"],
    }
    print(result)
    write(Path("benchmarks/results/overhead.json"), result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
