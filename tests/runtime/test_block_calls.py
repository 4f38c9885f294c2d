"""Libraries of blocks: calls with several outputs, from NumPy and PyTorch, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import block_data, built_of

import dietcode
from dietcode.errors import ShapeError, TensorError

NORM = block_data(
    "norm",
    {
        "S": {"add": ["X", "R"]},
        "Y": {"rmsnorm": ["S", "gamma"], "axis": "n"},
        "m": {"mean": "S", "axis": "n"},
    },
    ["Y", "S", "m"],
    tensors={
        "X": {"dims": "mn", "dtype": "float32"},
        "R": {"dims": "mn", "dtype": "float32"},
        "gamma": {"dims": "n", "dtype": "float32", "constant": True},
    },
)
SOFTMAX = block_data(
    "softmax",
    {"Y": {"softmax": "X", "axis": "n"}},
    ["Y"],
    tensors={"X": {"dims": "mn", "dtype": "float32"}},
)


@pytest.fixture(scope="module")
def norm() -> Any:
    return dietcode.load(built_of(json.dumps(NORM)))


@pytest.fixture(scope="module")
def softmax() -> Any:
    return dietcode.load(built_of(json.dumps(SOFTMAX)))


def draw(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    shapes = {"X": (rows, 40), "R": (rows, 40), "gamma": (40,)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def right(arrays: dict[str, Any]) -> tuple[Any, Any, Any]:
    wide = {name: np.asarray(value, dtype=np.float64) for name, value in arrays.items()}
    total = wide["X"] + wide["R"]
    scale = 1 / np.sqrt((total**2).mean(axis=1, keepdims=True) + 1e-6)
    return total * scale * wide["gamma"], total, total.mean(axis=1)


@pytest.mark.parametrize("rows", [1, 15, 16, 30])
def test_several_outputs(norm: Any, rows: int) -> None:
    arrays = draw(rows)
    results = norm(**arrays)
    assert isinstance(results, tuple) and [value.shape for value in results] == [
        (rows, 40),
        (rows, 40),
        (rows,),
    ]
    for result, wanted in zip(results, right(arrays), strict=True):
        assert np.allclose(result, wanted, rtol=1e-5, atol=1e-5)
    out = tuple(np.full_like(value, np.nan) for value in results)
    again = norm(**arrays, out=out)
    assert all(a is b for a, b in zip(again, out, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(again, results, strict=True))


def test_bound(norm: Any) -> None:
    arrays = draw(5)
    call = norm.bind(gamma=arrays["gamma"])
    for result, wanted in zip(call(arrays["X"], arrays["R"]), right(arrays), strict=True):
        assert np.allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_more_outputs_than_a_call_in_c_takes() -> None:
    names = [f"y{number}" for number in range(9)]
    graph = {name: {"mul": ["X", number]} for number, name in enumerate(names)}
    data = block_data("many", graph, names, tensors={"X": {"dims": "mn", "dtype": "float32"}})
    library = dietcode.load(built_of(json.dumps(data)))
    assert library.compiled is None
    x = np.ones((3, 40), np.float32)
    for _ in range(2):
        assert [float(value.sum()) / 120 for value in library.bind()(x)] == list(range(9))


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (lambda a: np.empty((5, 40), np.float32), "out: ndarray; allowed: a tuple of Y, S, m"),
        (lambda a: (np.empty((5, 40), np.float32),), "out: 1 tensors; allowed: a tuple of Y, S, m"),
        (lambda a: (a["X"], np.empty_like(a["X"]), np.empty(5, np.float32)), "out: overlaps an input"),
        (lambda a: (np.empty_like(a["X"]),) * 2 + (np.empty(5, np.float32),), "or another output"),
    ],
)
def test_wrong_outputs(norm: Any, out: Any, said: str) -> None:
    arrays = draw(5)
    with pytest.raises(TensorError, match=said):
        norm(**arrays, out=out(arrays))


def test_wrong_shapes(norm: Any) -> None:
    arrays = draw(5)
    with pytest.raises(ShapeError, match="M: 31; allowed: 1…30"):
        norm(**draw(31))
    out = (np.empty((5, 40), np.float32), np.empty((5, 40), np.float32), np.empty(6, np.float32))
    with pytest.raises(ShapeError, match=r"out: shape \[6\]; allowed: \[5\]"):
        norm(**arrays, out=out)


def test_one_output_and_any_alignment(softmax: Any) -> None:
    raw = np.zeros(30 * 40 + 3, np.float32)
    x = raw[3:].reshape(30, 40)
    x[...] = np.random.default_rng(0).standard_normal(x.shape)
    exponentials = np.exp(x.astype(np.float64))
    result = softmax(X=x)
    assert np.allclose(result, exponentials / exponentials.sum(axis=1, keepdims=True), rtol=1e-5)
    assert softmax.select(M=1) == 0 and softmax.select(M=30) == 1


IMAGES = block_data(
    "images",
    {
        "Y": {"maxpool": "X", "dims": "npqc", "window": 3, "strides": 2, "padding": 1},
        "A": {"avgpool": "X", "dims": "npqc", "window": 3, "strides": 2, "padding": 1},
    },
    ["Y", "A"],
    tensors={"X": {"dims": "nhwc", "dtype": "float32"}},
    dims={"n": "M", "h": "2*M + 1", "w": 8, "c": 19},
)
ROTARY = block_data(
    "rotary",
    {
        "R": {"rotate": "X", "axis": "d", "by": 12, "negate": True},
        "a": {"mul": ["X", "cos"]},
        "b": {"mul": ["R", "sin"]},
        "Y": {"add": ["a", "b"]},
    },
    ["Y"],
    tensors={
        "X": {"dims": "bhtd", "dtype": "float32"},
        "cos": {"dims": "td", "dtype": "float32"},
        "sin": {"dims": "td", "dtype": "float32"},
    },
    dims={"b": 2, "h": 3, "t": "M", "d": 24},
)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_pooling_is_that_of_torch(size: int) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built_of(json.dumps(IMAGES)))
    shape = (size, 2 * size + 1, 8, 19)
    x = np.random.default_rng(size).standard_normal(shape, dtype=np.float32)
    image = torch.from_numpy(x).permute(0, 3, 1, 2)
    most, mean = library(X=x)
    pools = torch.nn.functional
    assert np.array_equal(most, pools.max_pool2d(image, 3, 2, 1).permute(0, 2, 3, 1))
    assert np.allclose(mean, pools.avg_pool2d(image, 3, 2, 1).permute(0, 2, 3, 1), rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="X: "):
        library(X=np.ascontiguousarray(x[:, 1:]))


def test_rotary_embedding() -> None:
    """As models write it: X·cos + concat(-X₂, X₁)·sin, X₁ and X₂ the halves of X."""
    library = dietcode.load(built_of(json.dumps(ROTARY)))
    for length in (1, 7, 30):
        rng = np.random.default_rng(length)
        x = rng.standard_normal((2, 3, length, 24), dtype=np.float32)
        angles = np.arange(length)[:, None] / 10000 ** (np.arange(12) / 12)
        angles = np.concatenate([angles, angles], axis=1)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        half = np.concatenate([-x[..., 12:], x[..., :12]], axis=-1)
        right = x.astype(np.float64) * cos + half.astype(np.float64) * sin
        assert np.allclose(library(X=x, cos=cos, sin=sin), right, rtol=1e-5, atol=1e-6)


def test_torch(norm: Any, softmax: Any) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    arrays = draw(7)
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    results = norm(**tensors)
    for result, wanted in zip(results, right(arrays), strict=True):
        assert isinstance(result, torch.Tensor) and np.allclose(result, wanted, rtol=1e-5, atol=1e-5)
    operator = softmax.torch_op()
    assert torch.allclose(operator(tensors["X"]), torch.softmax(tensors["X"], -1), rtol=1e-5, atol=1e-7)
