"""The context in which code of a micro-kernel is generated: sizes, tensors, the loop over products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.chunks import Chunk, chunked
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.sources import Block, KRange, Product
from dietcode.search_space.memory import Memory
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import TirOps, as_int64, i64, load, splat, store

# One buffer for each column operand, row and vector, in registers.
Accumulators: TypeAlias = "list[list[list[Any]]]"


def possible_remainders(problem: Problem, indices: tuple[str, ...], extent: int) -> frozenset[int]:
    """Return the possible remainders of a role divided by `extent`; fixed extents rule many out.

    ``m = 37, extent = 8 -> {5}``; ``b = 4 and any m, extent = 8 -> {0, 4}``; ``any m -> {0, 1, … 7}``.
    """
    fixed = [size for size in (problem.extents[index] for index in indices) if size is not None]
    known = math.prod(fixed)
    if len(fixed) == len(indices):
        return frozenset({known % extent})
    return frozenset(range(0, extent, math.gcd(known, extent)))


@dataclass(frozen=True)
class Kernel:
    """The context of code generation of one micro-kernel.

    Attributes
    ----------
    problem, micro_kernel, limits
        What is computed, how, and on which machine.
    memory : Memory
        The tensors.
    batch, rows, columns, reduction, panels : int64 expressions
        Flattened extents, and panels of a column operand.
    lanes : int
        Of a vector.
    """

    problem: Problem
    micro_kernel: MicroKernel
    limits: Limits
    memory: Memory
    batch: Any
    rows: Any
    columns: Any
    reduction: Any
    panels: Any
    lanes: int
    ops: TirOps

    @classmethod
    def of(
        cls,
        problem: Problem,
        micro_kernel: MicroKernel,
        limits: Limits,
        pointers: Mapping[str, Any],
        extents: dict[str, Any],
    ) -> Kernel:
        """Return the kernel on the pointers that its function was given; declares their buffers.

        Parameters
        ----------
        pointers : mapping of str to pointer
            By tensor name.
        extents : dict of str to int64 expression
            Of every index.
        """
        ops, lanes = TirOps(), limits.lanes_of(micro_kernel)
        batch, rows, columns, reduction = (as_int64(size) for size in problem.sizes(extents))
        panels = ceildiv(columns, lanes, ops)
        memory = Memory(problem, extents, pointers, lanes, panels)
        return cls(problem, micro_kernel, limits, memory, batch, rows, columns, reduction, panels, lanes, ops)

    @property
    def vectors(self) -> int:
        """Vectors of one row of the tile."""
        return self.micro_kernel.columns // self.lanes

    @property
    def k_tile(self) -> int:
        """Steps of the reduction after which a tile is set aside; 0 for all of them at once."""
        return self.micro_kernel.k_tile

    @property
    def spills(self) -> bool:
        """Whether no tile can be written in whole vectors."""
        return not self.memory.whole_vectors

    @contextmanager
    def k_ranges(self) -> Iterator[KRange]:
        """Loop over the ranges of the reduction, or emit no loop where there is only one."""
        if not self.k_tile:
            yield KRange(i64(0), self.reduction)
            return
        k_tile, bind = self.k_tile, self.ops.bind
        with T.serial(i64(0), ceildiv(self.reduction, k_tile, self.ops)) as n:
            yield KRange(bind(n * k_tile), bind(tirx.min((n + 1) * k_tile, self.reduction)))

    def num_steps(self) -> Any:
        """Return the products of vectors that a call takes."""
        return tirx.truncdiv(self.batch * self.rows * self.columns * self.reduction, i64(self.lanes))

    def tasks(self, num_steps: Callable[[], Any] | None = None) -> AbstractContextManager[tuple[Any, Chunk]]:
        """Return a parallel loop over chunks of cores' parts, as `chunked` has it."""
        return chunked(self.limits.num_cores, num_steps)

    def accumulate(
        self,
        accumulators: Accumulators,
        products: Sequence[Product],
        at: Block,
        rows: list[Any],
        panels: list[Any],
        cut: bool = False,
        next_rows: bool = True,
    ) -> None:
        """Emit ``acc[j, i, v] += A[i, k] · B[j, k, v]`` over the reduction, in order whatever the tile.

        Parameters
        ----------
        rows, panels : list of int64 expressions
            Which rows and panels the tile reads.
        cut : bool
            Whether the last column may be within a panel.
        next_rows : bool
            Whether each step prefetches a part of the rows that are read next, beside that of the columns.
        """
        for product in products:
            row_fetch = product.rows.fetch(at, rows)
            panel_fetches = [columns.fetch(at, panels, cut) for columns in product.columns]
            prefetches = [*(product.rows.next_rows(at) if next_rows else ()), *product.next_columns]
            with product.rows.k_loop(at.k_range) as step:
                for prefetch in prefetches:
                    prefetch.emit(step.k)
                vectors = [[T.Bind(fetch(v, step.k)) for v in range(len(panels))] for fetch in panel_fetches]
                for i in range(len(rows)):
                    value = splat(row_fetch(i, step), self.lanes)
                    for own, loaded in zip(accumulators, vectors, strict=True):
                        for accumulator, vector in zip(own[i], loaded, strict=True):
                            total = load(accumulator, [0], self.lanes) + value * vector
                            store(accumulator, total, [0], self.lanes)
