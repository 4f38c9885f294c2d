"""Loops that are cut into more tasks than cores run them: each element is computed once, to the same bits."""

from __future__ import annotations

from typing import Any

import attention_blocks
import numpy as np
import product_blocks
import pytest
import row_blocks
from compile_cache import compiled_file
from compiled import NUM_CORES, Compiled, cpu_target, make_problem
from compiled_block import CompiledBlock
from depthwise_kinds import DEPTHWISE, CompiledDepthwise, depthwise_problem
from one_by_one import one_by_one
from turns import units_of

from dietcode.search_space.cpu import chunks
from dietcode.search_space.cpu.limits import CHUNKS, Limits, MicroKernel
from dietcode.target.cpu import CpuTarget

LONG = 1100  # a reduction with which a block of rows that fits L2 is short
NEVER = 1 << 40
MOST = NUM_CORES * CHUNKS


@pytest.mark.sampled(keep=7)
@pytest.mark.parametrize("least_steps", [1, NEVER])
@pytest.mark.parametrize(
    ("einsum", "fixed", "options", "sizes"),
    [
        # Few rows: between columns, uneven, and fewer tiles than chunks.
        ("mk,nk->mn", {"k": 5}, {}, [(3, 500), (3, 517), (7, 1031), (1, 3000), (1, 40), (1, 1)]),
        # Blocks of rows: between these, and columns as well where they are few.
        ("mk,nk->mn", {"k": LONG}, {}, [(130, 220), (400, 100), (1500, 70)]),
        # Where rows are copied first it is between blocks of rows alone, of which there may be one.
        ("mk,nk->mn", {"k": LONG}, {"gather": True}, [(20, 700), (130, 220), (700, 90)]),
        ("mk,nk->mn", {"k": 70}, {"k_tile": 16, "tails": "partition"}, [(90, 300), (33, 1031)]),
        ("mk,nk->mn", {"k": 9}, {"tails": "global"}, [(90, 300), (33, 1031)]),
        # Between batch indices, fewer and more than chunks.
        ("bmk,bnk->bmn", {"k": 7, "b": 3}, {}, [(40, 300)]),
        ("bmk,bnk->bmn", {"k": 7, "b": 2 * CHUNKS + 5}, {"tails": "partition"}, [(5, 37), (17, 90)]),
    ],
)
def test_every_element_is_computed(
    einsum: str,
    fixed: dict[str, int],
    options: dict[str, object],
    sizes: list[tuple[int, int]],
    least_steps: int,
    target: CpuTarget,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "LEAST_STEPS", least_steps)
    problem = make_problem(einsum, fixed, constant="b" not in einsum)
    kernel = Compiled(problem, [MicroKernel(3, 2 * target.lanes(), **options)], target)
    for m, n in sizes:
        kernel.check({"m": m, "n": n} | fixed)


def test_a_loop_is_cut_as_finely_as_it_is_long(target: CpuTarget) -> None:
    problem = make_problem("mk,nk->mn")
    kernel = Compiled(problem, [MicroKernel(1, target.lanes())], target)
    least = NUM_CORES * chunks.LEAST_STEPS * target.lanes()  # products of one chunk a core
    for m, chunks_of_a_core in [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (40, 8)]:
        extents = {"m": m, "n": 1024, "k": least // 1024}
        inputs = kernel.random_inputs(extents)
        output = np.full((m, 1024), np.nan, np.float32)
        with one_by_one(compiled_file(kernel.code, target), MOST, [output]) as counts:
            kernel.module["run"](*kernel.arguments(inputs), output)
        assert counts == [NUM_CORES * chunks_of_a_core], extents
        assert np.isfinite(output).all()


# By kind and name: extents with enough tiles for many chunks, and the kernels of `few` that are tried.
BLOCKS: list[tuple[str, str, dict[str, int], tuple[int, ...]]] = [
    ("rows", "layernorm", {"m": 71, "n": 33}, (0, 1)),
    ("rows", "functions", {"m": 1, "n": 900}, (0,)),  # between columns
    ("rows", "mean-of-images", {"n": 3, "h": 5, "w": 4, "c": 150}, (0, 1)),  # vectors across rows
    ("rows", "channels-to-last", {"n": 2, "c": 33, "h": 9, "w": 17}, (0, 1)),  # squares
    ("rows", "maxpool", {"n": 2, "c": 33, "h": 23, "w": 31}, (0,)),
    ("products", "lstm", {"m": 45}, (0, 1)),
    ("products", "dense-add-layernorm", {"m": 45}, (1,)),
    ("products", "not-constant", {}, (0,)),
    ("attention", "plain", {"b": 3, "h": 5, "q": 37, "k": 70}, (0, 2)),
    ("attention", "causal", {"b": 1, "h": 1, "q": 190, "k": 190}, (0, 2)),
    ("attention", "grouped", {"b": 2, "q": 20, "g": 3, "k": 1200}, (1,)),  # keys divided
]


def _block(kind: str, name: str, which: tuple[int, ...], target: CpuTarget) -> CompiledBlock:
    limits, problem, kernels = Limits.of(target), None, None
    if kind == "rows":
        problem = row_blocks.problem_of(name)
        kernels = row_blocks.micro_kernels(problem, limits)
    elif kind == "products":
        problem = product_blocks.problem_of(name)
        kernels = product_blocks.micro_kernels(problem, limits)
    else:
        problem = attention_blocks.attention_of(name)
        kernels = attention_blocks.attention_kernels(problem, limits)
    return CompiledBlock(problem, [kernels[number] for number in which], target)


def _with(least_steps: int, monkeypatch: pytest.MonkeyPatch, build: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "LEAST_STEPS", least_steps)
        return build()


@pytest.mark.thorough
@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("case", range(len(BLOCKS)), ids=[f"{kind}-{name}" for kind, name, *_ in BLOCKS])
def test_chunks_of_blocks_are_tasks_and_give_the_same_bits(
    case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, name, sizes, which = BLOCKS[case]
    for mcpu in units_of(case):
        target = cpu_target(mcpu)
        cut, whole = (
            _with(s, monkeypatch, lambda t=target: _block(kind, name, which, t)) for s in (1, NEVER)
        )
        fixed = {k: size for k, size in cut.problem.extents.items() if size is not None}
        extents = dict.fromkeys(cut.problem.extents, 40) | sizes | fixed
        if kind == "rows":
            extents = row_blocks.complete(cut.problem, extents)
        inputs = cut.inputs(extents)
        cut.check(extents)
        for category, kernel in enumerate(cut.kernels):
            right = whole.run(inputs, extents, category)
            for block, least, most in ((whole, 1, NUM_CORES), (cut, NUM_CORES + 1, MOST)):
                outputs = block.before(inputs, extents)
                packed = {n: block.pack(n, inputs[n], extents) for n in block.problem.packed}
                given = [(inputs | packed)[n] for n in block.problem.inputs]
                with one_by_one(compiled_file(block.code, target), MOST, outputs) as counts:
                    block.module["run"](*given, *outputs, category)
                assert least <= max(counts) <= most, (kernel.name, counts)
                for output, expected in zip(outputs, right, strict=True):
                    np.testing.assert_array_equal(output, expected, err_msg=kernel.name)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("name", ["plain", "few channels", "given OIHW"])
def test_chunks_of_a_depthwise_convolution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = list(DEPTHWISE).index(name)
    for mcpu in units_of(case):
        problem, target = depthwise_problem(name), cpu_target(mcpu)
        cut, whole = (
            _with(s, monkeypatch, lambda p=problem, m=mcpu: CompiledDepthwise(p, m, NUM_CORES, case))
            for s in (1, NEVER)
        )
        extents = cut.extents(2, 23, 31)
        inputs = cut.inputs(extents)
        cut.check(extents)
        for category, kernel in enumerate(cut.kernels):
            right = whole.run(inputs, extents, category)
            # Each task packs a kernel that is not constant, and no core's part is cut.
            finely = (NUM_CORES + 1, MOST) if problem.column_operand_constant else (NUM_CORES, NUM_CORES)
            for block, (least, most) in ((whole, (NUM_CORES, NUM_CORES)), (cut, finely)):
                output = block.empty(extents)
                arguments = block.arguments(inputs, extents)
                with one_by_one(compiled_file(block.code, target), MOST, [output]) as counts:
                    block.module["run"](*arguments, output, category)
                if not kernel.serial:
                    assert least <= max(counts) <= most, (kernel.name, counts)
                np.testing.assert_array_equal(output, right, err_msg=kernel.name)
