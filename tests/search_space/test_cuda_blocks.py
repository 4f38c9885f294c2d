"""Blocks on an emulated GPU against float64, in several orders of threads, between canaries."""

from __future__ import annotations

import functools

import numpy as np
import product_blocks
import pytest
import row_blocks
from emulated_block import LIMITS, EmulatedBlock, extents_of
from emulation import ORDERS
from needs import needs_nvrtc

from dietcode.search_space.cuda.block_space import block_micro_kernels, block_neighbours, block_seeds
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin

PRODUCT_TILES = [
    CudaMicroKernel(8, 32, 2, 1, 16),
    CudaMicroKernel(16, 16, 1, 4, 8),
    CudaMicroKernel(32, 16, 4, 2, 32),
]
ROW_TILES = [
    CudaMicroKernel(8, 16, 1, 2, 8),  # of eight threads
    CudaMicroKernel(2, 32, 1, 1, 8),  # a warp
    CudaMicroKernel(1, 128, 1, 1, 8),  # four warps
    CudaMicroKernel(2, 128, 1, 2, 8),
]


@functools.cache
def products(name: str) -> EmulatedBlock:
    return EmulatedBlock(product_blocks.problem_of(name), PRODUCT_TILES)


@functools.cache
def rows(name: str) -> EmulatedBlock:
    return EmulatedBlock(row_blocks.problem_of(name), ROW_TILES)


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("name", product_blocks.BLOCKS)
def test_products_are_right(name: str) -> None:
    """One row, and odd numbers of them past a tile; columns and reductions are odd, too."""
    block = products(name)
    for sizes in ((1,), (7, 5, 3), (19, 2, 35)):
        block.check(extents_of(block.problem, *sizes))


@pytest.mark.sampled(keep=9)  # the block of all functions among them
@pytest.mark.parametrize("name", row_blocks.on_gpus())
def test_rows_are_right(name: str) -> None:
    """One element, and odd numbers of rows and columns on both sides of what a row's threads take."""
    block = rows(name)
    for sizes in ((1,), (3, 11, 5), (2, 3, 37, 131)):
        block.check(row_blocks.complete(block.problem, extents_of(block.problem, *sizes)))


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_threads_is_right(order: int) -> None:
    for block, sizes in (
        (products("lstm"), (5,)),
        (products("dense-add-layernorm"), (3,)),
        (rows("layernorm"), (3, 150)),
    ):
        block.check(extents_of(block.problem, *sizes), order=order)


def test_positions_outside_of_a_table_read_its_first_or_last_row() -> None:
    block = products("gathered")
    extents = extents_of(block.problem, 6)
    inputs = block.draw(extents)
    inputs["left"] = np.asarray([-1, -(2**31), 0, 5, 6, 2**31 - 1], np.int32)
    clamped = inputs | {"left": np.clip(inputs["left"], 0, 5)}
    for tile in block.tiles:
        (found,), (right,) = block.run(tile, inputs, extents), block.run(tile, clamped, extents)
        assert np.array_equal(found, right)


def test_positions_outside_of_a_table_write_nothing() -> None:
    block = products("into")
    extents = extents_of(block.problem, 4)
    inputs = block.draw(extents)
    inputs["to"] = np.asarray([2, -1, 4, 0], np.int32)[: extents["m"]]
    block.check(extents, inputs)


@pytest.mark.parametrize("name", ["functions", "softmax"])
def test_nan_stays_in_its_row(name: str) -> None:
    block = rows(name)
    extents = extents_of(block.problem, 5, 4, 3, 33)
    inputs = block.draw(extents)
    tensor = block.problem.inputs[0]
    where = (2, *([0] * (inputs[tensor].ndim - 1)))
    clean = {tile: block.run(tile, inputs, extents) for tile in block.tiles}
    inputs[tensor][where] = np.nan
    right = block_reference(block.problem, inputs)
    for tile in block.tiles:
        for output, before, expected in zip(
            block.run(tile, inputs, extents), clean[tile], right.values(), strict=True
        ):
            assert np.array_equal(np.isnan(output), np.isnan(expected)), tile.name
            same = ~np.isnan(output)
            assert np.array_equal(output[same], before[same]), tile.name


@pytest.mark.parametrize("name", ["lstm", "layernorm"])
def test_the_space(name: str) -> None:
    """The seeds are in it, its neighbours too, and each can run; what cannot is left out with a reason."""
    is_product = name in product_blocks.BLOCKS
    problem = device_problem((product_blocks if is_product else row_blocks).problem_of(name))
    space = block_micro_kernels(problem, LIMITS)
    seeds = [seed.micro_kernel for seed in block_seeds(problem, LIMITS)]
    assert seeds
    assert set(seeds) <= set(space)
    assert len(space) > 20
    for seed in seeds:
        near = block_neighbours(problem, seed, LIMITS)
        assert near
        assert set(near) < set(space)
        assert all(sum(a != b for a, b in zip(one.order, seed.order, strict=True)) == 1 for one in near)
    for wrong in (CudaMicroKernel(64, 64, 4, 4, 16, splits=2), CudaMicroKernel(64, 64, 8, 8, 16, 2, 2)):
        assert "allowed in a block" in str(LIMITS.why_not(problem, wrong))


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
@pytest.mark.parametrize("name", ["gathered", "softmax-of-a-product", "softmax"])
def test_machine_code(name: str, arch: str) -> None:
    """A seed does not spill, another hardly, and no block takes more shared memory than was counted."""
    is_product = name in product_blocks.BLOCKS
    problem = device_problem((product_blocks if is_product else row_blocks).problem_of(name))
    target = CudaTarget(arch)
    seeds = [seed.micro_kernel for seed in block_seeds(problem, CudaLimits.of(target))][:2]
    facts = facts_of(compile_cubin(cuda_text(problem, seeds, target), target), problem, seeds, arch, target)
    # Where the compiler saves registers for more resident blocks, it may put eight bytes on the stack.
    assert any(facts[seed.symbol].stack_bytes == 0 for seed in seeds)
    assert max(own.stack_bytes for own in facts.values()) <= 8
    reserved = 1024  # of the system, on some architectures
    for seed in seeds:
        beside = facts[seed.symbol].shared_bytes - LIMITS.shared_bytes(problem, seed)
        assert 0 <= beside <= reserved
