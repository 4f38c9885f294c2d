"""Memory of packed constants: large ones begin with a large page."""

from __future__ import annotations

import mmap
import pickle

import numpy as np
import pytest

from dietcode.runtime.tensors import Packed, packed_empty, span

LARGE = 1 << 21


@pytest.mark.parametrize("count", [LARGE // 4, LARGE // 4 + 1, LARGE])
def test_a_large_one_begins_with_a_large_page(count: int) -> None:
    array = packed_empty((1, count))
    assert array.shape == (1, count)
    assert array.dtype == np.float32
    first, last = span(array)
    assert first % LARGE == 0
    assert last - first == 4 * count
    array[...] = 1.5  # all of it is there
    assert array.sum(dtype=np.float64) == 1.5 * count


@pytest.mark.parametrize("count", [1, 37, LARGE // 4 - 1])
def test_a_small_one_begins_with_a_line_of_the_cache(count: int) -> None:
    assert span(packed_empty((count,)))[0] % 64 == 0


def test_a_system_without_large_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert span(packed_empty((LARGE,)))[0] % LARGE == 0


def test_it_is_large_again_where_a_pickle_is_read() -> None:
    data = packed_empty((2, LARGE // 4))
    data[...] = np.arange(data.size, dtype=np.float32).reshape(data.shape)
    found = pickle.loads(pickle.dumps(Packed("W", (2, 3), "nk", data)))
    assert found.span[0] % LARGE == 0
    assert np.array_equal(found.data, data)
