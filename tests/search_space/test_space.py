"""Limits and the space: every tile follows from the target, none is a literal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.space import build_space, hardware_seeds, tile_range
from dietcode.search_space.seed import Seed
from dietcode.search_space.tails import TAILS

AVX512 = Limits(lanes=16, num_registers=32, l2_bytes=1 << 20, num_cores=2)
AVX2 = Limits(lanes=8, num_registers=16, l2_bytes=1 << 18, num_cores=4)
SSE = Limits(lanes=4, num_registers=16, l2_bytes=1 << 18, num_cores=1)
NEON = Limits(lanes=4, num_registers=32, l2_bytes=1 << 19, num_cores=8)
MANY = Limits(lanes=64, num_registers=128, l2_bytes=1 << 20, num_cores=2)

limits_strategy = st.builds(
    Limits,
    lanes=st.sampled_from([2, 4, 8, 16, 32]),
    num_registers=st.sampled_from([16, 32, 64]),
    l2_bytes=st.just(1 << 18),
    num_cores=st.integers(1, 8),
)


def loads_per_fma(tile: MicroKernel, limits: Limits) -> float:
    vectors = tile.columns // limits.lanes
    return (tile.rows + vectors) / (tile.rows * vectors)


@pytest.mark.parametrize(
    ("limits", "narrow", "square"),
    [
        (AVX512, (14, 32), (5, 80)),
        (AVX2, (6, 16), (4, 24)),
        (SSE, (6, 8), (4, 12)),
        (NEON, (14, 8), (5, 20)),
    ],
)
def test_tiles_of_known_machines(limits: Limits, narrow: tuple[int, int], square: tuple[int, int]) -> None:
    assert limits.narrow_tile() == MicroKernel(*narrow)
    assert limits.square_tile() == MicroKernel(*square)


def test_a_machine_with_more_registers_gets_larger_tiles() -> None:
    for tile in (MANY.narrow_tile(), MANY.square_tile()):
        assert MANY.holds(tile)
        assert not AVX512.holds(tile)
    assert loads_per_fma(MANY.square_tile(), MANY) < loads_per_fma(AVX512.square_tile(), AVX512)


@given(limits_strategy)
@settings(deadline=None)
def test_seeds_fit_the_registers_and_cannot_grow(limits: Limits) -> None:
    narrow, square = limits.narrow_tile(), limits.square_tile()
    for tile in (narrow, square):
        assert limits.holds(tile)
        assert not limits.holds(MicroKernel(tile.rows + 1, tile.columns))
    viable = [
        MicroKernel(rows, vectors * limits.lanes)
        for rows in range(1, limits.num_registers)
        for vectors in range(1, limits.num_registers)
        if limits.holds(MicroKernel(rows, vectors * limits.lanes))
    ]
    best = min(loads_per_fma(tile, limits) for tile in viable)
    assert loads_per_fma(square, limits) == best
    assert narrow.columns <= square.columns or loads_per_fma(narrow, limits) > 2 / 3


def test_what_holds() -> None:
    assert AVX2.holds(MicroKernel(6, 16))  # 12 accumulators, 2 vectors, 1 broadcast
    assert not AVX2.holds(MicroKernel(7, 16))
    assert not AVX2.holds(MicroKernel(6, 12))  # no whole vectors
    assert not AVX2.holds(MicroKernel(0, 8))
    assert not AVX2.holds(MicroKernel(1, 0))


@pytest.mark.parametrize("tails", TAILS)
def test_a_micro_kernel_as_plain_data(tails: str) -> None:
    kernel = MicroKernel(12, 32, tails)
    assert MicroKernel.from_json(kernel.to_json()) == kernel
    assert MicroKernel.from_json(kernel.to_json() | {"provenance": "hardware"}) == kernel
    assert kernel.name == ("12x32" if tails == "local" else f"12x32-{tails}")


def test_tails_are_local_padding_unless_said() -> None:
    assert MicroKernel(2, 8) == MicroKernel(2, 8, "local") == MicroKernel.from_json({"rows": 2, "columns": 8})
    assert MicroKernel(2, 8) != MicroKernel(2, 8, "partition")


@pytest.mark.parametrize("change", [{"tails": "none"}, {"tails": None}, {"rows": 0}, {"columns": -8}])
def test_what_is_no_micro_kernel(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"tails|tile"):
        MicroKernel.from_json({"rows": 2, "columns": 8} | change)


@given(st.integers(1, 200))
def test_tile_range_is_half_to_double(extent: int) -> None:
    assert list(tile_range(extent)) == [n for n in range(1, 3 * extent) if extent / 2 <= n <= 2 * extent]


seeds_strategy = st.lists(
    st.builds(Seed, st.integers(1, 40), st.integers(1, 160), st.sampled_from(["metaschedule", "hardware"])),
    min_size=1,
    max_size=3,
)


@given(
    limits_strategy,
    seeds_strategy,
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 300),
)
@settings(deadline=None)
def test_the_space_is_every_viable_tile_around_a_seed(
    limits: Limits, seeds: list[Seed], max_rows: int | None, max_columns: int | None
) -> None:
    expected: dict[tuple[int, int], str] = {}
    for seed in seeds:
        columns = [c for c in range(1, 400) if c % limits.lanes == 0 and _near(c, seed.columns)]
        for c in columns or [limits.lanes]:
            for r in range(1, 100):
                vectors = c // limits.lanes
                if not _near(r, seed.rows) or r * vectors + vectors + 1 > limits.num_registers:
                    continue
                if max_rows is not None and r >= 2 * max_rows:
                    continue
                if max_columns is not None and c - limits.lanes >= max_columns:
                    continue
                expected.setdefault((r, c), seed.source)
    space = build_space(seeds, limits, max_rows, max_columns)
    found = {(c.micro_kernel.rows, c.micro_kernel.columns): c.provenance for c in space}
    assert len(found) == len(space)
    assert found == expected


def _near(extent: int, seed: int) -> bool:
    return seed <= 2 * extent and extent <= 2 * seed


def test_seeds_come_first() -> None:
    seeds = hardware_seeds(AVX512)
    space = build_space(seeds, AVX512)
    first = {(c.micro_kernel.rows, c.micro_kernel.columns) for c in space[: len(seeds)]}
    assert first == {(14, 32), (5, 80)}
    assert {c.provenance for c in space} == {"hardware"}


def test_a_tile_is_credited_to_the_first_seed_that_reaches_it() -> None:
    space = build_space([Seed(12, 32, "metaschedule"), *hardware_seeds(AVX512)], AVX512)
    provenance = {c.micro_kernel: c.provenance for c in space}
    assert provenance[MicroKernel(14, 32)] == "metaschedule"
    assert provenance[MicroKernel(3, 80)] == "hardware"


def test_other_machines_give_other_spaces() -> None:
    spaces = [
        {c.micro_kernel for c in build_space(hardware_seeds(limits), limits)}
        for limits in (AVX512, AVX2, SSE, NEON)
    ]
    assert all(spaces)
    assert len({frozenset(space) for space in spaces}) == len(spaces)


def test_a_workload_with_one_row_gets_no_tall_tiles() -> None:
    space = build_space([Seed(2, 32, "metaschedule")], AVX512, max_rows=1)
    assert {c.micro_kernel.rows for c in space} == {1}
