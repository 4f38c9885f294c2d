"""Triangles of matrices, whose diagonal may follow from sizes, as a mask has it beside a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.graph.extent import ONE
from dietcode.models.importing.context import Imported, Importer, rule


@rule("aten.tril.default", side="lower")
@rule("aten.triu.default", side="upper")
def _triangle(m: Importer, a: Mapping[str, Any], fake: Any, side: str) -> Imported:
    x, diagonal = m.tensor(a["self"]), m.extent(a["diagonal"])
    if diagonal.is_constant:
        return m.add("triangle", x, side=side, diagonal=diagonal.constant)
    type_ = m.type(x)
    rows, columns = type_.shape[-2:]
    # A position is below the diagonal, or on it, where its column is at most its row and the diagonal.
    last = diagonal if side == "lower" else diagonal - 1
    queries = m.reshape(m.add("arange", start=last, stop=last + rows), (rows, ONE))
    is_below = m.add("less_equal", m.add("arange", stop=columns), queries)
    filled = m.producer(x)
    value = None if filled is None or filled.operator != "full" else filled.attributes["value"]
    if value and type_.dtype == "bool" and type_.rank == 2:  # a mask, which attention knows
        return is_below if side == "lower" else m.add("not", is_below)
    pair = (x, 0) if side == "lower" else (0, x)
    return m.add("where", is_below, *pair, dtype=type_.dtype)
