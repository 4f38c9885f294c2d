"""Which micro-kernels an attention has. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.micro_kernel import BLOCK, SEGMENT, AttentionKernel
from dietcode.search_space.cpu.limits import Limits

ROWS = (1, 2, 3, 4, 6, 8)
VECTORS = (1, 2, 4)
TILES = (1, 4, 16, 64)
_FLOAT_BYTES = 4


def num_tasks(micro_kernel: AttentionKernel, limits: Limits) -> int:
    """Return the tasks that a call is cut into."""
    return 1 if micro_kernel.serial else limits.num_cores


def pitch(problem: AttentionProblem, lanes: int) -> int:
    """Return the elements that are kept of a query: m and l, a vector each, and its values."""
    return 2 * lanes + -(-problem.head[1] // lanes) * lanes


def allows(problem: AttentionProblem, micro_kernel: AttentionKernel, limits: Limits) -> bool:
    """Whether code for a micro-kernel can be generated, and its tile and its queries fit their memories."""
    vectors, remainder = divmod(micro_kernel.columns, limits.lanes)
    if remainder or vectors < 1 or BLOCK % micro_kernel.columns:
        return False
    registers = micro_kernel.rows * vectors + vectors + 1  # sums, a vector of keys, an element of a query
    kept = micro_kernel.rows * micro_kernel.tiles * pitch(problem, limits.lanes) * _FLOAT_BYTES
    if registers > limits.num_registers + 1 or (micro_kernel.tiles > 1 and kept > limits.l2_bytes // 2):
        return False
    if micro_kernel.split and (micro_kernel.tiles > 1 or micro_kernel.serial or limits.num_cores == 1):
        return False
    return not (micro_kernel.serial and limits.num_cores == 1)


def seeds(problem: AttentionProblem, limits: Limits) -> list[AttentionKernel]:
    """Return the micro-kernels to begin with: one query, the tallest tile, on one core and on all."""
    widest = max(v for v in VECTORS if BLOCK % (v * limits.lanes) == 0 and v * 5 + 1 <= limits.num_registers)
    columns, found = widest * limits.lanes, []
    for serial in (False, True):
        found.append(AttentionKernel(1, columns, serial=serial))
        tall = [AttentionKernel(r, columns, t, serial) for r in ROWS for t in TILES]
        found.append(max((k for k in tall if allows(problem, k, limits)), key=_volume))
    return [kernel for kernel in found if allows(problem, kernel, limits)]


def _volume(micro_kernel: AttentionKernel) -> tuple[int, int]:
    return micro_kernel.rows, micro_kernel.tiles


def around(problem: AttentionProblem, limits: Limits) -> list[AttentionKernel]:
    """Return every tile, alone and with others; neighbours bring the rest."""
    found = []
    for rows in ROWS:
        for vectors in VECTORS:
            for tiles in (1,) if rows == 1 else (1, 16):
                found.append(AttentionKernel(rows, vectors * limits.lanes, tiles))
    return [kernel for kernel in found if allows(problem, kernel, limits)]


def neighbours(
    problem: AttentionProblem, micro_kernel: AttentionKernel, limits: Limits
) -> list[AttentionKernel]:
    """Return micro-kernels that differ in one axis: the cores, the split, the tiles that share a block."""
    at = TILES.index(micro_kernel.tiles) if micro_kernel.tiles in TILES else 0
    found = [
        replace(micro_kernel, serial=not micro_kernel.serial),
        replace(micro_kernel, split=not micro_kernel.split),
    ]
    found += [replace(micro_kernel, tiles=tiles) for tiles in TILES[max(at - 1, 0) : at + 2]]
    return [k for k in found if k != micro_kernel and allows(problem, k, limits)]


def attention_workspace_bytes(
    problem: AttentionProblem, micro_kernel: AttentionKernel, limits: Limits, extents: Mapping[str, int]
) -> int:
    """Return the bytes that a call takes from the workspace pool: scores, keys, values and what is kept."""
    (depth, _), kept = problem.head, pitch(problem, limits.lanes)
    own, shared = (micro_kernel.rows + depth) * BLOCK, 0
    own += (kept - 2 * limits.lanes) * BLOCK * (micro_kernel.tiles > 1)
    if micro_kernel.split:
        groups, rows, _, keys = problem.sizes(extents)
        shared = int(groups) * -(-int(rows) // micro_kernel.rows) * -(-int(keys) // SEGMENT)
        shared *= micro_kernel.rows * kept
    else:
        own += 2 * micro_kernel.rows * micro_kernel.tiles * kept
    return (num_tasks(micro_kernel, limits) * own + shared) * _FLOAT_BYTES
