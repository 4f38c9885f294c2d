"""What a call costs beyond its kernel: dispatch over an empty call of the runtime, and Python's part.

    python -m benchmarks.overhead DIR

Python's part is a whole call of the library, `lib(X=x, …, out=y)`, at the smallest instance, minus the
compiled function with arguments that were prepared. It is a few microseconds of a hundred and more, which no
machine repeats so well; so it is also taken with a compiled function in the kernel's place that does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

import dietcode
from benchmarks.facts import calm, result_path, write
from dietcode.bench.operator import Operator
from dietcode.measure.turns import interleave
from dietcode.runtime.library import Library
from dietcode.runtime.tensors import accept, aligned_empty

_ROUNDS = 21
_TARGET_MICROSECONDS = 5.0


def empty_function(num_tensors: int = 0, num_integers: int = 1) -> Any:
    """A packed function of tensors and integers that does nothing."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("empty")
        T.func_attr({"global_symbol": "empty"})
        for index in range(num_tensors):
            T.arg(f"tensor_{index}", T.handle())
        for index in range(num_integers):
            T.arg(f"value_{index}", T.int64())
        T.evaluate(tvm.tirx.IntImm("int32", 0))
    return tvm.compile(tvm.IRModule({"empty": builder.get()}), target="llvm")["empty"]


def main(folder: Path) -> None:
    """Measure in turns and write JSON; times in microseconds."""
    library = dietcode.load(folder)
    instances = library.report["instances"]
    smallest = min(instances, key=lambda row: row["flops"])["shape_vars"]
    largest = max(instances, key=lambda row: row["flops"])["shape_vars"]
    empty, select = empty_function(), library._select
    values = [largest[name] for name in library.manifest["variable_order"]]
    array = np.zeros((16, 16), np.float32)
    medians = in_turns(
        {
            "empty_call": lambda: empty(*values[:1]),
            "select": lambda: select(*values),
            "select_checked": lambda: library.select(**smallest),
            "accept_numpy": lambda: accept("X", array, "float32"),
        }
    )
    medians |= whole_calls(library, smallest)
    result = {
        "library": folder.name,
        "categories": len(library.dispatch["categories"]),
        "shape_vars": smallest,
        "microseconds": medians,
        "dispatch_beyond_empty_call": medians["select"] - medians["empty_call"],
        "python_beyond_kernel": medians["whole_call"] - medians["kernel"],
        "python_beyond_nothing": medians["whole_call_of_nothing"] - medians["nothing"],
        "python_target": _TARGET_MICROSECONDS,
    }
    print(result)
    write(result_path("overhead"), result)


def whole_calls(library: Library, binding: dict[str, int]) -> dict[str, float]:
    """A call with torch tensors and the compiled function alone, with the kernel and without."""
    import torch

    operator = Operator.of(library.manifest)
    shapes = operator.shapes(binding)
    rng = np.random.default_rng(0)
    arguments: dict[str, Any] = {}
    prepared: list[Any] = []
    for name in operator.inputs:
        array = rng.standard_normal(shapes[name], dtype=np.float32)
        if name in library.manifest["packed"]:
            arguments[name] = library.pack(**{name: array})
            prepared.append(arguments[name].native)
        else:
            arguments[name] = torch.from_numpy(array)
            prepared.append(tvm_ffi.from_dlpack(arguments[name]))
    output = torch.from_numpy(aligned_empty(shapes[operator.problem.output]))
    prepared.append(tvm_ffi.from_dlpack(output))
    arguments |= {name: binding[name] for name in library.manifest["binding"]["keywords"]}
    values = [binding[name] for name in library.manifest["variable_order"]]
    run, nothing = library._run_beside_torch, empty_function(len(prepared), len(values))
    calls: dict[str, Callable[[], Any]] = {
        "whole_call": lambda: library(**arguments, out=output),
        "kernel": lambda: run(*prepared, *values),
    }
    medians = in_turns(calls)
    library._run_beside_torch = nothing
    library._prepare_calls()
    try:
        return medians | in_turns(
            {
                "whole_call_of_nothing": calls["whole_call"],
                "nothing": lambda: nothing(*prepared, *values),
            }
        )
    finally:
        library._run_beside_torch = run
        library._prepare_calls()


def in_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median microseconds of one call of each.

    Raises
    ------
    SystemExit
        Something else ran, also when they were measured again.
    """
    secs = interleave(calls, _ROUNDS)
    calm([{"disturbed": secs.disturbed}], ", ".join(calls))
    return {name: 1e6 * value for name, value in secs.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
