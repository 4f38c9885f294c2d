"""A micro-kernel lowered to a TIR function with symbolic extents and local padding.

    for task in parallel(P):                         # one rectangle of tiles each, see `partition`
      for batch, block of rows that fits L2, column tile, row tile:
        acc[rows, columns] = 0                       # registers
        for k: acc += A[row, k] · packed_B[columns // lanes, k, lanes]
        Y[row, column] = epilogue(acc)

Local padding (paper, Figure 7d): a tile that reaches past an edge *fetches* from clamped rows and panels,
computes the whole tile without a check, and writes back only what exists. The clamped values are computed
and thrown away, so nothing leaks between rows, NaN included. A tile that lies inside takes a second copy of
the loop with constant strides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.limits import Limits, MicroKernel
from dietcode.search_space.partition import ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import INT32, TirOps, i64, load, splat, store, unflatten

DTYPE = "float32"
_CPU = 1  # DLPack's kDLCPU


def lower(problem: Problem, micro_kernel: MicroKernel, limits: Limits, name: str) -> Any:
    """The private function ``name(inputs…, output, dynamic extents…) -> status`` on raw pointers.

    Parameters
    ----------
    problem : Problem
        What is computed.
    micro_kernel : MicroKernel
        The tile.
    limits : Limits
        Lanes, cores and cache of the target.
    name : str
        Symbol of the function.

    Returns
    -------
    tvm.tirx.PrimFunc
        Pointers of `problem.inputs` and the output, then an int64 for each letter of `problem.dynamic`.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        pointers = {tensor: T.arg(tensor, T.ptr(DTYPE)) for tensor in (*problem.inputs, problem.output)}
        sizes = {letter: T.arg(f"extent_{letter}", T.int64()) for letter in problem.dynamic}
        T.func_ret(INT32)
        extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
        # Local buffers need to know their device; a packed function learns it from its tensors.
        with T.attr(i64(0), "device_type", _CPU), T.attr(i64(0), "device_id", 0):
            _Emitter(problem, micro_kernel, limits, pointers, extents).emit()
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


@dataclass
class _Tile:
    """Where one tile lies: flattened batch index, first row, first column, index of its first panel."""

    batch: Any
    row: Any
    column: Any
    panel: Any


class _Emitter:
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
        self.spilled: Any = None  # one tile of each task, for tiles that are written back in part
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

    def emit(self) -> None:
        """All tasks of the call."""
        bind, num_cores = self.ops.bind, self.limits.num_cores
        # A loop without annotations is dropped where it has one turn; its buffers would then be lifted out
        # of the device's scope, which does not compile.
        with T.parallel(i64(0), i64(num_cores), annotations={"dietcode.tasks": num_cores}) as task:
            shape = (i64(self.tile.rows * self.tile.columns),)
            self.spilled = T.alloc_buffer(shape, DTYPE, scope="local")
            row_tiles = bind(ceildiv(self.rows, self.tile.rows, self.ops))
            column_tiles = bind(ceildiv(self.columns, self.tile.columns, self.ops))
            grid = choose_partition(
                self.batch, row_tiles, column_tiles, num_cores, bool(self.problem.batch), self.ops
            )
            column_part = bind(tirx.truncmod(task, grid.column_parts))
            rest = bind(tirx.truncdiv(task, grid.column_parts))
            row_part = bind(tirx.truncmod(rest, grid.row_parts))
            batch_part = bind(tirx.truncdiv(rest, grid.row_parts))
            batches = self._part(self.batch, batch_part, grid.batch_parts)
            rows = self._part(row_tiles, row_part, grid.row_parts)
            columns = self._part(column_tiles, column_part, grid.column_parts)
            with T.serial(*batches) as batch:
                self._rectangle(batch, rows, columns)

    def _part(self, total: Any, part: Any, parts: Any) -> tuple[Any, Any]:
        """Bounds of one of `parts` nearly equal ranges of ``0…total``."""
        return (
            self.ops.bind(tirx.truncdiv(part * total, parts)),
            self.ops.bind(tirx.truncdiv((part + 1) * total, parts)),
        )

    def _rectangle(self, batch: Any, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> None:
        """Blocks of rows that stay in L2 while every column panel passes by once."""
        in_l2 = row_tiles_in_l2(self.reduction, self.tile.rows, self.limits.l2_bytes, self.ops)
        height = self.ops.bind(rows[1] - rows[0])
        num_blocks = self.ops.bind(ceildiv(height, in_l2, self.ops))
        with T.serial(i64(0), num_blocks) as block:
            low, high = self._part(height, block, num_blocks)
            with (
                T.serial(*columns) as column_tile,
                T.serial(rows[0] + low, rows[0] + high) as row_tile,
            ):
                self._tile(batch, row_tile, column_tile)

    def _tile(self, batch: Any, row_tile: Any, column_tile: Any) -> None:
        bind = self.ops.bind
        at = _Tile(
            batch,
            bind(row_tile * self.tile.rows),
            bind(column_tile * self.tile.columns),
            bind(column_tile * self.vectors),
        )
        # One buffer a vector: a larger one would come from the heap and be written and read for each tile.
        accumulators = {
            slot: T.alloc_buffer((i64(self.lanes),), DTYPE, scope="local") for slot in self._slots()
        }
        zero = splat(tirx.const(0, DTYPE), self.lanes)
        for accumulator in accumulators.values():
            store(accumulator, zero, [0], self.lanes)
        inside = tirx.all(at.row + self.tile.rows <= self.rows, at.column + self.tile.columns <= self.columns)
        with T.If(inside):
            with T.Then():
                self._accumulate(accumulators, at, padded=False)
                self._write_back(accumulators, at)
            with T.Else():
                self._accumulate(accumulators, at, padded=True)
                self._write_back_padded(accumulators, at)

    def _slots(self) -> list[int]:
        """Offset of each accumulator vector."""
        return [
            row * self.tile.columns + vector * self.lanes
            for row in range(self.tile.rows)
            for vector in range(self.vectors)
        ]

    def _accumulate(self, accumulators: dict[int, Any], at: _Tile, padded: bool) -> None:
        """``acc[i, j] += A[i, k] · B[k, j]`` over the whole reduction, no check inside."""
        rows = [at.row + i for i in range(self.tile.rows)]
        panels = [at.panel + v for v in range(self.vectors)]
        if padded:
            rows = [tirx.min(row, self.rows - 1) for row in rows]
            panels = [tirx.min(panel, self.panels - 1) for panel in panels]
        lane_batch = unflatten(at.batch, self.problem.batch, self.extents)
        row_indices = [unflatten(row, self.problem.rows, self.extents) | lane_batch for row in rows]
        a_buffer = self.buffers[self.problem.row_operand]
        b_buffer = self.buffers[self.problem.column_operand]
        a_letters = self.problem.subscripts[self.problem.row_operand]
        with T.serial(i64(0), self.reduction) as k:
            reduction_index = unflatten(k, self.problem.reduction, self.extents)
            panel_values = [T.Bind(load(b_buffer, [at.batch, panel, k, 0], self.lanes)) for panel in panels]
            for i, row_index in enumerate(row_indices):
                index = row_index | reduction_index
                a_value = splat(load(a_buffer, [index[letter] for letter in a_letters], 1), self.lanes)
                for v in range(self.vectors):
                    slot = i * self.tile.columns + v * self.lanes
                    value = load(accumulators[slot], [0], self.lanes) + a_value * panel_values[v]
                    store(accumulators[slot], value, [0], self.lanes)

    def _output_index(self, at: _Tile, row: Any, column: Any) -> list[Any]:
        """Index into an output-shaped buffer whose column letters are flattened."""
        index = unflatten(row, self.problem.rows, self.extents)
        index |= unflatten(at.batch, self.problem.batch, self.extents)
        letters = self.problem.subscripts[self.problem.output]
        leading = letters[: len(letters) - len(self.problem.columns)]
        return [*(index[letter] for letter in leading), column]

    def _write_back(self, accumulators: dict[int, Any], at: _Tile) -> None:
        output = self.buffers[self.problem.output]
        for slot in self._slots():
            row, column = divmod(slot, self.tile.columns)
            index = self._output_index(at, at.row + row, at.column + column)
            value = self._finish(load(accumulators[slot], [0], self.lanes), index, self.lanes)
            store(output, value, index, self.lanes)

    def _write_back_padded(self, accumulators: dict[int, Any], at: _Tile) -> None:
        """Spill the tile, then copy the part that exists; keeps the accumulators in registers until then."""
        spilled = self.spilled
        for slot in self._slots():
            store(spilled, load(accumulators[slot], [0], self.lanes), [slot], self.lanes)
        output = self.buffers[self.problem.output]
        num_rows = tirx.min(i64(self.tile.rows), self.rows - at.row)
        num_columns = tirx.min(i64(self.tile.columns), self.columns - at.column)
        with T.serial(i64(0), num_rows) as i, T.serial(i64(0), num_columns) as j:
            index = self._output_index(at, at.row + i, at.column + j)
            value = spilled[i * self.tile.columns + j]
            store(output, self._finish(value, index, 1), index, 1)

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
