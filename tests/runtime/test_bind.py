"""The short way of a call, and ``lib.bind``: it refuses what the long way does, whatever came before."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import (
    SAFE_ERROR,
    SPECS,
    built,
    built_of,
    draw,
    error,
    expected,
    packed_arguments,
    spec_data,
)

import dietcode
from dietcode.errors import ShapeError, TensorError

pytestmark = pytest.mark.usefixtures("way")


def values_of(name: str, value: int) -> dict[str, int]:
    return dict.fromkeys(SPECS[name]["shape_vars"], value)


@pytest.fixture(params=["numpy", "torch"])
def kind(request: pytest.FixtureRequest) -> Any:
    """What makes a tensor of an array."""
    if request.param == "numpy":
        return lambda array: array
    return pytest.importorskip("torch", reason=of_extra("bench")).from_numpy


@pytest.mark.parametrize("name", ["rows", "varying", "bmm", "epilogue"])
def test_a_bound_library_is_right(name: str, kind: Any) -> None:
    library = dietcode.load(built(name))
    for seed, value in enumerate((1, 5, 5, 3, 5)):
        arrays = draw(name, seed, **values_of(name, value))
        right = expected(name, arrays)
        tensors = {tensor: kind(array) for tensor, array in arrays.items()}
        order = library.manifest["argument_order"]
        bound = {tensor: tensors[tensor] for tensor in order[1:]}
        f = library.bind(**bound)
        for _ in range(2):  # the second goes the short way
            out = kind(np.full(right.shape, np.nan, dtype=np.float32))
            assert f(tensors[order[0]], out=out) is out
            assert error(out, right) <= SAFE_ERROR
            result = f(tensors[order[0]])
            assert type(result) is type(out) and error(result, right) <= SAFE_ERROR
            assert error(library(**packed_arguments(library, tensors)), right) <= SAFE_ERROR


def test_keywords_are_passed_by_name_and_looked_at_each_time() -> None:
    library = dietcode.load(built("keyword"))
    arrays = draw("keyword", A=2, B=3)
    f = library.bind(W=arrays["W"])
    for _ in range(2):
        assert error(f(arrays["X"], A=2), expected("keyword", arrays)) <= SAFE_ERROR
    for wrong in (True, 2.0, np.float32(2), None, 5, "2"):
        with pytest.raises(ShapeError, match="A"):
            f(arrays["X"], A=wrong)
    with pytest.raises(ShapeError, match="A: missing"):
        f(arrays["X"])
    with pytest.raises(TensorError, match="B: unknown argument"):
        f(arrays["X"], A=2, B=3)


def test_what_is_bound_wrong_is_refused() -> None:
    library = dietcode.load(built("rows"))
    w = draw("rows", M=4)["W"]
    with pytest.raises(TensorError, match="bind: W: a constant, and missing; allowed: X, W"):
        library.bind()
    with pytest.raises(TensorError, match="bind: V: unknown; allowed: X, W"):
        library.bind(V=w, W=w)
    with pytest.raises(ShapeError, match="W: extent 99"):
        library.bind(W=w[:99])
    f = library.bind(W=library.pack(W=w))
    with pytest.raises(TensorError, match="given 2 tensors; allowed: X, in this order"):
        f(w, w)
    x = np.ones((2, 37), np.float32)
    assert error(copy.deepcopy(library).bind(W=w)(x), x.astype(np.float64) @ w.T) <= SAFE_ERROR


def test_after_a_call_went_well_the_same_refusals_hold() -> None:
    library = dietcode.load(built("rows"))
    arrays = draw("rows", M=4)
    x, f = arrays["X"], library.bind(W=arrays["W"])
    right = expected("rows", arrays)
    read_only = x.copy()
    read_only.flags.writeable = False
    for _ in range(3):
        assert error(f(x), right) <= SAFE_ERROR
    assert error(f(read_only), right) <= SAFE_ERROR
    wide = np.zeros((4, 74), np.float32)
    area = np.zeros(4 * 137, np.float32)
    inside, beside = area[: 4 * 37].reshape(4, 37), area[100 : 100 + 400].reshape(4, 100)
    for wrong, out, message in (
        (x.astype(np.float64), None, "X: dtype float64"),
        (wide[:, ::2], None, "X: not contiguous"),
        (np.asfortranarray(x), None, "X: not contiguous"),
        (x[:, :36].copy(), None, "X: extent 36"),
        (x.tolist(), None, "X: list"),
        (x.view(np.ma.MaskedArray)[None], None, "X: shape"),
        (x, np.empty((4, 99), np.float32), "out: shape"),
        (x, np.empty((5, 100), np.float32), "out: shape"),
        (x, np.empty((4, 100)), "out: dtype"),
        (x, np.empty((4, 200), np.float32)[:, ::2], "out: not contiguous"),
        (inside, beside, "out: overlaps"),
        (x, np.broadcast_to(np.float32(0), (4, 100)), "out: "),
    ):
        with pytest.raises((TensorError, ShapeError), match=message):
            f(wrong, out=out)
    packed = library.pack(W=arrays["W"])
    assert error(library(X=x, W=packed), right) <= SAFE_ERROR
    for arguments in ({"X": x, "W": arrays["W"]}, {"X": packed, "W": x}, {"X": x, "V": packed}):
        with pytest.raises(TensorError):
            library(**arguments)
    overlap = packed.data.reshape(-1)[: 4 * 100].reshape(4, 100)
    with pytest.raises(TensorError, match="out: overlaps"):
        library(X=x, W=packed, out=overlap)


def test_torch_tensors_that_generated_code_would_take_without_a_word() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built("rows"))
    arrays = draw("rows", M=4)
    x, f = torch.from_numpy(arrays["X"]), library.bind(W=arrays["W"])
    right = expected("rows", arrays)
    for _ in range(2):
        assert error(f(x), right) <= SAFE_ERROR
    with pytest.raises(TensorError, match="X: requires grad"):
        f(x.clone().requires_grad_())
    with pytest.raises(TensorError, match="X: a negated view"):
        f(torch._neg_view(x))
    with pytest.raises(TensorError, match="out: "):
        f(x, out=torch._neg_view(torch.empty(4, 100)))
    with pytest.raises(TensorError, match="vmap"):
        torch.vmap(f)(torch.stack([x, x]))
    with pytest.warns(DeprecationWarning, match="jit.trace"), pytest.raises(TensorError, match="trace"):
        torch.jit.trace(f.__call__, x)
    out = torch.empty(4, 100)
    with pytest.warns(DeprecationWarning, match="jit.trace"), pytest.raises(TensorError, match="trace"):
        torch.jit.trace(lambda value: f(value, out=out), x)
    with pytest.raises(TensorError, match="out: overlaps"):
        area = torch.zeros(600)
        f(area[:148].view(4, 37), out=area[100:500].view(4, 100))

    class Sneaky(torch.Tensor):
        pass

    with pytest.raises(TensorError, match="X: a subclass"):
        f(x.as_subclass(Sneaky))
    with torch.no_grad():
        assert error(f(torch.nn.Parameter(x)), right) <= SAFE_ERROR
    with pytest.raises(TensorError, match="X: requires grad"):
        f(torch.nn.Parameter(x))
    packed = library.pack(W=torch.nn.Parameter(torch.from_numpy(arrays["W"])))
    assert error(library(X=x, W=packed), right) <= SAFE_ERROR


def test_half_precision_outputs_have_their_dtype() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    data = spec_data(
        "half-out",
        output={"name": "Y", "dtype": "float16"},
        shape_vars={"M": {"min": 1, "max": 9}},
        dims={"m": "M", "n": 20, "k": 7},
    )
    library = dietcode.load(built_of(json.dumps(data)))
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in (("X", (3, 7)), ("W", (20, 7)))}
    f = library.bind(W=arrays["W"])
    for _ in range(2):
        assert f(torch.from_numpy(arrays["X"])).dtype is torch.float16
        assert f(arrays["X"]).dtype == np.float16


def test_a_gradient_with_values_that_a_call_overwrote_is_refused() -> None:
    """As PyTorch refuses it after an operator of its own."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built("varying"))
    x, w = torch.ones(3, 21), torch.ones(50, 21)
    lean = library.bind(W=w)
    for call in (library, lambda x, w, out: lean(x, out=out)):
        for _ in range(2):  # the long way, and the short one
            out, weight = torch.ones(3, 50), torch.ones(3, 50, requires_grad=True)
            before = out._version
            result = (out * weight).sum()
            call(x, w, out=out)
            assert out._version > before
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.backward()
    with torch.inference_mode():
        out = torch.ones(3, 50)
    assert (library(x, w, out=out) == 21).all()
