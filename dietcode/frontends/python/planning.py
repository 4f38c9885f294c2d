"""From the blocks of a recorded program to what is tuned and to ``program.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.program_model import BlockModel, Type, rows_of_tables
from dietcode.graph.recorded_model import RecordedModel
from dietcode.graph.tensor_type import TensorType
from dietcode.models.kernel_call import KernelCall
from dietcode.models.planning import ModelPlan, planned_parts
from dietcode.programs.optimisations import ALL, Optimisations
from dietcode.programs.planning import (
    BatchedBlock,
    Split,
    block_fields,
    known_weights,
    lowered_block,
    row_blocks,
    typed,
)
from dietcode.recursion.lowering import LoweredRows
from dietcode.runtime.manifest import RECORDED_FORMAT
from dietcode.runtime.recorded.variants import Variant


def plan_recorded(
    model: RecordedModel, fields: Mapping[str, Any], optimisations: Optimisations = ALL
) -> ModelPlan:
    """Take a recorded program apart; the plan's description is ``program.json``.

    Parameters
    ----------
    model : RecordedModel
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
    types: dict[tuple[str, tuple[int, ...]], None] = {}
    for _, shape in model.constants:
        types[("float32", shape)] = None
    both: list[BlockModel | BatchedBlock] = [*model.blocks, *blocks]
    for block in both:
        types |= dict.fromkeys((*block.operands, *block.results))
    description = _description(model, list(types), blocks, lowered, splits)
    specs: dict[str, dict[str, Any]] = {}
    calls: dict[str, list[KernelCall]] = {}
    for rows in lowered:
        specs |= rows.specs
        for digest, own in rows.calls.items():
            calls.setdefault(digest, []).extend(own)
    largest = {"B": max((one.max_batch for one in blocks), default=1), "T": model.max_rows}
    parts = planned_parts(specs, calls, largest, fields)
    return ModelPlan(description, parts, _facts(model, description, blocks, lowered))


def check_block(graph: Graph, operands: Sequence[Type], results: Sequence[Type]) -> None:
    """Refuse a block that has no kernels.

    Raises
    ------
    ModelError
        Says what has none.
    """
    made = (True,) * len(operands)
    block = BlockModel(graph, tuple(operands), tuple(results), made, 0, {1: 1}, {1: 1})
    plan_recorded(RecordedModel("block", (block,), (), (), 1, rows_of_tables([block])), {})


def _description(
    model: RecordedModel,
    types: Sequence[tuple[str, tuple[int, ...]]],
    blocks: Sequence[BatchedBlock],
    lowered: Sequence[LoweredRows],
    splits: Sequence[Split | int],
) -> dict[str, Any]:
    values: dict[str, TensorType] = {}
    weights: set[str] = {name for name, _ in model.constants}
    own: list[dict[str, Any]] = []
    for block, rows in zip(blocks, lowered, strict=True):
        kept = set(block.graph.inputs) | {f"next{at}" for at in range(len(block.results))}
        values |= {name: type_ for name, type_ in rows.types.items() if name not in kept}
        weights |= rows.weights
        own.append(block_fields(block, rows, types))
    constants = {name: TensorType("float32", tuple(map(Extent.of, shape))) for name, shape in model.constants}
    return {
        "format": RECORDED_FORMAT,
        "name": model.name,
        "tensors": [
            {"value": name, "type": types.index(("float32", shape))} for name, shape in model.constants
        ],
        "types": [{"dtype": dtype, "shape": list(shape)} for dtype, shape in types],
        "units": [_unit(one, splits) for one in model.units],
        "passed_on": list(model.passed_on),
        "assigned": list(model.assigned),
        "waits": model.waits,
        "blocks": own,
        "weights": typed(known_weights(model.blocks, constants, weights)),
        "values": typed(values),
        "max_rows": model.max_rows,
    }


def _unit(unit: Mapping[str, Any], splits: Sequence[Split | int]) -> dict[str, Any]:
    """Return a unit whose variants note blocks of rows."""
    regions = [
        {**one, "variants": [_with_splits(Variant.from_json(v), splits).to_json() for v in one["variants"]]}
        for one in unit["regions"]
    ]
    return {**unit, "regions": regions}


def _with_splits(variant: Variant, splits: Sequence[Split | int]) -> Variant:
    if not variant.notes:
        return variant
    ((block, operands),) = variant.notes
    split = splits[block]
    if isinstance(split, int):
        notes = [(split, operands)]
        first = 0
    else:
        first = split.num_hoisted
        notes = [
            (split.first, [operands[k] for k in split.first_operands]),
            (split.second, [operands[k] for k in split.second_operands] + [-(k + 1) for k in range(first)]),
        ]
    return Variant(variant.specs, notes, variant.result, variant.weights, variant.limits, first)


def _facts(
    model: RecordedModel,
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
        "constants": [name for name, _ in model.constants],
        "eager": [{"where": where, "reason": reason} for where, reason in model.eager],
        "functions": [
            {"name": one["qualname"], "regions": len(one["regions"])} for one in description["units"]
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
