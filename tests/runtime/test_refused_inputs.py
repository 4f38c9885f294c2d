"""What no way of computing takes: values that do not lie in memory as a tensor says, whoever is called."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlpack_tensors import DlpackOnly
from needs import of_extra
from small_libraries import built, built_of

import dietcode
from dietcode.errors import DietCodeError, TensorError
from dietcode.runtime.recursion.structure import Structure

sys.path.append(str(Path(__file__).parent / "models"))
sys.path.append(str(Path(__file__).parent / "programs"))
sys.path.append(str(Path(__file__).parent / "recursion"))
from hand_models import model_of, scaled_sum
from hand_programs import function, load
from hand_recursions import bundle, tree_lstm
from test_compiled_call_memory import STATES

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
W = np.ones((50, 21), np.float32)
NODES = Structure(children=np.array([[-1, -1], [-1, -1], [0, 1]], np.int32))


def short(array: Any) -> Any:
    """Right values once, then a storage of half of them."""
    tensor = torch.from_numpy(array.copy()).clone()
    tensor.untyped_storage().resize_(array.nbytes // 2)
    return tensor


def short_view(array: Any) -> Any:
    """The second half of a storage that now has the first half alone."""
    tensor = torch.from_numpy(np.concatenate([array, array])).clone()[len(array) :]
    tensor.untyped_storage().resize_(array.nbytes)
    return tensor


def short_rows(array: Any) -> Any:
    """Rows that lie apart, the last of which is not there; a copy would read it."""
    tensor = torch.from_numpy(np.concatenate([array, array], axis=-1)).clone()[..., : array.shape[-1]]
    tensor.untyped_storage().resize_(array.nbytes - array.itemsize)
    return tensor


STORAGE = "its storage was freed or made shorter"
SHORT = {one.__name__: (one, STORAGE) for one in (short, short_view, short_rows)}
PLAIN = {
    "masked": (lambda array: np.ma.array(array, mask=array > array.min() - 1), "a masked array"),
    "of layout": (lambda array: torch.from_numpy(array).to_sparse(), "of layout torch.sparse_coo"),
    "on meta": (lambda array: torch.from_numpy(array).to("meta"), "on meta"),
    "subclass": (lambda array: torch.from_numpy(array).as_subclass(Own), "a subclass of torch.Tensor, Own"),
    "negated": (lambda array: torch._neg_view(torch.from_numpy(array)), "a negated view"),
}
GRAD = {"gradient": (lambda array: torch.from_numpy(array).requires_grad_(), "requires grad")}


class Own(torch.Tensor):
    pass


def library() -> Any:
    return dietcode.load(built("varying"))


@functools.cache
def program() -> Any:
    """What gives a tensor, or a list of numbers, as it is."""
    return load(function("f", 1, [["return", 0]]))


ROWS = np.random.default_rng(0).standard_normal((4, 21), dtype=np.float32)
HALVES = {"positional": ["x"], "keyword": {}, "output": "*"}
HALVES |= {"halves": {"inputs": {"x": "float16"}, "outputs": ["float16"]}}
NUMBERS = np.arange(12, dtype=np.int64).reshape(3, 4)
# What makes a function of one tensor, a right one, and wrong ones.
WAYS: dict[str, tuple[Callable[[], Callable[[Any], Any]], Any, dict[str, Any]]] = {
    "call": (lambda: lambda x: library()(x, W), ROWS, SHORT | PLAIN | GRAD),
    "call, second": (lambda: lambda w: library()(ROWS, w), W, SHORT | PLAIN | GRAD),
    "bind": (lambda: library().bind(W=W), ROWS, SHORT | PLAIN | GRAD),
    "pack": (
        lambda: lambda w: dietcode.load(built("rows")).pack(W=w),
        np.ones((100, 37), np.float32),
        SHORT | PLAIN,
    ),
    "torch_op": (lambda: library().torch_op(W=W), ROWS, SHORT),
    "model": (lambda: model_of(scaled_sum()), ROWS, SHORT | PLAIN | GRAD),
    "half model": (lambda: model_of(scaled_sum(signature=HALVES)), ROWS.astype(np.float16), SHORT | PLAIN),
    "torch_module": (lambda: model_of(scaled_sum()).torch_module(), ROWS, SHORT),
    "recursion": (
        lambda: functools.partial(dietcode.load(bundle(tree_lstm)), NODES),
        tree_lstm().draw(NODES),
        SHORT | PLAIN | GRAD,
    ),
    "structure": (
        lambda: lambda children: Structure(children=children),
        np.array([[-1, -1], [-1, -1], [0, 1]], np.int32),
        SHORT | PLAIN,
    ),
    "program": (lambda: lambda x: program()([x]), ROWS[0, :16].copy(), SHORT | PLAIN | GRAD),
    "program, numbers": (lambda: lambda x: program()([x]), NUMBERS, SHORT | PLAIN),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", WAYS)
def test_what_a_library_refuses_others_refuse(name: str) -> None:
    make, good, kinds = WAYS[name]
    call = make()
    for _ in range(2):
        call(torch.from_numpy(good.copy()))
    for kind, (change, message) in kinds.items():
        with pytest.raises(TensorError, match=message):
            call(change(good))
            pytest.fail(kind)


@pytest.mark.usefixtures("way")
def test_a_storage_that_is_made_shorter_between_calls() -> None:
    """Of each tensor of a bound call: the input, what is bound, the output; and of an operator's buffer."""
    given = [torch.from_numpy(ROWS.copy()).clone(), torch.from_numpy(W.copy()).clone(), torch.empty(4, 50)]
    for number, name in enumerate(("X", "W", "out")):
        own = [one.clone() for one in given]
        f = library().bind(W=own[1])
        for _ in range(3):
            assert f(own[0], out=own[2]) is own[2]
        own[number].untyped_storage().resize_(own[number].nbytes - 4)
        for _ in range(2):
            with pytest.raises(TensorError, match=f"{name}: {STORAGE}"):
                f(own[0], out=own[2])
    op, x = library().torch_op(W=given[1].clone()), torch.from_numpy(ROWS)
    for _ in range(2):
        op(x)
    op.bound_W.untyped_storage().resize_(64)
    with pytest.raises(TensorError, match=f"W: {STORAGE}"):
        op(x)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


# What is written has to be the caller's own: no advice may make it a copy.
COPIES = re.compile(r"ascontiguousarray|\.contiguous\(\)|filled|\.cpu\(\)|to_dense|resolve_neg\(\)|clone")
WRITTEN = [
    (
        lambda shape: np.zeros((shape[0], 2 * shape[1]), np.float32)[:, : shape[1]],
        "not contiguous; it is written",
    ),
    (lambda shape: np.zeros(shape[::-1], np.float32).T, "not contiguous; it is written"),
    (lambda shape: torch.zeros(shape[::-1]).T, "not contiguous; it is written"),
    (
        lambda shape: DlpackOnly(np.zeros((shape[0], 99), np.float32)[:, : shape[1]]),
        "not contiguous; it is written",
    ),
    (lambda shape: read_only(np.zeros(shape, np.float32)), "read-only, and it is written; pass a writable"),
    (np.zeros, "dtype float64; allowed: float32"),
    (lambda shape: np.ma.array(np.zeros(shape, np.float32), mask=True), "a masked array, .*; it is written"),
    (lambda shape: torch.zeros(shape, device="meta"), "on meta; this library runs on cpu, it is written"),
    (lambda shape: torch.zeros(shape).to_sparse(), "of layout torch.sparse_coo; it is written"),
    (lambda shape: torch._neg_view(torch.zeros(shape)), "a negated view; it is written"),
    (lambda shape: short(np.zeros(shape, np.float32)), STORAGE),
]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_what_is_written_is_named_and_no_copy_of_it_advised(number: int) -> None:
    make, message = WRITTEN[number]
    dense, states = library(), dietcode.load(built_of(STATES))
    rows, x = np.array([1, 0], np.int32), np.ones((2, 37), np.float32)
    for name, call in (
        ("out", lambda: dense(ROWS, W, out=make((4, 50)))),
        ("out", lambda: dense.bind(W=W)(ROWS, out=make((4, 50)))),
        ("H", lambda: states(H=make((9, 37)), at=rows, X=x)),
        ("H", lambda: states.bind()(make((9, 37)), rows, x)),
    ):
        with pytest.raises(DietCodeError, match=f"^{name}: {message}") as caught:
            call()
        assert not COPIES.search(str(caught.value)), caught.value


def test_a_table_over_another_tensor_is_named() -> None:
    states, table = dietcode.load(built_of(STATES)), np.zeros((9, 37), np.float32)
    with pytest.raises(
        TensorError, match=r"^H: overlaps an input or another output; pass a copy of that one"
    ):
        states(H=table, at=np.array([1], np.int32), X=table[:1])
