"""Transposes move behind other functions, where other transposes, and readers of any order, meet them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.graph.extent import ONE, Extent, product_of
from dietcode.graph.graph import Node, Value
from dietcode.models.block_builder import POINTWISE, REDUCTIONS
from dietcode.models.rewriting.dense import is_matrix
from dietcode.models.rewriting.rewriter import Rewriter, Rule

_ALONG_LAST = ("softmax", "layernorm", "rmsnorm", "rotate")


def transposes(r: Rewriter, node: Node) -> str | None:
    """Two transposes -> one, or none."""
    if node.operator != "transpose" or r.turned(node.operands[0]) is None:
        return None
    return r.transpose(str(node.operands[0]), node.attributes["axes"])


def pointwise(r: Rewriter, node: Node) -> str | None:
    """``f(transpose(x), transpose(y), small)`` -> ``transpose(f(x, y, small))``."""
    if node.operator not in POINTWISE:
        return None
    before = next((found for one in node.tensors if (found := r.turned(one))), None)
    if before is None:
        return None
    axes: tuple[int, ...] = before.attributes["axes"]
    operands: list[Value] = []
    for one in node.operands:
        if not isinstance(one, str):
            operands.append(one)
            continue
        own = r.turned(one)
        if own is not None and own.attributes["axes"] == axes:
            operands.append(own.operands[0])
        elif r.type(one).rank <= len(axes) and r.type(one).num_elements != r.type(before.result).num_elements:
            operands.append(_moved(r, one, axes))
        else:
            return None
    return r.transpose(r.add(node.operator, *operands, **node.attributes), axes)


def _moved(r: Rewriter, value: str, axes: Sequence[int]) -> str:
    """Return a smaller operand for the order of memory, which is that before a transpose with these axes."""
    shape = r.type(value).shape
    padded = (ONE,) * (len(axes) - len(shape)) + shape
    places = [list(axes).index(axis) for axis in range(len(axes))]
    wide = [place for place in places if padded[place] != ONE]
    wanted = tuple(padded[place] for place in places)
    if wide == sorted(wide):
        first = next((number for number, one in enumerate(wanted) if one != ONE), len(wanted))
        return r.reshape(value, wanted[first:])
    return r.transpose(r.reshape(value, padded), places)


def along_last(r: Rewriter, node: Node) -> str | None:
    """A function along the last axis of a transpose that keeps this axis -> the transpose of the function."""
    before = r.turned(node.operands[0]) if node.operator in _ALONG_LAST else None
    if before is None:
        return None
    axes, rank = before.attributes["axes"], len(before.attributes["axes"])
    if axes[-1] != rank - 1 or node.attributes.get("axis", -1) not in (-1, rank - 1):
        return None
    if node.attributes.get("num_axes", 1) != 1:
        return None
    result = r.add(node.operator, before.operands[0], *node.operands[1:], **node.attributes)
    return r.transpose(result, axes)


def reduced(r: Rewriter, node: Node) -> str | None:
    """A reduction of a transpose -> the transpose of the reduction."""
    before = r.turned(node.operands[0]) if node.operator in REDUCTIONS else None
    if before is None:
        return None
    axes, rank = before.attributes["axes"], len(before.attributes["axes"])
    gone = {axes[axis % rank] for axis in node.attributes["axes"] or range(rank)}
    result = r.add(node.operator, before.operands[0], axes=tuple(sorted(gone)), keep=node.attributes["keep"])
    if node.attributes["keep"]:
        return r.transpose(result, axes)
    left = sorted(set(axes) - gone)
    return r.transpose(result, [left.index(axis) for axis in axes if axis not in gone])


def reshape(r: Rewriter, node: Node) -> str | None:
    """``reshape(transpose(x))`` that takes axes apart, or adds axes of 1 -> ``transpose(reshape(x))``."""
    if node.operator != "reshape":
        return None
    again = r.producer(node.operands[0], "reshape")
    if again is not None:
        return r.reshape(str(again.operands[0]), node.attributes["shape"])
    before = r.turned(node.operands[0])
    if before is None:
        return None
    parts = _refined(r.type(before.result).shape, node.attributes["shape"])
    if parts is None:
        return None
    axes = before.attributes["axes"]
    source = str(before.operands[0])
    position = {axis: number for number, axis in enumerate(axes)}
    inner: list[Extent] = []
    begin: dict[int, int] = {}
    for axis in range(len(axes)):
        begin[axis] = len(inner)
        inner += parts[position[axis]]
    order = [begin[axis] + k for axis in axes for k in range(len(parts[position[axis]]))]
    return r.transpose(r.reshape(source, inner), order)


def _refined(shape: Sequence[Extent], wanted: Sequence[Extent]) -> list[list[Extent]] | None:
    """Return what each extent is taken apart into, of the extents of another shape; None where it is not."""
    rest = list(wanted)
    parts: list[list[Extent]] = []
    for extent in shape:
        own: list[Extent] = []
        product = ONE
        while product != extent and rest:
            own.append(rest.pop(0))
            product = product * own[-1]
        if product != extent:
            return None
        parts.append(own)
    if any(one != ONE for one in rest):
        return None
    if rest:
        parts[-1] += rest
    return parts


def sliced(r: Rewriter, node: Node) -> str | None:
    """A slice of a transpose, of an axis taken apart, or of a product -> the same of the slice."""
    if node.operator != "slice":
        return None
    rank = r.type(node.operands[0]).rank
    axis, bounds = node.attributes["axis"] % rank, {k: node.attributes[k] for k in ("start", "stop", "step")}
    before = r.turned(node.operands[0]) or r.producer(node.operands[0], "reshape", "linear")
    if before is None:
        return None
    if before.operator == "transpose":
        axes = before.attributes["axes"]
        inner = r.add("slice", before.operands[0], axis=axes[axis], **bounds)
        taken = _again(r, sliced, inner)
        return r.transpose(taken, axes)
    if before.operator == "reshape":
        return _of_part(r, before, axis, bounds)
    computed = [
        one for one in before.operands[1:] if one not in r.graph.weights and not is_matrix(r, str(one))
    ]
    if axis != rank - 1 or computed or bounds["step"] != 1:
        return None
    return r.add(
        "linear", before.operands[0], *(r.add("slice", w, axis=0, **bounds) for w in before.operands[1:])
    )


def _again(r: Rewriter, rule: Rule, value: str) -> str:
    """Return what a rule makes of a value that was just written, or the value."""
    node = r.producer(value)
    found = None if node is None else rule(r, node)
    return value if found is None else found


def _of_part(r: Rewriter, before: Node, axis: int, bounds: Mapping[str, Any]) -> str | None:
    """``slice(reshape(x), one position of an axis that was taken apart)`` -> ``reshape(slice(x))``."""
    source = str(before.operands[0])
    old, new = r.type(source).shape, r.type(before.result).shape
    parts = _refined(old, new)
    single = bounds["stop"] - bounds["start"] == ONE and bounds["step"] == 1
    if parts is None or not single or not bounds["start"].is_constant:
        return None
    begin = 0
    for position, own in enumerate(parts):
        if begin <= axis < begin + len(own):
            within = axis - begin
            if any(one != ONE for one in own[:within]):
                return None
            width = product_of(own[within + 1 :])
            start = bounds["start"] * width
            inner = _again(
                r, sliced, r.add("slice", source, axis=position, start=start, stop=start + width, step=1)
            )
            return r.reshape(inner, (*new[:axis], ONE, *new[axis + 1 :]))
        begin += len(own)
    return None


TRANSPOSITION: Sequence[Rule] = (transposes, pointwise, along_last, reduced, reshape, sliced)
