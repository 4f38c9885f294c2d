"""From cells to what is tuned and to ``recursion.json``: every pass in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dietcode.graph.attributes import plain
from dietcode.graph.cells import Cells, Shape
from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph
from dietcode.graph.samples import Samples, row_weights
from dietcode.graph.tensor_type import TensorType
from dietcode.models.kernel_call import KernelCall
from dietcode.models.planning import ModelPlan, planned_parts
from dietcode.recursion.apart import of_least_work
from dietcode.recursion.batching import ROWS, Batching
from dietcode.recursion.hoisting import given, hoisted_values, only
from dietcode.recursion.lowering import LoweredRows, lower_rows
from dietcode.recursion.lowest import LEAF, lowest_form
from dietcode.recursion.passes import ALL, Passes
from dietcode.recursion.refactoring import refactored
from dietcode.recursion.rewriting import canonical, distinct_outputs
from dietcode.recursion.schedules import (
    SCHEDULES,
    USUAL,
    RecursionSchedule,
    multiply_adds_of,
    tried_structure,
)
from dietcode.recursion.stages import units_in_order
from dietcode.recursion.tables import multiply_adds
from dietcode.recursion.uniform import with_zeros
from dietcode.recursion.unrolling import unrolled
from dietcode.runtime.manifest import RECURSION_FORMAT
from dietcode.runtime.recursion.plan import read_recursion
from dietcode.runtime.recursion.workspace import node_bytes, workspace_bytes

NODES, TABLE_ROWS = Extent.of("N"), Extent.of("T")  # of a structure; of a table of states
_ORDER = "order"


@dataclass(frozen=True)
class Forms:
    """What is computed for a structure, as graphs of rows.

    Attributes
    ----------
    before : Graph or None
        What depends on inputs alone, of all nodes at once, or of all but the leaves where these compute it
        themselves; None where there is nothing of that kind.
    leaf : Graph or None
        Of all leaves; None where the cell takes them too.
    cell : Graph
        Of the nodes of a level.
    first : Graph or None
        Of the nodes of the first level, whose children are leaves alone, where leaves are rows of constant
        tables, and this takes fewer multiplications than `cell`.
    num_leaves : int
        The rows of these tables; 1 where all leaves are the same.
    inner_states : tuple of tuple of int
        The shapes of states that nodes read of their children and nobody is given, behind the cell's own.
    """

    before: Graph | None
    leaf: Graph | None
    cell: Graph
    first: Graph | None = None
    num_leaves: int = 0
    inner_states: tuple[Shape, ...] = ()

    @property
    def schedule(self) -> RecursionSchedule:
        """How it is computed."""
        return RecursionSchedule(self.first is not None, bool(self.inner_states))

    @property
    def skips_leaves(self) -> bool:
        """Whether leaves read nothing of what is computed before the first level."""
        if self.before is None or self.leaf is None:
            return False
        return self.leaf.inputs.keys().isdisjoint(self.before.outputs)

    @property
    def graphs(self) -> dict[str, Graph]:
        """Those that there are, by the name of the form."""
        own = {"before": self.before, "leaf": self.leaf, "first": self.first, "cell": self.cell}
        return {word: graph for word, graph in own.items() if graph is not None}


def plan_recursion(
    cells: Cells,
    max_nodes: int,
    max_level: int,
    fields: Mapping[str, Any],
    samples: Samples | None = None,
    passes: Passes = ALL,
    schedule: RecursionSchedule = USUAL,
) -> ModelPlan:
    """Take a recursion apart; the plan's description is ``recursion.json``.

    Parameters
    ----------
    cells : Cells
    max_nodes : int
        Of a call, all of its structures together.
    max_level : int
        The most nodes of a level but of the leaves.
    fields : mapping
        Target, budget and objective of each part, as a spec has them.
    samples : Samples, optional
        What numbers of rows count; evenly in the logarithm without them.
    passes : Passes
        All but for an ablation.
    schedule : RecursionSchedule

    Raises
    ------
    ModelError
        The cells cannot be compiled; all reasons are named.
    LibraryError
        Loading would refuse the steps.
    """
    cells = _plainer(cells, max_nodes, max_level, passes)
    forms = forms_of(cells, max_nodes, max_level, passes, schedule)
    is_copied = not passes.fused_gathers
    counts = (samples.nodes, samples.leaves) if samples else (None, None)
    of_nodes, of_leaves = (row_weights(one, max_nodes) for one in counts)
    of_levels = row_weights(samples.levels if samples else None, max_level)
    lowered: dict[str, LoweredRows] = {}
    hoisted: dict[str, str] = {}
    if forms.before is not None:
        hoisted = {name: f"before/{name}" for name in forms.before.outputs}
        lowered["before"] = lower_rows(forms.before, "before", hoisted, of_nodes, is_copied)
    states = len(cells.states) + len(forms.inner_states)
    for word, graph in (("cell", forms.cell), ("leaf", forms.leaf), ("first", forms.first)):
        if graph is None:
            continue
        outside = {name: f"next{at}" for at, name in enumerate(graph.outputs[:states])}
        outside |= {name: own for name, own in hoisted.items() if name in graph.inputs}
        rows = of_leaves if word == "leaf" else of_levels
        lowered[word] = lower_rows(graph, word, outside, rows, is_copied)
    description = _description(cells, max_nodes, max_level, lowered, forms.inner_states)
    if forms.first is not None:
        description |= {"first": lowered["first"].steps, "leaf_rows": forms.num_leaves}
    specs: dict[str, dict[str, Any]] = {}
    calls: dict[str, list[KernelCall]] = {}
    for one in lowered.values():
        specs |= one.specs
        for digest, own in one.calls.items():
            calls.setdefault(digest, []).extend(own)
    largest = {"B": max_nodes, "N": max_nodes, "T": max_nodes + 1}
    parts = planned_parts(specs, calls, largest, fields)
    facts = _facts(cells, description, lowered, forms)
    facts["schedule"] = forms.schedule.label
    read = read_recursion(description)
    facts |= {"workspace_bytes": workspace_bytes(read), "node_bytes": node_bytes(read)}
    if samples is not None:
        facts["samples"] = samples.to_json()
    return ModelPlan(description, parts, facts)


def schedules_of(
    cells: Cells, max_nodes: int, max_level: int, samples: Samples | None = None
) -> dict[RecursionSchedule, int]:
    """Return the schedules to try, the one with the fewest multiplications first, and what these are.

    One that computes the same as another is left out, and so is refactoring where it multiplies no less.

    Parameters
    ----------
    cells, max_nodes, max_level, samples
        As for `plan_recursion`; multiplications are those of `tried_structure`.

    Raises
    ------
    ModelError
        An operator has no form for many nodes.
    """
    cells = _plainer(cells, max_nodes, max_level)
    children = tried_structure(samples, cells.children, max_nodes)
    found: dict[RecursionSchedule, int] = {}
    for schedule in SCHEDULES:
        forms = forms_of(cells, max_nodes, max_level, schedule=schedule)
        if forms.schedule != schedule:
            continue
        of_forms = {word: multiply_adds(graph) for word, graph in forms.graphs.items()}
        work = multiply_adds_of(children, of_forms, forms.skips_leaves)
        plainer = found.get(RecursionSchedule(schedule.unrolled, refactored=False))
        if plainer is None or work < plainer:
            found[schedule] = work
    return dict(sorted(found.items(), key=lambda one: one[1]))


def _plainer(cells: Cells, max_nodes: int, max_level: int, passes: Passes = ALL) -> Cells:
    """Return the cells in the form of which a level takes the least, see `dietcode.recursion.apart`."""

    def work(own: Cells) -> tuple[int, ...]:
        graph = forms_of(own, max_nodes, max_level, passes).cell
        units = units_in_order(graph, "cell")[1]
        kernels = sum(unit.call is not None for unit in units)
        return multiply_adds(graph), kernels, len(units)

    return of_least_work(cells, work)


def forms_of(
    cells: Cells, max_nodes: int, max_level: int, passes: Passes = ALL, schedule: RecursionSchedule = USUAL
) -> Forms:
    """Return the graphs of rows that cells become.

    Raises
    ------
    ModelError
        An operator has no form for many nodes.
    """
    num_inputs = 0 if cells.x is None else 1
    cell = cells.cell
    if cells.is_sum:
        cell = unrolled(cell, num_inputs, cells.children, len(cells.states))
    ranges = {"B": (1, max_level), "N": (1, max_nodes), "T": (2, max_nodes + 1)}
    wide = ranges | {"B": (1, max_nodes)}
    rows = batched_rows(cells, cell, ranges, has_children=True)
    own_leaf = None if cells.leaf is None else batched_rows(cells, cells.leaf, wide, has_children=False)
    inner_states: tuple[Shape, ...] = ()
    if schedule.refactored:
        moved = refactored(
            canonical(rows, _ORDER, replace(passes, joined_gates=False)), own_leaf, len(cells.states)
        )
        if moved is not None:
            rows, own_leaf, inner_states = moved.cell, moved.leaf, moved.inner_states
    of_level = canonical(rows, _ORDER, passes)
    on_level = {name for name in of_level.inputs if name.startswith(("child", "state"))}
    hoisted = hoisted_values(of_level, on_level) if passes.hoisting else []
    leaf: Graph | None
    if cells.leaf is None and not passes.leaves:
        leaf = None  # the cell takes them too
    elif cells.leaf is None:
        leaf = given(_without_children(_ranged(of_level, wide)), hoisted)
        if cells.children > 1 and not (hoisted and leaf.inputs.keys() >= set(hoisted)):
            # About half of the nodes of trees are leaves, and these need fewer gates.
            leaf = _without_children(_ranged(rows, wide))
    else:
        leaf = own_leaf
    before = _ranged(only(of_level, hoisted), wide) if hoisted else None
    of_level = given(of_level, hoisted)
    found = None
    if leaf is not None:
        leaf = canonical(leaf, _ORDER, passes)
        found = lowest_form(of_level, leaf, "ids") if passes.tables and schedule.unrolled else None
    first, num_leaves = (canonical(found[0], _ORDER, passes), found[1]) if found else (None, 0)
    if first is None or multiply_adds(first) >= multiply_adds(of_level):
        first, num_leaves = None, 0
    return Forms(
        None if before is None else distinct_outputs(before),
        None if leaf is None else distinct_outputs(leaf),
        distinct_outputs(of_level),
        None if first is None else distinct_outputs(first),
        num_leaves,
        inner_states,
    )


def _without_children(graph: Graph) -> Graph:
    """Return a graph of rows whose nodes have no children: those have states of zeros."""
    states = [node.result for node in graph.nodes if str(node.operands[:1]).startswith("('state")]
    return with_zeros(graph, states)


def _ranged(graph: Graph, ranges: dict[str, tuple[int, int]]) -> Graph:
    """Return a graph over other ranges of its dimensions."""
    found = Graph(graph.name, ranges, dict(graph.inputs), dict(graph.weights), list(graph.nodes))
    found.outputs, found.types = list(graph.outputs), dict(graph.types)
    return found


def batched_rows(cells: Cells, graph: Graph, ranges: dict[str, tuple[int, int]], has_children: bool) -> Graph:
    """Return a graph of one node as one of rows, which reads them at positions of tables.

    Parameters
    ----------
    cells : Cells
    graph : Graph
        Their cell, which takes each child by itself, or their leaf.
    ranges : dict of str to (int, int)
        Of N, B and T.
    has_children : bool
    """
    new = Graph(graph.name, ranges)
    order = new.add_input(_ORDER, TensorType("int32", (ROWS,)))
    given_rows: list[str] = []
    if cells.x == ():
        given_rows.append(new.add_input("ids", TensorType("int32", (ROWS,))))
    elif cells.x is not None:
        x = new.add_input("x", TensorType("float32", (NODES, *_extents(cells.x))))
        given_rows.append(new.add("take", x, order, axis=0))
    if has_children:
        tables = [
            new.add_input(f"state{at}", TensorType("float32", (TABLE_ROWS, *_extents(shape or (1,)))))
            for at, shape in enumerate(cells.states)
        ]
        for child in range(cells.children):
            at = new.add_input(f"child{child}", TensorType("int32", (ROWS,)))
            for table, shape in zip(tables, cells.states, strict=True):
                row = new.add("take", table, at, axis=0)
                given_rows.append(row if shape else new.add("reshape", row, shape=(ROWS,)))
    Batching(graph, new, dict(zip(graph.inputs, given_rows, strict=True))).run()
    for number, shape in enumerate(cells.states):
        if not shape:  # kernels write rows
            new.outputs[number] = new.add("reshape", new.outputs[number], shape=(ROWS, ONE))
    new.without_unused()
    return new


def _extents(shape: Shape) -> tuple[Extent, ...]:
    return tuple(map(Extent.of, shape))


def _description(
    cells: Cells,
    max_nodes: int,
    max_level: int,
    lowered: Mapping[str, LoweredRows],
    inner_states: Sequence[Shape],
) -> dict[str, Any]:
    inputs = {"x", "ids", _ORDER, *(f"{word}{k}" for k in range(cells.children) for word in ("child", LEAF))}
    states = [*cells.states, *inner_states]
    inputs |= {f"{word}{k}" for k in range(len(states)) for word in ("state", "next")}
    weights = {name for one in lowered.values() for name in one.weights}
    types: dict[str, TensorType] = {}
    for word, one in lowered.items():
        for name, type_ in one.types.items():
            if name not in inputs and (word == "before" or not name.startswith("before/")):
                rows = NODES if word == "before" else ROWS
                shape = (rows if extent == ROWS else extent for extent in type_.shape)
                types[name] = TensorType(type_.dtype, tuple(shape))
    x = None
    if cells.x is not None:
        x = {"dtype": "float32" if cells.x else "int32", "shape": list(cells.x)}
    graphs = [cells.cell, *([cells.leaf] if cells.leaf else [])]
    own = {name: type_ for graph in graphs for name, type_ in graph.weights.items() if name in weights}
    return {
        "format": RECURSION_FORMAT,
        "name": cells.name,
        "max_children": cells.children,
        "x": x,
        "states": [{"dtype": "float32", "shape": list(shape)} for shape in states],
        "num_results": len(cells.states),
        "max_nodes": max_nodes,
        "max_level": max_level,
        "single_output": len(cells.states) == 1,
        "weights": _typed(own),
        "load": [step for one in lowered.values() for step in one.load],
        "values": _typed(types),
        **{word: lowered[word].steps if word in lowered else [] for word in ("before", "leaf", "cell")},
    }


def _typed(types: Mapping[str, TensorType]) -> dict[str, Any]:
    return {name: {"dtype": t.dtype, "shape": plain(t.shape)} for name, t in types.items()}


def _facts(
    cells: Cells, description: Mapping[str, Any], lowered: Mapping[str, LoweredRows], forms: Forms
) -> dict[str, Any]:
    sizes = [one["shape"] for one in description["weights"].values()]
    graphs = forms.graphs
    return {
        "name": cells.name,
        "dimensions": {
            "N": {"min": 1, "max": description["max_nodes"]},
            "B": {"min": 1, "max": description["max_level"]},
        },
        "inputs": {} if cells.x is None else {"x": f"{description['x']['dtype']}{[*cells.x]}"},
        "outputs": [f"float32{list(shape)}" for shape in cells.states],
        "num_operators": sum(graph.num_nodes for graph in graphs.values()),
        "num_weights": len(sizes),
        "weight_bytes": sum(4 * int(np.prod(shape, dtype=np.int64)) for shape in sizes),
        "num_calls": sum(_num_kernels(one.steps) for one in lowered.values()),
        "kernels": {word: _num_kernels(description[word]) for word in graphs if description[word]},
        "multiply_adds": {word: multiply_adds(graph) for word, graph in graphs.items()},
        "moves": sum("move" in step for one in lowered.values() for step in one.steps),
        "host_operators": {},
    }


def _num_kernels(steps: list[dict[str, Any]]) -> int:
    return sum("kernel" in step for step in steps)
