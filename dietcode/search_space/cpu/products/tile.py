"""A tile: accumulators of some rows and vectors in registers, and what is computed and written of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import size_of
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.products.panels import PanelMemory
from dietcode.search_space.cpu.rows.functions import pointwise
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.tir import (
    DTYPE,
    TirOps,
    first_lanes,
    i64,
    load,
    load_masked,
    small_buffer,
    splat,
    store,
    store_masked,
)
from dietcode.search_space.vectors import const, named
from dietcode.workload.products import ProductTerm, Read


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
        for term, terms in self.problem.plan.terms:
            targets = [(self.memory.gate_offset(term.columns, gates), name) for gates, name in terms]
            self._accumulate(term, targets, rows, panels, accumulators)
        for i in range(height):
            with ExitStack() as inside:
                if edge is not None and i > 0:
                    inside.enter_context(T.If(row + i < edge.rows))
                    inside.enter_context(T.Then())
                self._finish(i, rows[i], column, edge, accumulators)

    def _accumulate(
        self,
        term: ProductTerm,
        targets: list[tuple[int, str]],
        rows: list[Any],
        panels: list[Any],
        accumulators: dict[tuple[str, int, int], Any],
    ) -> None:
        """Emit ``accumulators[name] += A[row, k] · B[k, gate, lanes]`` over the reduction, in order.

        Parameters
        ----------
        targets : list of (int, str)
            Position of the gate, and the sum that it is added to.
        """
        memory, lanes, bind = self.memory, self.lanes, TirOps().bind
        view = memory.view(term.rows)
        reduction, extent = tuple(term.reduction), memory.value(size_of(self.problem, term.reduction))
        starts = [bind(memory.begin(term.rows, row)) for row in rows]
        gates = memory.num_gates(term.columns)
        begins = [bind(panel * extent * (gates * lanes)) for panel in panels]
        source, packed = memory.buffers[term.rows.tensor], self.packed[term.columns]
        with T.serial(i64(0), extent) as k:
            vectors = {
                (gate, name, v): T.Bind(load(packed, [begin + (k * gates + gate) * lanes], lanes))
                for gate, name in targets
                for v, begin in enumerate(begins)
            }
            offset = memory.offset(view, reduction, k)
            for i, start in enumerate(starts):
                value = splat(load(source, [start + offset], 1), lanes)
                for (_, name, v), vector in vectors.items():  # several gates may be added to one sum
                    total = load(accumulators[name, i, v], [0], lanes) + value * vector
                    store(accumulators[name, i, v], total, [0], lanes)

    def _finish(
        self, i: int, row: Any, column: Any, edge: Edge | None, accumulators: dict[tuple[str, int, int], Any]
    ) -> None:
        """Emit the functions of one row's accumulators, and its outputs."""
        plan, bind, lanes = self.problem.plan, TirOps().bind, self.lanes
        begins = {name: bind(self.memory.begin(read, row)) for name, read in plan.reads.items()}
        into = self.problem.into
        outputs = {name: Read(name, (), self.problem.indices[name]) for name in plan.outputs}
        outputs |= {
            name: Read(into[name][0], (), self.problem.indices[name], into[name][1])
            for name in plan.outputs
            if name in into
        }
        stored = {name: bind(self.memory.is_stored(name, row)) for name in plan.outputs if name in into}
        targets = {name: bind(self.memory.begin(output, row)) for name, output in outputs.items()}
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
