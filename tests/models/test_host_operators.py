"""Functions of the host: every operator has one, with exactly the inferred dtypes, and writers that agree."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietcode.graph.operators import GRAPH_OPERATORS, LIBRARY_FUNCTIONS
from dietcode.runtime.host.pointwise import erf
from dietcode.runtime.host_operators import HOST, HOST_INTO, VIEWS

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float64")
UNARY = [
    "neg",
    "abs",
    "sign",
    "square",
    "relu",
    "sqrt",
    "rsqrt",
    "exp",
    "log",
    "tanh",
    "sigmoid",
    "sin",
    "cos",
]
UNARY += ["floor", "ceil", "round", *LIBRARY_FUNCTIONS]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "floor_divide", "remainder", "fmod", "pow"]
BINARY += ["atan2", "copysign", "hypot"]
COMPARISONS = ["less", "less_equal", "equal", "not_equal"]


def test_all_operators_are_there() -> None:
    assert set(HOST) == set(GRAPH_OPERATORS) - {"cond", "while_loop", "scan"}
    assert set(HOST_INTO) <= set(HOST) and set(HOST) >= VIEWS


def _values(dtype: str) -> Array:
    random = np.random.default_rng(0)
    return (random.standard_normal((3, 4)) * 4).astype(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int32", "int64"])
@pytest.mark.parametrize("number", [2, 0.5])
def test_numbers_take_the_dtype_of_tensors(dtype: str, number: float) -> None:
    """As scalars, too: NumPy gives those another dtype, by version."""
    names = BINARY if dtype in FLOATS else ["add", "sub", "mul", "maximum", "minimum"]
    for x in (_values(dtype), np.asarray(_values(dtype)[0, 0])):
        for name in (*names, *COMPARISONS):
            for operands in ((x, number), (number, x), (x, x)):
                (result,) = HOST[name](operands, {})
                assert isinstance(result, np.ndarray) and result.shape == x.shape
                assert result.dtype == (np.dtype(bool) if name in COMPARISONS else x.dtype), name


@pytest.mark.parametrize("dtype", FLOATS)
def test_no_operator_warns(dtype: str) -> None:
    x = np.array([0.0, -1.0, 1e30, np.inf, -np.inf, np.nan], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (*UNARY, "silu", "erf"):
            assert HOST[name]([x], {})[0].dtype == dtype, name
        for name in BINARY:
            assert HOST[name]([x, x], {})[0].dtype == dtype, name
        HOST["softmax"]([x], {"axis": 0, "masked_rows": "nan"})
        HOST["cast"]([x], {"dtype": "int32"})


@pytest.mark.parametrize("name", ["silu", "gelu"])
@pytest.mark.parametrize("form", ["erf", "tanh"])
def test_infinity_has_its_limit(name: str, form: str) -> None:
    """As in kernels: a part gave NaN where it was so small that the host computed it."""
    (found,) = HOST[name]([np.float32([-np.inf, np.inf, np.nan, -1e30])], {"form": form})
    np.testing.assert_array_equal(found, [0, np.inf, np.nan, 0])


@pytest.mark.parametrize("name", [one for one in HOST_INTO if one != "concat"])
def test_writers_agree(name: str) -> None:
    """Into another array, and into the first operand where that has the dtype of the result."""
    attributes = {"low": -1.0, "high": 1, "dtype": "float32"}
    truth = name in ("and", "or", "xor", "not")
    x: Array = _values("float32") > 0 if truth else _values("float32")
    y: Array = (_values("float32")[::-1] + 0.3).copy()
    y = y > 0 if truth else y
    if name.startswith(("bit_", "shift_")):
        x, y = x.astype(np.int32), np.abs(y).astype(np.int32)
    operands: list[Any] = [x, y][: GRAPH_OPERATORS[name].most]
    if name == "where":
        operands = [x > 0, x, y]
    (wanted,) = HOST[name](operands, attributes)
    out = np.empty_like(wanted)
    HOST_INTO[name](operands, attributes, out)
    np.testing.assert_array_equal(out, wanted)
    for number, own in enumerate(operands):
        if own.dtype == wanted.dtype:
            copies = [one.copy() for one in operands]
            HOST_INTO[name](copies, attributes, copies[number])
            np.testing.assert_array_equal(copies[number], wanted)


def test_concat_into() -> None:
    x = _values("float32")
    out = np.empty((6, 4), np.float32)
    HOST_INTO["concat"]([x, x * 2], {"axis": 0}, out)
    np.testing.assert_array_equal(out, np.concatenate([x, x * 2]))


@given(st.floats(-6, 6, width=32))
def test_erf(value: float) -> None:
    exact = math.erf(value)
    assert abs(float(erf(np.array([value], np.float32))[0]) - exact) <= 1e-6 * max(abs(exact), 1e-30)
    assert erf(np.array([value], np.float64))[0] == exact


def test_erf_at_the_ends() -> None:
    found = erf(np.array([np.inf, -np.inf, np.nan, 0.0, 30.0], np.float32))
    np.testing.assert_array_equal(found, np.array([1, -1, np.nan, 0, 1], np.float32))


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1), (1, 1)])
@pytest.mark.parametrize("causal", ["none", "first", "last"])
def test_attention(heads: tuple[int, int], causal: str) -> None:
    random = np.random.default_rng(1)
    for num_queries, num_keys in ((1, 1), (3, 7), (7, 3), (5, 5)):
        q = random.standard_normal((2, heads[0], num_queries, 8)).astype(np.float32)
        k, v = (random.standard_normal((2, heads[1], num_keys, 8)).astype(np.float32) for _ in range(2))
        mask = random.standard_normal((2, 1, num_queries, num_keys)).astype(np.float32)
        mask[0, 0, 0] = -np.inf
        attributes = {"scale": 0.3, "causal": causal, "masked_rows": "zero"}
        (found,) = HOST["attention"]([q, k, v, mask], attributes)
        assert found.dtype == np.float32
        last = {"none": num_keys, "first": 0, "last": num_keys - num_queries}[causal]
        for head in range(heads[0]):
            group = head * heads[1] // heads[0]
            for query in range(num_queries):
                scores = q[:, head, query] @ k[:, group].transpose(0, 2, 1)
                scores = np.stack([scores[b, b] for b in range(2)]) * 0.3 + mask[:, 0, query]
                seen = np.arange(num_keys) <= query + last
                powers = np.exp(np.where(seen, scores, -np.inf))
                total = powers.sum(-1, keepdims=True)
                weights = np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)
                right = np.einsum("bs,bsd->bd", weights, v[:, group])
                np.testing.assert_allclose(found[:, head, query], right, rtol=1e-4, atol=1e-5)


def test_equal_elements_keep_their_order() -> None:
    x = np.array([[1.0, 3.0, 1.0, 3.0, np.nan, 0.0]], np.float32)
    values, order = HOST["top"]([x], {"axis": 1, "num": 4, "largest": True})
    np.testing.assert_array_equal(order, [[4, 1, 3, 0]])
    np.testing.assert_array_equal(values, [[np.nan, 3, 3, 1]])
    _, order = HOST["top"]([x], {"axis": -1, "num": None, "largest": False})
    np.testing.assert_array_equal(order, [[5, 0, 2, 1, 3, 4]])
    assert order.dtype == np.int64


@pytest.mark.parametrize("shape", [(5, 7, 130), (2, 600, 3), (3, 1, 999), (2, 0, 600)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_running_results_over_axes_that_wide_ones_follow(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    functions = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate}
    for name, function in functions.items():
        (found,) = HOST[name]([x], {"axis": 1})
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, function(x, axis=1))
