"""Nanoseconds of one dispatch in compiled code, and of `lib.select` from Python.

python -m benchmarks.rule_cost

Two variables, at most 20 categories, and the rule that `assemble` fits to their predicted costs. The compiled
loop walks over an array of shapes, sends each through the rule's tree and sums the categories; the same loop
that sums a variable instead is taken off. Shapes come in random order, so that branches are mispredicted as
they would be by a server's stream of requests; a leaf's own time is one shape of it, over and over.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

import dietcode
from benchmarks import synthetic
from benchmarks.facts import calm, write
from dietcode.backends.cpu.backend import CpuBackend
from dietcode.dispatcher.rule import Branch, Leaf, Node, Rule
from dietcode.library.build import library_files
from dietcode.library.files import dispatch_tree
from dietcode.library.parts import Parts
from dietcode.measure.disturbance import machine_of, spread_of_readings, undisturbed
from dietcode.measure.turns import interleave
from dietcode.runtime.manifest import write_folder
from dietcode.search_space.cpu.host import _emit_tree
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import IntArray
from dietcode.search_space.task import Task
from dietcode.search_space.tir import i64
from dietcode.target.cpu import resolve_target
from dietcode.tuner.assembly import assemble
from dietcode.workload.instances import make_instances

_OBJECTIVE = {"binary_size": 0.0, "max_kernels": 20}
_ROUNDS, _REPEATS = 11, 20_000


def make_parts() -> Parts:
    """A library of many categories from records that a formula made."""
    spec = synthetic.two_variables(objective=_OBJECTIVE)
    target = resolve_target(spec.target)
    records = synthetic.fake_records(spec, target)
    return assemble(Task.of(spec), CpuBackend(), target, records)


def loop(tree: DispatchTree | None, variables: tuple[str, ...]) -> Any:
    """A compiled function of int64 shapes [n, v] and sums [1]: adds up the categories of all shapes.

    Without a tree it adds up the shapes themselves: reading them and looping, no dispatch.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("loop")
        T.func_attr({"global_symbol": "loop"})
        handles = [T.arg(name, T.handle()) for name in ("shapes", "sums")]
        num_shapes = T.int64()
        shapes = T.match_buffer(handles[0], (num_shapes, len(variables)), "int64")
        sums = T.match_buffer(handles[1], (1,), "int64")

        def add(value: Any) -> None:
            T.buffer_store(sums, sums[0] + value, [0])

        with T.serial(num_shapes) as row:
            values = {name: shapes[row, axis] for axis, name in enumerate(variables)}
            if tree is None:
                add(sum(values.values()))
            else:
                _emit_tree(tree, values, lambda category: add(i64(category)))
    return tvm.compile(tvm.IRModule({"loop": builder.get()}), target="llvm")["loop"]


def one_of_each_leaf(rule: Rule, shapes: IntArray) -> IntArray:
    """Indices of one shape in each leaf of the rule that any of `shapes` reaches."""
    numbers = itertools.count()

    def numbered(node: Node) -> Node:
        if isinstance(node, Leaf):
            return Leaf(next(numbers))
        return Branch(node.variable, node.threshold, numbered(node.below), numbered(node.above))

    leaves = Rule(rule.variables, rule.num_leaves, numbered(rule.root)).predict(shapes)
    return np.unique(leaves, return_index=True)[1]


def nanoseconds(function: Any, shapes: IntArray) -> list[float]:
    """Readings of the time of one shape."""
    given, sums = tvm.runtime.tensor(np.ascontiguousarray(shapes)), tvm.runtime.tensor(np.zeros(1, np.int64))
    readings = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        function(given, sums)
        readings.append((time.perf_counter() - started) / len(shapes) * 1e9)
    return readings


def main() -> None:
    """Build, measure and write JSON."""
    parts = make_parts()
    tree, empty = (loop(some, parts.task.variables) for some in (dispatch_tree(parts.rule.root), None))
    drawn = make_instances(parts.task.spec, limit=65_536, seed=3).bindings
    drawn = np.random.default_rng(0).permutation(drawn)
    check = tvm.runtime.tensor(np.zeros(1, np.int64))
    tree(tvm.runtime.tensor(np.ascontiguousarray(drawn)), check)
    assert int(check.numpy()[0]) == int(parts.rule.predict(drawn).sum()), "the compiled tree is another rule"
    one = drawn[one_of_each_leaf(parts.rule, drawn)]

    def measure() -> dict[str, list[float]]:
        return {"empty": nanoseconds(empty, drawn), "tree": nanoseconds(tree, drawn)} | {
            str(leaf): nanoseconds(tree, np.repeat(row[None], _REPEATS, axis=0))
            for leaf, row in enumerate(one)
        }

    def spread_of(found: dict[str, list[float]]) -> float:
        return spread_of_readings({name: found[name] for name in ("empty", "tree")})

    watched = undisturbed(measure, spread_of, machine_of(1))
    base, random_order, *alone = map(statistics.median, watched.value.values())
    random_order, alone = random_order - base, [leaf - base for leaf in alone]
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        write_folder(Path(folder) / "lib", library_files(parts))
        library = dietcode.load(Path(folder) / "lib")
        m, n = (int(value) for value in drawn[0])
        python = {
            "lib.select": lambda: library.select(M=m, N=n),
            "packed function": lambda: library._select(m, n),
        }
        secs = interleave(python, _ROUNDS)
    calm([{"disturbed": watched.disturbed or secs.disturbed}], "dispatch")
    result = {
        "categories": len(parts.micro_kernels),
        "leaves": parts.rule.num_leaves,
        "leaves_measured": len(one),
        "depth": parts.rule.depth,
        "unseen_loss": parts.report["rule"]["unseen"],
        "nanoseconds": {
            "random order, mean": random_order,
            "one leaf, mean": statistics.mean(alone),
            "one leaf, worst": max(alone),
            "empty loop": base,
        },
        "nanoseconds_from_python": {name: 1e9 * value for name, value in secs.items()},
        "bound_nanoseconds": 1000,
    }
    print(result)
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results/rule-cost.json"), result)


if __name__ == "__main__":
    main()
