"""Recurrent layers: LSTM, GRU and RNN, in one direction or two, and LSTM with projected states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.context import Imported, Importer, rule


@rule("dietcode.recurrent.default")
def _recurrent(m: Importer, a: Mapping[str, Any], fake: Any, cell: str = "") -> Imported:
    """Return the results of a stack of layers, each in one direction or two."""
    if a.get("dropout") and a["train"]:
        raise GraphError("a recurrent layer in training mode; call model.eval() before the export")
    x = m.tensor(a["input"])
    states = a["hx"] if isinstance(a["hx"], list | tuple) else [a["hx"]]
    initial = [m.tensor(one) for one in states]
    if m.rank(x) != 3:
        raise GraphError(f"a sequence {m.type(x)}; allowed: three axes")
    if a["batch_first"]:
        x = m.transpose(x, (1, 0, 2))
    weights = [m.tensor(one) for one in a["params"]]
    directions = 2 if a["bidirectional"] else 1
    each = len(weights) // (a["num_layers"] * directions)
    last: list[list[str]] = [[] for _ in initial]
    for layer in range(a["num_layers"]):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            own = weights[number * each : (number + 1) * each]
            begin = [m.select(one, 0, number) for one in initial]
            how = {"cell": cell or a["cell"], "reverse": direction == 1}
            layer_of = _projected if each % 2 else _plain
            y, *end = layer_of(m, x, begin, own, how)
            outputs.append(y)
            for kept, one in zip(last, end, strict=True):
                kept.append(m.reshape(one, (1, *m.type(one).shape)))
        x = outputs[0] if directions == 1 else m.add("concat", *outputs, axis=2)
    if a["batch_first"]:
        x = m.transpose(x, (1, 0, 2))
    ends = [kept[0] if len(kept) == 1 else m.add("concat", *kept, axis=0) for kept in last]
    return (x, *ends)


def _plain(
    m: Importer, x: str, begin: Sequence[str], own: Sequence[str], how: Mapping[str, Any]
) -> tuple[str, ...]:
    return m.results("recurrent", x, *begin, *own, **how)


def _projected(
    m: Importer, x: str, begin: Sequence[str], own: Sequence[str], how: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the results of an LSTM whose states are projected, ``h = R·m`` of ``m = o·tanh(c)``.

    Steps carry m, whose matrix is ``U·R``; the first step has ``U·h`` of the given state h with its input.
    """
    w, u, *biases, projection = own
    bias = (m.add("add", *biases),) if biases else ()
    gates = m.add("linear", x, w, *bias)
    length, batch, _ = m.type(gates).shape
    state, cells = begin
    if not _is_zero(m, state):
        steps = m.reshape(m.add("arange", stop=length), (length, 1, 1))
        first = m.number(length - 1) if how["reverse"] else 0
        is_first = m.cast(m.add("equal", steps, first), m.type(gates).dtype)
        gates = m.add("add", gates, m.add("mul", m.add("linear", state, u), is_first))
    width = m.type(projection).shape[1]
    nothing = m.add("full", shape=(batch, width), value=0.0, dtype=m.type(gates).dtype)
    y, last, end = m.results("recurrence", gates, nothing, cells, m.add("matmul", u, projection), **how)
    return m.add("linear", y, projection), m.add("linear", last, projection), end


def _is_zero(m: Importer, value: str) -> bool:
    """Whether a value is zeros, or a part of them."""
    node = m.producer(value)
    while node is not None and node.operator in ("slice", "reshape", "expand"):
        node = m.producer(node.operands[0])
    return node is not None and node.operator == "full" and node.attributes["value"] == 0


for _cell in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    rule(f"aten.{_cell}.input", cell=_cell)(_recurrent)
