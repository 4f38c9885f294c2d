"""Tiles made for one shape."""

from __future__ import annotations

from compiled import make_problem
from hypothesis import given
from hypothesis import strategies as st

from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.expansion import fitting_tiles
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.problem import Problem

AVX512 = Limits(lanes=16, num_registers=32, l2_bytes=2 << 20, num_cores=2)
AVX2 = Limits(lanes=8, num_registers=16, l2_bytes=1 << 20, num_cores=4)


CONSTANT, VARYING = (make_problem("mk,nk->mn", constant=constant) for constant in (True, False))


@given(
    st.sampled_from([CONSTANT, VARYING]),
    st.integers(1, 4096),
    st.integers(1, 4096),
    st.sampled_from([AVX512, AVX2]),
)
def test_they_are_viable_and_pad_as_little_as_their_count_allows(
    problem: Problem, rows: int, columns: int, limits: Limits
) -> None:
    tiles = fitting_tiles(problem, rows, columns, limits)
    assert tiles
    assert len(set(tiles)) == len(tiles)
    for tile in tiles:
        assert allows(problem, tile, limits)
        assert tile.tails == "local"
        assert tile.columns < columns + limits.lanes
        num_tiles = -(-rows // tile.rows)
        assert -(-rows // num_tiles) == tile.rows, "a lower tile of as many rows of tiles would pad less"


def test_one_row_gets_wide_tiles_that_no_seed_of_many_rows_reaches() -> None:
    names = [tile.name for tile in fitting_tiles(CONSTANT, 1, 2304, AVX512)]
    assert names[0] == "1x240"
    assert len(names) == 15
    assert all(name.startswith("1x") for name in names)


def test_heights_divide_the_shape() -> None:
    heights = {tile.rows for tile in fitting_tiles(CONSTANT, 24, 16, AVX512)}
    assert heights == {1, 2, 3, 4, 5, 6, 8, 12, 24}


def test_few_columns_get_narrow_vectors_where_no_packed_layout_forbids_it() -> None:
    widths = [{tile.columns for tile in fitting_tiles(VARYING, 24, n, AVX512)} for n in (1, 4, 5, 8, 9)]
    assert widths == [{4, 8, 16}, {4, 8, 16}, {8, 16}, {8, 16}, {16}]
    assert {tile.columns for tile in fitting_tiles(CONSTANT, 24, 4, AVX512)} == {16}
    assert {tile.columns for tile in fitting_tiles(VARYING, 24, 1, AVX2)} == {4, 8}
