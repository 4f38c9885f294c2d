"""Writers of accumulators: to the output through the epilogue, or to a workspace, a part of the reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ZERO
from dietcode.search_space.cuda.building import aligned, local
from dietcode.search_space.cuda.fetching import stage_width
from dietcode.search_space.epilogue import apply, convert, widen
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import load, store


class Writer(Protocol):
    """Takes accumulators of neighbouring columns.

    Attributes
    ----------
    width : int
        How many columns at once.
    """

    width: int

    def write(self, value: Callable[[Any], Any], batch: Any, row: Any, column: Any) -> None:
        """Write ``value(0) … value(width - 1)`` to the columns from `column` on.

        Parameters
        ----------
        value : callable
            ``offset from column -> float32 expression``.
        batch, row, column : int64 expressions
            Flattened.
        """


class OutputWriter:
    """Applies the epilogue, rounds, and writes to the output."""

    def __init__(self, problem: Problem, memory: Memory, width: int) -> None:
        self.problem, self.memory, self.width = problem, memory, width
        self.rounded = local("rounded", width, str(problem.storage(problem.output)))
        names = dict.fromkeys(stage.tensor for stage in problem.stages if stage.tensor is not None)
        self.read = {name: local(f"read_{name}", width, str(problem.storage(name))) for name in names}

    def write(self, value: Callable[[Any], Any], batch: Any, row: Any, column: Any) -> None:
        """Write as `Writer` says."""
        problem, memory, width = self.problem, self.memory, self.width
        for name, slot in self.read.items():
            self._load(name, slot, batch, row, column)
        with T.unroll(0, width) as u:
            result = value(u)
            for stage in problem.stages:
                result = apply(stage, result, 1, lambda name: widen(self.read[name][u], problem.dtype(name)))
            store(self.rounded, convert(result, problem.output_dtype, 1), [u], 1)
        offset = aligned(memory.element_offset(problem.output, batch, row, column), width)
        store(memory.buffers[problem.output], load(self.rounded, [0], width), [offset], width)

    def _load(self, name: str, slot: Any, batch: Any, row: Any, column: Any) -> None:
        """Load what a stage reads beside the accumulators."""
        memory, width = self.memory, self.width
        buffer = memory.buffers[name]
        if width > 1 and stage_width(self.problem, name, width) == width:
            offset = aligned(memory.element_offset(name, batch, row, column), width)
            store(slot, load(buffer, [offset], width), [0], width)
            return
        is_same = memory.views[name].stride(self.problem.columns) == ZERO
        for u in range(width):
            offset = memory.element_offset(name, batch, row, column if is_same else column + u)
            store(slot, buffer[offset], [u], 1)


class PartWriter:
    """Writes accumulators of one part of the reduction to ``workspace[part, batch, row, column]``.

    Parameters
    ----------
    workspace : buffer of float32
    part : int64 expression
        Number of the part.
    sizes : tuple of int64 expressions
        Flattened batch, rows and columns.
    width : int
        Columns that are written at once.
    """

    def __init__(self, workspace: Any, part: Any, sizes: tuple[Any, Any, Any], width: int) -> None:
        self.workspace, self.part, self.sizes, self.width = workspace, part, sizes, width
        self.values = local("part_sums", width)

    def write(self, value: Callable[[Any], Any], batch: Any, row: Any, column: Any) -> None:
        """Write as `Writer` says."""
        batches, rows, columns = self.sizes
        with T.unroll(0, self.width) as u:
            store(self.values, value(u), [u], 1)
        offset = ((self.part * batches + batch) * rows + row) * columns + column
        store(self.workspace, load(self.values, [0], self.width), [aligned(offset, self.width)], self.width)
