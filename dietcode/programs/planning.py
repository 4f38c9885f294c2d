"""From the blocks of a program to what is tuned and to ``program.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.errors import ModelError
from dietcode.graph.attributes import plain
from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph
from dietcode.graph.program_model import NUMBER, BlockModel, NumberSource, ProgramModel
from dietcode.graph.recorded_model import RecordedModel
from dietcode.graph.samples import by_cost, row_weights
from dietcode.graph.tensor_type import TensorType
from dietcode.models.kernel_call import KernelCall
from dietcode.models.planning import ModelPlan, planned_parts
from dietcode.programs.block_runs import FIRST
from dietcode.programs.lowest import LOWEST, lowest_block
from dietcode.programs.optimisations import ALL, Optimisations
from dietcode.recursion.batching import ROWS, Batching
from dietcode.recursion.hoisting import given, hoisted_values, only
from dietcode.recursion.lowering import LoweredRows, lower_rows
from dietcode.recursion.passes import Passes
from dietcode.recursion.rewriting import canonical, distinct_outputs
from dietcode.runtime.manifest import PROGRAM_FORMAT

TABLE = Extent.of("T")
_MARGIN, _LEAST, _MOST = 2, 64, 8192  # of the rows of a bucket
Type = tuple[str, tuple[int, ...]]


@dataclass
class BatchedBlock:
    """A block as a graph of rows.

    Attributes
    ----------
    name : str
    graph : Graph
        Its inputs are ``operand{k}`` and ``rows{k}``, or ``ids{k}``.
    operands, results : list of Type
    phase : int
    counts : dict of int to int
        How often a bucket had so many rows.
    max_batch : int
    lowest_of : TakenOver, optional
        No instruction names it: it takes over calls of another one.
    """

    name: str
    graph: Graph
    operands: list[Type]
    results: list[Type]
    phase: int
    counts: dict[int, int]
    max_batch: int
    lowest_of: TakenOver | None = None


@dataclass(frozen=True)
class TakenOver:
    """Which calls a block takes over.

    Attributes
    ----------
    block : int
        Whose calls.
    sources : tuple of NumberSource or None
        What its operands have to be.
    """

    block: int
    sources: tuple[NumberSource | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"block": self.block, "sources": [one and one.to_json() for one in self.sources]}


@dataclass(frozen=True)
class Split:
    """How a block's instruction becomes two: the first has what comes with the instance.

    Attributes
    ----------
    first, second : int
        Numbers of row blocks.
    first_operands, second_operands : list of int
        Of the operands of the whole; in the second, those from the first come behind these.
    num_hoisted : int
    """

    first: int
    second: int
    first_operands: list[int]
    second_operands: list[int]
    num_hoisted: int


def plan_program(
    model: ProgramModel, fields: Mapping[str, Any], optimisations: Optimisations = ALL
) -> ModelPlan:
    """Take a program apart; the plan's description is ``program.json``.

    Parameters
    ----------
    model : ProgramModel
    fields : mapping
        Target, budget and objective of each part, as a spec has them.
    optimisations : Optimisations
        Of these, those that its blocks show.

    Raises
    ------
    ModelError
        A block cannot be compiled; all reasons are named.
    """
    blocks, splits = row_blocks(model, optimisations)
    lowered = [lowered_block(one, optimisations) for one in blocks]
    functions = [_with_splits(one, splits) for one in model.form["functions"]]
    types = [(one["dtype"], tuple(one["shape"])) for one in model.form["types"]]
    for block in blocks:
        types += [one for one in (*block.operands, *block.results) if one not in types]
    description = _description(model, functions, types, blocks, lowered)
    specs: dict[str, dict[str, Any]] = {}
    calls: dict[str, list[KernelCall]] = {}
    for rows in lowered:
        specs |= rows.specs
        for digest, own in rows.calls.items():
            calls.setdefault(digest, []).extend(own)
    largest = {"B": max((one.max_batch for one in blocks), default=1), "T": model.max_rows}
    parts = planned_parts(specs, calls, largest, fields)
    return ModelPlan(description, parts, _facts(model, description, blocks, lowered))


def row_blocks(
    model: ProgramModel | RecordedModel, optimisations: Optimisations = ALL
) -> tuple[list[BatchedBlock], list[Split | int]]:
    """Return the blocks of rows, and for each block of the model which of them it is, or which two."""
    blocks: list[BatchedBlock] = []
    splits = [_rows_of(model, number, one, blocks, optimisations) for number, one in enumerate(model.blocks)]
    if optimisations.tables:
        for one, split in zip(model.blocks, splits, strict=True):
            _add_lowest(one, split, splits, blocks, optimisations)
    return blocks, splits


def _add_lowest(
    block: BlockModel,
    split: Split | int,
    splits: Sequence[Split | int],
    blocks: list[BatchedBlock],
    optimisations: Optimisations,
) -> None:
    """Add the block that takes over the calls whose operands are rows of tables, where it saves products."""
    if block.lowest is None:
        return
    number = split if isinstance(split, int) else split.second
    whole = blocks[number]
    places = range(len(block.operands)) if isinstance(split, int) else split.second_operands
    sources: list[NumberSource | None] = [None] * len(whole.operands)
    leaders: dict[int, int] = {}
    for at, k in enumerate(places):
        one = block.lowest.sources[k]
        if one is not None:
            maker = splits[one.block]
            if not isinstance(maker, int):
                return
            leader = leaders.setdefault(one.leader, at)  # the first of those that the second part has
            sources[at] = NumberSource(maker, one.result, leader)
    makers = {one.block: blocks[one.block].graph for one in sources if one is not None}
    graph = lowest_block(whole.graph, sources, makers, _passes(optimisations)) if makers else None
    if graph is None:
        return
    most = _max_batch(block.lowest.rows)
    operands: list[Type] = []
    for at, (type_, source) in enumerate(zip(whole.operands, sources, strict=True)):
        if source is None or source.leader == at:
            operands.append(type_ if source is None else NUMBER)
    whole.counts = dict(block.lowest.rest) or whole.counts
    blocks.append(
        BatchedBlock(
            f"{whole.name}{LOWEST}",
            distinct_outputs(_ranged(graph, most)),
            operands,
            list(whole.results),
            whole.phase,
            dict(block.lowest.rows),
            most,
            TakenOver(number, tuple(sources)),
        )
    )


def _max_batch(counts: Mapping[int, int]) -> int:
    wanted = max(_LEAST, _MARGIN * max(counts, default=1))
    return min(_MOST, 1 << (wanted - 1).bit_length())


def _rows_of(
    model: ProgramModel | RecordedModel,
    number: int,
    block: BlockModel,
    blocks: list[BatchedBlock],
    optimisations: Optimisations,
) -> Split | int:
    """Add the row blocks that a block becomes."""
    hoist = optimisations.hoisting
    name = f"block{number}"
    batch = _max_batch(block.together if hoist else block.buckets)
    ranges = {"B": (1, batch), "T": (2, model.max_rows)}
    graph = batched_block(block, ranges, optimisations)
    on_blocks = {
        f"{word}{k}"
        for k, is_made in enumerate(block.is_made)
        if is_made
        for word in ("operand", "rows", "ids")
    }
    wanted = hoisted_values(graph, on_blocks) if hoist and any(block.is_made) else []
    if not wanted:
        own = distinct_outputs(_ranged(graph, _max_batch(block.buckets)))
        blocks.append(
            BatchedBlock(
                name,
                own,
                list(block.operands),
                list(block.results),
                block.phase,
                dict(block.buckets),
                _max_batch(block.buckets),
            )
        )
        return len(blocks) - 1
    before = distinct_outputs(only(graph, wanted))
    shapes = [tuple(extent.constant for extent in graph.types[one].shape[1:]) for one in wanted]
    first = [k for k, is_made in enumerate(block.is_made) if not is_made and _reads(before, k)]
    after = given(graph, wanted)
    second = [k for k in range(len(block.operands)) if _reads(after, k)]
    first_types = [block.operands[k] for k in first]
    hoisted: list[Type] = [("float32", shape) for shape in shapes]
    blocks.append(
        BatchedBlock(
            f"{name}{FIRST}", _renumbered(before, first), first_types, hoisted, 0, dict(block.together), batch
        )
    )
    own_batch = _max_batch(block.buckets)
    rest = distinct_outputs(_with_tables(_renumbered(after, second), wanted, len(second), own_batch))
    types = [block.operands[k] for k in second] + hoisted
    blocks.append(
        BatchedBlock(name, rest, types, list(block.results), block.phase, dict(block.buckets), own_batch)
    )
    return Split(len(blocks) - 2, len(blocks) - 1, first, second, len(wanted))


def _reads(graph: Graph, operand: int) -> bool:
    names = {f"{word}{operand}" for word in ("operand", "ids")}
    return any(names & set(node.tensors) for node in graph.nodes)


def batched_block(
    block: BlockModel, ranges: dict[str, tuple[int, int]], optimisations: Optimisations = ALL
) -> Graph:
    """Return a block of one instance as a graph of rows, in the form that is taken apart."""
    new = Graph(block.graph.name, ranges)
    rows: list[str] = []
    orders: list[str] = []
    for k, (dtype, shape) in enumerate(block.operands):
        if dtype == "int32":
            orders.append(new.add_input(f"ids{k}", TensorType("int32", (ROWS,))))
            rows.append(orders[-1])
            continue
        extents = tuple(map(Extent.of, shape or (1,)))
        table = new.add_input(f"operand{k}", TensorType("float32", (TABLE, *extents)))
        orders.append(new.add_input(f"rows{k}", TensorType("int32", (ROWS,))))
        row = new.add("take", table, orders[-1], axis=0)
        rows.append(row if shape else new.add("reshape", row, shape=(ROWS,)))
    positions = next((one for one in orders if one.startswith("rows")), orders[0])
    Batching(block.graph, new, dict(zip(block.graph.inputs, rows, strict=True))).run()
    for number, (_, shape) in enumerate(block.results):
        if not shape:  # kernels write rows
            new.outputs[number] = new.add("reshape", new.outputs[number], shape=(ROWS, ONE))
    new.without_unused()
    return canonical(new, positions, _passes(optimisations))


def _passes(optimisations: Optimisations) -> Passes:
    return Passes(joined_gates=optimisations.horizontal, tables=optimisations.tables)


def _ranged(graph: Graph, most: int) -> Graph:
    found = Graph(graph.name, graph.ranges | {"B": (1, most)}, dict(graph.inputs), dict(graph.weights))
    found.nodes, found.outputs, found.types = list(graph.nodes), list(graph.outputs), dict(graph.types)
    return found


def _renumbered(graph: Graph, operands: Sequence[int]) -> Graph:
    """Return a graph that has some of the operands alone, which get new numbers."""
    from dietcode.models.nested import renamed

    names = {name: name for name in graph.types}
    kept = dict(graph.inputs)
    for name in graph.inputs:
        word = name.rstrip("0123456789")
        if word in ("operand", "rows", "ids"):
            number = int(name[len(word) :])
            if number in operands:
                names[name] = f"{word}{operands.index(number)}"
            else:
                kept.pop(name)
    inputs = {name: type_ for name, type_ in graph.inputs.items() if name in kept or _is_read(graph, name)}
    own = Graph(graph.name, graph.ranges, inputs, dict(graph.weights), list(graph.nodes), list(graph.outputs))
    own.types = {n: t for n, t in graph.types.items() if n in inputs or n not in graph.inputs}
    return renamed(own, {name: names[name] for name in own.types})


def _is_read(graph: Graph, name: str) -> bool:
    return any(name in node.tensors for node in graph.nodes)


def _with_tables(graph: Graph, values: Sequence[str], begin: int, most: int) -> Graph:
    """Return a graph that reads some of its inputs, which are rows, out of tables."""
    inputs = {name: type_ for name, type_ in graph.inputs.items() if name not in values}
    found = Graph(graph.name, graph.ranges | {"B": (1, most)}, inputs, dict(graph.weights))
    found.types = {name: type_ for name, type_ in graph.types.items() if name not in values}
    for at, name in enumerate(values):
        own = graph.types[name].shape[1:]
        table = found.add_input(f"operand{begin + at}", TensorType("float32", (TABLE, *own)))
        rows = found.add_input(f"rows{begin + at}", TensorType("int32", (ROWS,)))
        found.add("take", table, rows, axis=0, name=name)
    found.nodes += graph.nodes
    found.outputs = list(graph.outputs)
    return found


def lowered_block(block: BatchedBlock, optimisations: Optimisations) -> LoweredRows:
    """Return the steps of a block, and the specs of its kernels."""
    outside = {name: f"next{at}" for at, name in enumerate(block.graph.outputs)}
    counts = by_cost(block.counts) if optimisations.profile else None
    weights = row_weights(counts, block.max_batch)
    return lower_rows(block.graph, block.name, outside, weights)


def _with_splits(function: Mapping[str, Any], splits: Sequence[Split | int]) -> dict[str, Any]:
    """Return a function whose block instructions are those of row blocks."""
    code: list[list[Any]] = []
    lines: list[int] = []
    places: list[int] = []
    registers = function["registers"]
    spare = registers
    for one, line in zip(function["code"], function["lines"], strict=True):
        places.append(len(code))
        split = splits[one[2]] if one[0] == "block" else None
        if split is None:
            code.append(list(one))
        elif isinstance(split, int):
            code.append(["block", one[1], split, one[3]])
        else:
            hoisted = list(range(registers, registers + split.num_hoisted))
            spare = max(spare, registers + split.num_hoisted)
            code.append(["block", hoisted, split.first, [one[3][k] for k in split.first_operands]])
            lines.append(line)
            code.append(["block", one[1], split.second, [one[3][k] for k in split.second_operands] + hoisted])
        lines.append(line)
    places.append(len(code))  # the end of what is behind the last one
    for one in code:
        if one[0] == "jump":
            one[1] = places[one[1]]
        elif one[0] == "else":
            one[2] = places[one[2]]
    found = {**function, "registers": spare, "code": code, "lines": lines}
    if "handlers" in function:
        found["handlers"] = [[*(places[at] for at in own), d] for *own, d in function["handlers"]]
    return found


def _description(
    model: ProgramModel,
    functions: list[dict[str, Any]],
    types: list[Type],
    blocks: Sequence[BatchedBlock],
    lowered: Sequence[LoweredRows],
) -> dict[str, Any]:
    values: dict[str, TensorType] = {}
    weights: set[str] = {one["value"] for one in model.form["tensors"]}
    own: list[dict[str, Any]] = []
    for block, rows in zip(blocks, lowered, strict=True):
        kept = set(block.graph.inputs) | {f"next{at}" for at in range(len(block.results))}
        values |= {name: type_ for name, type_ in rows.types.items() if name not in kept}
        weights |= rows.weights
        own.append(block_fields(block, rows, types))
    return {
        "format": PROGRAM_FORMAT,
        "name": model.name,
        **{key: model.form[key] for key in ("records", "names", "constants", "lookups", "tensors", "entry")},
        "types": [{"dtype": dtype, "shape": list(shape)} for dtype, shape in types],
        "functions": functions,
        "blocks": own,
        "weights": typed(_weight_types(model, weights)),
        "values": typed(values),
        "max_rows": model.max_rows,
    }


def block_fields(block: BatchedBlock, rows: LoweredRows, types: Sequence[Type]) -> dict[str, Any]:
    """Return a block as ``program.json`` has it; `types` are those of the program, by number."""
    found = {
        "name": block.name,
        "operands": [types.index(one) for one in block.operands],
        "results": [types.index(one) for one in block.results],
        "phase": block.phase,
        "max_batch": block.max_batch,
        "load": rows.load,
        "steps": rows.steps,
    }
    return found if block.lowest_of is None else {**found, "lowest_of": block.lowest_of.to_json()}


def _weight_types(model: ProgramModel, names: Iterable[str]) -> dict[str, TensorType]:
    constants: dict[str, TensorType] = {}
    for one in model.form["tensors"]:
        type_ = model.form["types"][one["type"]]
        constants[one["value"]] = TensorType(type_["dtype"], tuple(map(Extent.of, type_["shape"])))
    return known_weights(model.blocks, constants, names)


def known_weights(
    blocks: Iterable[BlockModel], constants: Mapping[str, TensorType], names: Iterable[str]
) -> dict[str, TensorType]:
    """Return the types of weights that blocks or constants have, by name.

    Raises
    ------
    ModelError
        One is unknown.
    """
    known = dict(constants)
    for block in blocks:
        known |= block.graph.weights
    missing = [name for name in names if name not in known]
    if missing:
        raise ModelError(f"weights {', '.join(missing)} are unknown")
    return {name: known[name] for name in sorted(names)}


def typed(types: Mapping[str, TensorType]) -> dict[str, Any]:
    """Return types as ``program.json`` has them."""
    return {name: {"dtype": t.dtype, "shape": plain(t.shape)} for name, t in types.items()}


def _facts(
    model: ProgramModel,
    description: Mapping[str, Any],
    blocks: Sequence[BatchedBlock],
    lowered: Sequence[LoweredRows],
) -> dict[str, Any]:
    sizes = [one["shape"] for one in description["weights"].values()]
    return {
        "name": model.name,
        "dimensions": {"B": {"min": 1, "max": max((one.max_batch for one in blocks), default=1)}},
        "inputs": {"instance": "object"},
        "outputs": ["object"],
        "num_operators": sum(one.graph.num_nodes for one in blocks),
        "num_weights": len(sizes),
        "weight_bytes": sum(4 * int(np.prod(shape, dtype=np.int64)) for shape in sizes),
        "num_calls": sum("kernel" in step for one in lowered for step in one.steps),
        "host_operators": {},
        "moves": sum("move" in step for one in lowered for step in one.steps),
        "samples": {"instances": model.num_samples},
        "constants": [one["value"] for one in model.form["tensors"]],
        "functions": [
            {"name": one["name"], "instructions": len(one["code"])} for one in description["functions"]
        ],
        "blocks": [
            {
                "name": one.name,
                "phase": one.phase,
                "max_batch": one.max_batch,
                "buckets": {str(rows): count for rows, count in sorted(one.counts.items())},
                "kernels": sum("kernel" in step for step in own.steps),
                "moves": sum("move" in step for step in own.steps),
                "weights": sorted(own.weights),
            }
            for one, own in zip(blocks, lowered, strict=True)
        ],
    }
