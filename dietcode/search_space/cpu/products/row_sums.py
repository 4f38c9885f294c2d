"""Rows of products that are sums of rows: a task adds up those of a block before its first tile reads them.

    for row in block: for k: sums[row - first, k] = A0[row, k] + A1[row, k] + …

What is added up stays in order, so that a row has the same bits in any task. A task has its own sums, which
lie next to each other in its core's cache; which cores add up which rows is up to how the tiles are split.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, size_of
from dietcode.search_space.cpu.products.panels import PanelMemory
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.tir import TirOps, i64, load, store, workspace
from dietcode.workload.products import Read


@dataclass(frozen=True)
class RowSums:
    """The sums of one block of rows.

    Attributes
    ----------
    buffers : dict of Read to (Buffer, int64 expression)
        ``[rows of a block, reduction]``, and the extent of the reduction.
    reductions : dict of Read to str
    first : int64 expression
        The first row of the block.
    """

    memory: PanelMemory
    buffers: dict[Read, tuple[Any, Any]]
    reductions: dict[Read, str]
    lanes: int
    first: Any = None

    def at(self, first: Any) -> RowSums:
        """Return the sums of the block of rows that begins there."""
        return replace(self, first=first)

    def buffer(self, read: Read) -> Any:
        """Return the buffer of a sum."""
        return self.buffers[read][0]

    def begin(self, read: Read, row: Any) -> Any:
        """Return the offset of a row's sum."""
        return (row - self.first) * self.buffers[read][1]

    def emit(self, rows: list[Any]) -> None:
        """Add up rows of the block."""
        bind = TirOps().bind
        for read in self.buffers:
            for row in rows:
                begins = [bind(self.memory.begin(part, row)) for part in read.parts]
                self._row(read, begins, bind(self.begin(read, row)))

    def _row(self, read: Read, begins: list[Any], target: Any) -> None:
        """Add up one row: whole vectors, then element by element."""
        reduction = tuple(self.reductions[read])
        buffer, extent = self.buffers[read]
        views = [self.memory.view(part) for part in read.parts]
        whole = i64(0)
        if all(view.stride(reduction) == ONE for view in views):
            whole = TirOps().bind(tirx.truncdiv(extent, i64(self.lanes)))
            with T.serial(i64(0), whole) as vector:
                at = vector * self.lanes
                value = self._sum(read, [begin + at for begin in begins], self.lanes)
                store(buffer, value, [target + at], self.lanes)
        with T.serial(whole * self.lanes, extent) as k:
            offsets = [
                begin + self.memory.offset(view, reduction, k)
                for begin, view in zip(begins, views, strict=True)
            ]
            store(buffer, self._sum(read, offsets, 1), [target + k], 1)

    def _sum(self, read: Read, offsets: list[Any], lanes: int) -> Any:
        total: Any = None
        for part, offset in zip(read.parts, offsets, strict=True):
            value = load(self.memory.buffers[part.tensor], [offset], lanes)
            total = value if total is None else total + value
        return total


def summed_rows(problem: ProductProblem) -> dict[Read, str]:
    """Return the rows of products that are sums, and the indices that each is summed over as a product."""
    return {term.rows: term.reduction for term, _ in problem.plan.terms if term.rows.added}


@contextmanager
def row_sums(memory: PanelMemory, lanes: int, num_rows: Any) -> Iterator[RowSums]:
    """Yield buffers for the sums of as many rows, which are freed then."""
    reductions = summed_rows(memory.problem)
    with ExitStack() as scopes:
        buffers = {}
        for read, reduction in reductions.items():
            extent = TirOps().bind(memory.value(size_of(memory.problem, reduction)))
            buffers[read] = (scopes.enter_context(workspace(num_rows * extent)), extent)
        yield RowSums(memory, buffers, reductions, lanes)
