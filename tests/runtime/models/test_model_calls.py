"""Calls of whole models written by hand: outputs that are the caller's own, shapes in any order, threads."""

from __future__ import annotations

import copy
import gc
import json
import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hand_models import described, model_of, scaled_sum, step

from dietcode.errors import ShapeError, TensorError
from dietcode.runtime.models.executable import read_executable
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.models.model import Workplace
from dietcode.runtime.models.slot_program import SlotProgram
from dietcode.runtime.models.storages import StorageMemory, storage_offsets

SHAPES = [(1, 1), (2, 7), (8, 512), (3, 100), (2, 7), (1, 0), (8, 512)]


def rows(b: int, length: int, seed: int = 0) -> Any:
    """Random x of a shape."""
    return np.random.default_rng(seed).standard_normal((b, length), np.float32)


def test_any_shapes_one_after_the_other() -> None:
    model = model_of(scaled_sum())
    kept = []
    for seed, shape in enumerate(SHAPES):
        x = rows(*shape, seed)
        kept.append((model(x), x * 2 + 1))
    for y, right in kept:  # later calls wrote into none of them
        assert y.dtype == np.float32 and y.flags.owndata
        np.testing.assert_array_equal(y, right)


def test_the_line_of_a_model() -> None:
    model = model_of(scaled_sum())
    assert repr(model) == "<dietcode.Model by-hand(x: float32[B, L]); B in 1…8, L in 0…512>"
    assert copy.deepcopy(model) is model and copy.copy(model) is model


def _views(outputs: list[str]) -> dict[str, Any]:
    """An input, views of it and of a view, a weight, a view of the weight, a value and a view of it."""
    columns = {"axis": 1, "start": 0, "stop": 2, "step": 1}
    return described(
        {"x": ("float32", ["B", 4])},
        [
            step("slice", ["x"], "left", view=True, **columns),
            step("transpose", ["left"], "turned", view=True, axes=[1, 0]),
            step("reshape", ["w"], "flat", view=True, shape=[4]),
            step("expand", ["flat"], "wide", view=True, shape=["B", 4]),
            step("add", ["x", "wide"], "y"),
            step("reshape", ["y"], "line", view=True, shape=["B*4"]),
        ],
        outputs,
        values={
            "left": ("float32", ["B", 2]),
            "turned": ("float32", [2, "B"]),
            "flat": ("float32", [4]),
            "wide": ("float32", ["B", 4]),
            "y": ("float32", ["B", 4]),
            "line": ("float32", ["4*B"]),
        },
        weights={"w": ("float32", [2, 2])},
        ranges={"B": (1, 64)},
    )


@pytest.mark.parametrize("output", ["x", "left", "turned", "w", "flat", "wide", "y", "line"])
def test_an_output_is_the_callers_own(output: str) -> None:
    w = np.arange(4, dtype=np.float32).reshape(2, 2)
    model = model_of(_views([output]), {"w": w})
    x = rows(3, 4)
    y = x + w.reshape(4)
    right = {
        **{"x": x, "left": x[:, :2], "turned": x[:, :2].T, "w": w, "flat": w.reshape(4)},
        **{"wide": np.broadcast_to(w.reshape(4), (3, 4)), "y": y, "line": y.reshape(12)},
    }[output].copy()
    first = model(x)
    np.testing.assert_array_equal(first, right)
    assert first.flags.c_contiguous and first.flags.writeable and not np.shares_memory(first, x)
    first[...] = -1  # neither the input, nor the weight, nor the model's memory
    np.testing.assert_array_equal(model(x), right)
    assert not np.shares_memory(first, w) and w.max() == 3


def test_outputs_share_nothing_with_each_other() -> None:
    outputs = model_of(_views(["y", "line", "left", "turned"]), {"w": np.zeros((2, 2), np.float32)})(
        rows(3, 4)
    )
    for number, one in enumerate(outputs):
        assert not any(np.shares_memory(one, other) for other in outputs[number + 1 :])


def test_wrong_positions_name_what_is_read_and_the_line() -> None:
    taken = step("take", ["table", "ids"], "y", axis=0) | {"source": "net.py:7"}
    data = described(
        {"ids": ("int64", ["L"])},
        [taken],
        ["y"],
        values={"y": ("float32", ["L"])},
        weights={"table": ("float32", [10])},
        ranges={"L": (1, 16)},
    )
    model = model_of(data, {"table": np.arange(10, dtype=np.float32)})
    with pytest.raises(ShapeError) as caught:
        model(np.array([0, 12]))
    said = "table, ids (net.py:7): take: position 12 along axis 0 of 10 elements; allowed: -10 to 9"
    assert str(caught.value) == said


def test_inputs_are_shown_in_the_order_of_calls() -> None:
    data = described(
        {"b": ("float32", ["L"]), "a": ("float32", ["L"])},
        [step("add", ["a", "b"], "y")],
        ["y"],
        values={"y": ("float32", ["L"])},
        ranges={"L": (1, 16)},
    )
    data = json.loads(json.dumps(data, sort_keys=True))  # as a bundle has it
    assert "(b: float32[L], a: float32[L])" in repr(model_of(data, {}))


def test_an_error_in_a_step_leaves_the_model_usable() -> None:
    data = described(
        {"ids": ("int64", ["L"])},
        [step("positions", ["ids"], "at", rows=10), step("take", ["table", "at"], "y", axis=0)],
        ["y"],
        values={"at": ("int32", ["L"]), "y": ("float32", ["L"])},
        weights={"table": ("float32", [10])},
        ranges={"L": (1, 16)},
    )
    table = np.arange(10, dtype=np.float32)
    model = model_of(data, {"table": table})
    ids = np.array([0, 9, -1, -10, 3])
    np.testing.assert_array_equal(model(ids), table[ids])
    for wrong in (10, -11, 2**40):
        with pytest.raises(ShapeError) as caught:
            model(np.array([0, wrong, 0, 0, 0]))
        said = f"ids: a position is {wrong}; allowed: -10…9, rows of the table that is read"
        assert str(caught.value) == said
        np.testing.assert_array_equal(model(ids), table[ids])
    assert len(model._free) == 1


def test_memory_grows_and_what_was_prepared_in_the_old_is_dropped() -> None:
    executable = read_executable(scaled_sum())
    program = SlotProgram(executable, Kernels({}, {}, {}, {}))
    place = Workplace(executable)

    def prepared(b: int, length: int) -> Any:
        return place.prepared(program, {"B": b, "L": length})

    small, large = prepared(1, 4), prepared(8, 512)
    assert prepared(1, 4) is not small and prepared(8, 512) is large
    again = prepared(1, 4)
    assert prepared(2, 7) is not again and prepared(1, 4) is again
    assert place._memory.generation == 2


def test_sizes_that_grow_step_by_step_take_new_memory_seldom_and_share_what_calls_do() -> None:
    model = model_of(scaled_sum())
    for length in (*range(1, 513), 7, 0):
        x = rows(1, length)
        np.testing.assert_array_equal(model(x), x * 2 + 1)
    (place,) = model._free
    needed = storage_offsets(model.executable, {"B": 8, "L": 512})[1]
    assert place._memory.generation <= 14 and place._memory.num_bytes <= needed
    (program,) = {key[0] for key in place._prepared}
    assert program is model._programs[False]


def test_preparations_are_limited() -> None:
    model = model_of(scaled_sum())
    for length in range(1, 301):
        model(rows(1, length))
    (place,) = model._free
    assert len(place._prepared) <= 128


def test_memory_of_a_model_is_aligned_and_as_large_as_asked_for() -> None:
    memory = StorageMemory()
    memory.reserve(4096)
    view = memory.view(64, np.dtype(np.float32), (8, 16))
    assert view.ctypes.data % 64 == 0 and view.shape == (8, 16) and view.dtype == np.float32
    memory.reserve(4096)
    assert memory.generation == 1


@pytest.mark.thorough
def test_a_call_keeps_none_of_the_callers_arrays() -> None:
    model = model_of(scaled_sum())
    x = rows(2, 64)
    y = model(x)
    seen = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert seen[0]() is None and seen[1]() is None


def test_eight_threads_at_once() -> None:
    model = model_of(scaled_sum())
    wrong: list[Any] = []
    begin = threading.Barrier(8)

    def work(seed: int) -> None:
        begin.wait()
        for number in range(60):
            x = rows(1 + (seed + number) % 8, (seed * 61 + number * 37) % 513, seed)
            if not np.array_equal(model(x), x * 2 + 1):
                wrong.append((seed, x.shape))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and 1 <= len(model._free) <= 8


def test_a_forked_child_calls_it() -> None:
    model = model_of(scaled_sum())
    x = rows(4, 33)
    model(x)
    child = os.fork()
    if child == 0:
        right = all(np.array_equal(model(rows(*shape)), rows(*shape) * 2 + 1) for shape in SHAPES)
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(model(x), x * 2 + 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "x: missing; the model takes x"),
        ((1, 2), "given 2 arguments; allowed: x"),
        (([[1.0]],), "x: list; allowed: a NumPy array, a torch tensor, or DLPack"),
        ((None,), "x: NoneType; allowed: a NumPy array, a torch tensor, or DLPack"),
        ((1.0,), "x: float; allowed: a NumPy array, a torch tensor, or DLPack"),
        ((np.zeros((1, 1)),), "x: dtype float64; allowed: float32"),
        ((np.zeros((1, 1), ">f4"),), "x: dtype >f4; allowed: float32"),
    ],
)
def test_arguments_that_are_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TensorError) as caught:
        model_of(scaled_sum())(*given)
    assert str(caught.value) == message


def test_arrays_in_any_layout() -> None:
    model = model_of(scaled_sum())
    for x in (rows(6, 8)[::2, ::-1], np.asfortranarray(rows(6, 8)), np.broadcast_to(rows(1, 8), (4, 8))):
        np.testing.assert_array_equal(model(x), x * 2 + 1)
    read_only = rows(2, 3)
    read_only.setflags(write=False)
    np.testing.assert_array_equal(model(read_only), read_only * 2 + 1)
