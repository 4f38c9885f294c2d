"""The launches of a call of a micro-kernel at given extents, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.cuda.bulk_maps import TensorMap
from dietcode.search_space.cuda.forms import call_shape, classes_of, launches_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem


@dataclass(frozen=True)
class Launch:
    """One function of a call.

    Attributes
    ----------
    symbol : str
    arguments : tuple of str
        Tensors, or regions of the workspace; extents come after them.
    threads, shared_bytes : int
        Of a block: its threads, and the shared memory that the launch requests beside what the code declares.
    grid : tuple of int
        Blocks in x and y.
    maps : tuple of TensorMap
        That it takes behind the extents.
    overlaps : bool
        As `dietcode.search_space.cuda.function.Function` has it.
    """

    symbol: str
    arguments: tuple[str, ...]
    threads: int
    shared_bytes: int
    grid: tuple[int, int]
    maps: tuple[TensorMap, ...] = ()
    overlaps: bool = False


@dataclass(frozen=True)
class Call:
    """All launches of a call at some extents, in order.

    Attributes
    ----------
    extents : dict of str to int
        Of every index.
    workspace_bytes : int
        Memory of the GPU that the call needs beside its tensors.
    regions : dict of str to int
        Offset of each region in it, in bytes, by the argument that it is.
    block : int
        Which launch is the micro-kernel's own; copies come before it, a sum after it.
    """

    extents: dict[str, int]
    launches: tuple[Launch, ...]
    workspace_bytes: int
    regions: dict[str, int]
    block: int


def call_of(problem: AnyProblem, micro_kernel: CudaMicroKernel, extents: Mapping[str, Any]) -> Call:
    """Return the launches of a micro-kernel at some extents, of tensors that begin at multiples of 16 bytes.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    """
    own = {index: int(extents[index]) for index in problem.extents}
    fitting = next(one for one in classes_of(problem, micro_kernel) if one.serves(own))
    shape, functions = call_shape(problem, micro_kernel, own), launches_of(problem, micro_kernel, fitting)
    launches = tuple(
        Launch(
            function.symbol,
            function.arguments,
            function.threads,
            function.shared_bytes,
            (int(x), int(y)),
            tuple(one.at(shape.block_extents) for one in function.maps),
            function.overlaps,
        )
        for function, (x, y) in zip(functions, shape.grids, strict=True)
    )
    regions = {name: 4 * int(region.first) for name, region in shape.regions.items()}
    block = [function.symbol for function in functions].index(fitting.symbol(micro_kernel))
    return Call(own, launches, 4 * shape.workspace_elements, regions, block)
