"""Recursions without tuning: levels by NumPy, and PyTorch computes every kernel from its spec."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from kernel_runs import computed_kernel

from dietcode.bench.operator import Operator
from dietcode.graph.extent import Extent, parse_extent
from dietcode.graph.operators import GRAPH_OPERATORS
from dietcode.models.planning import ModelPlan
from dietcode.runtime.host_operators import HOST
from dietcode.workload.parse import spec_from_data

FOLDER = Path(__file__).parents[2] / "examples" / "recursion"
Array = np.ndarray[Any, Any]
Values = dict[str, Array]


def example_of(name: str) -> Any:
    return module_of(FOLDER / f"{name}.py")


def module_of(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"recursion_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def random_structure(seed: int, num_nodes: int, most: int, is_dag: bool = False) -> SimpleNamespace:
    """Children of each node, in a random order of the nodes; -1 where there is none."""
    random = np.random.default_rng(seed)
    children = np.full((num_nodes, most), -1, np.int32)
    roots: list[int] = []
    for node in range(num_nodes):
        many = int(random.integers(0, most + 1))
        places = random.permutation(most)
        for place in places[:many]:
            pool = list(range(node)) if is_dag else roots
            if pool:
                child = pool[int(random.integers(len(pool)))]
                children[node, place] = child
                if child in roots:
                    roots.remove(child)
        roots.append(node)
    names = random.permutation(num_nodes)
    renamed = np.append(names, -1)[children]
    shuffled = np.empty_like(children)
    shuffled[names] = renamed
    return SimpleNamespace(children=shuffled.astype(np.int32))


def levels_of(children: Array) -> list[list[int]]:
    """The nodes of each level, leaves first: a level is the longest way down to a leaf."""
    height: dict[int, int] = {}

    def of(node: int) -> int:
        if node not in height:
            below = [of(int(one)) for one in children[node] if one >= 0]
            height[node] = 1 + max(below) if below else 0
        return height[node]

    levels: dict[int, list[int]] = {}
    for node in range(len(children)):
        levels.setdefault(of(node), []).append(node)
    return [levels[k] for k in sorted(levels)]


def run_plan(plan: ModelPlan, weights: Mapping[str, Array], structure: Any, x: Array | None) -> list[Array]:
    """Return the states of all nodes in the order of the structure."""
    return _Run(plan, weights).states(structure.children, x)


class _Run:
    def __init__(self, plan: ModelPlan, weights: Mapping[str, Array]) -> None:
        self.description = plan.description
        self.kernels = {}
        for part in plan.parts:
            fields, apart = _positions_apart(part.fields)
            operator = Operator.of_spec(spec_from_data(fields))
            order = (list(operator.inputs), list(operator.spec.variables))
            self.kernels[part.digest] = (computed_kernel(operator), order, apart)
        self.constants: Values = {name: weights[name] for name in self.description["weights"]}
        for step in self.description["load"]:
            operands = [self.constants[o["value"]] if isinstance(o, Mapping) else o for o in step["operands"]]
            readers = GRAPH_OPERATORS[step["host"]].attributes
            attributes = {
                k: v if v == readers[k].default else _numbers(readers[k].read(v))
                for k, v in step["attributes"].items()
            }
            results = HOST[step["host"]](operands, attributes)
            made = [np.ascontiguousarray(one).reshape(one.shape) for one in map(np.asarray, results)]
            self.constants |= dict(zip(step["results"], made, strict=True))

    def states(self, children: Array, x: Array | None) -> list[Array]:
        num_nodes = len(children)
        levels = levels_of(children)
        order = np.concatenate(levels).astype(np.int32)
        place = np.append(np.argsort(order), num_nodes).astype(np.int32)  # of -1: the row of zeros
        tables = [
            np.full((num_nodes + 1, *one["shape"]), np.nan, np.float32) for one in self.description["states"]
        ]
        for table in tables:
            table[num_nodes] = 0
        everything: Values = {} if x is None else {"x": x}
        hoisted = self._run("before", self._rows(order, 0, num_nodes, x), everything, num_nodes, num_nodes)
        begin = 0
        for number, level in enumerate(levels):
            end = begin + len(level)
            rows = {name: array.reshape(num_nodes, -1)[begin:end] for name, array in hoisted.items()}
            own = self._rows(order, begin, end, x) | rows
            is_leaf = not number and bool(self.description["leaf"])
            if not is_leaf:
                below = place[children[order[begin:end]]]
                for k in range(self.description["max_children"]):
                    column = below[:, k] if k < below.shape[1] else np.full(len(level), num_nodes)
                    own[f"child{k}"] = np.ascontiguousarray(column, np.int32)
                own |= {f"state{at}": table for at, table in enumerate(tables)}
            word = "first" if number == 1 and "first" in self.description else "leaf" if is_leaf else "cell"
            if word == "first":  # which reads no states, so that none are given
                many = self.description["leaf_rows"]
                ids = np.zeros(num_nodes, np.int32) if many == 1 or x is None else x[order].astype(np.int32)
                leaves = np.append(ids, np.int32(many))
                own |= {
                    f"leaf{k}": leaves[own.pop(f"child{k}")] for k in range(self.description["max_children"])
                }
                own = {name: array for name, array in own.items() if not name.startswith("state")}
            made = self._run(word, own, everything, num_nodes, len(level))
            for at, table in enumerate(tables):
                table[begin:end] = made[f"next{at}"].reshape(table[begin:end].shape)
            begin = end
        return [table[place[:num_nodes]] for table in tables]

    def _rows(self, order: Array, begin: int, end: int, x: Array | None) -> Values:
        own = {"order": order[begin:end]}
        return own | ({"ids": x[order[begin:end]].astype(np.int32)} if x is not None and x.ndim == 1 else {})

    def _run(self, word: str, given: Values, everything: Values, nodes: int, rows: int) -> Values:
        values = self.constants | everything | given
        binding = {"N": nodes, "B": rows, "T": nodes + 1}
        made: Values = {}
        for step in self.description[word]:
            if "move" in step:
                self._move(step, values, made, rows)
                values |= made
                continue
            run, (inputs, variables), apart = self.kernels[step["kernel"]]
            given = {
                name: values[one["value"]].reshape(_evaluated(one["shape"], binding))
                for name, one in step["arguments"].items()
            }
            for own, (table, positions) in apart.items():
                given[own] = np.minimum(given[positions], len(given[table]) - 1)
            arguments = [given[name] for name in inputs]
            outputs = [
                np.full(_evaluated(one["shape"], binding), np.nan, np.float32) for one in step["results"]
            ]
            sizes = [_evaluated(step["variables"][name], binding) for name in variables]
            run(*arguments, *outputs, *sizes)
            made |= {one["value"]: array for one, array in zip(step["results"], outputs, strict=True)}
            values |= made
        return made

    def _move(self, step: Mapping[str, Any], values: Values, made: Values, rows: int) -> None:
        shapes = {f"next{at}": one["shape"] for at, one in enumerate(self.description["states"])}
        own = self.description["values"].get(step["result"], {}).get("shape")
        shape = shapes.get(step["result"], own)
        row = (shape or [1]) if step["result"] in shapes else shape[1:]
        target = made.setdefault(step["result"], np.full((rows, *_evaluated(row)), np.nan, np.float32))
        indices = np.indices(step["shape"]).reshape(len(step["shape"]), int(np.prod(step["shape"])))
        places, into = (
            begin + np.array(strides, int) @ indices for begin, strides in (step["from"], step["to"])
        )
        if step["move"] is None:
            target.reshape(rows, -1)[:, into] = step["filler"]
            return
        source = values[step["move"]]
        is_constant = step["move"] in self.constants and step["rows"] is None
        many = 1 if is_constant else rows if step["rows"] is None else len(source)
        from_rows = np.zeros(rows, int) if is_constant else np.arange(rows)
        if step["rows"] is not None:
            from_rows = values[step["rows"]][:rows].astype(int)
        target.reshape(rows, -1)[:, into] = source.reshape(many, -1)[from_rows][:, places]


def _numbers(value: Any) -> Any:
    """An attribute whose extents, which are constants, are numbers."""
    if isinstance(value, tuple):
        return tuple(map(_numbers, value))
    return value.constant if isinstance(value, Extent) else value


def _positions_apart(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """The fields of a part with positions of their own for tables of as many rows, and a table of each.

    Kernels read the last row of a table where positions are past its end, which PyTorch does not.
    """
    block = fields["op"].get("block")
    if block is None:
        return dict(fields), {}
    graph, tensors = dict(block["graph"]), dict(fields["tensors"])
    apart: dict[str, tuple[str, str]] = {}
    for name, node in graph.items():
        if "gather" in node:
            table, positions = node["gather"]
            own = f"{positions}of{tensors[table]['dims'][0]}"
            apart[own] = table, positions
            tensors[own] = tensors[positions]
            graph[name] = {**node, "gather": [table, own]}
    read = {
        one
        for node in graph.values()
        for operands in node.values()
        if type(operands) is list
        for one in operands
    }
    tensors = {name: one for name, one in tensors.items() if name in read}
    return {**fields, "op": {"block": {**block, "graph": graph}}, "tensors": tensors}, apart


def _evaluated(value: Any, binding: Mapping[str, int] | None = None) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_evaluated(one, binding) for one in value)
    return parse_extent(value).evaluate(binding or {}) if isinstance(value, str) else value
