"""The wave: the best grid, and every tile computed once."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.search_space.partition import (
    NumpyOps,
    ceildiv,
    choose_partition,
    factorisations,
    row_tiles_in_l2,
)

OPS = NumpyOps()


def brute_force_load(batch: int, rows: int, columns: int, num_cores: int, has_batch: bool) -> int:
    """Smallest number of tiles that the most loaded core can have, over all grids of `num_cores` parts."""
    return min(
        math.ceil(batch / pb) * math.ceil(rows / pr) * math.ceil(columns / pc)
        for pb, pr, pc in itertools.product(range(1, num_cores + 1), repeat=3)
        if pb * pr * pc == num_cores and (has_batch or pb == 1)
    )


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 24), st.booleans())
@settings(deadline=None)
def test_the_largest_load_is_the_least_possible(
    batch: int, rows: int, columns: int, num_cores: int, has_batch: bool
) -> None:
    batch = batch if has_batch else 1
    arrays = (np.array([n]) for n in (batch, rows, columns))
    grid = choose_partition(*arrays, num_cores, has_batch, OPS)
    assert int(grid.largest_load[0]) == brute_force_load(batch, rows, columns, num_cores, has_batch)
    assert int((grid.batch_parts * grid.row_parts * grid.column_parts)[0]) == num_cores


def part(total: int, index: int, parts: int) -> range:
    """As `kernel.Kernel.part`."""
    return range(index * total // parts, (index + 1) * total // parts)


@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 30), st.integers(1, 12))
@settings(deadline=None)
def test_every_tile_belongs_to_one_core(batch: int, rows: int, columns: int, num_cores: int) -> None:
    grid = choose_partition(np.array(batch), np.array(rows), np.array(columns), num_cores, True, OPS)
    pb, pr, pc = int(grid.batch_parts), int(grid.row_parts), int(grid.column_parts)
    seen = np.zeros((batch, rows, columns), dtype=int)
    loads = []
    for task in range(num_cores):
        rest, column_part = divmod(task, pc)
        batch_part, row_part = divmod(rest, pr)
        cut = np.ix_(part(batch, batch_part, pb), part(rows, row_part, pr), part(columns, column_part, pc))
        seen[cut] += 1
        loads.append(seen[cut].size)
    assert (seen == 1).all()
    assert max(loads) == int(grid.largest_load)


@pytest.mark.parametrize("num_cores", [1, 2, 6, 7, 12])
def test_factorisations_are_all_and_each_once(num_cores: int) -> None:
    found = factorisations(num_cores, True)
    expected = [t for t in itertools.product(range(1, num_cores + 1), repeat=3) if math.prod(t) == num_cores]
    assert sorted(found) == sorted(expected)
    assert all(pb == 1 for pb, _, _ in factorisations(num_cores, False))
    assert factorisations(num_cores, False)[0] == (1, 1, num_cores)
    rows_first = factorisations(num_cores, True, rows_first=True)
    assert sorted(rows_first) == sorted(expected)
    assert factorisations(num_cores, False, rows_first=True)[0] == (1, num_cores, 1)


def test_ties_split_columns() -> None:
    grid = choose_partition(np.array(1), np.array(4), np.array(4), 4, False, OPS)
    assert (int(grid.row_parts), int(grid.column_parts)) == (1, 4)


def test_ties_split_rows_where_each_task_copies_its_rows() -> None:
    grid = choose_partition(np.array(1), np.array(4), np.array(4), 4, False, OPS, rows_first=True)
    assert (int(grid.row_parts), int(grid.column_parts)) == (4, 1)
    few_rows = choose_partition(np.array(1), np.array(2), np.array(4), 4, False, OPS, rows_first=True)
    assert (int(few_rows.row_parts), int(few_rows.column_parts)) == (2, 2)


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_ceildiv(a: int, b: int) -> None:
    assert ceildiv(a, b, OPS) == -(-a // b)


def test_blocks_of_rows_fill_half_of_l2() -> None:
    assert row_tiles_in_l2(np.array(512), 8, 1 << 20, OPS) == (1 << 20) // 2 // (512 * 8 * 4)
    assert row_tiles_in_l2(np.array(1 << 24), 8, 1 << 20, OPS) == 1
