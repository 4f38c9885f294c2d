"""LSTM, GRU and RNN of ONNX, whose gates are in another order than those of graphs."""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.onnx.cells import FUNCTIONS, Cell, Lengths, stepwise
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


def _cell(m: OnnxImporter, n: OnnxNode, cell: str, direction: int, directions: int) -> Cell | None:
    """Return what a direction does at each step; None where it is what a layer of graphs does."""
    word, usual = n.proto.op_type, _FUNCTIONS[cell]
    given = n.attribute("activations", usual * directions)
    own = [one.lower() for one in given[direction * len(usual) : (direction + 1) * len(usual)]]
    unknown = [one for one in given if one.lower() not in FUNCTIONS]
    if unknown or len(own) != len(usual) or n.attribute("activation_alpha") or n.attribute("activation_beta"):
        raise GraphError(f"activations {given}; allowed: {', '.join(FUNCTIONS)}, without alpha and beta")
    reset_first = word == "GRU" and not n.attribute("linear_before_reset", 0)
    couples = word == "LSTM" and bool(n.attribute("input_forget", 0))
    sees = word == "LSTM" and n.value(7) is not None
    clip = n.attribute("clip")
    plain = own == [one.lower() for one in usual] and clip is None and not (reset_first or couples or sees)
    return None if plain else Cell(word, own, clip, reset_first, couples)


@onnx_rule("LSTM", cell="lstm")
@onnx_rule("GRU", cell="gru")
def _recurrent(m: OnnxImporter, n: OnnxNode, *, cell: str) -> OnnxResult:
    word = n.attribute("direction", "forward")
    directions = 2 if word == "bidirectional" else 1
    n.ignore("hidden_size")  # which the weights have
    first_axis = bool(n.attribute("layout", 0))  # the batch comes first
    cells = [_cell(m, n, cell, direction, directions) for direction in range(directions)]
    x, u = n.tensor(0), n.tensor(2)
    for weights in (n.value(k) for k in (1, 2, 3, 7)):
        if weights is not None:
            m.constant_shape(weights)
    x = m.transpose(x, (1, 0, 2)) if first_axis else x
    hidden = m.type(u).shape[2]
    lengths = None if n.value(4) is None else Lengths(m, x, n.tensor(4))
    x = x if lengths is None else lengths.cleared(x)
    states = [n.optional(k) for k in ((5, 6) if cell == "lstm" else (5,))]
    outputs, last = [], [[] for _ in states]  # type: tuple[list[str], list[list[str]]]
    for direction in range(directions):
        begin = [_first_state(m, one, x, hidden, direction, first_axis) for one in states]
        reverse = word == "reverse" or direction == 1
        own = cells[direction]
        if own is None:
            y, *ends = _layer(m, n, cell, direction, x, begin, lengths, reverse)
        else:
            y, *ends = _steps(m, n, own, direction, x, begin, lengths, reverse)
        outputs.append(_with_direction(m, y, 2 if first_axis else 1, first_axis))
        for kept, one in zip(last, ends, strict=True):
            shape = m.type(one).shape
            kept.append(m.reshape(one, (shape[0], ONE, shape[1]) if first_axis else (ONE, *shape)))
    axis = 2 if first_axis else 1
    whole = outputs[0] if directions == 1 else m.add("concat", *outputs, axis=axis)
    ends = [one[0] if directions == 1 else m.add("concat", *one, axis=axis - 1) for one in last]
    return [whole, *ends]


def _layer(
    m: OnnxImporter,
    n: OnnxNode,
    cell: str,
    direction: int,
    x: str,
    begin: list[str],
    lengths: Lengths | None,
    reverse: bool,
) -> tuple[str, ...]:
    """Return the states of a direction and the last ones, of a layer that graphs know."""
    gates, bias = _GATES[cell], n.optional(3)
    weights = [_ordered(m, n.tensor(k), direction, 0, gates) for k in (1, 2)]
    if bias is not None:
        weights += [_ordered(m, bias, direction, first, gates) for first in (0, len(gates))]
    if lengths is None:
        return m.results("recurrent", x, *begin, *weights, cell=cell, reverse=reverse)
    x = lengths.turned(x) if reverse else x
    if cell == "lstm":
        x, weights[0] = lengths.held(x, weights[0])
    y, _, *ends = m.results("recurrent", x, *begin, *weights, cell=cell, reverse=False)
    last = lengths.last(y, begin[0])
    y = lengths.turned(y) if reverse else y
    return lengths.cleared(y), last, *ends


def _steps(
    m: OnnxImporter,
    n: OnnxNode,
    cell: Cell,
    direction: int,
    x: str,
    begin: list[str],
    lengths: Lengths | None,
    reverse: bool,
) -> tuple[str, ...]:
    """Return the states of a direction and the last ones, of a cell that graphs do not know."""
    w, u = (m.select(n.tensor(k), 0, direction) for k in (1, 2))
    rows = m.type(w).shape[0]
    if n.value(3) is None:
        biases = [m.add("full", shape=(rows,), value=0.0, dtype=m.type(x).dtype)] * 2
    else:
        both = m.select(n.tensor(3), 0, direction)
        biases = [m.slice(both, 0, Extent(), rows), m.slice(both, 0, rows, rows * 2)]
    given = [w, biases[0], u, biases[1]]
    if cell.word == "LSTM" and n.value(7) is not None:
        given.append(m.select(n.tensor(7), 0, direction))

    def turned(value: str) -> str:
        return lengths.turned(value) if lengths else m.add("flip", value, axes=(0,))

    y, *last = stepwise(m, cell, turned(x) if reverse else x, begin, given, lengths)
    return (turned(y) if reverse else y), *last


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
