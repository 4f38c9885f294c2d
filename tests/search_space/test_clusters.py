"""Clusters of blocks that copy for each other, and persistent grids, run on the CPU against float64."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled import make_problem
from emulation import ORDERS, Emulated, compiled, launch

from dietcode.search_space.cuda.classes import alignment_classes
from dietcode.search_space.cuda.forms import call_shape, functions_of, launches_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.target.cuda import CudaTarget
from dietcode.workload.dtypes import nan_filled, widened

HOPPER, AMPERE = CudaTarget("sm_90a"), CudaTarget("sm_80")
ROWS, COLUMNS, PERSISTENT = {"cluster_rows": 2}, {"cluster_columns": 2}, {"persistent": True}


def tma(*numbers: int, **axes: Any) -> CudaMicroKernel:
    return CudaMicroKernel(*numbers, **axes, unit="tma")


# One stage and several, one consumer and two; lines of 32 to 128 bytes; with all treatments of tails.
TILES = (
    tma(64, 16, 64, 16, 16, stages=1, **ROWS),
    tma(64, 48, 64, 48, 32, stages=2, **COLUMNS),
    tma(128, 64, 64, 64, 64, stages=3, **ROWS),
    tma(64, 64, 64, 32, 128, stages=2, splits=2, tails="partition", **ROWS),
    tma(64, 32, 64, 32, 64, stages=3, tails="global", **COLUMNS),
    tma(64, 8, 64, 8, 16, stages=1, **PERSISTENT),
    tma(128, 64, 64, 64, 64, stages=3, **PERSISTENT),
    tma(64, 48, 64, 48, 32, stages=4, tails="partition", **ROWS, **PERSISTENT),
    tma(64, 32, 64, 32, 64, stages=2, tails="global", **COLUMNS, **PERSISTENT),
)


def half(einsum: str, fixed: dict[str, int], dtype: str = "float16", *stages: Stage) -> Problem:
    problem = make_problem(einsum, fixed, stages, constant=False)
    return replace(problem, operand_dtype=dtype, output_dtype=dtype)


@cache
def dense(dtype: str = "float16") -> Emulated:
    return Emulated(half("mk,nk->mn", {"n": 72, "k": 200}, dtype), TILES, HOPPER)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("m", [1, 64, 70, 200])
def test_rows_of_any_number(m: int, dtype: str) -> None:
    dense(dtype).check({"m": m, "n": 72, "k": 200}, orders=ORDERS)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("most_blocks", [2, 6, 1000])
def test_persistent_grids_of_any_size(most_blocks: int) -> None:
    """Also of as many blocks as there are tiles, and of more than others have, in any order of threads."""
    dense().check({"m": 330, "n": 72, "k": 200}, orders=ORDERS, most_blocks=most_blocks)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    ("einsum", "fixed"),
    [
        ("mk,kn->mn", {"n": 64}),
        ("km,nk->mn", {"m": 136}),
        ("km,kn->mn", {"m": 72, "n": 40}),
        ("bmk,bkn->bmn", {"n": 64}),  # probabilities and values
        ("mbk,bnk->bmn", {"k": 64}),  # a batch that lies inside of the rows
        ("bmk,nk->bmn", {"k": 64, "n": 48}),  # and one that an operand lacks
    ],
)
def test_operands_along_rows_and_columns(einsum: str, fixed: dict[str, int]) -> None:
    """What a cluster has in common is parted along either axis; and with extents for which threads copy."""
    tiles = [tile for tile in TILES if tile.thread_columns % 16 == 0]
    emulated = Emulated(half(einsum, fixed), tiles, HOPPER)
    for base in (1, 40, 72):
        own = {k: 3 if k == "b" else fixed.get(k, base) for k in emulated.problem.extents}
        emulated.check(own, seed=base, orders=(0, 2))


def test_epilogues() -> None:
    stages = (Stage("bias", tensor="bias"), Stage("residual", tensor="R"), Stage("silu"))
    problem = half("mk,nk->mn", {"n": 40, "k": 72}, "bfloat16", *stages)
    Emulated(problem, TILES[1:8], HOPPER).check({"m": 67, "n": 40, "k": 72})


def test_other_classes_have_the_same_grid_and_the_same_bits() -> None:
    """Their blocks are alone and not persistent: as many are launched, those without a tile do nothing."""
    problem = half("mk,nk->mn", {"n": 48})
    for tile in (TILES[2], TILES[7]):
        emulated = Emulated(problem, [tile], HOPPER)
        classes = alignment_classes(emulated.problem, tile)
        functions = [launches_of(emulated.problem, tile, own)[0] for own in classes]
        assert [(one.cluster, one.persistent) for one in functions] == [
            (2, tile.persistent),
            (1, False),
            (1, False),
        ]
        extents = {"m": 330, "n": 48, "k": 136}
        inputs = emulated.random_inputs(extents)
        outputs = [emulated.run(tile, inputs, extents, own=own) for own in classes]
        assert np.array_equal(outputs[0], outputs[1])
        assert np.array_equal(outputs[0], outputs[2])


def test_grids_are_whole_clusters() -> None:
    problem = half("bmk,bnk->bmn", {"n": 200, "k": 64})
    extents = {"b": 3, "m": 330, "n": 200, "k": 64}  # 3 by 4 tiles, which are 2 by 4 or 3 by 2 pairs
    for axes, blocks in (({}, 36), (ROWS, 48), (COLUMNS, 36), (ROWS | PERSISTENT, 48)):
        tile = tma(128, 64, 64, 64, 64, stages=2, **axes)
        assert call_shape(problem, tile, extents).grid.blocks == blocks
        assert call_shape(problem, tile, extents).demand.blocks == blocks


@pytest.mark.thorough
def test_other_architectures_get_a_twin_of_the_same_grid() -> None:
    problem = half("mk,nk->mn", {"n": 72})
    twins = Emulated(problem, TILES, AMPERE)
    assert "cluster" not in twins.text.replace("_cluster", "").replace("cluster_ptr", "")
    for tile in TILES:
        twin = tile.on(AMPERE.sm)
        assert (twin.unit, twin.tile, twin.tails, twin.is_alone) == ("mma", tile.tile, tile.tails, True)
        assert twin.threads == tile.threads - 128
        for k in (72, 130):
            extents = {"m": 200, "n": 72, "k": k}
            inputs = twins.random_inputs(extents)
            output = run_twin(twins, tile, inputs, extents)
            assert np.abs(output - reference(problem, inputs)).max() < 0.1


def run_twin(twins: Emulated, tile: CudaMicroKernel, inputs: dict[str, Any], extents: dict[str, int]) -> Any:
    """The output of a twin's functions, launched as those of the micro-kernel, but with all blocks alone."""
    problem, twin, library = twins.problem, tile.on(AMPERE.sm), twins.library
    own = {f.symbol: f for f in functions_of(problem, twin)}
    names = zip(functions_of(problem, twin), functions_of(problem, tile), strict=True)
    emitted = {given.symbol: own[one.symbol] for one, given in names}
    known: dict[Any, Any] = {}
    for symbol, function in emitted.items():
        call = getattr(library, f"call_{symbol}")
        known[f"call_{symbol}"], known[ctypes.cast(call, ctypes.c_void_p).value] = call, function

    def emulate(
        call: Any, x: int, y: int, _threads: int, _shared: int, pointers: Any, order: int, _: int
    ) -> int:
        function = known[ctypes.cast(call, ctypes.c_void_p).value]
        return int(library.emulate(call, x, y, function.threads, function.shared_bytes, pointers, order, 1))

    renamed = SimpleNamespace(
        emulate=emulate,
        encode_map=library.encode_map,
        **{name: call for name, call in known.items() if isinstance(name, str)},
    )
    output = nan_filled(problem.shape(problem.output, extents), problem.output_dtype)
    outputs, every = (
        {problem.output: output},
        1 << 20,
    )  # of a persistent grid all blocks, as a library launches
    found = launch(problem, renamed, tile, inputs, outputs, extents, most_blocks=every)
    return widened(found[problem.output], problem.output_dtype)


EXTENTS = {"m": 450, "n": 128, "k": 200}  # 4 by 2 tiles
CLUSTER = tma(128, 64, 64, 64, 64, stages=3, **ROWS)
ACROSS = tma(128, 64, 64, 64, 64, stages=3, **COLUMNS)
GOING_ON = tma(128, 64, 64, 64, 64, stages=3, **PERSISTENT)
BOTH = tma(128, 64, 64, 64, 64, stages=2, **ROWS, **PERSISTENT)


@cache
def sound(tile: CudaMicroKernel) -> Emulated:
    return Emulated(half("mk,nk->mn", {"n": 128, "k": 200}), [tile], HOPPER)


def broken(tile: CudaMicroKernel, *changes: tuple[str, str], last: bool = False) -> Emulated:
    """The text with all of some of its parts replaced, or the last one of each."""
    known = sound(tile)
    body = known.text.index('extern "C"')
    head, text = known.text[:body], known.text[body:]
    for old, new in changes:
        assert old in text, f"{old} is not in\n{text}"
        text = new.join(text.rsplit(old, 1)) if last else text.replace(old, new)
    emulated = Emulated.__new__(Emulated)
    emulated.problem, emulated.tiles, emulated.text = known.problem, known.tiles, head + text
    emulated.library = compiled(head + text)
    return emulated


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("tile", [CLUSTER, ACROSS, GOING_ON, BOTH], ids=lambda tile: tile.name)
def test_what_is_broken_below_is_right(tile: CudaMicroKernel) -> None:
    for most_blocks in (2, 4):
        sound(tile).check(EXTENTS, orders=ORDERS, most_blocks=most_blocks)


FULL = "wait_for_phase(((address_ptr[0] + (uint){at}) + ((uint)(read_ptr[0] * 8))), read_ptr[1]);"
EMPTY = (
    "wait_for_phase(((address_ptr[0] + (uint){at}) + "
    "((uint)((filled_ptr[0] * 8) + {behind}))), filled_ptr[1]);"
)
FREED = "(lane_ptr[0] < 2)"


def part(text: str, tile: CudaMicroKernel) -> str:
    return text.format(at=tile.barriers_at, behind=8 * tile.stages)


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize(
    ("tile", "old", "new", "message"),
    [
        (
            CLUSTER,
            "make_barrier<16>(",
            "make_barrier<8>(",
            "more threads arrive|never over|not waited|overwritten",
        ),
        (CLUSTER, "make_barrier<16>(", "make_barrier<15>(", "never over|more threads arrive"),
        (CLUSTER, FREED, "(lane_ptr[0] < 1)", "never over"),
        (CLUSTER, FREED, "(lane_ptr[0] == 1)", "never over|more threads|has ended"),
        (CLUSTER, FREED, "(lane_ptr[0] < 3)", "no such block"),
        (CLUSTER, "copy_box_2_to_all<3>", "copy_box_2_to_all<1>", "never over|not waited|has ended"),
        (CLUSTER, "copy_box_2_to_all<3>", "copy_box_2_to_all<2>", "never over|not waited|has ended"),
        (CLUSTER, "copy_box_2_to_all<3>", "copy_box_2_to_all<7>", "no such block"),
        (CLUSTER, "copy_box_2_to_all<3>(map_W", "copy_box_2(map_W", "never over"),
        (CLUSTER, "arrive_and_expect<24576>", "arrive_and_expect<20480>", "never over|expected that nobody"),
        (CLUSTER, "show_barriers();", "", "not shown"),
        (BOTH, "make_barrier<16>(", "make_barrier<17>(", "never over"),
        (GOING_ON, "make_barrier<8>(", "make_barrier<7>(", "never over|more threads arrive"),
    ],
)
def test_what_barriers_and_masks_refuse_is_seen(
    tile: CudaMicroKernel, old: str, new: str, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        broken(tile, (old, new)).check(EXTENTS, orders=ORDERS)


def is_refused_or_wrong(emulated: Emulated) -> bool:
    (tile,) = emulated.tiles
    inputs = emulated.random_inputs(EXTENTS)
    expected = reference(emulated.problem, inputs)
    try:
        outputs = [
            emulated.run(tile, inputs, EXTENTS, order, most_blocks=most_blocks)
            for order in ORDERS
            for most_blocks in (2, 4)
        ]
    except AssertionError as error:
        assert tile.name in str(error)
        return True
    return not np.max([np.abs(output - expected).max() for output in outputs]) < 1


@pytest.mark.thorough
@pytest.mark.sampled(keep=8)
@pytest.mark.parametrize(
    ("tile", "changes"),
    [
        (CLUSTER, [(FULL, "")]),
        (CLUSTER, [(EMPTY, "")]),
        (ACROSS, [(FULL, "")]),
        (ACROSS, [(EMPTY, "")]),
        (BOTH, [(FULL, "")]),
        (BOTH, [(EMPTY, "")]),
        (GOING_ON, [(FULL, "")]),
        (GOING_ON, [(EMPTY, "")]),
        # Consumers that tell their own producer alone, which waits for no others: another copies too early.
        (
            CLUSTER,
            [
                ("make_barrier<16>(", "make_barrier<8>("),
                (FREED, "(lane_ptr[0] == 0)"),
                (", lane_ptr[0]);", ", int(blockIdx.x) % 2);"),
            ],
        ),
        (CLUSTER, [("meet_consumers<256>();", "")]),
        (BOTH, [("wait_for_products<1>();", "wait_for_products<2>();")]),
        (BOTH, [("__syncwarp();", "")]),
        (BOTH, [("* 24576))) + (uint)16384)", "* 24576))) + (uint)8192)")]),
        (CLUSTER, [("% 2) * 4096", "% 2) * 2048")]),
        (CLUSTER, [("% 2) * 32", "% 2) * 64")]),
        (
            CLUSTER,
            [("* 2) + rank_ptr[0]", "* 2) + 1")],
        ),
        (BOTH, [("read_ptr[(int64_t)1] = 0;", "read_ptr[(int64_t)1] = 1;")]),
        (GOING_ON, [("(1 - read_ptr[1])", "read_ptr[1]")]),
        (GOING_ON, [("(1 - filled_ptr[1])", "filled_ptr[1]")]),
        (BOTH, [("num_blocks_ptr[0]));", "num_blocks_ptr[0])) + 2;")]),
        (GOING_ON, [("num_blocks_ptr[0] = blocks_of_grid();", "num_blocks_ptr[0] = blocks_of_grid() - 1;")]),
        (GOING_ON, [("* 640) + 18432)", "* 640) + 0)")]),
        (GOING_ON, [("* 640) + 18432)", "* 320) + 18432)")]),
    ],
)
def test_what_waits_and_describes_is_needed(tile: CudaMicroKernel, changes: list[tuple[str, str]]) -> None:
    """The emulation itself: a changed text is refused, or gives wrong numbers in some order."""
    assert is_refused_or_wrong(
        broken(tile, *((part(old, tile) if old in (FULL, EMPTY) else old, new) for old, new in changes))
    )


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("tile", [CLUSTER, ACROSS, BOTH], ids=lambda tile: tile.name)
@pytest.mark.parametrize(
    ("last", "message"),
    [(False, "not made|has ended|not shown"), (True, "has ended")],
    ids=["at_the_beginning_and_end", "at_the_end"],
)
def test_blocks_of_a_cluster_meet_before_and_behind(tile: CudaMicroKernel, last: bool, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        broken(tile, ("meet_cluster();", "__syncthreads();"), last=last).check(EXTENTS, orders=ORDERS)


def test_barriers_are_met_ahead_of_the_first_copy() -> None:
    text = ("meet_cluster();\n  if (warpgroup", "__syncthreads();\n  if (warpgroup")
    with pytest.raises(AssertionError, match=r"not made|not shown"):
        broken(BOTH, text).check(EXTENTS, orders=ORDERS)


def test_a_stage_is_freed_behind_the_last_tile_of_the_reduction() -> None:
    """Else the producer waits for ever for what the next tile of the output needs."""
    with pytest.raises(AssertionError, match="never over"):
        broken(GOING_ON, ("if (lane_ptr[0] == 0) {", "if (lane_ptr[0] == 99) {"), last=True).check(EXTENTS)


def test_a_grid_of_half_a_cluster_is_refused() -> None:
    inputs = sound(BOTH).random_inputs(EXTENTS)
    with pytest.raises(AssertionError, match="no whole clusters"):
        sound(BOTH).run(BOTH, inputs, EXTENTS, most_blocks=3)


@pytest.mark.parametrize(
    ("numbers", "axes", "message"),
    [
        ((64, 64, 64, 64, 64), {"unit": "wgmma", **ROWS}, "allowed: with unit tma"),
        ((64, 64, 64, 64, 64), {"unit": "wgmma", **PERSISTENT}, "allowed: with unit tma"),
        ((64, 64, 64, 64, 64), {"unit": "tma", **ROWS, **COLUMNS}, "clusters of 2 tiles"),
        ((64, 64, 64, 64, 64), {"unit": "tma", "cluster_rows": 4}, "clusters of 2 tiles"),
        ((64, 64, 64, 64, 64), {"unit": "tma", "cluster_rows": -1, "cluster_columns": -1}, "clusters of 2"),
        ((64, 24, 64, 24, 64), {"unit": "tma", **ROWS}, "multiples of 16 columns"),
        ((64, 64, 64, 64, 64), {"unit": "tma", "splits": 2, **PERSISTENT}, "allowed: one part"),
    ],
)
def test_blocks_that_do_not_fit_together_are_refused(
    numbers: tuple[int, ...], axes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CudaMicroKernel(*numbers, **axes)


def test_data_say_what_is_not_the_default() -> None:
    """So that records of micro-kernels without any of it are the lines that they were."""
    alone = tma(128, 64, 64, 64, 64, stages=3)
    assert not {"cluster_rows", "cluster_columns", "persistent"} & set(alone.to_json())
    assert CudaMicroKernel.from_json(alone.to_json()) == alone
    for tile in (*TILES, BOTH):
        assert CudaMicroKernel.from_json(tile.to_json() | {"other": 1}) == tile
        assert tile.symbol.isidentifier()
    assert BOTH.name == "128x64-t64x64-k64-s2-tma-c2x1-persistent"
    assert len({tile.order for tile in (alone, CLUSTER, ACROSS, GOING_ON)}) == 4
    with pytest.raises(TypeError, match="persistent: given '1'; allowed: true or false"):
        CudaMicroKernel.from_json(alone.to_json() | {"persistent": 1})
    with pytest.raises(TypeError, match="cluster_rows: given 'True'; allowed: a whole number"):
        CudaMicroKernel.from_json(alone.to_json() | {"cluster_rows": True})
