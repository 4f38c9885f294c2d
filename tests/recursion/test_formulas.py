"""Functions that blocks lack, by those that they have: beside float64 over all sizes of numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from graph_runs import run_graph

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.operators import GRAPH_OPERATORS
from dietcode.graph.tensor_type import TensorType
from dietcode.models.rewriting.rewriter import rewritten
from dietcode.recursion.arithmetic import arithmetic
from dietcode.recursion.functions import FUNCTIONS
from dietcode.recursion.kinds import COMPUTED

SIZES = np.exp2(np.linspace(-120, 127.9, 3001)).astype(np.float32)
NEAR = np.linspace(0.001, 3, 3001, dtype=np.float32)
NUMBERS = np.concatenate([SIZES, -SIZES, NEAR, -NEAR, np.float32([np.inf, -np.inf, np.nan, 0])])
NAMES = {"acosh": np.arccosh, "asinh": np.arcsinh, "atanh": np.arctanh}
LIMITS = {"tan": 1e4, "fmod": 0.0}  # what is beyond is of no digits in sines, or in quotients


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_formula(name: str) -> None:
    x = NUMBERS if name not in LIMITS else np.float32([n for n in NUMBERS if abs(n) <= (LIMITS[name] or 1e3)])
    rng = np.random.default_rng(0)
    pair = [x, rng.permutation(x[x != 0])[: len(x)] if name != "fmod" else np.full_like(x, 3.7)]
    pair[1] = np.resize(pair[1], len(x))
    operands = pair[: GRAPH_OPERATORS[name].most]
    graph = Graph("formula", {"L": (1, 4999)})
    type_ = TensorType("float32", (Extent.of("L"), Extent.of(4)))
    names = [graph.add_input(f"x{number}", type_) for number in range(len(operands))]
    graph.outputs = [graph.add(name, *names)]
    graph = rewritten(graph, (arithmetic(set()),))
    assert {node.operator for node in graph.nodes} <= COMPUTED, name
    grid = [np.resize(one, (-(-len(one) // 4), 4)) for one in operands]
    (found,) = run_graph(graph, {}, dict(zip(names, grid, strict=True)))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        right = NAMES.get(name, getattr(np, name, None))(*(one.astype(np.float64) for one in grid))
        least = np.maximum(
            2.0**-125, np.abs(grid[0]) if name == "fmod" else 0
        )  # a remainder has the digits of a quotient
        error = np.abs(found - right) / np.maximum(np.abs(right), least)
        odd = np.isnan(right) | (np.abs(right) > 3.4e38)
        if name == "hypot":  # NaN beside infinity stays
            odd |= np.isnan(found)
        same = (found == right.astype(np.float32)) | (np.isnan(found) & (np.isnan(right) | (name == "hypot")))
    assert error[~odd].max() <= 1e-6, [one.ravel()[np.argmax(np.where(odd, 0, error))] for one in grid]
    assert same[odd].all()
