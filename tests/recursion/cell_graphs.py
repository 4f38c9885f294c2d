"""Functions of one node as cells: their graphs, and what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from graph_runs import run_graph, torch

from dietcode.graph.cells import Cells
from dietcode.graph.extent import ONE
from dietcode.graph.graph import Graph
from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import ChildSum, Recursion
from dietcode.recursion.planning import batched_rows

X, H = 6, 8
RANGES = {"B": (1, 50), "N": (1, 60), "T": (2, 61)}
Array = np.ndarray[Any, Any]


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function of a node with a few weights: `w` [8, 8], `v` [8], `u` [8, 6]."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.w = torch.nn.Parameter(torch.randn(H, H) / 2)
        self.v = torch.nn.Parameter(torch.randn(H))
        self.u = torch.nn.Parameter(torch.randn(H, X) / 2)
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def recursion_of(
    function: Callable[..., Any], children: int | ChildSum = 2, states: Sequence[Any] = ((H,),), x: Any = (X,)
) -> Recursion:
    return Recursion(Function(function).eval(), children=children, states=list(states), x=x)


def batched_cell(recursion: Recursion) -> tuple[Cells, Graph, dict[str, Array]]:
    cells, weights = export_cells(recursion, "cell")
    return cells, batched_rows(cells, cells.cell, dict(RANGES), has_children=True), weights


def tables_of(recursion: Recursion, num_nodes: int) -> dict[str, Array]:
    """Inputs of all nodes, and states of nodes that were computed before."""
    random = np.random.default_rng(num_nodes)
    found: dict[str, Array] = {}
    if recursion.x:
        found["x"] = random.standard_normal((num_nodes, *recursion.x)).astype(np.float32)
    for at, shape in enumerate(recursion.states):
        found[f"state{at}"] = random.standard_normal((num_nodes + 1, *shape)).astype(np.float32)
        found[f"state{at}"][-1] = 0
    return found


def run_rows(graph: Graph, weights: dict[str, Array], recursion: Recursion, rows: int) -> list[Array]:
    """Compute rows of a level by the functions of the host."""
    inputs = tables_of(recursion, 20) | _positions(recursion, rows)
    graph = _with_rows_alike(graph)
    return run_graph(graph, {n: weights[n] for n in graph.weights}, {n: inputs[n] for n in graph.inputs})


def _with_rows_alike(graph: Graph) -> Graph:
    """Expand tables of one row, which kernels read at any position."""
    nodes = []
    for node in graph.nodes:
        table = graph.types[node.tensors[0]] if node.operator == "take" else None
        if table is not None and table.shape[0] == ONE and node.operands[0] not in graph.inputs:
            shape = graph.types[node.result].shape
            row = replace(node, operator="expand", operands=node.operands[:1], attributes={"shape": shape})
            nodes.append(row)
        else:
            nodes.append(node)
    return replace(graph, nodes=nodes)


def _positions(recursion: Recursion, rows: int) -> dict[str, Array]:
    random = np.random.default_rng(rows)
    found = {"order": random.integers(0, 20, rows).astype(np.int32)}
    if recursion.x == ():
        found["ids"] = random.integers(0, H, rows).astype(np.int32)
    for child in range(recursion.children):
        found[f"child{child}"] = random.integers(0, 21, rows).astype(np.int32)
    return found


def eager_rows(recursion: Recursion, rows: int) -> list[Array]:
    """Compute the same one node after the other."""
    tables, positions = tables_of(recursion, 20), _positions(recursion, rows)
    made = []
    for row in range(rows):
        inputs = []
        if recursion.x == ():
            inputs.append(torch.tensor(int(positions["ids"][row])))
        elif recursion.x is not None:
            inputs.append(torch.tensor(tables["x"][positions["order"][row]]))
        below = [
            [
                torch.tensor(tables[f"state{at}"][positions[f"child{k}"][row]])
                for k in range(recursion.children)
            ]
            for at in range(len(recursion.states))
        ]
        if recursion.is_sum:
            inputs += [torch.stack(one) for one in below]
        else:
            inputs += [state for child in zip(*below, strict=True) for state in child]
        with torch.no_grad():
            result = recursion.cell(*inputs)
        made.append(result if isinstance(result, tuple) else (result,))
    return [torch.stack(one).numpy() for one in zip(*made, strict=True)]


def assert_close(found: Sequence[Array], wanted: Sequence[Array], label: str = "") -> None:
    for own, right in zip(found, wanted, strict=True):
        assert own.shape == right.shape, label
        largest = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(own, right, rtol=0, atol=1e-5 * largest, err_msg=label)
