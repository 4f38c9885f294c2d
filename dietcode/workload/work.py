"""How many operations one call of a workload takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dietcode.workload.attention import attention_flops, plan_attention
from dietcode.workload.contraction import Contraction
from dietcode.workload.expansion import count_flops, expand
from dietcode.workload.products import Halves, plan_products

if TYPE_CHECKING:  # needs no pydantic
    from dietcode.workload.block_graph import BlockGraph
    from dietcode.workload.spec_fields import SpecFields


def call_flops(spec: SpecFields, bindings: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the operations of one call, as floats, which do not wrap around.

    Two for each multiply-add of a product; of the rest of a block, one for each primitive and element.

    Parameters
    ----------
    bindings : mapping of str to int64 array [num_instances]
        A value of every shape variable for each instance.

    Returns
    -------
    float64 array [num_instances]
    """

    def product(indices: str) -> NDArray[np.float64]:
        extents = [np.asarray(spec.dims_parsed[i].evaluate(bindings), dtype=np.float64) for i in indices]
        return np.asarray(math.prod(extents, start=np.ones(1)))

    graph = spec.block
    if graph is None:
        return 2 * product("".join(Contraction.from_spec(spec).indices))
    if graph.form == "products":
        return _flops_of_products(graph, product)
    if graph.form == "attention":
        plan = plan_attention(graph.nodes, graph.indices, graph.outputs)
        every = set("".join(graph.indices[name] for name in spec.tensors))
        extents = {index: product(index) for index in every}
        return np.asarray(attention_flops(plan, extents), dtype=np.float64)
    counts = count_flops(expand(graph.nodes, graph.indices), graph.columns)
    return product(graph.rows) * (counts["element"] * product(graph.columns) + counts["row"])


def _flops_of_products(
    graph: BlockGraph, product: Callable[[str], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return two for each multiply-add, and one for each function of an element."""
    after = Halves.of(graph.nodes, graph.outputs).after
    counts = count_flops(expand(after, graph.indices), graph.columns)
    plan = plan_products(graph.nodes, graph.indices, graph.outputs, graph.columns)
    grid = product(graph.rows) * product(graph.columns)
    total = grid * (len(plan.primitives) + counts["element"]) + product(graph.rows) * counts["row"]
    for term, accumulators in plan.terms:
        total = total + 2 * len(accumulators) * grid * product(term.reduction)
    return total
