"""Which micro-kernels a depthwise convolution has. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.depthwise import DepthwiseProblem

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 14)
VECTORS = (1, 2, 4)
_SEEDS = ((4, 2), (8, 1), (4, 1))
_MOST_VECTORS = 24  # of a tile: code grows with it
_FLOAT_BYTES = 4
_FLOAT = "float32"


def num_tasks(micro_kernel: DepthwiseKernel, limits: Limits) -> int:
    """Return the tasks that a call is cut into."""
    return 1 if micro_kernel.serial else limits.num_cores


def allows(problem: DepthwiseProblem, micro_kernel: Any, limits: Limits) -> bool:
    """Whether a micro-kernel computes the problem, and the registers hold a tile beside one of each operand.

    Records of problems that were contractions hold micro-kernels of another form.
    """
    if not isinstance(micro_kernel, DepthwiseKernel):
        return False
    vectors, remainder = divmod(micro_kernel.columns, limits.lanes)
    if remainder or not 1 <= vectors <= num_panels(problem, limits):
        return False
    if vectors * micro_kernel.rows + vectors + 1 > limits.num_registers:
        return False
    if micro_kernel.stream and problem.output_dtype != _FLOAT:
        return False
    # Small calls stay in the caches; on one core `serial` changes nothing.
    return not (micro_kernel.serial and (micro_kernel.stream or limits.num_cores == 1))


def num_panels(problem: DepthwiseProblem, limits: Limits) -> int:
    """Return the vectors of all channels, the last of which may be cut off."""
    return -(-num_channels(problem) // limits.lanes)


def num_channels(problem: DepthwiseProblem) -> int:
    """Return the channels, which do not vary."""
    return int(problem.product(problem.columns, dict(problem.extents)))


def window_size(problem: DepthwiseProblem) -> int:
    """Return the elements of a window, which do not vary."""
    return int(problem.product(problem.reduction, dict(problem.extents)))


def seeds(problem: DepthwiseProblem, limits: Limits) -> list[DepthwiseKernel]:
    """Return the micro-kernels to begin with: small ones, and the other ways to write, and to use cores."""
    found = [DepthwiseKernel(rows, vectors * limits.lanes) for rows, vectors in _SEEDS]
    found += [
        replace(found[0], stream=True),
        replace(found[-1], stream=True),
        replace(found[-1], serial=True),
    ]
    return [kernel for kernel in found if allows(problem, kernel, limits)]


def around(problem: DepthwiseProblem, limits: Limits) -> list[DepthwiseKernel]:
    """Return every tile, with what else is not the default left out: neighbours bring that along."""
    tiles = [(rows, vectors) for rows in ROWS for vectors in VECTORS if rows * vectors <= _MOST_VECTORS]
    kernels = [DepthwiseKernel(rows, vectors * limits.lanes) for rows, vectors in tiles]
    return [kernel for kernel in kernels if allows(problem, kernel, limits)]


def neighbours(
    problem: DepthwiseProblem, micro_kernel: DepthwiseKernel, limits: Limits
) -> list[DepthwiseKernel]:
    """Return micro-kernels that differ in one axis: the order of tiles, the cores, or stores."""
    found = [
        replace(micro_kernel, strips=not micro_kernel.strips),
        replace(micro_kernel, serial=not micro_kernel.serial),
        replace(micro_kernel, stream=not micro_kernel.stream),
    ]
    return [other for other in found if allows(problem, other, limits)]


def depthwise_workspace_bytes(
    problem: DepthwiseProblem,
    micro_kernel: DepthwiseKernel,
    limits: Limits,
    extents: Mapping[str, int],
) -> int:
    """Return the bytes that a call takes from the workspace pool: the kernel, where each task packs it."""
    if problem.column_operand_constant:
        return 0
    panel = window_size(problem) * limits.lanes * _FLOAT_BYTES
    return num_tasks(micro_kernel, limits) * num_panels(problem, limits) * panel
