"""Every operator of a graph in NumPy alone: sizes, positions, and what is left beside kernels.

``HOST[name](operands, attributes)`` takes arrays, Python numbers, and None for an operand that is left out;
attributes as `dietcode.graph.operators` has them, with extents evaluated. It returns the results with exactly
the dtypes that the graph's inference states, warns of nothing, and writes into no operand. Results of `VIEWS`
may share the memory of the first operand, may be read-only, and are in any layout.
``HOST_INTO[name](operands, attributes, out)`` writes into an array of the result's shape and dtype and
allocates nothing of its size; `out` shares memory with an operand only where it is that operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dietcode.runtime.host import layers, layout, pointwise, windows

Array: TypeAlias = "np.ndarray[Any, Any]"
HostFunction: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Array, ...]]
HostWriter: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], Array], None]

HOST: dict[str, HostFunction] = {
    **pointwise.FUNCTIONS,
    **layers.FUNCTIONS,
    **windows.FUNCTIONS,
    **layout.FUNCTIONS,
}
HOST_INTO: dict[str, HostWriter] = {**pointwise.WRITERS, **layout.WRITERS}
VIEWS = frozenset({"reshape", "transpose", "expand", "slice", "flip", "pad"})
