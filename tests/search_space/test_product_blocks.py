"""Code for blocks with products: right at every edge, the same bits whatever computes them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm
from compile_cache import load_compiled
from product_blocks import BLOCKS, built_block, problem_of
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.reference import block_reference
from dietcode.search_space.tir import address_of, i64
from dietcode.target.cpu import CpuTarget


def extents_of(problem: ProductProblem, rows: int, seed: int) -> dict[str, int]:
    """So many values of the last row index, and some of what else is dynamic."""
    rng = random.Random(seed)
    free = {k: rng.choice([1, 5, 17, 33]) for k, extent in problem.extents.items() if extent is None}
    if problem.rows[-1] in free:
        free[problem.rows[-1]] = rows
    return {k: free.get(k, extent or 0) for k, extent in problem.extents.items()}


@pytest.mark.parametrize("name", BLOCKS)
def test_every_edge_and_micro_kernel(name: str, target: CpuTarget) -> None:
    block = built_block(name, target.mcpu)
    for seed, rows in enumerate([1, 2, 7, 8, 29]):
        block.check(extents_of(block.problem, rows, seed), seed)


@pytest.mark.parametrize("name", ["swiglu", "lstm", "gru", "dense-add-layernorm"])
def test_a_row_has_the_same_bits_in_any_batch(name: str, target: CpuTarget) -> None:
    block = built_block(name, target.mcpu)
    problem = block.problem
    extents = extents_of(problem, 13, 0)
    inputs = block.inputs(extents)
    for category in range(len(block.kernels)):
        together = block.run(inputs, extents, category)
        for row in (0, 5, 12):
            alone = {
                tensor: value[row : row + 1] if problem.indices[tensor].startswith("m") else value
                for tensor, value in inputs.items()
            }
            outputs = block.run(alone, extents | {"m": 1})
            for one, other in zip(outputs, together, strict=True):
                assert np.array_equal(one[0], other[row])


@pytest.mark.thorough
def test_positions_outside_of_a_table_read_its_first_or_last_row(target: CpuTarget) -> None:
    block = built_block("gathered", target.mcpu)
    extents = extents_of(block.problem, 6, 0) | {"t": 5}
    inputs = block.inputs(extents)
    inputs["left"][:] = [-1, 5, 2**31 - 1, -(2**31), 4, 0]
    right = block_reference(block.problem, inputs | {"left": np.array([0, 4, 4, 0, 4, 0])})
    for category in range(len(block.kernels)):
        (output,) = block.run(inputs, extents, category)
        assert np.allclose(output, right["h"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "qkv"])
def test_tables_are_filled_forwards_and_backwards_with_the_same_bits(name: str, avx2: CpuTarget) -> None:
    """Calls that write one behind the other go over the columns the other way each time."""
    block = built_block(name, avx2.mcpu)
    problem = block.problem
    extents = extents_of(problem, 9, 0)
    inputs = block.inputs(extents)
    given = inputs | {tensor: block.pack(tensor, inputs[tensor], extents) for tensor in problem.packed}
    for category in range(len(block.kernels)):
        shapes = [np.shape(output) for output in block.run(inputs, extents, category)]
        tables = [np.full((3, *shape), np.nan, np.float32) for shape in shapes]
        for place in range(3):
            outputs = [table[place] for table in tables]
            block.module["run"](*(given[tensor] for tensor in problem.inputs), *outputs, category)
        for table in tables:
            assert not np.isnan(table).any()
            assert np.array_equal(table[0], table[1]) and np.array_equal(table[0], table[2])


def test_an_address_in_generated_code_is_that_of_the_array(avx2: CpuTarget) -> None:
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        array, found = (T.arg(name, T.buffer((1,), "int64")) for name in ("array", "found"))
        T.buffer_store(found, address_of(array), [i64(0)])
    module = load_compiled(tvm.IRModule({"main": builder.get()}), avx2)
    array, found = np.zeros(1, np.int64), np.zeros(1, np.int64)
    module["main"](array, found)
    assert found[0] == array.ctypes.data


def test_nan_stays_in_its_row(avx2: CpuTarget) -> None:
    block = built_block("lstm", avx2.mcpu)
    extents = extents_of(block.problem, 9, 0)
    inputs = block.inputs(extents)
    inputs["X"][3, 2] = np.nan
    right = block_reference(block.problem, inputs)
    for category in range(len(block.kernels)):
        for name, output in zip(block.problem.outputs, block.run(inputs, extents, category), strict=True):
            assert np.array_equal(np.isnan(output), np.isnan(right[name]))
            assert np.isnan(output[3]).all() and not np.isnan(output[4]).any()


def test_what_is_only_added_up_shares_accumulators() -> None:
    assert [len(terms) for terms in problem_of("lstm").plan.accumulators.values()] == [2, 2, 2, 2]
    gru = problem_of("gru").plan
    assert sorted(len(terms) for terms in gru.accumulators.values()) == [1, 1, 2, 2]
    assert problem_of("gru").packed["W"].reduction == ("k", "g")


@pytest.mark.parametrize("name", BLOCKS)
def test_problems_and_micro_kernels_are_read_and_written(name: str) -> None:
    problem = problem_of(name)
    again = problem_from_json(problem.to_json())
    assert again.to_json() == problem.to_json() and again.plan == problem.plan
    for kernel in (ProductKernel(4, 32), ProductKernel(1, 16, serial=True)):
        assert cpu_micro_kernel(kernel.to_json()) == kernel
