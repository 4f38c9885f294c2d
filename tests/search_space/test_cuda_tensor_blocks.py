"""Blocks whose products are multiplied by tensor cores, emulated lane by lane, against float64."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import numpy as np
import product_blocks
import pytest
from attention_blocks import ON_GPUS, attention_data, attention_of
from emulated_block import LIMITS, TARGET, EmulatedBlock, extents_of
from emulation import ORDERS, compiled
from needs import needs_nvrtc
from test_cuda_half_blocks import DTYPES, data_of, in_half

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.block_space import block_micro_kernels, block_neighbours, block_seeds
from dietcode.search_space.cuda.blocks.attention_layout import attention_order, tensor_steps
from dietcode.search_space.cuda.forms import cuda_form, device_problem
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.forms import problem_of
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.workload.dtypes import widened
from dietcode.workload.parse import spec_from_data

PRODUCT_TILES = [
    CudaMicroKernel(32, 16, 16, 16, 32, stages=3, unit="mma"),
    CudaMicroKernel(32, 32, 32, 8, 16, stages=1, unit="mma"),
    CudaMicroKernel(16, 64, 16, 32, 64, stages=2, unit="mma"),
]
LENGTHS = [(1, 1), (7, 5), (9, 65), (40, 3), (33, 131)]


def attention_tiles(problem: AttentionProblem) -> list[CudaMicroKernel]:
    steps = tensor_steps(problem)
    return [
        CudaMicroKernel(32, 32, 16, 32, steps, stages=2, unit="mma"),
        CudaMicroKernel(32, 64, 32, 64, steps, unit="mma"),
        CudaMicroKernel(16, 16, 16, 16, steps, stages=2, splits=3, unit="mma"),
    ]


@functools.cache
def products(name: str, dtype: str) -> EmulatedBlock:
    return EmulatedBlock(in_half(product_blocks.problem_of(name), dtype), PRODUCT_TILES)


@functools.cache
def attention(name: str, dtype: str) -> EmulatedBlock:
    problem = in_half(attention_of(name), dtype)
    return EmulatedBlock(problem, attention_tiles(problem))


def lengths(problem: BlockProblem, queries: int, keys: int) -> dict[str, int]:
    return {index: extent or 2 for index, extent in problem.extents.items()} | {"q": queries, "k": keys}


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("name", product_blocks.BLOCKS)
def test_products_are_right(name: str) -> None:
    """Odd rows, columns and reductions; rows that are gathered; operands that lie along either side."""
    block = products(name, DTYPES[list(product_blocks.BLOCKS).index(name) % 2])
    assert len(block.tiles) == len(PRODUCT_TILES)
    for sizes in ((1,), (7, 5, 3), (19, 2, 35)):
        block.check(extents_of(block.problem, *sizes))


@pytest.mark.parametrize("extents", [{"n": 40, "k": 24}, {"n": 36, "k": 20}, {"n": 38, "k": 22}])
def test_copies_of_each_width_are_right(extents: dict[str, int]) -> None:
    """Where fixed extents are multiples of 8, 4 and 2 elements; the norm follows in float32."""
    data = data_of("float16")
    data["dims"] |= extents
    block = EmulatedBlock(problem_of(spec_from_data(data)), PRODUCT_TILES)
    width = next(w for w in (8, 4, 2) if extents["k"] % w == 0)
    asked = cuda_form(block.problem).alignments(block.problem, PRODUCT_TILES[0])
    assert asked == {"X": 2 * width, "W": 2 * width, "R": 2, "gamma": 2, "S": 2, "Y": 2}
    assert f"copy_{2 * width}(" in cuda_text(block.problem, PRODUCT_TILES, TARGET)
    for rows in (1, 33):
        block.check(extents | {"m": rows})


@pytest.mark.parametrize("name", ON_GPUS)
def test_attention_is_right(name: str) -> None:
    block = attention(name, DTYPES[ON_GPUS.index(name) % 2])
    assert len(block.tiles) == 3
    for queries, keys in LENGTHS:
        block.check(lengths(block.problem, queries, keys))


@pytest.mark.thorough
@pytest.mark.parametrize(("depth", "width"), [(256, 256), (128, 136), (8, 200)])
def test_wide_heads_are_right(depth: int, width: int) -> None:
    """Fragments of more than 64 keys, or elements of a result, are read in parts."""
    data = attention_data("one-head")
    data["dims"] |= {"d": depth, "e": width}
    problem = in_half(AttentionProblem.of_spec(spec_from_data(data)), "float16")
    steps = tensor_steps(problem)
    tiles = [CudaMicroKernel(16, keys, 16, keys, steps, unit="mma") for keys in (16, 128)]
    block = EmulatedBlock(problem, tiles)
    assert block.tiles[0] == tiles[0] and len(block.tiles) == (1 if width == 256 else 2)  # of registers
    for queries, keys in ((1, 1), (17, 131)):
        block.check(lengths(problem, queries, keys))


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_threads_is_right(order: int) -> None:
    block = products("lstm", "bfloat16")
    block.check(extents_of(block.problem, 5), order=order)
    for name in ("causal", "grouped"):
        own = attention(name, "float16")
        own.check(lengths(own.problem, 9, 70), order=order)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["swiglu", "causal"])
def test_a_wait_or_barrier_that_lacks_is_noticed(name: str) -> None:
    """Each is needed: without any one of them, what is read is not there yet, or overwritten."""
    if name == "swiglu":  # of even extents, which are copied past the registers
        problem = in_half(product_blocks.problem_of(name), "float16")
        problem = device_problem(replace(problem, extents={"m": None, "n": 56, "k": 40}))
        tile, extents = PRODUCT_TILES[0], {"m": 33, "n": 56, "k": 40}
    else:
        problem = device_problem(in_half(attention_of(name), "float16"))
        tile, extents = attention_tiles(problem)[0], {"b": 1, "h": 1, "q": 40, "k": 140, "d": 40}
    text = cuda_text(problem, [tile], TARGET)
    head, body = text.split('extern "C"', 1)
    found = [match.span() for match in re.finditer(r"__syncthreads\(\);|wait_for_copies<\d>\(\);", body)]
    assert len(found) >= 2
    for start, end in found:
        kept = head + 'extern "C"' + body[:start] + ";" + body[end:]
        wrong = EmulatedBlock.of_text(problem, [tile], kept)
        with pytest.raises(AssertionError):
            for order in ORDERS:
                wrong.check(extents, order=order)


@pytest.mark.thorough
def test_fragments_are_read_without_bank_conflicts() -> None:
    """Of heads of 64, and of 64 steps, eight rows of a matrix lie in eight different parts of 128 bytes."""
    for block, extents in (
        (attention("plain", "float16"), {"b": 1, "h": 1, "q": 33, "k": 70, "d": 64}),
        (products("swiglu", "float16"), None),
    ):
        tile = next(tile for tile in block.tiles if tile.k_tile == 64)
        own = EmulatedBlock(block.problem, [tile])
        before = own.library.bank_conflicts()
        own.check(extents or extents_of(own.problem, 33))
        assert own.library.bank_conflicts() == before


def test_nan_stays_nan() -> None:
    block = attention("plain", "bfloat16")
    extents = lengths(block.problem, 6, 90)
    for tensor in "QKV":
        inputs = block.draw(extents)
        inputs[tensor][1, 0, 2, 5] = 0x7FC0  # of bfloat16
        right = np.isnan(block_reference(block.problem, inputs)["O"])
        assert right.any() and not right.all()
        for tile in block.tiles:
            (output,) = block.run(tile, inputs, extents)
            assert np.array_equal(np.isnan(widened(output, "bfloat16")), right), (tensor, tile.name)


def test_a_query_has_the_same_bits_in_any_batch_and_alone() -> None:
    block = attention("causal", "float16")
    extents = lengths(block.problem, 37, 150)
    inputs = block.draw(extents)
    assert len({attention_order(tile) for tile in block.tiles}) == 3
    for tile in block.tiles:
        (together,) = block.run(tile, inputs, extents)
        alone = {name: value[1:2] for name, value in inputs.items()}
        (output,) = block.run(tile, alone, extents | {"b": 1})
        assert np.array_equal(output[0], together[1]), tile.name
        last = inputs | {"Q": inputs["Q"][:, -1:]}
        (output,) = block.run(tile, last, extents | {"q": 1})
        assert np.array_equal(output[:, 0], together[:, -1]), tile.name


@pytest.mark.parametrize("name", ["lstm", "causal"])
def test_the_space(name: str) -> None:
    """In half precision it has tensor cores, their seeds first; of an architecture without the dtype none."""
    is_product = name in product_blocks.BLOCKS
    float32 = product_blocks.problem_of(name) if is_product else attention_of(name)
    problem = device_problem(in_half(float32, "bfloat16"))
    space = block_micro_kernels(problem, LIMITS)
    seeds = [seed.micro_kernel for seed in block_seeds(problem, LIMITS)]
    assert seeds[0].unit == "mma" and seeds[-1].unit == "simt" and set(seeds) <= set(space)
    for seed in seeds:
        near = block_neighbours(problem, seed, LIMITS)
        assert near and set(near) < set(space) and {one.unit for one in near} == {seed.unit}
    assert {one.unit for one in block_micro_kernels(device_problem(float32), LIMITS)} == {"simt"}
    old = CudaLimits.of(CudaTarget("sm_75"))
    assert {one.unit for one in block_micro_kernels(problem, old)} == {"simt"}
    assert "bfloat16 operands for tensor cores; allowed: float16" in str(old.why_not(problem, seeds[0]))
    tile = CudaMicroKernel(64, 64, 32, 32, 32, stages=3, splits=2, unit="mma")
    assert "allowed" in str(LIMITS.why_not(problem, tile))


@pytest.mark.thorough
@pytest.mark.sampled(keep=4)
@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("name", ["swiglu", "gathered", "causal"])
def test_machine_code(name: str, arch: str) -> None:
    """Seeds do not spill, and no block takes more shared memory than was counted."""
    is_product = name in product_blocks.BLOCKS
    problem = product_blocks.problem_of(name) if is_product else attention_of(name)
    problem, target = device_problem(in_half(problem, "float16")), CudaTarget(arch)
    limits = CudaLimits.of(target)
    seeds = [seed.micro_kernel for seed in block_seeds(problem, limits) if seed.micro_kernel.is_tensor][:2]
    text = cuda_text(problem, seeds, target)
    assert "multiply_float16(" in text and compiled(text)
    facts = facts_of(compile_cubin(text, target), problem, seeds, arch, target)
    assert len(seeds) == 2 and max(own.stack_bytes for own in facts.values()) <= 8
    reserved = 1024  # of the system, on some architectures
    for seed in seeds:
        beside = facts[seed.symbol].shared_bytes - limits.shared_bytes(problem, seed)
        assert 0 <= beside <= reserved
