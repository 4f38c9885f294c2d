"""A tile: accumulators of some rows and vectors in registers, and what is computed and written of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, size_of
from dietcode.search_space.cpu.products.loops import ProductLoop, loops_of
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.products.panels import PanelMemory
from dietcode.search_space.cpu.rows.functions import pointwise
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.tir import (
    DTYPE,
    FROM_L2,
    TirOps,
    first_lanes,
    i64,
    load,
    load_masked,
    prefetch,
    small_buffer,
    splat,
    store,
    store_masked,
)
from dietcode.search_space.vectors import const, named
from dietcode.workload.products import Read

_LINE = 16  # elements of a cache line


@dataclass(frozen=True)
class Edge:
    """Extents that a tile at an edge must not pass: its rows are clamped, its lanes masked.

    Attributes
    ----------
    rows, columns, panels : int64 expressions
    """

    rows: Any
    columns: Any
    panels: Any


@dataclass(frozen=True)
class ProductTile:
    """Code of the tiles of one micro-kernel.

    Attributes
    ----------
    packed : dict of str to Buffer
        The panels of each column tensor.
    """

    problem: ProductProblem
    micro_kernel: ProductKernel
    memory: PanelMemory
    packed: dict[str, Any]
    lanes: int
    num_registers: int

    @property
    def vectors(self) -> int:
        """Vectors of a row of the tile."""
        return self.micro_kernel.columns // self.lanes

    def emit(self, row: Any, column: Any, panel: Any, edge: Edge | None) -> None:
        """Emit one tile.

        Parameters
        ----------
        row, column, panel : int64 expressions
            The first of each.
        edge : Edge or None
            None for a tile that lies inside.
        """
        bind, height = TirOps().bind, self.micro_kernel.rows
        rows = [row + i for i in range(height)]
        panels = [panel + v for v in range(self.vectors)]
        if edge is not None:
            rows = [bind(tirx.min(own, edge.rows - 1)) for own in rows]
            panels = [bind(tirx.min(own, edge.panels - 1)) for own in panels]
        accumulators = {
            (name, i, v): small_buffer(self.lanes)
            for name in self.problem.plan.accumulators
            for i in range(height)
            for v in range(self.vectors)
        }
        for accumulator in accumulators.values():
            store(accumulator, splat(tirx.const(0, DTYPE), self.lanes), [0], self.lanes)
        self._prefetch(rows, column)
        for loop in loops_of(self.problem, height, self.vectors, self.num_registers):
            self._accumulate(loop, rows, panels, accumulators)
        for i in range(height):
            with ExitStack() as inside:
                if edge is not None and i > 0:
                    inside.enter_context(T.If(row + i < edge.rows))
                    inside.enter_context(T.Then())
                self._finish(i, rows[i], column, edge, accumulators)

    def prefetch_rows(self, first: Any, last: Any) -> None:
        """Prefetch the rows of the products of a tile that follows.

        Parameters
        ----------
        first, last : int64 expressions
            The first row of that tile, and the last one that there is.
        """
        memory, bind = self.memory, TirOps().bind
        reads = {term.rows: term.reduction for term, _ in self.problem.plan.terms}
        for read, reduction in reads.items():
            view, indices = memory.view(read), tuple(reduction)
            if view.stride(indices) != ONE:
                continue  # rows that are not next to each other
            extent = memory.value(size_of(self.problem, reduction))
            for i in range(self.micro_kernel.rows):
                begin = bind(memory.begin(read, bind(tirx.min(first + i, last))))
                with T.serial(i64(0), tirx.truncdiv(extent + (_LINE - 1), i64(_LINE))) as line:
                    prefetch(memory.buffers[read.tensor], begin + line * _LINE, FROM_L2)

    def _prefetch(self, rows: list[Any], column: Any) -> None:
        """Prefetch the lines of each row that are read after the sums, and that are written.

        Rows that are gathered lie anywhere, and a tile takes a line or two of each, so that a core does not
        know the next one: they come while the sums are computed.
        """
        plan, memory, problem = self.problem.plan, self.memory, self.problem
        lines = range(0, self.micro_kernel.columns, _LINE)
        for read in plan.reads.values():
            if not problem.is_of_rows(read):
                continue
            for row in rows:
                begin = memory.begin(read, row) + column
                for line in lines:
                    prefetch(memory.buffers[read.tensor], begin + line, FROM_L2)
        for name, output in self._outputs().items():
            for row in rows:
                begin = memory.begin(output, row) + column
                for line in lines:
                    prefetch(memory.buffers[name], begin + line, for_writing=True)

    def _outputs(self) -> dict[str, Read]:
        """Return where each output is written: to its rows, or to those of a table."""
        indices, into = self.problem.indices, self.problem.into
        return {
            name: Read(into[name][0], (), indices[name], into[name][1])
            if name in into
            else Read(name, (), indices[name])
            for name in self.problem.plan.outputs
        }

    def _accumulate(
        self,
        loop: ProductLoop,
        rows: list[Any],
        panels: list[Any],
        accumulators: dict[tuple[str, int, int], Any],
    ) -> None:
        """Emit ``accumulators[name] += A[row, k] · B[k, gate, lanes]`` over the reduction, in order."""
        memory, lanes, bind = self.memory, self.lanes, TirOps().bind
        extent = memory.value(size_of(self.problem, loop.reduction))
        starts = {read: [bind(memory.begin(read, row)) for row in rows] for read in loop.targets}
        gates = memory.num_gates(loop.columns)
        begins = [bind(panel * extent * (gates * lanes)) for panel in panels]
        packed = self.packed[loop.columns]
        with T.serial(i64(0), extent) as k:
            vectors = {
                (gate, v): T.Bind(
                    load(
                        packed,
                        [begin + (k * gates + memory.gate_offset(loop.columns, gate)) * lanes],
                        lanes,
                    )
                )
                for gate in loop.gates
                for v, begin in enumerate(begins)
            }
            for read, targets in loop.targets.items():
                offset = memory.offset(memory.view(read), tuple(loop.reduction), k)
                for i, start in enumerate(starts[read]):
                    value = splat(load(memory.buffers[read.tensor], [start + offset], 1), lanes)
                    for gate, name in targets:  # several gates may be added to one sum
                        for v in range(self.vectors):
                            total = load(accumulators[name, i, v], [0], lanes) + value * vectors[gate, v]
                            store(accumulators[name, i, v], total, [0], lanes)

    def _finish(
        self, i: int, row: Any, column: Any, edge: Edge | None, accumulators: dict[tuple[str, int, int], Any]
    ) -> None:
        """Emit the functions of one row's accumulators, and its outputs."""
        plan, bind, lanes = self.problem.plan, TirOps().bind, self.lanes
        begins = {name: bind(self.memory.begin(read, row)) for name, read in plan.reads.items()}
        stored = {
            name: bind(self.memory.is_stored(name, row)) for name in plan.outputs if name in self.problem.into
        }
        targets = {name: bind(self.memory.begin(output, row)) for name, output in self._outputs().items()}
        for v in range(self.vectors):
            first = column + v * lanes
            mask = None if edge is None else named(first_lanes(edge.columns - first, lanes), lanes, "bool")
            values: dict[str, Any] = {}
            for name in plan.accumulators:
                values[name] = named(load(accumulators[name, i, v], [0], lanes), lanes)
            for name, read in plan.reads.items():
                values[name] = named(self._read(read, begins[name], first, mask), lanes)
            for p in plan.primitives:
                operands = [values[o] if isinstance(o, str) else const(o, lanes) for o in p.operands]
                values[p.name] = named(pointwise(p.kind, operands, lanes, p.option), lanes)
            for name, value in plan.outputs.items():
                buffer, offset = self.memory.buffers[name], targets[name] + first
                with ExitStack() as inside:
                    if name in stored:
                        inside.enter_context(T.If(stored[name] > i64(0)))
                        inside.enter_context(T.Then())
                    if mask is None:
                        store(buffer, values[value], [offset], lanes)
                    else:
                        store_masked(buffer, values[value], offset, mask)

    def _read(self, read: Read, begin: Any, column: Any, mask: Any) -> Any:
        buffer = self.memory.buffers[read.tensor]
        if not self.problem.is_wide(read.indices):
            return splat(load(buffer, [begin], 1), self.lanes)
        if mask is None:
            return load(buffer, [begin + column], self.lanes)
        return load_masked(buffer, begin + column, self.lanes, mask)
