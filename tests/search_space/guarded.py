"""Run in a process of its own: every buffer ends, or begins, at a page that may not be touched.

With `guarded_workspace.cc` loaded beforehand that holds for what tasks copy to, too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from attention_blocks import ATTENTIONS, built_attention
from compiled import Compiled, all_tails, cpu_target, make_problem
from compiled_block import CompiledBlock
from depthwise_kinds import DEPTHWISE, CompiledDepthwise, built_depthwise
from depthwise_kinds import TRIED as TRIED_DEPTHWISE
from kinds import BIAS, KINDS, RESIDUAL, TRIED, Kind, built, micro_kernels
from product_blocks import BLOCKS as PRODUCTS
from product_blocks import built_block as built_product
from row_blocks import BLOCKS, OVERLAPPING, built_block, built_overlapping, complete
from turns import units_of

from dietcode.search_space.cpu.attention.micro_kernel import BLOCK
from dietcode.search_space.cpu.axes import workspace_bytes
from dietcode.search_space.cpu.depthwise.space import depthwise_workspace_bytes
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.cpu.spaces import CPU_SPACES
from dietcode.search_space.reference import reference
from dietcode.search_space.rows.reference import block_reference
from dietcode.search_space.tails import TAILS
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled, widened

_LIBC = ctypes.CDLL(None, use_errno=True)
_KEPT: list[mmap.mmap] = []


def guarded(array: Any, at_end: bool) -> Any:
    """A copy between two forbidden pages that touches one of them."""
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    area = mmap.mmap(-1, size + 2 * page)
    _KEPT.append(area)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for forbidden in (start, start + page + size):
        assert _LIBC.mprotect(ctypes.c_void_p(forbidden), ctypes.c_size_t(page), 0) == 0
    offset = page + (size - array.nbytes if at_end else 0)
    copy = np.frombuffer(area, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def check(kernel: Compiled, extents: dict[str, int], micro_kernels: Sequence[MicroKernel]) -> None:
    """Every micro-kernel of a module, chosen by its last argument, between the pages."""
    inputs = kernel.random_inputs(extents)
    expected = reference(kernel.problem, inputs)
    dtype = kernel.problem.output_dtype
    unit = UNIT_ROUNDOFF[dtype] + 1e-4
    for at_end in (True, False):
        guard_workspaces(at_end)
        given = [guarded(value, at_end) for value in kernel.arguments(inputs, extents)]
        for category, micro_kernel in enumerate(micro_kernels):
            where = kernel.problem.indices, micro_kernel.name, extents
            output = guarded(nan_filled(kernel.output_shape(extents), dtype), at_end)
            kernel.module["run"](*given, output, category)
            assert np.allclose(widened(output, dtype), expected, rtol=unit, atol=unit), where
            told = workspace_bytes(kernel.problem, micro_kernel, kernel.limits, extents)
            taken, at_once = ctypes.CDLL(None).guarded_bytes(), ctypes.CDLL(None).guarded_bytes_at_once()
            tiles = kernel.limits.num_cores * micro_kernel.rows * micro_kernel.columns * 4
            assert at_once <= told + tiles, where  # a large tile does not go by way of the stack
            assert taken >= told or kernel.limits.num_cores > 1, where  # tasks at an edge take less
        if kernel.problem.column_operand_constant:
            place = kernel.problem.arguments.index(kernel.problem.column_operand)
            packed = guarded(np.full_like(given[place], np.nan), at_end)
            kernel.module["pack"](guarded(inputs[kernel.problem.column_operand], at_end), packed)
            assert np.array_equal(packed, given[place])


def check_block(block: CompiledBlock, extents: dict[str, int]) -> None:
    """Every micro-kernel of a block between the pages, and no more workspace than it says."""
    inputs = block.inputs(extents)
    right = block_reference(block.problem, inputs)
    for at_end in (True, False):
        guard_workspaces(at_end)
        packed = {name: block.pack(name, inputs[name], extents) for name in block.problem.packed}
        for name, layout in block.problem.packed.items():
            room = guarded(np.full_like(packed[name], np.nan), at_end)
            block.module[layout.function](guarded(inputs[name], at_end), room)
            assert np.array_equal(room, packed[name])
        given = [guarded((inputs | packed)[name], at_end) for name in block.problem.arguments]
        for category, micro_kernel in enumerate(block.kernels):
            where = block.problem.nodes, micro_kernel.name, extents
            outputs = [guarded(empty, at_end) for empty in block.before(inputs, extents)]
            block.module["run"](*given, *outputs, category)
            for name, output in zip(block.problem.outputs, outputs, strict=True):
                assert np.allclose(output, right[name], rtol=1e-4, atol=1e-4, equal_nan=True), where
            told = CPU_SPACES[block.problem.form].workspace_bytes(
                block.problem, micro_kernel, block.limits, extents
            )
            assert ctypes.CDLL(None).guarded_bytes() <= told, where


def check_depthwise(built: CompiledDepthwise, extents: dict[str, int]) -> None:
    """Every micro-kernel of a depthwise convolution between the pages, and the workspace that it says."""
    inputs, dtype = built.inputs(extents), built.problem.output_dtype
    expected, unit = reference(built.problem, inputs), UNIT_ROUNDOFF[dtype] + 1e-4
    for at_end in (True, False):
        guard_workspaces(at_end)
        given = [guarded(value, at_end) for value in built.arguments(inputs, extents)]
        for category, micro_kernel in enumerate(built.kernels):
            where = built.problem.indices, micro_kernel.name, extents
            output = guarded(built.empty(extents), at_end)
            built.module["run"](*given, output, category)
            assert np.allclose(widened(output, dtype), expected, rtol=unit, atol=unit), where
            told = depthwise_workspace_bytes(built.problem, micro_kernel, built.limits, extents)
            assert ctypes.CDLL(None).guarded_bytes() == told, where


def shapes(kind: Kind, lanes: int) -> Iterator[dict[str, int]]:
    """Ones, whole vectors, and some around them."""
    sizes, rng = (1, 2, 3, 5, 7, lanes - 1, lanes, lanes + 1, 2 * lanes, 3 * lanes + 1), random.Random(0)
    draws = [lambda: 1, lambda: lanes, *[lambda: rng.choice(sizes)] * 3]
    for draw in draws:
        yield kind.complete({k: min(draw(), kind.largest.get(k, 3 * lanes + 1)) for k in kind.free})


def in_turn(names: Iterable[str], mcpu: str, tried: Container[str] | None = None) -> list[str]:
    """Those whose turn this vector unit is, as in the other tests of them, which compile the same."""
    found = [name for number, name in enumerate(names) if mcpu in units_of(number)]
    return [name for name in found if tried is None or name in tried]


def check_contractions(mcpu: str) -> None:
    """Small shapes around one tile, in every combination of edges; then every kind of problem."""
    target = cpu_target(mcpu)
    lanes = target.lanes()
    cases = {"mk,nk->mn": True, "mk,kn->mn": False, "bmk,bnk->bmn": False}
    for einsum, constant in ((name, cases[name]) for name in in_turn(cases, mcpu)):
        kernel = all_tails(make_problem(einsum, None, [BIAS, RESIDUAL], constant), (3, 2 * lanes), target)
        for m, n, k in (
            (1, 1, 1),
            (3, 2 * lanes, 4),
            (4, 2 * lanes + 1, 5),
            (2, lanes, 3),
            (7, 3 * lanes, 1),
        ):
            extents = {"b": 2, "m": m, "n": n, "k": k}
            extents = {letter: extents[letter] for letter in kernel.problem.extents}
            check(kernel, extents, [MicroKernel(3, 2 * lanes, tails) for tails in TAILS])
    for name in in_turn(KINDS, mcpu, TRIED):
        kernel, kind = built(name, mcpu), KINDS[name]
        for extents in shapes(kind, lanes):
            check(kernel, extents, micro_kernels(name, kernel.limits))


def check_blocks(mcpu: str) -> None:
    """Rows of a vector and around, of every block."""
    lanes = cpu_target(mcpu).lanes()
    for name in in_turn(BLOCKS, mcpu):
        block = built_block(name, mcpu)
        for width in (1, lanes - 1, lanes, 4 * lanes, 4 * lanes + 1, 8 * lanes + 3):
            sizes = {index: 1 + position for position, index in enumerate(block.problem.extents)}
            check_block(block, complete(block.problem, sizes | {block.problem.columns[-1]: width}))
    for name in in_turn(OVERLAPPING, mcpu):
        block = built_overlapping(name, mcpu)
        for rows, width in ((1, lanes + 1), (5, 4 * lanes), (8, 4 * lanes + 3)):
            sizes = dict.fromkeys(block.problem.extents, 2) | {block.problem.rows[-1]: rows}
            check_block(block, sizes | {block.problem.columns[-1]: width})


def check_attentions(mcpu: str) -> None:
    """Lengths around blocks of keys, of every attention."""
    for name in in_turn(ATTENTIONS, mcpu):
        block = built_attention(name, mcpu)
        for number, (num_queries, num_keys) in enumerate(((1, 1), (2, BLOCK + 1), (5, BLOCK - 1), (3, 600))):
            sizes = {index: extent or 1 + number % 2 for index, extent in block.problem.extents.items()}
            check_block(block, sizes | {"q": num_queries, "k": num_keys})


def check_products(mcpu: str) -> None:
    """Few rows and columns, and many, of every block with products."""
    for name in in_turn(PRODUCTS, mcpu):
        block = built_product(name, mcpu)
        for number in (1, 2, 9, 31):
            free = {k: number + at for at, k in enumerate(block.problem.dynamic)}
            check_block(block, {k: free.get(k, extent or 0) for k, extent in block.problem.extents.items()})


def check_all_depthwise(mcpu: str) -> None:
    """The smallest images that every window fits, and some larger ones."""
    for name in in_turn(DEPTHWISE, mcpu, TRIED_DEPTHWISE):
        built = built_depthwise(name, mcpu)
        for shape in ((1, 9, 9), (2, 10, 13)):
            check_depthwise(built, built.extents(*shape))


# And how many workspaces are taken at least; most blocks keep nothing between passes, and take none.
PARTS = {
    "contractions": (check_contractions, 400),
    "blocks": (check_blocks, 100),
    "products": (check_products, 10),
    "depthwise": (check_all_depthwise, 20),
    "attentions": (check_attentions, 100),
}


def main(mcpu: str, *parts: str) -> None:
    """All of some parts; fewer micro-kernels take fewer workspaces."""
    before = 0
    for part in parts:
        check_part, least = PARTS[part]
        check_part(mcpu)
        taken = ctypes.CDLL(None).guarded_workspaces()
        assert taken - before > (least if os.environ.get("DIETCODE_TEST_LONG") else least // 4), (part, taken)
        before = taken
        print(part)  # noqa: T201 - what the test waits for


def guard_workspaces(at_end: bool) -> None:
    """Workspaces from now on touch the page after them, or the one before them."""
    ctypes.CDLL(None).guard_at_end(int(at_end))


def touch_in_child(what: str) -> int:
    """The signal that ends a process which touches what is guarded; 0 where none does."""
    child = os.fork()
    if child == 0:
        touch_the_guard(what)
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def touch_the_guard(what: str) -> None:
    """What must crash, or this check checks nothing."""
    at_end = not what.endswith("before")
    if what.startswith("workspace"):
        allocate = ctypes.CDLL(None).TVMBackendAllocWorkspace
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_int] * 2 + [ctypes.c_uint64]
        guard_workspaces(at_end)
        start = allocate(1, 0, 64)
    else:
        start = guarded(np.zeros(16, np.float32), at_end).ctypes.data
    ctypes.memset(start if at_end else start - 1, 0, 65)


if __name__ == "__main__":
    if sys.argv[1] == "touch":
        print(*map(touch_in_child, sys.argv[2:]))  # noqa: T201 - what the test waits for
    else:
        main(*sys.argv[1:])
