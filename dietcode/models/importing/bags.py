"""Bags of rows of a table: embedding_bag of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.context import Imported, Importer, rule

_MODES = ("sum", "mean", "max")
_NO_BAG = (1 << 31) - 1


@rule("aten.embedding_bag.padding_idx")
def _bags_and_maybe_a_row(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Here -1 is the last row, and None leaves none out."""
    row = a["padding_idx"]
    if row is not None and row < 0:
        num_rows = m.type(m.tensor(a["weight"])).shape[0]
        if not num_rows.is_constant:
            raise GraphError(f"padding_idx {row} of {num_rows} rows; allowed: from 0 on")
        row += num_rows.constant
    return _bags(m, {**a, "padding_idx": -1 if row is None else row}, fake)


@rule("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def _bags(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return sums, means or maxima of rows of a table, for bags that follow each other in a list."""
    weight, positions, offsets = (m.tensor(a[key]) for key in ("weight", "indices", "offsets"))
    if a["include_last_offset"]:
        offsets = m.slice(offsets, 0, 0, m.type(offsets).shape[0] - 1)
    mode = _MODES[a["mode"]]
    (length,), (num_bags,) = m.type(positions).shape, m.type(offsets).shape
    _, width = m.type(weight).shape
    dtype = m.type(weight).dtype
    rows = m.add("take", weight, positions, axis=0, wraps=False)
    if a["per_sample_weights"] is not None:
        rows = m.add("mul", rows, m.reshape(m.tensor(a["per_sample_weights"]), (length, ONE)))
    counted = None
    if a["padding_idx"] >= 0:
        counted = m.add("not_equal", positions, a["padding_idx"])
        wide = m.reshape(counted, (length, ONE))
        left_out = m.add(
            "full", shape=(length, width), value=-math.inf if mode == "max" else 0.0, dtype=dtype
        )
        rows = m.add("where", wide, rows, left_out)
    bag = _bag_of_each(m, offsets, length)
    begin = m.add("full", shape=(num_bags, width), value=-math.inf if mode == "max" else 0.0, dtype=dtype)
    total = m.add("scatter_points", begin, rows, bag, by="max" if mode == "max" else "add")
    if mode != "sum":
        none = m.add("full", shape=(num_bags,), value=0.0, dtype=dtype)
        ones = (
            m.add("full", shape=(length,), value=1.0, dtype=dtype)
            if counted is None
            else m.cast(counted, dtype)
        )
        counts = m.reshape(m.add("scatter_points", none, ones, bag, by="add"), (num_bags, ONE))
        if mode == "mean":
            total = m.add("div", total, m.add("maximum", counts, 1.0))
        else:  # an empty bag is 0
            zeros = m.add("full", shape=(num_bags, width), value=0.0, dtype=dtype)
            total = m.add("where", m.add("less", 0.0, counts), total, zeros)
    return total, None, None, None


def _bag_of_each(m: Importer, offsets: str, length: Extent) -> str:
    """Return the number of the bag of each position: how many bags have begun, less one.

    A position before the first bag, which PyTorch refuses, gets a number that no bag has, so that a call is
    refused here too.
    """
    dtype = m.type(offsets).dtype
    number = m.reshape(m.add("arange", stop=length, dtype=dtype), (length, ONE))
    begun = m.add("sum", m.add("cast", m.add("less_equal", offsets, number), dtype="int64"), axes=(1,))
    return m.add("where", m.add("less", 0, begun), m.add("sub", begun, 1), _NO_BAG)
