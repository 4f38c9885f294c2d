"""How many operations one call of a workload takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dietcode.workload.contraction import Contraction
from dietcode.workload.expansion import count_flops, expand

if TYPE_CHECKING:  # needs no pydantic
    from dietcode.workload.spec_fields import SpecFields


def call_flops(spec: SpecFields, bindings: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the operations of one call, as floats, which do not wrap around.

    Two for each multiply-add of a contraction; of a block, one for each primitive and element.

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
    counts = count_flops(expand(graph.nodes, graph.indices), graph.columns)
    return product(graph.rows) * (counts["element"] * product(graph.columns) + counts["row"])
