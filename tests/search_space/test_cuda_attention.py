"""Attention on an emulated GPU: right at every edge, in any order of threads, and where NaN goes."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from attention_blocks import ON_GPUS, attention_of
from emulated_block import LIMITS, TARGET, EmulatedBlock
from emulation import ORDERS, host_text
from needs import needs_nvrtc

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.block_space import block_micro_kernels, block_neighbours, block_seeds
from dietcode.search_space.cuda.blocks.attention_layout import attention_order
from dietcode.search_space.cuda.forms import call_shape
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin

SIMT_TILES = (
    CudaMicroKernel(4, 64, 1, 2, 16),
    CudaMicroKernel(32, 32, 4, 4, 32),
    CudaMicroKernel(16, 32, 2, 2, 8, splits=3),  # the last part may have no keys
)
LENGTHS = [(1, 1), (1, 131), (7, 5), (5, 63), (9, 65), (40, 3), (33, 97)]


@functools.cache
def attention(name: str) -> EmulatedBlock:
    return EmulatedBlock(attention_of(name), SIMT_TILES)


def extents_of(problem: AttentionProblem, num_queries: int, num_keys: int, seed: int = 0) -> dict[str, int]:
    rng = random.Random(seed)
    extents = {index: extent or rng.choice([1, 2, 3]) for index, extent in problem.extents.items()}
    return extents | {"q": num_queries, "k": num_keys}


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("name", ON_GPUS)
def test_every_length_and_micro_kernel(name: str) -> None:
    block = attention(name)
    for seed, (num_queries, num_keys) in enumerate(LENGTHS):
        block.check(extents_of(block.problem, num_queries, num_keys, seed))


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_threads_is_right(order: int) -> None:
    for name in ("causal", "grouped"):
        block = attention(name)
        block.check(extents_of(block.problem, 5, 70), order=order)


def test_a_barrier_that_lacks_is_noticed() -> None:
    """Each of the kernel's is needed: without any one of them, a thread reads what is not written yet."""
    problem, tile, barrier = attention_of("padded"), SIMT_TILES[1], "__syncthreads();"
    text = cuda_text(problem, [tile], TARGET)
    assert host_text(text).count(barrier) == text.count(barrier) == 4
    extents = extents_of(problem, 33, 97) | {"b": 1, "h": 1}
    for number in range(4):
        pieces = text.split(barrier)
        kept = barrier.join(pieces[: number + 1]) + barrier.join(pieces[number + 1 :])
        wrong = EmulatedBlock.of_text(problem, [tile], kept)
        with pytest.raises(AssertionError):
            for order in ORDERS:
                wrong.check(extents, order=order)


def test_a_query_has_the_same_bits_in_any_batch_and_alone() -> None:
    block = attention("causal")
    extents = extents_of(block.problem, 37, 150) | {"b": 3, "h": 2}
    inputs = block.draw(extents)
    for tile in block.tiles:
        (together,) = block.run(tile, inputs, extents)
        alone = {name: value[1:2] for name, value in inputs.items()}
        (output,) = block.run(tile, alone, extents | {"b": 1})
        assert np.array_equal(output[0], together[1]), tile.name
        last = inputs | {"Q": inputs["Q"][:, -1:]}
        (output,) = block.run(tile, last, extents | {"q": 1})
        assert np.array_equal(output[:, 0], together[:, -1]), tile.name


def test_micro_kernels_of_one_order_give_the_same_bits() -> None:
    """As a library that is reproducible asks for: threads of a query, tiles of keys, parts agree."""
    same = [CudaMicroKernel(4, 32, 1, 2, 16), CudaMicroKernel(32, 32, 2, 2, 8)]
    assert len({attention_order(tile) for tile in same}) == 1
    assert len({attention_order(tile) for tile in SIMT_TILES}) == len(SIMT_TILES)
    block = EmulatedBlock(attention_of("padded"), same)
    extents = extents_of(block.problem, 21, 77)
    first, second = (block.run(tile, block.draw(extents), extents) for tile in same)
    assert np.array_equal(first, second)


def test_causal_hides_later_keys_and_the_last_query_sees_all() -> None:
    block = attention("causal")
    extents = extents_of(block.problem, 4, 3) | {"b": 1, "h": 1}
    inputs = block.draw(extents)
    inputs["V"][:] = np.arange(1, 4, dtype=np.float32)[:, None, None]
    inputs["Q"][:] = 0  # all keys that are seen weigh the same
    for tile in block.tiles:
        (output,) = block.run(tile, inputs, extents)
        assert np.allclose(output[0, :, 0, 0], [0, 1, 1.5, 2], rtol=1e-6)


def test_tiles_of_keys_that_are_hidden_are_not_read() -> None:
    """Of keys that no query of a tile sees nothing is computed: NaN there would spread to all."""
    block = attention("causal")
    extents = extents_of(block.problem, 96, 96) | {"b": 1, "h": 1}
    inputs = block.draw(extents)
    inputs["V"][:, 64:] = np.nan
    for tile in block.tiles:
        (output,) = block.run(tile, inputs, extents)
        first = 64 - max(tile.rows, tile.columns)
        assert np.isfinite(output[:, :first]).all() and (first > 0 or tile.columns == 64)
        assert np.isnan(output[:, 64:]).all()


def test_a_row_that_is_masked_as_a_whole_is_zero() -> None:
    block = attention("padded")
    extents = extents_of(block.problem, 3, 70) | {"b": 2}
    inputs = block.draw(extents)
    inputs["mask"][1] = -np.inf
    inputs["mask"][0, 60:] = -np.inf
    some = {name: value[:1] for name, value in inputs.items()}
    for name in ("K", "V"):
        some[name] = some[name][:, :, :60]
    some["mask"] = some["mask"][:, :60]
    right = block_reference(block.problem, some)["O"]
    for tile in block.tiles:
        (output,) = block.run(tile, inputs, extents)
        assert np.all(output[1] == 0)
        assert np.abs(output[:1] - right).max() < 1e-5 * np.abs(right).max()


def test_scores_far_apart_and_the_smallest_mask() -> None:
    block = attention("padded")
    extents = extents_of(block.problem, 3, 150) | {"b": 1}
    inputs = block.draw(extents)
    inputs["Q"] *= 1e3
    right = block_reference(block.problem, inputs)["O"]
    for tile in block.tiles:
        (output,) = block.run(tile, inputs, extents)
        assert np.abs(output - right).max() < 1e-3 * np.abs(right).max()  # of scores of 1e4
    inputs["mask"][:] = np.finfo(np.float32).min  # which absorbs the scores: all keys weigh the same
    (output,) = block.run(block.tiles[0], inputs, extents)
    mean = inputs["V"].mean(axis=2)[:, :, None].transpose(0, 2, 1, 3)
    assert np.allclose(output, np.broadcast_to(mean, output.shape), atol=1e-6)


@pytest.mark.parametrize("tensor", ["Q", "K", "V"])
def test_nan_stays_nan(tensor: str) -> None:
    block = attention("plain")
    extents = extents_of(block.problem, 6, 90) | {"b": 2, "h": 2}
    inputs = block.draw(extents)
    inputs[tensor][1, 0, 2, 5] = np.nan
    right = np.isnan(block_reference(block.problem, inputs)["O"])
    assert right.any() and not right.all()
    for tile in block.tiles:
        (output,) = block.run(tile, inputs, extents)
        assert np.array_equal(np.isnan(output), right), tile.name


@pytest.mark.parametrize("name", ON_GPUS)
def test_the_space(name: str) -> None:
    """The seeds are in it, its neighbours too, and each can run; few queries may have parts of the keys."""
    problem = attention_of(name)
    space = block_micro_kernels(problem, LIMITS)
    seeds = [seed.micro_kernel for seed in block_seeds(problem, LIMITS)]
    assert seeds and set(seeds) <= set(space)
    assert {tile.splits for tile in space} == {1, 2, 4, 8, 16}
    for seed in seeds:
        near = block_neighbours(problem, seed, LIMITS)
        assert near and set(near) < set(space)
    for wrong in (CudaMicroKernel(64, 64, 4, 1, 16), CudaMicroKernel(64, 64, 8, 8, 16, 2, 2)):
        assert "allowed" in str(LIMITS.why_not(problem, wrong))


def test_what_is_counted() -> None:
    """Padded work is no less than the work; of keys that causal hides half a tile is counted."""
    problem = attention_of("causal")
    tile = CudaMicroKernel(32, 32, 4, 4, 32)
    extents = {
        "b": np.array([2, 2]),
        "h": np.array([3, 3]),
        "q": np.array([256, 1]),
        "k": np.array([256, 256]),
    }
    shape = call_shape(problem, tile, extents | {"d": np.array([40, 40])})
    demand = shape.demand
    assert list(demand.blocks) == [2 * 3 * 8, 2 * 3]
    assert list(demand.num_steps) == [256 / 2 + 0.5 + 32, 256]
    assert np.all(demand.padded_flops >= problem.flops(extents | {"d": 40}))
    split = CudaMicroKernel(4, 32, 1, 2, 32, splits=4)
    call = call_shape(problem, split, {"b": 2, "h": 3, "q": 1, "k": 256, "d": 40})
    assert call.grids == [(6, 4), (2, 1)]
    assert call.workspace_elements == 4 * 6 * (40 + 2)


@pytest.mark.sampled(keep=2)
@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
@pytest.mark.parametrize("name", ["causal", "grouped"])
def test_machine_code(name: str, arch: str) -> None:
    """Seeds do not spill, and no block takes more shared memory than was counted."""
    problem, target = attention_of(name), CudaTarget(arch)
    limits = CudaLimits.of(target)
    seeds = [seed.micro_kernel for seed in block_seeds(problem, limits)][:3]
    facts = facts_of(compile_cubin(cuda_text(problem, seeds, target), target), problem, seeds, arch, target)
    assert max(own.stack_bytes for own in facts.values()) <= 8
    reserved = 1024  # of the system, on some architectures
    for seed in seeds:
        beside = facts[seed.symbol].shared_bytes - limits.shared_bytes(problem, seed)
        assert 0 <= beside <= reserved
