"""One thread block whose warps multiply on tensor cores, while its function is built.

    begin copies of the first stages - 1 tiles of the reduction
    for k_outer, tiles of `k_tile` steps:
      begin copies of tile k_outer + stages - 1                      to the stage that was read last
      for 16 steps k of the tile:
        fragments[next] = shared[k + 1]                              of the next tile behind the last
        acc += fragments[this]                                       mma.sync
    Y[row, column] = epilogue(acc)                                   by way of shared memory, rows as a whole

A barrier for each tile of the reduction is enough: it stands before the first read of the next one, when all
threads have read the last of this one, and later copies overwrite this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.addressing import first_step
from dietcode.search_space.cuda.block import BlockKernel
from dietcode.search_space.cuda.building import (
    aligned,
    both,
    local,
    once,
    only_if,
    run,
    sync,
    sync_warp,
    wide,
)
from dietcode.search_space.cuda.output import Writer
from dietcode.search_space.cuda.swizzled_tile import FRAGMENT_STEPS, LINES, Stages
from dietcode.search_space.cuda.tensor_operand import TensorOperand
from dietcode.search_space.tir import DTYPE, load, store
from dietcode.target.multiprocessor import WARP

Copies = Callable[[Any, Any], None]
"""Sends a tile of the reduction on its way to a stage: ``(stage, k_outer)``."""
_COLUMNS = 8  # of one instruction
_ACCUMULATORS = 4  # of one instruction and lane: two columns of each of two rows


class TensorCoreKernel(BlockKernel):
    """A micro-kernel with `unit` "mma" of one problem, while its function is built.

    Attributes
    ----------
    tensors : tuple of TensorOperand
        Rows and columns.
    staged_sums : buffer of float32
        The same shared memory, for accumulators on their way to the output.
    across, down : int
        Instructions for a warp's tile along its columns and its rows, 8 columns each.
    num_accumulators : int
        Accumulators of a lane.
    """

    instruction_rows = LINES
    """Rows from one instruction of a warp to the next."""
    shared_alignment = 128
    """Bytes whose multiple the first address of shared memory is."""

    def _allocate(self) -> None:
        micro_kernel, problem = self.micro_kernel, self.problem
        kind = str(problem.storage(problem.row_operand))
        tiles = T.alloc_buffer(
            (micro_kernel.shared_bytes // 2,), kind, scope="shared.dyn", align=self.shared_alignment
        )
        IRBuilder.name("operand_tiles", tiles)
        floats = (micro_kernel.shared_bytes // 4,)
        self.staged_accumulators = T.decl_buffer(floats, DTYPE, data=tiles.data, scope="shared.dyn")
        self.warp = tirx.truncdiv(self.thread, WARP)
        self.lane = once("lane", tirx.truncmod(self.thread, WARP))
        self._locate()
        self.across = micro_kernel.thread_columns // _COLUMNS
        self.down = micro_kernel.thread_rows // self.instruction_rows
        self.num_accumulators = self.down * self.across * _ACCUMULATORS
        self.accumulators = local("sums", self.num_accumulators)
        address = once("address", tirx.call_extern("uint32", "shared_address", tirx.address_of(tiles[0])))
        self._make_operands(Stages(tiles, address, micro_kernel.stage_bytes))

    def _locate(self) -> None:
        """Compute the first row and column of a warp's tile in the block's."""
        micro_kernel = self.micro_kernel
        across = micro_kernel.columns // micro_kernel.thread_columns
        self.warp_row = once("warp_row", tirx.truncdiv(self.warp, across) * micro_kernel.thread_rows)
        self.warp_column = once("warp_column", tirx.truncmod(self.warp, across) * micro_kernel.thread_columns)

    def _make_operands(self, stages: Stages) -> None:
        """Make both operands, and registers for what is read of them."""
        micro_kernel, problem = self.micro_kernel, self.problem
        self.tensors: tuple[TensorOperand, TensorOperand] = (
            TensorOperand(self, problem.row_operand, 0, stages),
            TensorOperand(self, problem.column_operand, micro_kernel.k_tile * micro_kernel.rows, stages),
        )
        self.turns = 2 if micro_kernel.k_tile > FRAGMENT_STEPS else 1
        self.fragments = [local(f"fragments_{o.name}", self.turns * n, "uint32") for o, n in self._sizes()]
        for operand, line in zip(self.tensors, (self.warp_row, self.warp_column), strict=True):
            operand.aim(line, self.lane)

    def _sizes(self) -> list[tuple[TensorOperand, int]]:
        """Return both operands, and the registers of their fragments of 16 steps."""
        return list(zip(self.tensors, (4 * self.down, 2 * self.across), strict=True))

    def accumulate(self, is_inside: bool) -> None:
        """Accumulate as `BlockKernel` does."""
        micro_kernel = self.micro_kernel
        with T.unroll(0, self.num_accumulators) as i:
            store(self.accumulators, tirx.const(0, DTYPE), [i], 1)
        low, high = self._k_outer_range()
        bounds = (
            None if is_inside or not self.has_ragged_rows else self.rows,
            None if is_inside or not self.has_ragged_columns else self.columns,
        )

        firsts = (self.first_row, self.first_column)
        for operand, first, bound in zip(self.tensors, firsts, bounds, strict=True):
            operand.prepare(first, bound)

        def begin(stage: Any, k_outer: Any) -> None:
            for operand, first, bound in zip(self.tensors, firsts, bounds, strict=True):
                operand.begin(stage, first_step(self.problem, micro_kernel.k_tile, k_outer), first, bound)

        def finish(stage: Any) -> None:
            for operand in self.tensors:
                operand.finish(stage)

        self._accumulate(low, high, begin, finish)

    def _accumulate(self, low: Any, high: Any, begin: Copies, finish: Callable[[Any], None]) -> None:
        """Accumulate the tiles of the reduction from `low` to `high`.

        Parameters
        ----------
        begin, finish : callable
            Send tile `k_outer` on its way to a stage, ``(stage, k_outer)``, and write what went by registers.
        """
        micro_kernel = self.micro_kernel
        if micro_kernel.stages == 1:
            with T.serial(low, high) as k_outer:
                begin(0, k_outer)
                run("end_copies")
                finish(0)
                self._wait(0)
                for k in range(micro_kernel.k_tile // FRAGMENT_STEPS):
                    self._read(0, 0, k)
                    self._multiply(0)
                sync()
            return
        ahead = micro_kernel.stages - 1
        for stage in range(ahead):
            with only_if(low + stage < high):
                begin(stage, low + stage)
                finish(stage)
            run("end_copies")
        self._wait(ahead - 1)
        self._read(0, 0, 0)
        stages = local("stages", 2, "int32")  # that is read, that is written
        store(stages, tirx.const(0, "int32"), [0], 1)
        store(stages, tirx.const(ahead, "int32"), [1], 1)
        with T.serial(low, high) as k_outer:
            self._multiply_k_tile(k_outer, high, stages, begin, finish)

    def _multiply_k_tile(self, k_outer: Any, high: Any, stages: Any, begin: Any, finish: Any) -> None:
        """Multiply one tile of the reduction, and begin copies of a later one."""
        micro_kernel = self.micro_kernel
        ahead, last = micro_kernel.stages - 1, micro_kernel.k_tile // FRAGMENT_STEPS - 1
        with only_if(k_outer + ahead < high):
            begin(stages[1], k_outer + ahead)
        run("end_copies")
        for k in range(last + 1):
            if last == 0:
                self._multiply(0)
            if k == last:
                with only_if(k_outer + ahead < high if any(o.by_registers for o in self.tensors) else None):
                    finish(stages[1])
                for i in range(2):
                    following = stages[i] + 1
                    store(stages, tirx.Select(following == micro_kernel.stages, 0, following), [i], 1)
                self._wait(ahead - 1)
            self._read((k + 1) % self.turns, stages[0], (k + 1) % (last + 1))
            if last:
                self._multiply(k % self.turns)

    def _wait(self, on_their_way: int) -> None:
        """Wait for all copies of the block but those of the last tiles."""
        run(f"wait_for_copies<{on_their_way}>")
        sync()

    def _read(self, turn: int, stage: Any, k: int) -> None:
        for fragments, (operand, size) in zip(self.fragments, self._sizes(), strict=True):
            operand.read(fragments, turn * size, stage, k)

    def _multiply(self, turn: int) -> None:
        """Emit ``acc += fragments``."""
        (rows, columns), ((_, row_size), (_, column_size)) = self.fragments, self._sizes()
        with T.unroll(0, self.down) as i, T.unroll(0, self.across) as j:
            run(
                f"multiply_{self.problem.operand_dtype}",
                tirx.address_of(self.accumulators[(i * self.across + j) * _ACCUMULATORS]),
                tirx.address_of(rows[turn * row_size + i * 4]),
                tirx.address_of(columns[turn * column_size + j * 2]),
            )

    def write_back(self, writer: Writer, is_inside: bool) -> None:
        """Write what exists of the block's tile: 16 rows of each warp at a time, by way of shared memory.

        A lane holds pairs of columns, and stores wider than that are fewer. All threads
        have read what was in shared memory before the last barrier, or accumulators have memory of their own,
        for some columns at a time.
        """
        micro_kernel = self.micro_kernel
        staged, pitch = micro_kernel.staged_columns, micro_kernel.accumulators_pitch
        own = once("own_sums", self.warp * (LINES * pitch) + micro_kernel.staged_at // 4)
        values = local("line", writer.width)
        group, pair = tirx.truncdiv(self.lane, 4), tirx.truncmod(self.lane, 4) * 2
        parts = micro_kernel.thread_columns // staged
        with T.unroll(0, self.down) as i, _each(parts) as part:
            with T.unroll(0, staged // _COLUMNS) as j, T.unroll(0, 2) as half:
                at = own + (half * 8 + group) * pitch + j * _COLUMNS + pair
                first = i * self.across + part * (staged // _COLUMNS) + j
                value = load(self.accumulators, [first * _ACCUMULATORS + half * 2], 2)
                store(self.staged_accumulators, value, [aligned(at, 2)], 2)
            sync_warp()
            self._write_staged(writer, is_inside, own, values, i, part * staged)
            if self.down * parts > 1 or micro_kernel.persistent:
                sync_warp()

    def _write_staged(
        self, writer: Writer, is_inside: bool, own: Any, values: Any, i: Any, first_column: Any
    ) -> None:
        """Write 16 rows of a warp, as many columns as are in shared memory, from there.

        Parameters
        ----------
        own : int32 expression
            Where the warp's accumulators begin in shared memory, in floats.
        values : buffer of float32
            For neighbours that are written at once.
        i, first_column : int32 expressions
            Which rows of the warp's tile, in 16s, and the first of its columns.
        """
        micro_kernel, width = self.micro_kernel, writer.width
        pitch, runs = micro_kernel.accumulators_pitch, micro_kernel.staged_columns // width
        total = LINES * runs
        with T.unroll(0, -(-total // WARP)) as turn:
            index = turn * WARP + self.lane
            line, offset = tirx.truncdiv(index, runs), tirx.truncmod(index, runs) * width
            row = self.first_row + wide(self.warp_row + i * self.instruction_rows + line)
            column = self.first_column + wide(self.warp_column + first_column + offset)
            within = None if total % WARP == 0 else index < total
            exists = None if is_inside or not self.has_ragged_rows else row < self.rows
            past = None if is_inside or not self.has_ragged_columns else column < self.columns
            with only_if(both(within, exists, past)):
                part = min(width, 4)
                for u in range(0, width, part):
                    at = aligned(own + line * pitch + offset + u, part)
                    store(values, load(self.staged_accumulators, [at], part), [u], part)
                writer.write(lambda u: values[u], self.batch, row, column)


@contextmanager
def _each(count: int) -> Iterator[Any]:
    """Emit statements for each of some parts, in a loop where there are several."""
    if count == 1:
        yield 0
        return
    with T.unroll(0, count) as part:
        yield part
