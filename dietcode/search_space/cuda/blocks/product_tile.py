"""A tile of all sums of a block with products, while its function is built: the functions of them.

    acc[sum, tile of a thread or a warp] = 0                      # registers
    for each product: acc[sum] += A[rows, k] · B[gate of the sum, columns, k]
    functions of the sums and of other tensors, and the outputs, an element at a time, where it exists

Rows past the edge are those of the last row, gathered or not, and columns those of the last column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ZERO, View, size_of
from dietcode.search_space.cuda.blocks.arithmetic import pointwise
from dietcode.search_space.cuda.blocks.functions import aside
from dietcode.search_space.cuda.blocks.product_layout import Targets
from dietcode.search_space.cuda.building import both, local, once, only_if, wide
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.epilogue import convert, widen
from dietcode.search_space.products.memory import ProductMemory
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.tir import DTYPE, i64, store
from dietcode.search_space.vectors import const, named
from dietcode.workload.products import Gates, ProductTerm, Read


class ProductBlock(ABC):
    """Code of a tile of all sums of a block.

    Parameters
    ----------
    thread : int32 expression
    row, column : int64 expressions
        The first of the tile.

    Attributes
    ----------
    row_slots, column_slots : int
        Rows and columns of which a thread has accumulators.
    accumulators : dict of str to buffer of float32
        Of each sum, ``[row_slots, column_slots]`` in an order of its own.
    """

    row_slots: int
    column_slots: int

    def __init__(
        self,
        problem: ProductProblem,
        micro_kernel: CudaMicroKernel,
        memory: ProductMemory,
        thread: Any,
        row: Any,
        column: Any,
    ) -> None:
        self.problem, self.micro_kernel, self.memory, self.thread = problem, micro_kernel, memory, thread
        self.first_row, self.first_column = row, column
        self.rows, self.columns = (memory.value(size_of(problem, k)) for k in (problem.rows, problem.columns))
        self._allocate()
        self.accumulators = {
            name: local(f"acc_{number}", self.row_slots * self.column_slots)
            for number, name in enumerate(problem.plan.accumulators)
        }

    @abstractmethod
    def _allocate(self) -> None:
        """Allocate shared memory, and say how accumulators lie in registers."""

    @abstractmethod
    def row_of(self, slot: Any) -> Any:
        """Return which row of the tile a thread's slot is, int32."""

    @abstractmethod
    def column_of(self, slot: Any) -> Any:
        """Return which column of the tile a thread's slot is, int32."""

    @abstractmethod
    def sum_at(self, row: Any, column: Any) -> Any:
        """Return where the accumulator of two slots is."""

    @abstractmethod
    def accumulate(self, number: int, term: ProductTerm, targets: Targets) -> None:
        """Emit the reduction of one product, for all sums that it is added to; `number` counts products."""

    def emit(self) -> None:
        """Emit the body."""
        with T.unroll(0, self.row_slots * self.column_slots) as i:
            for accumulator in self.accumulators.values():
                store(accumulator, tirx.const(0, DTYPE), [i], 1)
        for number, (term, targets) in enumerate(self.problem.plan.terms):
            self.accumulate(number, term, targets)
        with T.unroll(0, self.row_slots) as i:
            row = once("row", self.first_row + wide(self.row_of(i)))
            with T.If(row < self.rows), T.Then():
                self._finish(i, row)

    def depth(self, term: ProductTerm) -> Any:
        """Return the steps of a product's reduction, int64."""
        return self.memory.value(size_of(self.problem, term.reduction))

    def gate_offset(self, view: View, gates: Gates) -> Any:
        """Return where positions along gates begin, in elements."""
        offset: Any = i64(0)
        for gate, position in gates:
            offset = offset + i64(position) * self.memory.value(view.strides.get(gate, ZERO))
        return offset

    def is_step(self, step: Any, depth: Any) -> Any | None:
        """Return whether a step exists; None where all do."""
        is_whole = isinstance(depth, tirx.IntImm) and int(depth) % self.micro_kernel.k_tile == 0
        return None if is_whole else step < depth

    def _finish(self, i: Any, row: Any) -> None:
        """Emit the functions of one row's sums, and its outputs."""
        plan, memory, problem = self.problem.plan, self.memory, self.problem
        begins = {
            name: once(f"read_{number}", memory.begin(read, row))
            for number, (name, read) in enumerate(plan.reads.items())
        }
        narrow = {
            name: self._read(read.tensor, begins[name])
            for name, read in plan.reads.items()
            if not problem.is_wide(read.indices)
        }
        outputs = {name: Read(name, (), problem.indices[name]) for name in plan.outputs}
        for name in set(plan.outputs) & set(problem.into):
            table, positions = problem.into[name]
            outputs[name] = Read(table, (), problem.indices[name], positions)
        stored = {
            name: once("is_stored", memory.is_stored(name, row)) > i64(0)
            for name in plan.outputs
            if name in problem.into
        }
        targets = {
            name: once(f"write_{number}", memory.begin(output, row))
            for number, (name, output) in enumerate(outputs.items())
        }
        with T.unroll(0, self.column_slots) as j:
            column = once("column", self.first_column + wide(self.column_of(j)))
            with T.If(column < self.columns), T.Then():
                values: dict[str, Any] = dict(narrow)
                for name in plan.accumulators:
                    values[name] = named(self.accumulators[name][self.sum_at(i, j)], 1)
                for name, read in plan.reads.items():
                    if name not in narrow:
                        values[name] = self._read(read.tensor, begins[name] + column)
                for p in plan.primitives:
                    operands = [values[o] if isinstance(o, str) else const(o, 1) for o in p.operands]
                    values[p.name] = named(pointwise(p.kind, operands, p.option), 1)
                for name, value in plan.outputs.items():
                    result = convert(values[value], problem.dtype(name), 1)
                    with only_if(both(stored.get(name))):
                        store(memory.buffers[name], result, [targets[name] + column], 1)
                    if name in problem.kept:
                        store(memory.buffers[aside(name)], values[value], [targets[name] + column], 1)

    def _read(self, tensor: str, offset: Any) -> Any:
        """Return an element that functions read."""
        return named(widen(self.memory.buffers[tensor][offset], self.problem.dtype(tensor)), 1)
