"""Copies by the launcher: every layout that it takes, and those that it leaves to NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dietcode.runtime.models.copies import LARGE_BYTES, concatenate, native_copy
from dietcode.runtime.threads import Threads

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=[1, 3])
def run(request: pytest.FixtureRequest) -> Any:
    """The launcher's copy on so many threads."""
    return Threads(request.param, "own", request.param).bind_copy()


def random(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Return an array of random elements."""
    return np.random.default_rng(len(shape)).integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float32", "int64", "float64"])
def test_every_layout_is_copied(run: Any, dtype: str) -> None:
    whole = random((5, 6, 14, 10), dtype)
    sources = [
        *(whole.transpose(axes) for axes in itertools.permutations(range(4))),
        whole[1:4, ::2, 3:, :7],
        whole[:, :, ::-1],
        whole[:0],
        whole[:, :1, :1],
        np.broadcast_to(whole[:, :1], whole.shape).copy()[::2],
        whole.reshape(-1),
        np.asarray(whole[0, 0, 0, 0]),
    ]
    for source in sources:
        for gaps in (False, True)[: source.ndim + 1]:
            around = np.zeros([extent + 2 * gaps for extent in source.shape], dtype)
            out = around[(slice(1, -1),) * source.ndim] if gaps else around
            run(out, source, 0)
            assert np.array_equal(out, source)
            if gaps:
                out[...] = 0
                assert not around.any()  # nothing beside it was written


def test_threads_share_a_copy_of_any_size(run: Any) -> None:
    for size in (1, 63, 64, 65, 1000, 100_003):
        for source in (random((size,)), random((size, 3))[:, :2], random((7, size))[::3]):
            for _ in range(3):
                out = np.full(source.shape, -1, np.float32)
                run(out, source, size)
                assert np.array_equal(out, source)


def test_tensors_that_do_not_fit_are_refused(run: Any) -> None:
    one = random((4, 5))
    many = random((1,) * 17)
    for to, source in (
        (random((5, 4)), one),
        (random((20,)), one),
        (random((4, 5), "int64"), one),
        (many, many),
    ):
        with pytest.raises(ValueError, match=r"^copy: the tensors differ in extents or elements"):
            run(to, source, 0)
    with pytest.raises(TypeError, match=r"^copy: takes two tensors and an integer$"):
        run(one, 3, 0)


def test_large_copies_go_to_the_launcher_where_rows_are_whole() -> None:
    called = []

    def run(to: Array, source: Array, kind: int) -> None:
        called.append(kind)
        np.copyto(to, source)

    copy, rows = native_copy(run), LARGE_BYTES // 4 // 16
    fixed = random((rows, 16))
    fixed.flags.writeable = False
    for source in (random((rows - 1, 16)), random((16, rows)).T, fixed, random((*(1,) * 16, rows, 16))):
        out = np.zeros(source.shape, np.float32)
        copy(out, source)
        assert np.array_equal(out, source) and not called
    out = np.zeros((rows, 16), np.float32)
    copy(out, random((rows, 32))[:, 3:19])
    assert called == [LARGE_BYTES.bit_length()]
    assert np.array_equal(out, random((rows, 32))[:, 3:19])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_cache_and_its_new_rows(run: Any, axis: int) -> None:
    rows = LARGE_BYTES // 64
    for length in (rows, 3):
        for more in (1, 5):
            shape = [2, 4, 8]
            shape[axis] = length
            cache = random(tuple(shape))
            shape[axis] = more
            new = random(tuple(shape)).transpose(1, 0, 2).copy().transpose(1, 0, 2)
            wanted = np.concatenate((cache, new, cache), axis)
            out = np.zeros_like(wanted)
            concatenate((cache, new, cache), axis, out, native_copy(run))
            assert np.array_equal(out, wanted)
