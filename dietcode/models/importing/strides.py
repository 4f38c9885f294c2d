"""Views of elements at strides of memory, where the memory is that of a contiguous tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.graph.extent import ONE
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.context import Imported, Importer, rule
from dietcode.models.importing.spelled_out import flattened


@rule("aten.as_strided.default", "aten.as_strided_copy.default")
def _at_strides(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, given = m.tensor(a["self"]), a["self"].meta["val"]
    if not given.is_contiguous() or given.storage_offset() != 0:
        raise GraphError("a view by strides of what is a view itself; allowed: of a contiguous tensor")
    sizes = m.shape(a["size"])
    positions: Value = m.value(a["storage_offset"]) or 0  # an absent one is that of the tensor, 0
    for axis, (size, stride) in enumerate(zip(sizes, m.shape(a["stride"]), strict=True)):
        steps = m.add("mul", m.add("arange", stop=size), m.number(stride))
        behind = [ONE] * (len(sizes) - axis - 1)
        positions = m.add("add", m.reshape(steps, (size, *behind)), positions)
    flat = flattened(m, x, 0, m.rank(x) - 1) if m.rank(x) else m.reshape(x, (1,))
    if not isinstance(positions, str):  # one element, without axes
        return m.select(flat, 0, int(positions or 0))
    return m.add("take", flat, positions, axis=0)
