"""Which micro-kernels there are for CUDA, and what bounds them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import make_problem
from needs import needs_nvrtc

from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import block_problem, copies_of, writes_parts
from dietcode.search_space.cuda.shape import WORKSPACE, CallShape, alignments
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.cuda.space import build_space, hardware_seeds, neighbours
from dietcode.search_space.problem import Problem, problem_from_spec
from dietcode.target.cubin import read_kernels
from dietcode.target.cuda import ARCHS, CudaTarget
from dietcode.target.nvrtc import compile_cubin, compile_ptx
from dietcode.workload.parse import spec_from_data

DENSE = device_problem(make_problem("mk,nk->mn", {"n": 2304, "k": 768}))
HALF = replace(DENSE, operand_dtype="float16", output_dtype="float16")
T0 = CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2)
TENSOR = CudaMicroKernel(128, 256, 64, 64, 32, stages=4, unit="mma")


def limits(arch: str = "sm_90") -> CudaLimits:
    return CudaLimits.of(CudaTarget(arch))


def test_names_and_data_come_back() -> None:
    for tile in (T0, replace(T0, splits=4, tails="partition"), CudaMicroKernel(16, 64, 4, 4, 8), TENSOR):
        assert CudaMicroKernel.from_json(tile.to_json() | {"other": 1}) == tile
        assert tile.symbol.isidentifier()
    assert CudaMicroKernel.from_json({k: v for k, v in T0.to_json().items() if k != "unit"}) == T0
    assert T0.name == "128x128-t8x8-k16-v2x2-s2"
    assert TENSOR.name == "128x256-t64x64-k32-s4-mma"
    assert TENSOR.threads == 256
    assert replace(T0, splits=4, tails="checked").name == "128x128-t8x8-k16-v2x2-s2-split4-checked"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "numbers from 1"),
        ({"stages": 3}, "1 to 2 stages"),
        ({"rows": 100}, "whole tiles of threads"),
        ({"row_vthreads": 3}, "whole parts"),
        ({"tails": "reflect"}, "allowed: local, partition, global, checked"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(T0, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": 5}, "1 to 4 stages"),
        ({"k_tile": 24}, "16 steps, or a multiple of 32"),
        ({"k_tile": 48}, "16 steps, or a multiple of 32"),
        ({"thread_rows": 8}, "multiples of 16 rows and 8 columns of a warp"),
        ({"row_vthreads": 2}, "no vthreads"),
        ({"tails": "checked"}, "of unit mma; allowed: local, partition"),
        ({"unit": "imma"}, "unit 'imma'; allowed: simt, mma, wgmma"),
    ],
)
def test_what_tensor_cores_cannot_do_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TENSOR, **changes)


@pytest.mark.parametrize(
    ("arch", "dtype", "message"),
    [
        ("sm_75", "bfloat16", "98304 bytes of shared memory; allowed: 65536"),
        ("sm_90", "float32", "float32 operands for tensor cores; allowed: float16, bfloat16"),
        ("sm_75", "float16", "98304 bytes of shared memory; allowed: 65536"),
        ("sm_80", "bfloat16", None),
    ],
)
def test_an_architecture_without_the_means_says_so(arch: str, dtype: str, message: str | None) -> None:
    problem = replace(HALF, operand_dtype=dtype)
    reason = limits(arch).why_not(problem, TENSOR)
    assert reason is message or message in (reason or "")


def test_data_of_other_types_is_refused() -> None:
    with pytest.raises(TypeError, match="rows"):
        CudaMicroKernel.from_json(T0.to_json() | {"rows": "128"})


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        (CudaMicroKernel(256, 256, 4, 4, 8), "4096 threads in a block; allowed: multiples of 32 up to 1024"),
        (CudaMicroKernel(8, 8, 2, 2, 4), "16 threads"),
        (CudaMicroKernel(128, 128, 8, 8, 128, stages=2), "270336 bytes of shared memory; allowed: 232448"),
        (CudaMicroKernel(256, 256, 16, 16, 8), "registers; allowed: 255"),
        (CudaMicroKernel(128, 256, 8, 4, 8), "1024 threads of about"),
    ],
)
def test_a_tile_that_cannot_fit_says_why(tile: CudaMicroKernel, message: str) -> None:
    assert message in (limits().why_not(DENSE, tile) or "")
    assert not limits().holds(DENSE, tile)


@pytest.mark.parametrize("arch", ARCHS)
def test_seeds_fit_every_architecture(arch: str) -> None:
    assert len(hardware_seeds(DENSE, limits(arch))) == 4


@pytest.mark.parametrize("arch", ARCHS)
def test_half_precision_is_for_tensor_cores_where_they_know_it(arch: str) -> None:
    for dtype in ("float16", "bfloat16"):
        problem = replace(HALF, operand_dtype=dtype)
        seeds = hardware_seeds(problem, limits(arch))
        assert len(seeds) >= 3
        knows = dtype in ARCHS[arch].tensor_dtypes
        space = build_space(problem, seeds, limits(arch), 2048, 2304)
        units = {"mma", "wgmma", "tma"} if ARCHS[arch].has_wgmma else {"mma"}
        assert {c.micro_kernel.unit for c in space} == (units if knows else {"simt"})
        assert len(space) > 50
        for seed in seeds:
            others = neighbours(problem, seed.micro_kernel, limits(arch), 768)
            alike = {"wgmma", "tma"} if seed.micro_kernel.has_warpgroups else {seed.micro_kernel.unit}
            assert {tile.unit for tile in others} == alike
            assert replace(seed.micro_kernel, tails="partition") in others
            if seed.micro_kernel.persistent:  # its blocks take whole reductions in turn
                assert {other.splits for other in others} == {1}
            else:
                assert replace(seed.micro_kernel, splits=2) in others


def test_the_space_is_around_the_seeds() -> None:
    space = build_space(DENSE, hardware_seeds(DENSE, limits()), limits(), 2048, 2304)
    tiles = [candidate.micro_kernel for candidate in space]
    assert tiles[0] == T0
    assert len(set(tiles)) == len(tiles) > 50
    assert {tile.rows for tile in tiles} >= {8, 16, 32, 64, 128, 256}
    assert all(limits().holds(DENSE, tile) for tile in tiles)
    assert all(8 <= tile.rows <= 256 and 32 <= tile.columns <= 256 for tile in tiles)
    assert build_space(DENSE, hardware_seeds(DENSE, limits()), limits(), 2048, 2304) == space


def test_no_tile_only_pads() -> None:
    space = build_space(DENSE, hardware_seeds(DENSE, limits()), limits(), 16, 2304)
    assert sorted(c.micro_kernel.rows for c in space[:4]) == [16, 64, 128, 128], "the seeds themselves"
    mutated = [c.micro_kernel for c in space[4:]]
    assert max(tile.rows for tile in mutated) < 32


def test_neighbours_differ_in_one_axis() -> None:
    others = neighbours(DENSE, T0, limits(), 768)
    assert T0 not in others
    assert replace(T0, splits=2) in others
    assert replace(T0, tails="partition") in others
    assert replace(T0, stages=1) in others
    assert replace(T0, k_tile=8) in others
    assert not [tile for tile in neighbours(DENSE, T0, limits(), 48) if tile.splits > 1]


def test_fetches_follow_the_layout() -> None:
    assert plan_fetch(DENSE, "X", T0).along_reduction
    assert plan_fetch(DENSE, "W", T0).width == 4
    odd = device_problem(make_problem("mk,nk->mn", {"n": 2304, "k": 770}))
    assert plan_fetch(odd, "W", T0).width == 2
    values = device_problem(make_problem("bmk,bkn->bmn", {"n": 64}, constant=False))
    assert plan_fetch(values, "X", T0).width == 1  # the length of its rows is not known
    assert plan_fetch(values, "W", T0).width == 4
    assert not plan_fetch(values, "W", T0).along_reduction
    assert alignments(DENSE, T0) == {"X": 16, "W": 16, "Y": 16}
    assert alignments(odd, T0) == {"X": 8, "W": 8, "Y": 16}
    assert alignments(DENSE, replace(T0, splits=2))["Y"] == 4


@pytest.mark.long
@needs_nvrtc
def test_what_the_limits_expect_is_what_the_compiler_gives() -> None:
    """Shared memory to the byte, registers well enough that seeds and their like do not spill."""
    tiles = [seed.micro_kernel for seed in hardware_seeds(DENSE, limits())]
    tiles += [replace(T0, splits=4), replace(T0, tails="partition"), replace(T0, stages=1)]
    for arch in ("sm_75", "sm_90"):
        facts = read_kernels(compile_cubin(cuda_text(DENSE, tiles, CudaTarget(arch)), CudaTarget(arch)))
        for tile in tiles:
            assert facts[tile.symbol].shared_bytes == tile.shared_bytes
            assert facts[tile.symbol].stack_bytes == 0, tile.name
            estimate = limits(arch).registers(DENSE, tile)
            assert 0.6 < facts[tile.symbol].registers / estimate < 1.7, (arch, tile.name, estimate)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_90a", "sm_100"])
def test_seeds_for_tensor_cores_do_not_spill(arch: str) -> None:
    """Shared memory to the byte, registers well enough; one text of warps for all architectures."""
    seeds = (seed.micro_kernel for seed in hardware_seeds(HALF, limits(arch)))
    tiles = [tile for tile in seeds if tile.unit == "mma"]
    text = cuda_text(HALF, tiles, CudaTarget(arch))
    assert text == cuda_text(HALF, tiles, CudaTarget("sm_80"))
    facts = facts_of(compile_cubin(text, CudaTarget(arch)), HALF, tiles, arch, CudaTarget(arch))
    for tile in tiles:
        assert facts[tile.symbol].shared_bytes == tile.shared_bytes
        assert facts[tile.symbol].stack_bytes == 0, tile.name
        estimate = limits(arch).registers(HALF, tile)
        assert 0.6 < facts[tile.symbol].registers / estimate < 1.4, (arch, tile.name, estimate)
    shape = "m16n8k8" if arch == "sm_75" else "m16n8k16"
    ptx = compile_ptx(cuda_text(HALF, tiles[-1:], CudaTarget(arch)), CudaTarget(arch)).decode()
    assert f"mma.sync.aligned.{shape}.row.col.f32.f16.f16.f32" in ptx
    assert ("cp.async.cg.shared.global" in ptx) is (arch != "sm_75")
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in ptx


@pytest.mark.sampled(keep=1)
@needs_nvrtc
@pytest.mark.parametrize(
    ("dtype", "arch"), [("float16", "sm_75"), ("bfloat16", "sm_75"), ("float16", "sm_100")]
)
def test_half_precision_compiles_everywhere_and_stays_in_registers(dtype: str, arch: str) -> None:
    half = replace(DENSE, operand_dtype=dtype, output_dtype=dtype)
    tiles = [seed.micro_kernel for seed in hardware_seeds(DENSE, limits(arch))]
    facts = read_kernels(compile_cubin(cuda_text(half, tiles, CudaTarget(arch)), CudaTarget(arch)))
    for tile in tiles:
        assert facts[tile.symbol].stack_bytes == 0, tile.name
        estimate = limits(arch).registers(half, tile)
        assert 0.6 < facts[tile.symbol].registers / estimate < 1.7, (tile.name, estimate)


def test_half_precision_is_fetched_eight_at_a_time() -> None:
    half = replace(DENSE, operand_dtype="bfloat16", output_dtype="float16")
    assert plan_fetch(half, "W", T0).width == 8
    assert plan_fetch(half, "W", replace(T0, k_tile=4)).width == 4
    assert alignments(half, T0) == {"X": 16, "W": 16, "Y": 8}  # four columns of a thread lie together
    assert limits().registers(half, T0) < limits().registers(DENSE, T0)


def windowed(layout: str, **sizes: int) -> Problem:
    """3x3 over 8 channels, padded by one."""
    data = {"padding": 1, "data_layout": layout}
    spec = {
        "name": "conv",
        "op": {"conv2d": data},
        "tensors": {
            "X": {"dims": layout.lower(), "dtype": "float32"},
            "W": {"dims": "ocrs", "dtype": "float32", "constant": True},
        },
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {"T": {"min": 1, "max": 4}},
        "dims": {"n": "T", "h": 8, "w": 8, "c": 8, "o": 16, "r": 3, "s": 3} | sizes,
    }
    return device_problem(problem_from_spec(spec_from_data(spec)))


@pytest.mark.parametrize(
    ("problem", "along_reduction", "width"),
    [
        (windowed("NHWC"), True, 4),  # channels are innermost
        (windowed("NHWC", c=6), True, 2),
        (windowed("NHWC", c=3), True, 1),  # three channels, and then another place of the window
        (windowed("NCHW"), False, 1),  # the window slides by single elements
        (windowed("NCHW", s=1, w=6), False, 1),  # padded at the sides: a vector may reach past the edge
    ],
)
def test_fetches_under_a_window_do_not_cross_its_edge(
    problem: Problem, along_reduction: bool, width: int
) -> None:
    plan = plan_fetch(problem, "X", T0)
    assert (plan.along_reduction, plan.width) == (along_reduction, width)


def test_only_what_may_be_ragged_is_copied() -> None:
    tile = replace(T0, tails="global")
    copied = [copy.operand for copy in copies_of(DENSE, tile)]
    assert copied == ["X"]  # 2304 columns and 768 steps are whole tiles
    assert writes_parts(DENSE, tile)
    odd = device_problem(make_problem("mk,nk->mn", {"n": 2304, "k": 770}))
    assert [copy.operand for copy in copies_of(odd, tile)] == ["X", "W"]
    whole = device_problem(make_problem("mk,nk->mn", {"m": 256, "n": 2304, "k": 768}))
    assert not copies_of(whole, tile)
    assert not writes_parts(whole, tile)
    assert block_problem(whole, tile) == whole
    assert block_problem(DENSE, T0) is DENSE
    for problem in (DENSE, odd, whole, windowed("NHWC"), windowed("NCHW")):
        block_problem(problem, tile).check()
    assert not block_problem(windowed("NHWC"), tile).windows  # they are seen through in the copy
    assert alignments(odd, tile) == {"X": 4, "W": 4, "Y": 4}
    assert plan_fetch(block_problem(odd, tile), "padded_W", tile).width == 4


def test_the_workspace_is_what_padding_copies() -> None:
    tile = replace(T0, tails="global", splits=2)
    extents = {"m": 130, "n": 2304, "k": 768}
    shape = CallShape(DENSE, tile, extents)
    assert {name: int(region.size) for name, region in shape.regions.items()} == {
        "padded_X": 256 * 768,
        WORKSPACE: 2 * 256 * 2304,
    }
    assert shape.workspace_elements == 256 * 768 + 2 * 256 * 2304
    assert CallShape(DENSE, T0, extents).workspace_elements == 0
