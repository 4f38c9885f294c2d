"""What code generation of one micro-kernel shares: its tensors, and the pieces that its tiles are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.limits import Limits, MicroKernel
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, TirOps, i64, load, small_buffer, splat, store, unflatten

# One buffer for each row and vector, in registers.
Accumulators: TypeAlias = "list[list[Any]]"


@dataclass(frozen=True)
class Block:
    """Rows and vectors of the output that are accumulated in registers at once.

    Attributes
    ----------
    batch, row, column, panel : int64 expressions
        Flattened batch index, first row, first column, index of the first panel.
    rows, vectors : int
        Extents.
    """

    batch: Any
    row: Any
    column: Any
    panel: Any
    rows: int
    vectors: int


def possible_rests(problem: Problem, letters: tuple[str, ...], extent: int) -> frozenset[int]:
    """What whole tiles of `extent` may leave over of a role; fixed extents rule much out.

    ``m = 37, extent = 8 -> {5}``; ``b = 4 and any m, extent = 8 -> {0, 4}``; ``any m -> {0, 1, … 7}``.
    """
    fixed = [size for size in (problem.extents[letter] for letter in letters) if size is not None]
    known = math.prod(fixed)
    if len(fixed) == len(letters):
        return frozenset({known % extent})
    return frozenset(range(0, extent, math.gcd(known, extent)))


class Kernel:
    """One micro-kernel of one problem, while its function is built.

    Attributes
    ----------
    batch, rows, columns, reduction, panels : int64 expressions
        Flattened extents, and panels of the packed operand.
    buffers : dict of str to Buffer
        The tensors. Column letters of the output, and of what has its shape, are one axis.
    vectors : int
        Of one row of the tile.
    """

    def __init__(
        self,
        problem: Problem,
        micro_kernel: MicroKernel,
        limits: Limits,
        pointers: dict[str, Any],
        extents: dict[str, Any],
    ) -> None:
        self.problem, self.tile, self.limits, self.extents = problem, micro_kernel, limits, extents
        self.ops = TirOps()
        self.lanes = limits.lanes
        self.vectors = micro_kernel.columns // limits.lanes
        self.batch, self.rows, self.columns, self.reduction = (
            i64(size) if isinstance(size, int) else size for size in problem.sizes(extents)
        )
        self.panels = ceildiv(self.columns, self.lanes, self.ops)
        self.buffers = {name: self._declare(name, pointer) for name, pointer in pointers.items()}

    def _declare(self, name: str, pointer: Any) -> Any:
        letters = self.problem.subscripts[name]
        shape: list[Any]
        if name == self.problem.column_operand:
            shape = [self.batch, self.panels, self.reduction, i64(self.lanes)]
        elif self._is_output_like(name):
            leading = letters[: len(letters) - len(self.problem.columns)]
            shape = [*(self.extents[k] for k in leading), self.columns]
        else:
            shape = [self.extents[k] for k in letters]
        # Tensors of callers are rarely aligned; unaligned vector loads cost nothing where they are.
        return T.decl_buffer(tuple(shape), DTYPE, data=pointer, align=4)

    def _is_output_like(self, name: str) -> bool:
        output = self.problem.subscripts[self.problem.output]
        return name == self.problem.output or (
            name not in {self.problem.row_operand, self.problem.column_operand}
            and self.problem.subscripts[name] == output
        )

    def tasks(self) -> Any:
        """A parallel loop with one turn for each core."""
        num_cores = self.limits.num_cores
        # A loop without annotations is dropped where it has one turn; its buffers would then be lifted out
        # of the device's scope, which does not compile.
        return T.parallel(i64(0), i64(num_cores), annotations={"dietcode.tasks": num_cores})

    def part(self, total: Any, part: Any, parts: Any) -> tuple[Any, Any]:
        """Bounds of one of `parts` nearly equal ranges of ``0…total``."""
        return (
            self.ops.bind(tirx.truncdiv(part * total, parts)),
            self.ops.bind(tirx.truncdiv((part + 1) * total, parts)),
        )

    def accumulators(self, block: Block) -> Accumulators:
        """Accumulators of a block, not set yet.

        There is one buffer a vector: a larger one would be written and read for each k.
        """
        return [[small_buffer(self.lanes) for _ in range(block.vectors)] for _ in range(block.rows)]

    def clear(self, accumulators: Accumulators) -> None:
        """Set to zero."""
        zero = splat(tirx.const(0, DTYPE), self.lanes)
        for row in accumulators:
            for accumulator in row:
                store(accumulator, zero, [0], self.lanes)

    def row_fetch(self, batch: Any, rows: list[Any]) -> Callable[[int, Any], Any]:
        """``(i, k) -> A[rows[i], k]``, where `rows` are flattened indices."""
        operand = self.problem.row_operand
        lane_batch = unflatten(batch, self.problem.batch, self.extents)
        indices = [unflatten(row, self.problem.rows, self.extents) | lane_batch for row in rows]

        def fetch(i: int, k: Any) -> Any:
            index = indices[i] | unflatten(k, self.problem.reduction, self.extents)
            return load(self.buffers[operand], [index[k] for k in self.problem.subscripts[operand]], 1)

        return fetch

    def panel_fetch(self, batch: Any, panels: list[Any]) -> Callable[[int, Any], Any]:
        """``(v, k) -> packed_B[panels[v], k, lanes]``."""
        buffer = self.buffers[self.problem.column_operand]
        return lambda v, k: load(buffer, [batch, panels[v], k, 0], self.lanes)

    def accumulate(
        self,
        accumulators: Accumulators,
        row_fetch: Callable[[int, Any], Any],
        panel_fetch: Callable[[int, Any], Any],
    ) -> None:
        """``acc[i, v] += A[i, k] · B[k, v]`` over the whole reduction, in order whatever the tile."""
        with T.serial(i64(0), self.reduction) as k:
            panels = [T.Bind(panel_fetch(v, k)) for v in range(len(accumulators[0]))]
            for i, row in enumerate(accumulators):
                value = splat(row_fetch(i, k), self.lanes)
                for accumulator, panel in zip(row, panels, strict=True):
                    store(accumulator, load(accumulator, [0], self.lanes) + value * panel, [0], self.lanes)

    def output_index(self, batch: Any, row: Any, column: Any) -> list[Any]:
        """Index into an output-shaped buffer whose column letters are flattened."""
        index = unflatten(row, self.problem.rows, self.extents)
        index |= unflatten(batch, self.problem.batch, self.extents)
        letters = self.problem.subscripts[self.problem.output]
        leading = letters[: len(letters) - len(self.problem.columns)]
        return [*(index[letter] for letter in leading), column]

    def write(self, value: Any, index: list[Any], lanes: int) -> None:
        """Write one vector, or one element, of the output, epilogue applied."""
        store(self.buffers[self.problem.output], self._finish(value, index, lanes), index, lanes)

    def write_back(self, accumulators: Accumulators, block: Block) -> None:
        """Write a block that lies inside."""
        for i, row in enumerate(accumulators):
            for v, accumulator in enumerate(row):
                index = self.output_index(block.batch, block.row + i, block.column + v * self.lanes)
                self.write(load(accumulator, [0], self.lanes), index, self.lanes)

    def write_part(
        self, accumulators: Accumulators, block: Block, spilled: Any, num_rows: Any, num_columns: Any
    ) -> None:
        """Spill a block, then copy the part that exists; keeps the accumulators in registers until then."""
        width = block.vectors * self.lanes
        for i, row in enumerate(accumulators):
            for v, accumulator in enumerate(row):
                store(spilled, load(accumulator, [0], self.lanes), [i * width + v * self.lanes], self.lanes)
        with T.serial(i64(0), num_rows) as i, T.serial(i64(0), num_columns) as j:
            index = self.output_index(block.batch, block.row + i, block.column + j)
            self.write(spilled[i * width + j], index, 1)

    def _finish(self, value: Any, index: list[Any], lanes: int) -> Any:
        """The epilogue on one vector, or one element, of the output."""
        for stage in self.problem.stages:
            if stage.kind == "bias":
                value = value + load(self.buffers["bias"], [index[-1]], lanes)
            elif stage.kind == "residual":
                value = value + load(self.buffers[str(stage.tensor)], index, lanes)
            elif stage.kind == "scale":
                value = value * splat(tirx.const(stage.value, DTYPE), lanes)
            else:
                zero = splat(tirx.const(0, DTYPE), lanes)
                value = tirx.Select(value < zero, zero, value)  # keeps NaN, which max would drop
        return value
