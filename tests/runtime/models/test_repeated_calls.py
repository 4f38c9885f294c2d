"""A kernel called for each position: one native loop, and the loop in Python, which is its reference."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest
from small_libraries import built_of, spec_data

import dietcode
from dietcode.errors import LibraryError
from dietcode.graph.extent import Extent
from dietcode.runtime.models.executable import Repeat
from dietcode.runtime.models.repeated import NativeCalls, Repeated, RepeatedCalls, repeated_action

ROWS, WIDTH = 3, 16


@pytest.fixture(scope="module")
def cell() -> Any:
    """``y = tanh(H·Vᵀ + X)`` and ``2y``, over rows."""
    graph = {
        "Q": {"einsum": ["H", "V"], "dims": "mn"},
        "s": {"add": ["Q", "X"]},
        "y": {"tanh": "s"},
        "z": {"add": ["y", "y"]},
    }
    data = spec_data("cell", op={"block": {"version": 1, "graph": graph, "outputs": ["y", "z"]}})
    del data["output"]
    float32 = {"dtype": "float32"}
    tensors = {
        "X": {"dims": "mn", **float32},
        "H": {"dims": "mu", **float32},
        "V": {"dims": "nu", **float32, "constant": True},
    }
    data |= {
        "tensors": tensors,
        "shape_vars": {"M": {"min": 1, "max": 4}},
        "dims": {"m": "M", "n": WIDTH, "u": WIDTH},
    }
    return dietcode.load(built_of(json.dumps(data)), num_threads=1)


def calls(cell: Any, num_positions: int, reverse: bool, apart: bool = False) -> tuple[Any, list[Any]]:
    """The calls over random inputs, and slots: inputs, the first state, and both results."""
    rng = np.random.default_rng(num_positions)
    x = rng.standard_normal((num_positions, ROWS, WIDTH), np.float32)
    if apart:
        x = np.repeat(x, 2, axis=0)[::2]
    first = rng.standard_normal((1, ROWS, WIDTH), np.float32)
    packed = cell.pack(V=0.3 * rng.standard_normal((WIDTH, WIDTH), np.float32)).native
    slots = [x, first, *(np.full_like(x, np.nan, order="C") for _ in range(2))]
    names, _ = cell.argument_names
    given = {
        "X": Repeated("X", lambda slots: slots[0], (ROWS, WIDTH)),
        "H": Repeated("H", lambda slots: slots[1], (ROWS, WIDTH)),
        "V": Repeated("V", packed, None),
    }
    repeat = Repeat(Extent.of(num_positions), reverse, ("X",), {"H": 1})
    order = range(num_positions)[::-1] if reverse else range(num_positions)
    results = [lambda slots: slots[2], lambda slots: slots[3]]
    return RepeatedCalls(repeat, order, [given[name] for name in names], results, [ROWS]), slots


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("num_positions", [1, 2, 300])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_bits_are_those_of_the_loop_in_python(
    cell: Any, num_positions: int, reverse: bool, is_fixed: bool
) -> None:
    run = cell.native()
    own, slots = calls(cell, num_positions, reverse)
    in_python, others = calls(cell, num_positions, reverse)
    act = repeated_action(run, own, num_positions, is_fixed)
    for _ in range(2):  # the second time with what was kept
        slots[2][:] = slots[3][:] = np.nan
        act(slots)
        repeated_action(functools.partial(run), in_python, num_positions, is_fixed)(others)
        assert (slots[2] == others[2]).all() and (slots[3] == others[3]).all()
        if not is_fixed:
            slots[0] = others[0] = slots[0] + 1


def test_what_is_not_contiguous_is_left_to_python(cell: Any) -> None:
    own, slots = calls(cell, 5, False, apart=True)
    plain, others = calls(cell, 5, False)
    assert not NativeCalls(cell.native(), own, False)(slots)
    repeated_action(cell.native(), own, 5, False)(slots)
    repeated_action(cell.native(), plain, 5, False)(others)
    assert (slots[2] == others[2]).all()


def test_no_position_and_errors(cell: Any) -> None:
    own, slots = calls(cell, 0, False)
    repeated_action(cell.native(), own, 0, True)(slots)
    own, slots = calls(cell, 4, False)
    slots[0] = slots[0].astype(np.float64)
    with pytest.raises(Exception, match=r"float32|dtype") as caught:
        repeated_action(cell.native(), own, 4, False)(slots)
    assert not isinstance(caught.value, LibraryError)
