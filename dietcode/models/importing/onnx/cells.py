"""Cells of ONNX that no layer of a graph knows, a step at a time, and rows that end where lengths say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dietcode.graph.extent import ONE
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.builder import GraphBuilder
from dietcode.models.importing.onnx.context import OnnxImporter

_SHUT = 1e4  # a gate's input that leaves nothing of what else it is given: sigmoid is 0 or 1 exactly
_PLAIN = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}
FUNCTIONS = (*_PLAIN, "hardsigmoid", "softsign", "affine")


@dataclass
class Cell:
    """What one direction of a layer does at each step, with gates in ONNX's order.

    Parameters
    ----------
    word : 'LSTM', 'GRU' or 'RNN'
    functions : sequence of str
        f, g and h of the standard, in lower case.
    clip : float, optional
        What a function is given is between -clip and clip.
    reset_first : bool
        A GRU whose reset gate multiplies the state before the product.
    couples : bool
        An LSTM whose forget gate is 1 less its input gate.
    """

    word: str
    functions: Sequence[str]
    clip: float | None = None
    reset_first: bool = False
    couples: bool = False

    def apply(self, b: GraphBuilder, number: int, x: str) -> str:
        """Return f, g or h of a value."""
        if self.clip is not None:
            x = b.add("minimum", b.add("maximum", x, -self.clip), self.clip)
        name = self.functions[number]
        if name == "hardsigmoid":
            return b.add("minimum", b.add("maximum", b.add("add", b.add("mul", x, 0.2), 0.5), 0.0), 1.0)
        if name == "softsign":
            return b.add("div", x, b.add("add", b.add("abs", x), 1.0))
        return x if name == "affine" else b.add(_PLAIN[name], x)

    def step(self, b: GraphBuilder, gates: str, states: Sequence[str], given: Sequence[str]) -> list[str]:
        """Return the states [b, h] after a step.

        Parameters
        ----------
        b : GraphBuilder
        gates : str
            Of the step's input, ``[b, gates · h]``, with its bias.
        states : sequence of str
            h, and c of an LSTM.
        given : sequence of str
            The matrix and the bias of h, and an LSTM's peepholes ``[3 · h]``.
        """
        h, (u, bias, *peepholes) = states[0], given
        width = b.type(h).shape[1].constant

        def part(value: str, axis: int, first: int, count: int = 1) -> str:
            return b.slice(value, axis, first * width, (first + count) * width)

        if self.word == "RNN":
            return [self.apply(b, 0, b.add("add", gates, b.add("linear", h, u, bias)))]
        if self.word == "GRU":
            both = b.add(
                "add", part(gates, 1, 0, 2), b.add("linear", h, part(u, 0, 0, 2), part(bias, 0, 0, 2))
            )
            z, r = (self.apply(b, 0, part(both, 1, k)) for k in range(2))
            own, own_bias = part(u, 0, 2), part(bias, 0, 2)
            if self.reset_first:
                new = b.add("linear", b.add("mul", r, h), own, own_bias)
            else:
                new = b.add("mul", r, b.add("linear", h, own, own_bias))
            new = self.apply(b, 1, b.add("add", part(gates, 1, 2), new))
            return [b.add("add", new, b.add("mul", z, b.add("sub", h, new)))]
        c = states[1]
        total = b.add("add", gates, b.add("linear", h, u, bias))
        i, o, f, new = (part(total, 1, k) for k in range(4))

        def seen(gate: str, cell: str, number: int) -> str:
            return (
                b.add("add", gate, b.add("mul", cell, part(peepholes[0], 0, number))) if peepholes else gate
            )

        i = self.apply(b, 0, seen(i, c, 0))
        f = b.add("sub", 1.0, i) if self.couples else self.apply(b, 0, seen(f, c, 2))
        c = b.add("add", b.add("mul", f, c), b.add("mul", i, self.apply(b, 1, new)))
        o = self.apply(b, 0, seen(o, c, 1))
        return [b.add("mul", o, self.apply(b, 2, c)), c]


class Lengths:
    """Rows of a sequence [l, b, …] of which each ends at a length of its own.

    Parameters
    ----------
    m : OnnxImporter
    x : str
        ``[l, b, i]``.
    lengths : str
        ``[b]``.
    """

    def __init__(self, m: OnnxImporter, x: str, lengths: str) -> None:
        length, batch = m.type(x).shape[:2]
        if m.type(lengths).shape != (batch,):
            raise GraphError(f"lengths {m.type(lengths)} of {m.type(x)}; allowed: one of each row, [{batch}]")
        self._m, self.count = m, m.cast(lengths, "int64")
        steps = m.reshape(m.add("arange", stop=length), (length, ONE))
        is_within = m.add("less", steps, self.count)
        self._rows = m.add("arange", stop=batch)
        back = m.add("sub", m.add("sub", self.count, steps), 1)
        self._turned = m.add("where", is_within, back, steps)
        self.is_within = m.reshape(is_within, (length, batch, ONE))

    def turned(self, x: str) -> str:
        """Return [l, b, …] with the steps of each row the other way round."""
        return self._m.add("take_points", x, self._turned, self._rows)

    def cleared(self, x: str) -> str:
        """Return [l, b, h] with zeros past the ends."""
        return self._m.add("where", self.is_within, x, 0.0)

    def last(self, y: str, begin: str) -> str:
        """Return the last step [b, h] of each row, the first state where there is none."""
        m = self._m
        at = m.add("maximum", m.add("sub", self.count, 1), 0)
        is_any = m.reshape(m.add("less", 0, self.count), (*m.type(self.count).shape, ONE))
        return m.add("where", is_any, m.add("take_points", y, at, self._rows), begin)

    def held(self, x: str, w: str) -> tuple[str, str]:
        """Return an LSTM's input and weight [i f g o], by which its cell keeps what it holds past ends."""
        m = self._m
        width = m.type(w).shape[0].constant // 4
        shut = np.repeat(np.array([-_SHUT, _SHUT, 0, 0], m.type(x).dtype), width)[:, None]
        more = m.add("sub", 1.0, m.cast(self.is_within, m.type(x).dtype))
        column = m.tensor(m.add_weight("past", shut))
        return m.add("concat", x, more, axis=2), m.add("concat", w, column, axis=1)


def stepwise(
    m: OnnxImporter,
    cell: Cell,
    x: str,
    begin: Sequence[str],
    given: Sequence[str],
    lengths: Lengths | None,
) -> tuple[str, ...]:
    """Return the states [l, b, h] of a direction forwards, and the last ones [b, h].

    Parameters
    ----------
    m : OnnxImporter
    cell : Cell
    x : str
        ``[l, b, i]``.
    begin : sequence of str
        ``[b, h]``: h, and c of an LSTM.
    given : sequence of str
        The weights of x and its bias, then what `Cell.step` takes.
    lengths : Lengths, optional
    """
    each = [m.add("linear", x, *given[:2])]
    each += [lengths.is_within] if lengths else []
    body = GraphBuilder(m.graph.sub_graph("body"))
    body.source = m.source
    types = [m.type(one) for one in begin]
    types += [type(m.type(one))(m.type(one).dtype, m.type(one).shape[1:]) for one in each]
    types += [m.type(one) for one in given[2:]]
    inputs = [body.graph.add_input(f"in.{k}", one) for k, one in enumerate(types)]
    states, rest = inputs[: len(begin)], inputs[len(begin) :]
    found = cell.step(body, rest[0], states, rest[len(each) :])
    y = found[0]
    if lengths:
        y = body.add("where", rest[1], y, 0.0)
        found = [body.add("where", rest[1], new, old) for new, old in zip(found, states, strict=True)]
    if y == found[0]:  # a result of its own, beside the state that the next step takes
        y = body.add("mul", y, 1.0)
    body.graph.outputs = [*found, y]
    operands = [*begin, *each, *given[2:]]
    *last, whole = m.results("scan", *operands, carried=len(begin), each=len(each), body=body.graph)
    return whole, *last
