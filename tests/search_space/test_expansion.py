"""Tiles made for one shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dietcode.search_space.expansion import fitting_tiles
from dietcode.search_space.limits import Limits

AVX512 = Limits(lanes=16, num_registers=32, l2_bytes=2 << 20, num_cores=2)
AVX2 = Limits(lanes=8, num_registers=16, l2_bytes=1 << 20, num_cores=4)


@given(st.integers(1, 4096), st.integers(1, 4096), st.sampled_from([AVX512, AVX2]))
def test_they_are_viable_and_pad_as_little_as_their_count_allows(
    rows: int, columns: int, limits: Limits
) -> None:
    tiles = fitting_tiles(rows, columns, limits)
    assert tiles
    assert len(set(tiles)) == len(tiles)
    for tile in tiles:
        assert limits.holds(tile)
        assert tile.tails == "local"
        assert tile.columns < columns + limits.lanes
        num_tiles = -(-rows // tile.rows)
        assert -(-rows // num_tiles) == tile.rows, "a lower tile of as many rows of tiles would pad less"


def test_one_row_gets_wide_tiles_that_no_seed_of_many_rows_reaches() -> None:
    names = [tile.name for tile in fitting_tiles(1, 2304, AVX512)]
    assert names[0] == "1x240"
    assert len(names) == 15
    assert all(name.startswith("1x") for name in names)


def test_heights_divide_the_shape() -> None:
    heights = {tile.rows for tile in fitting_tiles(24, 16, AVX512)}
    assert heights == {1, 2, 3, 4, 5, 6, 8, 12, 24}
