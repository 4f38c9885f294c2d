"""Recurrent layers of ONNX that PyTorch has not, beside the standard's formulas in NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph
from onnx_runs import import_model, model_of_nodes, onnx

node = onnx.helper.make_node
FUNCTIONS: dict[str, Any] = {
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "tanh": np.tanh,
    "relu": lambda v: np.maximum(v, 0),
    "hardsigmoid": lambda v: np.clip(0.2 * v + 0.5, 0, 1),
}


def _clipped(function: Any, clip: float, v: Any) -> Any:
    return function(np.clip(v, -clip, clip))


def _step(word: str, options: Any, xw: Any, h: Any, c: Any, u: Any, rb: Any, p: Any) -> tuple[Any, Any]:
    """The equations of the standard, for one row."""
    clip = options.get("clip", np.inf)
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[word]
    names = options.get("activations", usual)
    names = [*names, *["Tanh"] * (3 - len(names))]
    f, g, last = (partial(_clipped, FUNCTIONS[name.lower()], clip) for name in names)
    size = len(h)
    if word == "RNN":
        return f(xw + u @ h + rb), c
    if word == "GRU":
        z, r = (f(xw[k : k + size] + u[k : k + size] @ h + rb[k : k + size]) for k in (0, size))
        own, bias = u[2 * size :], rb[2 * size :]
        inner = r * (own @ h + bias) if options.get("linear_before_reset") else own @ (r * h) + bias
        return (1 - z) * g(xw[2 * size :] + inner) + z * h, c
    i, o, forget, new = (xw + u @ h + rb).reshape(4, size)
    p_i, p_o, p_f = p.reshape(3, size)
    i = f(i + p_i * c)
    forget = 1 - i if options.get("input_forget") else f(forget + p_f * c)
    c = forget * c + i * g(new)
    return f(o + p_o * c) * last(c), c


@pytest.mark.parametrize(
    ("word", "has_lengths", "has_peepholes", "options"),
    [
        ("GRU", False, False, {}),
        ("GRU", True, False, {"clip": 0.4}),
        ("GRU", True, False, {"linear_before_reset": 1}),
        ("LSTM", True, False, {}),
        ("LSTM", False, True, {}),
        ("LSTM", True, True, {"input_forget": 1, "activations": ["HardSigmoid", "Relu", "Tanh"]}),
        ("RNN", True, False, {}),
        ("RNN", False, False, {"activations": ["HardSigmoid"]}),
    ],
)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_cells(word: str, has_lengths: bool, has_peepholes: bool, options: Any, direction: str) -> None:
    random = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    ways, gates, hidden = (1, 2)[direction == "bidirectional"], {"LSTM": 4, "GRU": 3, "RNN": 1}[word], 5
    weights = {"W": floats(ways, gates * hidden, 3), "R": floats(ways, gates * hidden, hidden)}
    weights |= {"B": floats(ways, 2 * gates * hidden), "P": floats(ways, 3 * hidden) * has_peepholes}
    states, results = (["h", "c"], ["Y", "Yh", "Yc"]) if word == "LSTM" else (["h"], ["Y", "Yh"])
    operands = ["x", "W", "R", "B", "n" if has_lengths else "", *states, *(["P"] if has_peepholes else [])]
    attributes = dict(options)
    if "activations" in attributes:
        attributes["activations"] = attributes["activations"] * ways
    layer = node(word, operands, results, hidden_size=hidden, direction=direction, **attributes)
    inputs: dict[str, Any] = {"x": ("float32", ["L", "N", 3])}
    inputs |= {name: ("float32", [ways, "N", hidden]) for name in states}
    inputs |= {"n": ("int32", ["N"])} if has_lengths else {}
    used = {name: one for name, one in weights.items() if name != "P" or has_peepholes}
    graph, own = import_model(model_of_nodes([layer], inputs, results, used), L=(1, 9), N=(1, 4))
    for length, batch in ((1, 1), (7, 3), (4, 2)):
        given = {"x": floats(length, batch, 3)} | {name: floats(ways, batch, hidden) for name in states}
        lengths = np.full(batch, length, np.int32)
        if has_lengths:
            lengths[:] = random.integers(1, length + 1, batch)
            given["n"] = lengths
        wanted = np.zeros((length, ways, batch, hidden), np.float32)
        last = np.zeros((2, ways, batch, hidden), np.float32)
        for way in range(ways):
            bias = weights["B"][way].reshape(2, -1)
            for row in range(batch):
                h, c = (given[name][way, row] for name in (states * 2)[:2])
                for step in range(lengths[row])[:: -1 if way else 1]:
                    xw = weights["W"][way] @ given["x"][step, row] + bias[0]
                    h, c = _step(word, options, xw, h, c, weights["R"][way], bias[1], weights["P"][way])
                    wanted[step, way, row] = h
                last[:, way, row] = h, c
        for found, right in zip(run_graph(graph, own, given), (wanted, *last), strict=False):
            np.testing.assert_allclose(found, right, rtol=0, atol=2e-5)
