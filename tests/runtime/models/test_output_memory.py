"""Memory of outputs: it is taken again when its last holder lets go of it, and never before."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hand_models import model_of, scaled_sum
from needs import of_extra

from dietcode.runtime.models.output_memory import LARGE_BYTES, OutputMemory

FLOAT, ROWS = np.dtype(np.float32), LARGE_BYTES // 4 // 64


def address(array: np.ndarray[Any, Any]) -> int:
    """Return where an array begins."""
    return int(array.__array_interface__["data"][0])


def tensor(array: np.ndarray[Any, Any]) -> Any:
    """Return a tensor of PyTorch's that is part of an array."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip(of_extra("bench"))
    import torch

    return torch.from_numpy(array)[2:]


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda y: y,
    "view": lambda y: y[1:, ::2].T,
    "view of a view": lambda y: y.reshape(-1)[3:][5:],
    "memoryview": memoryview,
    "DLPack": np.from_dlpack,
    "tensor": tensor,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_somebody_holds_stays_as_it_is(holder: str) -> None:
    memory = OutputMemory()
    memory.begin_call()
    y = memory.empty((ROWS, 64), FLOAT)
    y[...] = 7
    held, before = HOLDERS[holder](y), address(y)
    del y
    gc.collect()
    for _ in range(2):
        memory.begin_call()
        other = memory.empty((ROWS, 64), FLOAT)
        assert address(other) != before
        other[...] = 3
        assert np.asarray(held).min() == 7
        del other
    del held
    memory.begin_call()
    one, two = memory.empty((ROWS, 64), FLOAT), memory.empty((ROWS, 64), FLOAT)
    assert before != address(one) != address(two)  # given back, as two calls had no need of it


def test_outputs_that_grow_by_a_row_lie_where_those_of_the_last_call_but_one_lay() -> None:
    memory = OutputMemory()
    held, found = None, set()
    for more in range(1, 40):
        memory.begin_call()
        y = memory.empty((2 * ROWS + more, 64), FLOAT)
        assert held is None or not np.shares_memory(y, held)
        found.add(address(y))
        held = y
    assert len(found) == 2 and all(one % 64 == 0 for one in found)


def test_memory_is_given_back_that_two_calls_had_no_need_of() -> None:
    memory = OutputMemory()
    memory.begin_call()
    memory.empty((ROWS, 64), FLOAT)
    for kept in (1, 1, 0):
        memory.begin_call()
        assert len(memory._kept) == kept


def test_much_larger_memory_is_left_and_small_outputs_are_numpy_s() -> None:
    memory = OutputMemory()
    memory.begin_call()
    large = address(memory.empty((ROWS * 8, 64), FLOAT))
    assert address(memory.empty((ROWS, 64), FLOAT)) != large
    assert memory.empty((ROWS - 1, 64), FLOAT).flags.owndata


def test_calls_of_a_model_take_what_the_caller_let_go_of() -> None:
    model = model_of(scaled_sum(dimensions={"B": {"min": 1, "max": 1024}, "L": {"min": 1, "max": 1024}}))
    x = np.ones((512, 128), np.float32)
    found, kept = set(), model(x)
    for number in range(2, 12):
        x[...] = number
        y = model(x)
        found.add(address(y))
        assert y.min() == y.max() == 2 * number + 1 and kept.max() == 3
        del y
    assert len(found) == 1 and address(kept) not in found
