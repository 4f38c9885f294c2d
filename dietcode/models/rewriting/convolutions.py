"""Convolutions: scales and shifts of channels go into the weights, zeros into the pads, channels come last.

Vectors lie along channels, so that all of a network between its first convolution and its last one is [n, h,
w, c]. A value that has a twin in this order is the twin's transpose; what reads it and can read the twin
does.
"""

from __future__ import annotations

from collections.abc import Sequence

from dietcode.graph.extent import ONE, product_of
from dietcode.graph.graph import Node, Value
from dietcode.models.rewriting.rewriter import WINDOWED, Rewriter, Rule


def _to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _back(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _is_constant(r: Rewriter, value: Value) -> bool:
    """Whether a value follows from weights alone."""
    if not isinstance(value, str) or value in r.graph.weights:
        return isinstance(value, str)
    node = r.producer(value)
    return node is not None and bool(node.tensors) and all(_is_constant(r, one) for one in node.tensors)


def _per_channel(r: Rewriter, value: Value, rank: int) -> bool:
    """Whether a value is a number for each channel of a tensor with channels first."""
    if not _is_constant(r, value):
        return False
    shape = r.type(value).shape
    shape = (ONE,) * (rank - len(shape)) + shape
    return (
        len(shape) == rank
        and all(one == ONE for axis, one in enumerate(shape) if axis != 1)
        and shape[1] != ONE
    )


def fold_scale(r: Rewriter, node: Node) -> str | None:
    """``conv(x, w, b) · s + t`` -> ``conv(x, w · s, b · s + t)``, for constants s and t of each channel."""
    if node.operator not in ("mul", "add") or len(node.tensors) != 2:
        return None
    for value, other in (node.tensors, node.tensors[::-1]):
        conv = r.producer(value, "conv")
        if (
            conv is None
            or not r.is_read_once(value)
            or not all(_is_constant(r, one) for one in conv.tensors[1:])
        ):
            continue
        rank = r.type(value).rank
        if not _per_channel(r, other, rank):
            continue
        x, w, *bias = conv.operands
        channels = r.type(w).shape[:1]
        vector = r.reshape(other, channels)
        if node.operator == "mul":
            weight = r.add("mul", w, r.reshape(vector, (*channels, *[ONE] * (rank - 1))))
            more = [r.add("mul", bias[0], vector)] if bias else []
        else:
            weight, more = str(w), [r.add("add", bias[0], vector) if bias else vector]
        return _read_as(r, r.add("conv", x, weight, *more, **conv.attributes), node)
    return None


def fold_pad(r: Rewriter, node: Node) -> str | None:
    """``conv(pad(x))`` -> ``conv(x)`` with wider pads, for zeros before and after positions."""
    before = r.producer(node.operands[0], "pad") if node.operator == "conv" else None
    if before is None or before.attributes["value"] != 0:
        return None
    batch, channels, *given = before.attributes["pads"]
    if (
        batch != (0, 0) or channels != (0, 0) or min(map(min, given)) < 0
    ):  # a negative one takes elements away
        return None
    pads = [(a + c, b + d) for (a, b), (c, d) in zip(given, node.attributes["pads"], strict=True)]
    return r.add("conv", before.operands[0], *node.operands[1:], **{**node.attributes, "pads": tuple(pads)})


def fold_cut(r: Rewriter, node: Node) -> str | None:
    """Positions that are cut off the ends of a convolution, as causal ones have it -> narrower pads."""
    conv = r.producer(node.operands[0], "conv") if node.operator == "slice" else None
    if conv is None or node.attributes["step"] != 1 or not r.is_read_once(conv.result):
        return None
    shape = r.type(conv.result).shape
    axis = node.attributes["axis"] % len(shape) - 2
    cut = (node.attributes["start"], shape[axis + 2] - node.attributes["stop"])
    if axis < 0 or not all(one.is_constant for one in cut):
        return None
    pads, stride = list(conv.attributes["pads"]), conv.attributes["strides"][axis]
    pads[axis] = tuple(pad - stride * one.constant for pad, one in zip(pads[axis], cut, strict=True))
    if min(pads[axis]) < 0:
        return None
    return _read_as(r, r.add("conv", *conv.operands, **{**conv.attributes, "pads": tuple(pads)}), node)


def _read_as(r: Rewriter, value: str, node: Node) -> str:
    """Return a value that stands for a node's, and is read as often."""
    r.num_readers[value] = r.num_readers.get(node.result, 1)
    return value


def channels_last_twin(r: Rewriter, value: Value) -> str | None:
    """Return what a value is the transpose of, with channels last; None for others."""
    node = r.producer(value, "transpose")
    if node is None:
        return None
    rank = r.type(value).rank
    return str(node.operands[0]) if rank >= 3 and node.attributes["axes"] == _back(rank) else None


def given_back(r: Rewriter, twin: str) -> str:
    return r.transpose(twin, _back(r.type(twin).rank))


def windows(r: Rewriter, node: Node) -> str | None:
    """A convolution or pooling -> the same with channels last, between transposes."""
    if node.operator not in WINDOWED:
        return None
    x = str(node.operands[0])
    rank = r.type(x).rank
    if rank not in (3, 4) or (node.operator != "conv" and (rank != 4 or len(node.attributes["window"]) != 2)):
        return None
    if node.operator == "conv" and not _is_constant(r, node.operands[1]):
        return None
    if channels_last_twin(r, x) is None:
        x = r.add("transpose", r.add("transpose", x, axes=_to_last(rank)), axes=_back(rank))
    y = r.add(node.operator, x, *node.operands[1:], **node.attributes)
    return r.add("transpose", r.add("transpose", y, axes=_to_last(rank)), axes=_back(rank))


def concat(r: Rewriter, node: Node) -> str | None:
    """A concatenation of channels -> the same of the twins."""
    if node.operator != "concat":
        return None
    twins = [channels_last_twin(r, one) for one in node.tensors]
    rank = r.type(node.tensors[0]).rank
    if any(twin is None for twin in twins) or node.attributes["axis"] % rank != 1:
        return None
    return given_back(r, r.add("concat", *twins, axis=rank - 1))


def means(r: Rewriter, node: Node) -> str | None:
    """A mean of each channel -> the same of the twin."""
    if node.operator not in ("mean", "max", "sum"):
        return None
    twin = channels_last_twin(r, node.operands[0])
    rank = r.type(node.operands[0]).rank
    if twin is None or sorted(axis % rank for axis in node.attributes["axes"]) != list(range(2, rank)):
        return None
    result = r.add(node.operator, twin, axes=tuple(range(1, rank - 1)), keep=node.attributes["keep"])
    return given_back(r, result) if node.attributes["keep"] else result


def flattened(r: Rewriter, node: Node) -> str | None:
    """A reshape of one element for each channel, or channels put last after one -> a reshape of the twin."""
    if node.operator == "reshape":
        twin = channels_last_twin(r, node.operands[0])
        if twin is None:
            return None
        shape = r.type(twin).shape
        return r.reshape(twin, node.attributes["shape"]) if all(one == ONE for one in shape[1:-1]) else None
    if node.operator != "transpose" or node.attributes["axes"] != (0, 2, 1):
        return None
    merged = r.producer(node.operands[0], "reshape")
    twin = None if merged is None else channels_last_twin(r, merged.operands[0])
    if merged is None or twin is None:
        return None
    shape = r.type(twin).shape
    positions = product_of(shape[1:-1])
    if merged.attributes["shape"] != (shape[0], shape[-1], positions):
        return None
    return r.reshape(twin, (shape[0], positions, shape[-1]))


FOLDING: Sequence[Rule] = (fold_pad, fold_cut, fold_scale)
CHANNELS_LAST: Sequence[Rule] = (windows, concat, means, flattened)
