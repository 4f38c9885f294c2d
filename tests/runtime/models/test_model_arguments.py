"""What calls of models give and get: NumPy, PyTorch, DLPack, Python's numbers, and trees of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dlpack_tensors import DlpackOnly
from hand_models import described, model_of, scaled_sum, step
from needs import of_extra

from dietcode.errors import ShapeError, TensorError
from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.model import Model, input_array


class Broken(DlpackOnly):
    """One whose export fails."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("on another device")


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_dlpack() -> None:
    model = model_of(scaled_sum())
    y = model(DlpackOnly(X))
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, X * 2 + 1)
    with pytest.raises(TensorError, match=r"^x: its DLPack export failed: on another device$"):
        model(Broken(X))


def test_arrays_that_may_not_be_written_are_lent_to_kernels() -> None:
    """DLPack, by which kernels get them, takes no such array."""
    x = X.copy()
    x.flags.writeable = False
    for given in (x, x[:1], np.broadcast_to(np.float32(3), (2, 3))):
        array, _ = input_array("x", given, TensorType("float32", (Extent.of("B"), Extent.of("L"))))
        assert array.flags.writeable
        np.testing.assert_array_equal(array, np.asarray(given))
        assert np.shares_memory(array, given) == given.flags.c_contiguous


def scaled(dtype: str) -> Model:
    """``x * by`` with a scalar input."""
    data = described(
        {"x": (dtype, ["L"]), "by": (dtype, [])},
        [step("mul", ["x", "by"], "y")],
        ["y"],
        values={"y": (dtype, ["L"])},
        ranges={"L": (0, 8)},
    )
    return model_of(data)


@pytest.mark.parametrize("by", [3, 3.0, True, np.float32(3), np.float64(3), np.array(3, np.float32)])
def test_numbers_for_a_scalar(by: Any) -> None:
    x = np.array([1.5, 2.0], np.float32)
    np.testing.assert_array_equal(scaled("float32")(x, by), x * np.float32(by))


@pytest.mark.parametrize("by", [1.5, 2.0, 2**70, np.float32(2), np.int32(2)])
def test_numbers_that_an_integer_input_does_not_take(by: Any) -> None:
    model, x = scaled("int64"), np.array([1, 2])
    np.testing.assert_array_equal(model(x, 2), x * 2)
    with pytest.raises(TensorError, match=r"^by: .*; allowed: int64$"):
        model(x, by)


def test_a_number_for_a_tensor_is_refused() -> None:
    with pytest.raises(TensorError, match=r"^x: int; allowed: a NumPy array"):
        scaled("int64")(1, 2)


def treed() -> Model:
    """``f(pair, *, named)`` with ``pair = (a, [b])`` and ``named = {"c": c}``, to nested outputs."""
    vectors = {name: ("float32", ["L"]) for name in "abc"}
    data = described(
        vectors,
        [step("add", ["a", "b"], "sum"), step("mul", ["a", "c"], "product")],
        ["sum", "product", "a"],
        values={"sum": ("float32", ["L"]), "product": ("float32", ["L"])},
        ranges={"L": (1, 4)},
        signature={
            "positional": [{"tuple": ["a", {"list": ["b"]}]}, None],
            "keyword": {"named": {"dict": [["c", "c"]]}},
            "output": {"dict": [["s", "*"], ["rest", {"tuple": [{"list": ["*"]}, None, "*"]}]]},
        },
    )
    return model_of(data)


A, B, C = (np.arange(number, number + 3, dtype=np.float32) for number in range(3))


def test_trees_of_inputs_and_outputs() -> None:
    found = treed()((A, [B]), None, named={"c": C})
    assert list(found) == ["s", "rest"]
    rest = found["rest"]
    assert type(rest) is tuple and type(rest[0]) is list and rest[1] is None
    for one, right in ((found["s"], A + B), (rest[0][0], A * C), (rest[2], A)):
        np.testing.assert_array_equal(one, right)


@pytest.mark.parametrize(
    ("positional", "keyword", "message"),
    [
        (((A, [B]), None), {}, "named: missing; the model takes argument 0, argument 1, named"),
        (((A, [B]), None), {"named": {"d": C}}, "named: given dict; allowed: a dictionary of c"),
        (((A, [B]), None), {"named": C}, "named: given ndarray; allowed: a dictionary of c"),
        (((A, B), None), {"named": {"c": C}}, "argument 0: given ndarray; allowed: a list of 1"),
        (((A,), None), {"named": {"c": C}}, "argument 0: given tuple of 1; allowed: a tuple of 2"),
        (
            ((A, [B]), A),
            {"named": {"c": C}},
            "argument 1: given a value where the model was exported with None",
        ),
        (
            ((A, [B]), None),
            {"named": {"c": C}, "more": C},
            "more: unknown; the model takes argument 0, argument 1, named",
        ),
    ],
)
def test_trees_that_are_refused(positional: Any, keyword: Any, message: str) -> None:
    with pytest.raises(TensorError) as caught:
        treed()(*positional, **keyword)
    assert str(caught.value) == message


def test_positional_arguments_by_their_names() -> None:
    model, x = scaled("float32"), np.array([1.0, 2.0], np.float32)
    for y in (model(x, 3.0), model(x, by=3.0), model(by=3.0, x=x)):
        np.testing.assert_array_equal(y, x * 3)
    with pytest.raises(TensorError, match=r"^x: unknown; the model takes x, by$"):
        model(x, 3.0, x=x)


def test_torch_in_and_out() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    model = model_of(scaled_sum())
    x = torch.from_numpy(X.copy())
    y = model(x)
    assert type(y) is torch.Tensor and torch.equal(y, x * 2 + 1)
    assert torch.equal(model(x=x.clone().requires_grad_().detach()), y)
    with pytest.raises(TensorError, match=r"requires grad"):
        model(x.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(model(x.clone().requires_grad_()), y)
    with pytest.raises(TensorError, match=r"dtype torch.float64; allowed: float32"):
        model(x.double())
    with pytest.raises(ShapeError, match=r"^x: shape .*makes B 9"):
        model(torch.zeros(9, 1))
    assert type(model(X)) is np.ndarray  # beside it


def test_torch_beside_numpy_gives_torch() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    y = scaled("float32")(np.array([1.0, 2.0], np.float32), torch.tensor(3.0))
    assert type(y) is torch.Tensor and y.tolist() == [3.0, 6.0]


def test_an_output_that_is_an_input_of_torch_is_a_copy() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    a = torch.arange(3.0)
    found = treed()((a, [torch.from_numpy(B)]), None, named={"c": torch.from_numpy(C)})
    found["rest"][2].zero_()
    assert a.tolist() == [0.0, 1.0, 2.0]
