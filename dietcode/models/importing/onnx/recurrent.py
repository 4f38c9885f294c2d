"""LSTM, GRU and RNN of ONNX, whose gates are in another order than those of graphs."""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.onnx.context import OnnxImporter, OnnxNode, OnnxResult, onnx_rule

# Where each gate of a graph's cell stands in ONNX's weights.
_GATES = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
_FUNCTIONS = {
    "lstm": ["Sigmoid", "Tanh", "Tanh"],
    "gru": ["Sigmoid", "Tanh"],
    "rnn_tanh": ["Tanh"],
    "rnn_relu": ["Relu"],
}


def _ordered(m: OnnxImporter, weights: str, direction: int, first: int, gates: tuple[int, ...]) -> str:
    """Return one direction's weights with the gates in a graph's order.

    Parameters
    ----------
    weights : str
        ``[directions, gates · hidden, …]``, or a bias with those of the input and of the state.
    direction : int
    first : int
        The gate that the others are counted from.
    gates : tuple of int
    """
    own = m.select(weights, 0, direction)
    total = 2 * len(gates) if m.rank(own) == 1 else len(gates)
    hidden = m.type(own).shape[0].constant // total
    pieces = [m.slice(own, 0, (first + gate) * hidden, (first + gate + 1) * hidden) for gate in gates]
    return m.add("concat", *pieces, axis=0)


def _check(m: OnnxImporter, n: OnnxNode, cell: str, directions: int) -> None:
    if n.value(4) is not None:
        raise GraphError("lengths of sequences; allowed: sequences of one length, without sequence_lens")
    if cell == "lstm" and n.value(7) is not None:
        raise GraphError("peepholes; allowed: without")
    if cell == "gru" and not n.attribute("linear_before_reset", 0):
        raise GraphError("linear_before_reset 0; allowed: 1, as torch.nn.GRU has it")
    functions = [one.capitalize() for one in n.attribute("activations", _FUNCTIONS[cell] * directions)]
    if functions != _FUNCTIONS[cell] * directions or n.attribute("clip") is not None:
        raise GraphError(f"activations {functions}; allowed: {_FUNCTIONS[cell]}, without clip")
    if cell == "lstm":
        n.refuse_others(input_forget=0)


@onnx_rule("LSTM", cell="lstm")
@onnx_rule("GRU", cell="gru")
def _recurrent(m: OnnxImporter, n: OnnxNode, *, cell: str) -> OnnxResult:
    word = n.attribute("direction", "forward")
    directions = 2 if word == "bidirectional" else 1
    _check(m, n, cell, directions)
    first_axis = bool(n.attribute("layout", 0))  # the batch comes first
    x, w, u, bias = n.tensor(0), n.tensor(1), n.tensor(2), n.optional(3)
    x = m.transpose(x, (1, 0, 2)) if first_axis else x
    hidden, gates = m.type(u).shape[2], _GATES[cell]
    states = [n.optional(k) for k in ((5, 6) if cell == "lstm" else (5,))]
    outputs, last = [], [[] for _ in states]  # type: tuple[list[str], list[list[str]]]
    for direction in range(directions):
        begin = [_first_state(m, one, x, hidden, direction, first_axis) for one in states]
        weights = [_ordered(m, one, direction, 0, gates) for one in (w, u)]
        if bias is not None:
            weights += [_ordered(m, bias, direction, first, gates) for first in (0, len(gates))]
        reverse = word == "reverse" or direction == 1
        y, *ends = m.results("recurrent", x, *begin, *weights, cell=cell, reverse=reverse)
        outputs.append(_with_direction(m, y, 2 if first_axis else 1, first_axis))
        for kept, one in zip(last, ends, strict=True):
            shape = m.type(one).shape
            kept.append(m.reshape(one, (shape[0], ONE, shape[1]) if first_axis else (ONE, *shape)))
    axis = 2 if first_axis else 1
    whole = outputs[0] if directions == 1 else m.add("concat", *outputs, axis=axis)
    ends = [one[0] if directions == 1 else m.add("concat", *one, axis=axis - 1) for one in last]
    return [whole, *ends]


def _with_direction(m: OnnxImporter, y: str, axis: int, first_axis: bool) -> str:
    """Return states [l, b, h] with an axis of directions."""
    y = m.transpose(y, (1, 0, 2)) if first_axis else y
    shape = m.type(y).shape
    return m.reshape(y, (*shape[:axis], ONE, *shape[axis:]))


def _first_state(
    m: OnnxImporter, given: str | None, x: str, hidden: Extent, direction: int, first_axis: bool
) -> str:
    """Return the state [b, h] that a direction begins with, 0 where none is given."""
    if given is None:
        return m.add("full", shape=(m.type(x).shape[1], hidden), value=0.0, dtype=m.type(x).dtype)
    return m.select(given, 1 if first_axis else 0, direction)


@onnx_rule("RNN")
def _rnn(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    functions = {one.lower() for one in n.attribute("activations", ["Tanh"])}
    return _recurrent(m, n, cell="rnn_relu" if functions == {"relu"} else "rnn_tanh")
