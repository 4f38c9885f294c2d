"""Types of results: one rule for each kind of a graph's operators.

A rule takes the types of the operands (None for one that is left out, a number for a number) and the
attributes, and returns the type of each result. It raises `GraphError` for what the operator does not take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

from dietcode.graph.extent import ONE, Extent, floor_divide
from dietcode.graph.tensor_type import FLOATS, INTEGERS, GraphError, Shape, TensorType, axis_of, broadcast

Operand: TypeAlias = TensorType | int | float | None
Operands: TypeAlias = Sequence[Operand]
Attributes: TypeAlias = Mapping[str, Any]
Types: TypeAlias = tuple[TensorType, ...]


def tensor(operand: Operand) -> TensorType:
    """Return the type of an operand that has to be a tensor."""
    if not isinstance(operand, TensorType):
        raise GraphError("given a number; allowed: a tensor")
    return operand


def need(condition: bool, message: str) -> None:
    if not condition:
        raise GraphError(message)


def need_dtype(operand: TensorType, allowed: Sequence[str]) -> TensorType:
    need(operand.dtype in allowed, f"given {operand.dtype}; allowed: {', '.join(allowed)}")
    return operand


def _common(operands: Operands) -> TensorType:
    """Return the common type of tensors that broadcast; numbers take any dtype."""
    tensors = [one for one in operands if isinstance(one, TensorType)]
    need(bool(tensors), "given numbers alone; allowed: a tensor")
    dtypes = {one.dtype for one in tensors}
    need(len(dtypes) == 1, f"given {', '.join(sorted(dtypes))}; allowed: one dtype (cast first)")
    return TensorType(tensors[0].dtype, broadcast([one.shape for one in tensors]))


def pointwise(operands: Operands, attributes: Attributes) -> Types:
    """Functions of elements: the dtype of the operands, which broadcast."""
    return (_common(operands),)


def pointwise_float(operands: Operands, attributes: Attributes) -> Types:
    """Functions of elements that floats have."""
    return (need_dtype(_common(operands), FLOATS),)


def pointwise_bool(operands: Operands, attributes: Attributes) -> Types:
    """Functions of truth values."""
    return (need_dtype(_common(operands), ("bool",)),)


def pointwise_integer(operands: Operands, attributes: Attributes) -> Types:
    """Functions of the bits of whole numbers."""
    return (need_dtype(_common(operands), INTEGERS),)


def comparison(operands: Operands, attributes: Attributes) -> Types:
    """Truth values of elements; 0 and 1 where a dtype is given."""
    return (TensorType(str(attributes["dtype"] or "bool"), _common(operands).shape),)


def cast(operands: Operands, attributes: Attributes) -> Types:
    """Another dtype."""
    return (TensorType(attributes["dtype"], tensor(operands[0]).shape),)


def where(operands: Operands, attributes: Attributes) -> Types:
    """A condition, also one of numbers that are true where they are not 0, and two values."""
    condition = need_dtype(tensor(operands[0]), ("bool", "float32"))
    values = [one for one in operands[1:] if isinstance(one, TensorType)]
    dtype = str(attributes["dtype"] or (values[0].dtype if values else ""))
    need(bool(dtype), "given numbers alone without dtype; allowed: a tensor, or the attribute dtype")
    need(all(one.dtype == dtype for one in values), f"values have to be {dtype}")
    return (TensorType(dtype, broadcast([condition.shape, *(one.shape for one in values)])),)


def _reduced(shape: Shape, axes: Sequence[int], keep: bool) -> Shape:
    gone = {axis_of(axis, len(shape)) for axis in axes}
    return tuple(ONE if k in gone else e for k, e in enumerate(shape) if keep or k not in gone)


def reduction(operands: Operands, attributes: Attributes) -> Types:
    """One value for all elements along some axes; all axes where none is given."""
    x = tensor(operands[0])
    axes = attributes["axes"] or range(x.rank)
    return (TensorType(x.dtype, _reduced(x.shape, axes, attributes["keep"])),)


def position_of_largest(operands: Operands, attributes: Attributes) -> Types:
    """Positions along one axis."""
    x = tensor(operands[0])
    return (TensorType("int64", _reduced(x.shape, (attributes["axis"],), attributes["keep"])),)


def along_axis(operands: Operands, attributes: Attributes) -> Types:
    """Functions of all elements along an axis, which keep the shape."""
    x = tensor(operands[0])
    axis_of(attributes["axis"], x.rank)
    return (x,)


def norm(operands: Operands, attributes: Attributes) -> Types:
    """Norms over the last axes, as many as gamma or the attribute `num_axes` has."""
    x = need_dtype(tensor(operands[0]), FLOATS)
    num_axes = attributes["num_axes"]
    need(1 <= num_axes <= x.rank, f"{num_axes} axes of {x}; allowed: 1 to {x.rank}")
    last = x.shape[x.rank - num_axes :]
    for one in operands[1:]:
        need(one is None or tensor(one).shape == last, "gamma and beta have to have the normalized axes")
    return (x,)


def matmul(operands: Operands, attributes: Attributes) -> Types:
    """Products of matrices, batches broadcast, as NumPy's matmul."""
    a, b = (tensor(one) for one in operands)
    need(a.dtype == b.dtype, f"given {a.dtype} and {b.dtype}; allowed: one dtype")
    need(a.rank >= 1 and b.rank >= 1, "given a scalar; allowed: vectors, matrices and batches of them")
    left = a.shape if a.rank > 1 else (ONE, *a.shape)
    right = b.shape if b.rank > 1 else (*b.shape, ONE)
    need(left[-1] == right[-2], f"{a} and {b}: {left[-1]} beside {right[-2]}")
    shape = (*broadcast([left[:-2], right[:-2]]), left[-2], right[-1])
    if a.rank == 1:
        shape = (*shape[:-2], shape[-1])
    if b.rank == 1:
        shape = shape[:-1]
    return (TensorType(a.dtype, shape),)


def linear(operands: Operands, attributes: Attributes) -> Types:
    """Products with a transposed matrix, ``x · Wᵀ + b``."""
    x, w = tensor(operands[0]), tensor(operands[1])
    need(w.rank == 2 and x.rank >= 1 and x.shape[-1] == w.shape[1], f"{x} does not go with weights {w}")
    need(x.dtype == w.dtype, f"given {x.dtype} and {w.dtype}; allowed: one dtype")
    bias = operands[2] if len(operands) > 2 else None
    need(bias is None or tensor(bias).shape == w.shape[:1], f"the bias does not go with weights {w}")
    return (TensorType(x.dtype, (*x.shape[:-1], w.shape[0])),)


def attention(operands: Operands, attributes: Attributes) -> Types:
    """Attention of q [..., h, l, d] to k [..., g, s, d] and v [..., g, s, e]; h is a multiple of g."""
    q, k, v = (tensor(one) for one in operands[:3])
    need(q.rank == k.rank == v.rank and q.rank >= 2, f"{q}, {k}, {v}: allowed: tensors of one rank")
    need(q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2], f"{q}, {k}, {v} do not go together")
    need(q.dtype == k.dtype == v.dtype, f"{q}, {k}, {v}: allowed: one dtype")
    lead = tuple(one.shape[:-2] for one in (q, k, v))
    grouped = q.rank >= 3 and lead[0][:-1] == lead[1][:-1] and lead[1] == lead[2]
    if grouped and lead[0] != lead[1]:
        heads, groups = lead[0][-1], lead[1][-1]
        fits = heads.is_constant and groups.is_constant and heads.constant % groups.constant == 0
        need(fits, f"{heads} heads of queries and {groups} of keys; allowed: a multiple")
        batch = lead[0]
    else:
        batch = broadcast(lead)
    shape = (*batch, q.shape[-2], v.shape[-1])
    if len(operands) > 3 and operands[3] is not None:
        mask = tensor(operands[3])
        need(mask.dtype == q.dtype, f"a mask {mask}; allowed: {q.dtype}, which is added to the scores")
        scores = (*batch, q.shape[-2], k.shape[-2])
        need(broadcast([mask.shape, scores]) == scores, "the mask is larger than the scores")
    return (TensorType(q.dtype, shape),)


def _window(
    extent: Extent, window: Extent, stride: int, dilation: int, pads: tuple[int, int], up: bool
) -> Extent:
    reach = (window - 1) * dilation
    free = extent + (pads[0] + pads[1] - 1) - reach
    if up:
        # A window begins within the data or what is put before it, never in what is put behind it.
        last = extent + (pads[0] - 1)
        above = free + (stride - 1)
        difference = above - last
        free = last if difference.is_constant and difference.constant > 0 else above
    return floor_divide(free, Extent.of(stride)) + 1


def _window_options(attributes: Attributes, rank: int) -> list[Any]:
    options = [attributes[name] for name in ("strides", "dilation", "pads")]
    need(all(len(one) == rank for one in options), f"strides, dilation and pads: allowed: {rank} each")
    for name in ("strides", "dilation"):
        need(all(one >= 1 for one in attributes[name]), f"{name} {list(attributes[name])}; allowed: from 1")
    need(all(one >= 0 for pair in attributes["pads"] for one in pair), "negative pads; allowed: from 0")
    return options


def convolution(operands: Operands, attributes: Attributes) -> Types:
    """Convolutions of x [n, c, spatial…] with w [o, c / groups, window…]."""
    x, w = tensor(operands[0]), tensor(operands[1])
    rank = x.rank - 2
    need(
        rank >= 1 and w.rank == x.rank, f"{x} with {w}: allowed: [n, c, spatial…] and [o, c/groups, window…]"
    )
    options = _window_options(attributes, rank)
    groups = attributes["groups"]
    need(groups >= 1 and w.shape[1] * groups == x.shape[1], f"{x} with {w} in {groups} groups")
    spatial = tuple(
        _window(e, k, s, d, p, False)
        for e, k, s, d, p in zip(x.shape[2:], w.shape[2:], *options, strict=True)
    )
    return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)


def pooling(operands: Operands, attributes: Attributes) -> Types:
    """Maxima or means over windows of the last axes."""
    x, window = tensor(operands[0]), attributes["window"]
    rank = len(window)
    need(0 < rank < x.rank, f"a window of {rank} axes over {x}")
    need(all(k >= 1 for k in window), f"window {list(window)}; allowed: from 1")
    options = _window_options(attributes, rank)
    spatial = tuple(
        _window(e, Extent.of(k), s, d, p, attributes["ceil"])
        for e, k, s, d, p in zip(x.shape[x.rank - rank :], window, *options, strict=True)
    )
    return (TensorType(x.dtype, (*x.shape[: x.rank - rank], *spatial)),)


def reshape(operands: Operands, attributes: Attributes) -> Types:
    """The same elements in another shape."""
    x = tensor(operands[0])
    result = TensorType(x.dtype, attributes["shape"])
    same = result.num_elements == x.num_elements
    need(same, f"{x} as {result}: {x.num_elements} elements as {result.num_elements}")
    return (result,)


def transpose(operands: Operands, attributes: Attributes) -> Types:
    """Axes in another order."""
    x, axes = tensor(operands[0]), attributes["axes"]
    need(sorted(axes) == list(range(x.rank)), f"axes {list(axes)} of {x}; allowed: each axis once")
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in axes)),)


def expand(operands: Operands, attributes: Attributes) -> Types:
    """Axes of extent 1 repeated, and new ones in front."""
    x, shape = tensor(operands[0]), attributes["shape"]
    need(
        broadcast([x.shape, shape]) == tuple(shape), f"{x} does not expand to [{', '.join(map(str, shape))}]"
    )
    return (TensorType(x.dtype, shape),)


def slice_(operands: Operands, attributes: Attributes) -> Types:
    """Elements start, start + step, … before stop along one axis, 0 ≤ start ≤ stop ≤ extent."""
    x = tensor(operands[0])
    axis, step = axis_of(attributes["axis"], x.rank), attributes["step"]
    need(step >= 1, f"step {step}; allowed: at least 1")
    length = floor_divide(attributes["stop"] - attributes["start"] + (step - 1), Extent.of(step))
    return (TensorType(x.dtype, (*x.shape[:axis], length, *x.shape[axis + 1 :])),)


def concat(operands: Operands, attributes: Attributes) -> Types:
    """Tensors one after the other along an axis."""
    tensors = [tensor(one) for one in operands]
    axis = axis_of(attributes["axis"], tensors[0].rank)
    first = tensors[0]
    rest = [(*one.shape[:axis], *one.shape[axis + 1 :]) for one in tensors]
    same = all(one == rest[0] for one in rest) and len({one.dtype for one in tensors}) == 1
    need(same, f"given {', '.join(map(str, tensors))}; allowed: equal but for axis {axis}")
    total = reduce(lambda a, b: a + b, (one.shape[axis] for one in tensors))
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def pad(operands: Operands, attributes: Attributes) -> Types:
    """Elements put before and after; negative numbers take some away."""
    x, pads = tensor(operands[0]), attributes["pads"]
    need(len(pads) == x.rank, f"{len(pads)} pairs; allowed: {x.rank}")
    return (TensorType(x.dtype, tuple(e + a + b for e, (a, b) in zip(x.shape, pads, strict=True))),)


def flip(operands: Operands, attributes: Attributes) -> Types:
    """The other way round along some axes."""
    x = tensor(operands[0])
    for axis in attributes["axes"]:
        axis_of(axis, x.rank)
    return (x,)


def rotation(operands: Operands, attributes: Attributes) -> Types:
    """Columns moved to the right around the end; those that leave begin the row, negated or not."""
    x = tensor(operands[0])
    width = x.shape[-1] if x.shape else ONE
    need(width.is_constant and 0 < attributes["by"] < width.constant, f"by {attributes['by']} in {x}")
    return (x,)


def full(operands: Operands, attributes: Attributes) -> Types:
    """One value everywhere."""
    return (TensorType(attributes["dtype"], attributes["shape"]),)


def arange(operands: Operands, attributes: Attributes) -> Types:
    """Whole numbers start, start + step, … before stop."""
    step = attributes["step"]
    need(step != 0, "step 0; allowed: another one")
    span = attributes["stop"] - attributes["start"]
    length = (
        floor_divide(span + (step - 1), Extent.of(step))
        if step > 0
        else floor_divide(span * -1 + (-step - 1), Extent.of(-step))
    )
    return (TensorType(attributes["dtype"], (length,)),)


def number_of(operands: Operands, attributes: Attributes) -> Types:
    """An extent as a scalar."""
    return (TensorType("int64", ()),)


def triangle(operands: Operands, attributes: Attributes) -> Types:
    """Elements on one side of a diagonal of the last two axes, others 0."""
    x = tensor(operands[0])
    need(x.rank >= 2, f"{x}; allowed: two axes at least")
    return (x,)


def top(operands: Operands, attributes: Attributes) -> Types:
    """The largest or smallest elements along an axis in order, and their positions."""
    x = tensor(operands[0])
    axis = axis_of(attributes["axis"], x.rank)
    length = attributes["num"] if attributes["num"] is not None else x.shape[axis]
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    return (TensorType(x.dtype, shape), TensorType("int64", shape))


NUM_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Of each cell of recurrent layers."""


def recurrence(operands: Operands, attributes: Attributes) -> Types:
    """Steps of a recurrent layer over gates [l, b, gates · h] of its input: all states, and the last."""
    gates, h0 = tensor(operands[0]), tensor(operands[1])
    states = 2 if attributes["cell"] == "lstm" else 1
    u = tensor(operands[1 + states])
    need(gates.rank == 3 and h0.rank == 2 and gates.shape[1] == h0.shape[0], f"{gates} with the state {h0}")
    need(u.shape == (gates.shape[2], h0.shape[1]), f"weights {u} for {gates} and {h0}")
    last = tuple(TensorType(gates.dtype, h0.shape) for _ in range(states))
    return (TensorType(gates.dtype, (*gates.shape[:2], h0.shape[1])), *last)


def recurrent(operands: Operands, attributes: Attributes) -> Types:
    """One direction of one layer over x [l, b, i]: all states [l, b, h], and the last ones [b, h]."""
    x, h0 = tensor(operands[0]), tensor(operands[1])
    need(x.rank == 3 and h0.rank == 2 and x.shape[1] == h0.shape[0], f"{x} with the first state {h0}")
    gates = NUM_GATES[attributes["cell"]]
    states = 2 if attributes["cell"] == "lstm" else 1
    need(
        3 + states <= len(operands) <= 5 + states,
        f"{len(operands)} operands of {attributes['cell']}; allowed: {3 + states} to {5 + states}",
    )
    need(states == 1 or tensor(operands[2]) == h0, f"first states {h0} and {operands[2]}; allowed: alike")
    w, u = tensor(operands[1 + states]), tensor(operands[2 + states])
    hidden = h0.shape[1]
    need(
        w.shape == (hidden * gates, x.shape[2]) and u.shape == (hidden * gates, hidden),
        f"weights {w} and {u} for {x} and {hidden} of state",
    )
    for bias in operands[3 + states :]:
        need(bias is None or tensor(bias).shape == w.shape[:1], f"a bias {bias} for weights {w}")
    last = tuple(TensorType(x.dtype, h0.shape) for _ in range(states))
    return (TensorType(x.dtype, (*x.shape[:2], hidden)), *last)


def nonzero(operands: Operands, attributes: Attributes) -> Types:
    """Positions of the elements that are not 0, a row each; there are `size` of them."""
    return (TensorType("int64", (attributes["size"], Extent.of(tensor(operands[0]).rank))),)


def repeat_each(operands: Operands, attributes: Attributes) -> Types:
    """Each position as often as its element says, `size` in all."""
    x = need_dtype(tensor(operands[0]), INTEGERS)
    need(x.rank == 1, f"{x}; allowed: one axis")
    return (TensorType("int64", (attributes["size"],)),)


def size(operands: Operands, attributes: Attributes) -> Types:
    """A whole number that is an extent from here on."""
    x = need_dtype(tensor(operands[0]), INTEGERS)
    need(x.rank == 0, f"{x}; allowed: a scalar")
    return (TensorType("int64", ()),)


def check(operands: Operands, attributes: Attributes) -> Types:
    """What has to hold: an extent within bounds, or a tensor of truth values."""
    for one in operands:
        need_dtype(tensor(one), ("bool",))
    return (TensorType("bool", ()),)
