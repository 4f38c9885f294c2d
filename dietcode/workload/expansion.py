"""A block's nodes in terms of few primitives: softmax and the norms are written out here.

A primitive is a pointwise function, or a sum, mean, maximum or minimum along the row:

    softmax    m = max(z), z = scale·x + mask, -inf where a causal mask hides it;
               e = exp(z - m), m = 0 where the whole row is -inf;  y = e · (1/Σe, 0 where Σe is 0)
    layernorm  d = x - mean(x);  y = d · rsqrt(mean(d²) + eps) · gamma + beta
    rotate     of a value: computed of all it depends on, rotated;  y = it, negated where columns came around
    avgpool    y = (Σ x at the elements of the window, 0 outside) · 1/elements, or / those inside
    rmsnorm    y = x · rsqrt(mean(x²) + eps) · gamma

So a row of softmax that is masked as a whole is 0; with ``masked_rows: nan`` it is NaN, as 1/Σe is infinite.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dietcode.workload.pooling import is_padded, pool_axes, taps

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode

REDUCTIONS = ("sum", "mean", "max", "min", "max-of-numbers")
"""Primitives along the row; the last one ignores NaN, which another of the row brings into the result."""

ROWS = ".rows"
"""After the name of a node that reads a tensor in its own way: what it reads, row by row."""

Value = str | float


@dataclass(frozen=True)
class Primitive:
    """One operation on a value of each element, or along the row.

    Attributes
    ----------
    name : str
        Of its result.
    kind : str
        A word of `REDUCTIONS`; ``causal``, ``finite`` (0 for -inf), ``reciprocal`` (0 for 0),
        ``exp-of-negative`` (of what is at most 0), ``inside`` (how many elements of a window exist),
        ``negate-first`` (the first columns of each group negated), ``mul-add`` (a·b + c); or that of a
        pointwise operator of a spec.
    operands : tuple of str or float
        Names of tensors and primitives, or numbers.
    indices : str
        Of its result.
    option : object
        ``(low, high)`` of clip, form of gelu, index of causal, lengths of hide, node of inside; of
        negate-first how many columns, and of how many, 0 for the whole row.
    """

    name: str
    kind: str
    operands: tuple[Value, ...]
    indices: str
    option: Any = None


class _Writer:
    """Writes the primitives of one node."""

    def __init__(self, name: str, indices: Mapping[str, str], known: Mapping[str, Primitive]) -> None:
        self.name, self.known = name, known
        self.indices = dict(indices) | {p.name: p.indices for p in known.values()}
        self.written: list[Primitive] = []

    def emit(self, kind: str, *operands: Value, option: Any = None, axis: str = "") -> str:
        """Add a primitive; returns the name of its result."""
        whole = max((self.indices[operand] for operand in operands if isinstance(operand, str)), key=len)
        own = whole.replace(axis, "")
        name = f"{self.name}.{len(self.written)}"
        self.written.append(Primitive(name, kind, operands, own, option))
        self.indices[name] = own
        return name


def own_rows(node: str, tap: tuple[int, ...] = ()) -> str:
    """Return the name of what a node reads in a way of its own; of one element of its window."""
    return node + ROWS + "".join(f".{position}" for position in tap)


def rotated_read(node: str, read: str) -> str:
    """Return the name of what a node that rotates a value reads in the place of another read."""
    return f"{node}{ROWS}:{read}"


def read_of_rotated(name: str) -> tuple[str, str] | None:
    """Return the node and the read that `rotated_read` made a name of; None for other names."""
    node, is_one, read = name.partition(f"{ROWS}:")
    return (node, read) if is_one else None


def expand(nodes: Mapping[str, BlockNode], indices: Mapping[str, str]) -> tuple[Primitive, ...]:
    """Return the primitives of a block, each after its operands; a node's last one has the node's name.

    Parameters
    ----------
    nodes : mapping of str to BlockNode
        As `dietcode.workload.block_graph.BlockGraph` has them.
    indices : mapping of str to str
        Of every tensor and node.
    """
    found: dict[str, Primitive] = {}
    for name, node in nodes.items():
        writer = _Writer(name, indices, found)
        _WRITTEN_OUT.get(node.operator, _as_it_is)(writer, node)
        *first, last = writer.written
        found |= {p.name: p for p in (*first, replace(last, name=name))}
    return tuple(found.values())


def count_flops(primitives: Sequence[Primitive], columns: str) -> dict[str, int]:
    """Return how many operations each kind of place takes: one for each primitive and element it reads.

    A mul-add is two.

    Returns
    -------
    dict of str to int
        ``element`` (of a row and column) and ``row``.
    """
    counts = {"element": 0, "row": 0}
    for primitive in primitives:
        is_wide = primitive.kind in REDUCTIONS or bool(set(columns) & set(primitive.indices))
        counts["element" if is_wide else "row"] += 2 if primitive.kind == "mul-add" else 1
    return counts


def _as_it_is(writer: _Writer, node: BlockNode) -> None:
    option = {
        "clip": (node.attribute("low"), node.attribute("high")),
        "gelu": node.attribute("form"),
    }.get(node.operator)
    writer.emit(node.operator, *node.operands, option=option, axis=node.attribute("axis") or "")


def _hide(writer: _Writer, node: BlockNode) -> None:
    """Write what is hidden past a length, which no arithmetic sees."""
    writer.emit("hide", node.operands[0], option=node.operands[1])


def _copy(writer: _Writer, node: BlockNode) -> None:
    """Write a copy of what is read: the rows are a value that no primitive computes."""
    rows = own_rows(writer.name)
    writer.indices[rows] = writer.indices[writer.name]
    writer.emit("copy", rows)


def _rotate(writer: _Writer, node: BlockNode) -> None:
    """Rotate a tensor as it is read; of a value, all that it depends on and that has the columns."""
    if node.operands[0] not in writer.known:
        _copy(writer, node)
        return
    axis, rotated = str(node.attribute("axis")), dict[str, str]()

    def value_of(name: Value) -> Value:
        if not isinstance(name, str) or axis not in writer.indices[name.partition(ROWS)[0]]:
            return name
        if name not in rotated:
            p = writer.known.get(name)
            if p is None:
                rotated[name] = rotated_read(writer.name, name)
                writer.indices[rotated[name]] = writer.indices[name.partition(ROWS)[0]]
            else:
                operands = [value_of(operand) for operand in p.operands]
                rotated[name] = writer.emit(p.kind, *operands, option=p.option)
        return rotated[name]

    value = value_of(node.operands[0])
    if node.attribute("negate"):
        writer.emit("negate-first", value, option=(node.attribute("by"), node.attribute("within") or 0))
    else:
        writer.emit("copy", value)


def _pool(writer: _Writer, node: BlockNode) -> None:
    """Combine the elements of a window in pairs, in the same order everywhere."""
    axes = pool_axes(node, writer.indices[str(node.operands[0])])
    values = [own_rows(writer.name, tap) for tap in taps(axes)]
    count = len(values)
    for name in values:
        writer.indices[name] = writer.indices[writer.name]
    if count == 1:
        writer.emit("copy", values[0])
        return
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        combined = [writer.emit("maximum" if node.operator == "maxpool" else "add", *pair) for pair in pairs]
        values = combined + values[len(values) // 2 * 2 :]
    if node.operator == "maxpool":
        return
    if node.attribute("count_include_pad") or not is_padded(axes):
        writer.emit("mul", values[0], 1.0 / count)
        return
    inside = f"{writer.name}.inside"
    positions = "".join(one.output for one in axes)
    writer.written.append(Primitive(inside, "inside", (), positions, writer.name))
    writer.indices[inside] = positions
    writer.emit("div", values[0], inside)


def _softmax(writer: _Writer, node: BlockNode) -> None:
    axis, z = node.attribute("axis"), node.operands[0]
    if node.attribute("scale") != 1.0 and len(node.operands) > 1:
        z = writer.emit("mul-add", z, node.attribute("scale"), node.operands[1])
    elif node.attribute("scale") != 1.0:
        z = writer.emit("mul", z, node.attribute("scale"))
    elif len(node.operands) > 1:
        z = writer.emit("add", z, node.operands[1])
    if node.attribute("causal"):
        z = writer.emit("causal", z, option=node.attribute("causal"))
    highest = writer.emit("finite", writer.emit("max-of-numbers", z, axis=axis))
    e = writer.emit("exp-of-negative", writer.emit("sub", z, highest))
    total = writer.emit("sum", e, axis=axis)
    is_nan = node.attribute("masked_rows") == "nan"
    writer.emit("mul", e, writer.emit("div", 1.0, total) if is_nan else writer.emit("reciprocal", total))


def _layernorm(writer: _Writer, node: BlockNode) -> None:
    x, *parameters = node.operands
    axis, eps = node.attribute("axis"), node.attribute("eps")
    d = writer.emit("sub", x, writer.emit("mean", x, axis=axis))
    variance = writer.emit("mean", writer.emit("square", d), axis=axis)
    y = writer.emit("mul", d, writer.emit("rsqrt", writer.emit("add", variance, eps)))
    if len(parameters) > 1:
        writer.emit("mul-add", y, *parameters)
    elif parameters:
        writer.emit("mul", y, parameters[0])


def _rmsnorm(writer: _Writer, node: BlockNode) -> None:
    x, *parameters = node.operands
    axis, eps = node.attribute("axis"), node.attribute("eps")
    power = writer.emit("mean", writer.emit("square", x), axis=axis)
    y = writer.emit("mul", x, writer.emit("rsqrt", writer.emit("add", power, eps)))
    for parameter in parameters:
        writer.emit("mul", y, parameter)


_WRITTEN_OUT = {
    "gather": _copy,
    "slice": _copy,
    "transpose": _copy,
    "hide": _hide,
    "rotate": _rotate,
    "maxpool": _pool,
    "avgpool": _pool,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
}
