"""Rows whose first pass comes before the last one of earlier rows: results, bits, and what they keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from row_blocks import OVERLAPPING, built_overlapping, problem_of

from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import FETCHES, OVERLAPS, RowKernel
from dietcode.search_space.cpu.rows.space import allows, neighbours, row_workspace_bytes, seeds
from dietcode.search_space.rows.passes import schedule
from dietcode.target.cpu import CpuTarget


@pytest.mark.thorough
@pytest.mark.parametrize("name", OVERLAPPING)
def test_rows_that_overlap_have_the_bits_of_those_that_do_not(name: str, target: CpuTarget) -> None:
    block = built_overlapping(name, target.mcpu)
    problem = block.problem
    assert {kernel.overlap for kernel in block.kernels} == set(OVERLAPS)
    for seed, (rows, columns) in enumerate([(1, 5), (2, 64), (3, 131), (7, 83), (11, 200)]):
        extents = dict.fromkeys(problem.extents, 2) | {problem.rows[-1]: rows, problem.columns[-1]: columns}
        block.check(extents, seed)


@pytest.mark.parametrize("name", OVERLAPPING)
def test_a_row_of_nan_spoils_no_other_row(name: str, target: CpuTarget) -> None:
    block = built_overlapping(name, target.mcpu)
    problem = block.problem
    extents = dict.fromkeys(problem.extents, 1) | {problem.rows[-1]: 9, problem.columns[-1]: 70}
    inputs: dict[str, Any] = block.inputs(extents)
    spoiled = inputs["X"].copy()
    spoiled.reshape(9, 70)[4, 3] = np.nan
    for category in range(len(block.kernels)):
        before = block.run(inputs, extents, category)
        for a, b in zip(before, block.run(inputs | {"X": spoiled}, extents, category), strict=True):
            others = np.delete(np.arange(9), 4)
            np.testing.assert_array_equal(a.reshape(9, -1)[others], b.reshape(9, -1)[others])


def test_what_two_groups_keep_lies_apart() -> None:
    limits = Limits(lanes=16, num_registers=32, l2_bytes=1 << 20, num_cores=2)
    extents = {"m": 9, "n": 70}
    # The exponential of X is kept by the first pass and read by the last one; of softmax none is.
    problem = problem_of("costly-norm")
    found = {overlap: schedule(problem, "all").num_groups(overlap) for overlap in OVERLAPS}
    assert found == {"none": 1, "before": 2, "beside": 2}
    # That of softmax is kept by the second pass and read by the third.
    found = {overlap: schedule(problem_of("softmax"), "all").num_groups(overlap) for overlap in OVERLAPS}
    assert found == {"none": 1, "before": 1, "beside": 2}
    found = {one: schedule(problem_of("norm-and-sum"), "all").num_groups(one) for one in OVERLAPS}
    assert found == {"none": 1, "before": 2, "beside": 3}
    kernels = [RowKernel(1, 64, "all", overlap=overlap) for overlap in OVERLAPS]
    sizes = [row_workspace_bytes(problem, kernel, limits, extents) for kernel in kernels]
    assert sizes == [sizes[0], 2 * sizes[0], 2 * sizes[0]] and sizes[0] > 0


def test_one_pass_has_nothing_that_overlaps() -> None:
    limits = Limits(lanes=16, num_registers=32, l2_bytes=1 << 20, num_cores=2)
    for overlap in OVERLAPS[1:]:
        assert not allows(problem_of("lookup"), RowKernel(1, 64, overlap=overlap), limits)
        assert not allows(problem_of("channels-first"), RowKernel(16, 4, overlap=overlap), limits)


def test_a_search_begins_with_passes_in_one_loop_where_there_are_several() -> None:
    limits = Limits(lanes=16, num_registers=32, l2_bytes=1 << 20, num_cores=2)
    found = [k for k in seeds(problem_of("layernorm"), limits) if k.overlap == "beside"]
    assert {(kernel.rows, kernel.columns, kernel.fetch) for kernel in found} == {
        (1, 64, "all"),
        (1, 64, "none"),
    }
    assert {kernel.overlap for kernel in seeds(problem_of("lookup"), limits)} == {"none"}


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_order_of_groups_is_told_by_name_and_record(overlap: str) -> None:
    kernel = RowKernel(1, 64, overlap=overlap)
    assert RowKernel.from_json(kernel.to_json()) == kernel
    assert ("overlap-" + overlap in kernel.name) == (overlap != "none")


def test_a_record_that_says_only_that_groups_overlap_is_read() -> None:
    data = {"form": "rows", "rows": 1, "columns": 64}
    assert RowKernel.from_json(data | {"overlap": True}) == RowKernel(1, 64, overlap="before")
    assert RowKernel.from_json(data | {"overlap": False}) == RowKernel(1, 64)


def test_lines_that_nothing_asks_for_are_no_choice() -> None:
    limits = Limits(lanes=16, num_registers=32, l2_bytes=1 << 20, num_cores=2)
    softmax = problem_of("softmax")
    assert allows(softmax, RowKernel(1, 64, fetch="next"), limits)
    assert not allows(softmax, RowKernel(1, 64, stream=True, fetch="next"), limits)
    assert not allows(problem_of("lookup"), RowKernel(1, 64, fetch="none"), limits)
    assert not allows(problem_of("channels-first"), RowKernel(16, 4, fetch="none"), limits)
    assert {kernel.fetch for kernel in neighbours(softmax, RowKernel(1, 64), limits)} == {
        "all",
        "next",
        "none",
    }
    for fetch in FETCHES:
        kernel = RowKernel(2, 64, fetch=fetch)
        assert RowKernel.from_json(kernel.to_json()) == kernel
