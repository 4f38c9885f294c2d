"""Sizes that depend on values, and what programs check of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.graph.extent import ONE, Extent, simplified
from dietcode.graph.tensor_type import GraphError, broadcast
from dietcode.models.importing.conditions import SIGNS, Condition, condition_of
from dietcode.models.importing.context import Imported, Importer, rule
from dietcode.workload.text import one_line


def is_new_size(m: Importer, number: Any) -> bool:
    """Whether PyTorch's number is a size that no node has set yet, and that follows from no others."""
    expression = None if isinstance(number, int) else number.node.expr
    return expression is not None and bool(expression.is_Symbol) and not m.symbols.knows(expression)


def set_size(m: Importer, number: Any, most: Extent | None) -> Extent:
    """Return a size that the node that is imported sets, a dimension of its own.

    Parameters
    ----------
    m : Importer
    number : SymInt or int
        As PyTorch has it; one that follows from others is checked when it is known.
    most : Extent, optional
        What it is at most; by default what the program's checks say.

    Raises
    ------
    GraphError
        It has no upper bound.
    """
    if not is_new_size(m, number):
        return m.symbols.extent(number)
    expression = number.node.expr
    low, high = m.symbols.range_of(expression)
    if high is not None:
        most = Extent.of(high) if most is None else m.at_most(Extent.of(high), most)
    if most is None:
        m.symbols.refused.add(str(expression))
        raise GraphError(
            f"a size without an upper bound ({expression}); write torch._check(size <= 512) after it, with "
            "the most that it can be"
        )
    name = str(expression)
    while name in m.graph.ranges:
        name += "_"
    m.graph.ranges[name] = (max(low, 0), max(low, 0, most.bounds(m.graph.ranges)[1]))
    m.graph.sizes[name] = most
    m.symbols.add(expression, name)
    return Extent.of(name)


def positions_of(m: Importer, mask: str, number: Any) -> str:
    """Return the positions of a tensor's elements that are not 0, ``[size, rank]``."""
    return m.add("nonzero", mask, size=set_size(m, number, m.type(mask).num_elements))


@rule("aten.nonzero.default")
def _nonzero(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return positions_of(m, m.tensor(a["self"]), fake.shape[0])


def masked(m: Importer, x: str, axis: int, mask: str, number: Any) -> str:
    """Return the elements of a tensor where a mask over some of its axes, from one on, holds."""
    rank = m.rank(mask)
    found = positions_of(m, mask, number)
    if rank == 1:
        return m.add("take", x, m.reshape(found, m.type(found).shape[:1]), axis=axis)
    if axis:
        raise GraphError("an index by truth values that are not first; allowed: on the first axes")
    return m.add("take_points", x, *(m.select(found, 1, k) for k in range(rank)))


@rule("aten.masked_select.default")
def _masked_select(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    pair = [m.tensor(a["self"]), str(m.cast(m.tensor(a["mask"]), "bool"))]
    shape = broadcast([m.type(one).shape for one in pair])
    wide = [one if m.type(one).shape == shape else m.add("expand", one, shape=shape) for one in pair]
    count = ONE
    for extent in shape:
        count = count * extent
    x, mask = (m.reshape(one, (count,)) for one in wide)
    return masked(m, x, 0, mask, fake.shape[0])


@rule("aten.repeat_interleave.Tensor")
def _repeated(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    most = None if a["output_size"] is None else m.extent(a["output_size"])
    return m.add("repeat_each", m.tensor(a["repeats"]), size=set_size(m, fake.shape[0], most))


@rule("aten.repeat_interleave.self_Tensor")
def _repeat_interleave(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    if a["dim"] is None:
        x = m.reshape(x, (m.type(x).num_elements,))
    axis = (a["dim"] or 0) % m.rank(x)
    most = None if a["output_size"] is None else m.extent(a["output_size"])
    size = set_size(m, fake.shape[axis], most)
    return m.add("take", x, m.add("repeat_each", m.tensor(a["repeats"]), size=size), axis=axis)


def import_item(m: Importer, argument: Any, fake: Any) -> Any:
    """Return what ``.item()`` gives: a size where it has bounds from 0 up, the tensor itself elsewhere."""
    x = m.reshape(m.tensor(argument), ())
    if type(fake).__name__ != "SymInt":
        return x
    if not is_new_size(m, fake):
        size = m.symbols.extent(fake)
    else:
        low, high = m.symbols.range_of(fake.node.expr)
        if high is None or low < 0:
            return x
        size = set_size(m, fake, None)
    m.add("size", x, size=size)
    return size


def import_check(m: Importer, argument: Any) -> None:
    """Add what ``torch._check`` and its kind say, as far as shapes and bounds do not."""
    value = m.values[argument.name] if hasattr(argument, "op") else argument
    if isinstance(value, str):
        text = f"a value that is not true here{m.at()}"
        m.add("assert", m.cast(value, "bool"), text=text)
        return
    fake = argument.meta["val"] if hasattr(argument, "op") else argument
    if type(fake).__name__ == "SymBool":
        _relation(m, fake.node.expr)


def _relation(m: Importer, expression: Any) -> None:
    kind = type(expression).__name__
    if kind == "And":
        for one in expression.args:
            _relation(m, one)
    if kind in ("And", "BooleanTrue"):
        return
    try:
        condition = condition_of(expression, m.symbols.extent_of)
    except ValueError:
        is_of_values = any(m.symbols.is_size(one) for one in expression.free_symbols)
        if m.symbols.is_refused(expression) or not is_of_values:
            return
        text = one_line(m.symbols.text(expression), 100)
        raise GraphError(
            f"a check of {text}; allowed: comparisons of sizes, joined by and, or, not"
        ) from None
    if not condition.value.variables & set(m.graph.sizes):
        is_range = len(condition.value.variables) < 2 and kind != "Equality"
        if is_range or condition.is_of_ones or kind not in _BOUNDS:
            return  # which the guard has; or PyTorch's own, for which 1 and equal sizes are special
    if kind in _BOUNDS:
        _bounded(m, kind, *(m.symbols.extent_of(one) for one in expression.args))
    else:
        require(m, condition, one_line(m.symbols.text(expression), 100) + m.at())


def _bounded(m: Importer, kind: str, left: Extent, right: Extent) -> None:
    """Add a comparison as bounds of a difference, unless ranges, or the node that sets a size, keep them."""
    bounds, value = _BOUNDS[kind], simplified(left - right, m.graph.ranges)
    low, high = value.bounds(m.graph.ranges)
    if (bounds[0] is None or bounds[0] <= low) and (bounds[1] is None or high <= bounds[1]):
        return
    if bounds == (None, 0) and m.bounded_by(left, right):
        return
    sides = (one_line(str(simplified(one, m.graph.ranges)), 100) for one in (left, right))
    text = f" {SIGNS[kind]} ".join(sides) + m.at()
    m.add("assert", value=value, least=bounds[0], most=bounds[1], text=text)


def require(m: Importer, condition: Condition, text: str) -> None:
    """Add a check of a condition that ranges leave open."""
    value = simplified(condition.value, m.graph.ranges)
    if value.bounds(m.graph.ranges)[0] < 1:
        m.add("assert", value=value, least=1, text=text)


_BOUNDS: Mapping[str, tuple[int | None, int | None]] = {
    "Equality": (0, 0),
    "LessThan": (None, 0),
    "StrictLessThan": (None, -1),
    "GreaterThan": (0, None),
    "StrictGreaterThan": (1, None),
}


def truth_of(m: Importer, fake: Any) -> str:
    """Return a comparison of sizes as a tensor, for a branch."""
    expression = fake.node.expr
    kind = type(expression).__name__
    if kind not in _BOUNDS:
        raise GraphError(f"a branch on {expression}; allowed: one comparison of sizes, or a tensor")
    left, right = (m.symbols.extent_of(one) for one in expression.args)
    value = m.add("extent", value=left - right)
    low, high = _BOUNDS[kind]
    if low == high:
        return m.add("equal", value, 0)
    return m.add("less_equal", value, high) if low is None else m.add("less_equal", low, value)
