"""One thread block whose warps multiply on tensor cores, while its function is built.

    begin copies of the first stages - 1 pieces
    for piece of `steps` steps:
      begin the copies of the piece that is stages - 1 further       to the stage that was read last
      for 16 steps k of the piece:
        fragments[next] = shared[k + 1]                              of the next piece behind the last
        sums += fragments[this]                                      mma.sync
      Y[row, column] = epilogue(sums)                                by way of shared memory, rows as a whole

A barrier a piece is enough: it stands before the first read of the next piece, when everyone has read the
last of this one, and what is copied from there on goes to where this one lies.
"""

from __future__ import annotations

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
from dietcode.search_space.cuda.tensor_operand import LINES, STEPS, Stages, TensorOperand
from dietcode.search_space.tir import DTYPE, load, store
from dietcode.target.cuda import WARP

_COLUMNS = 8  # of one instruction
_SUMS = 4  # of one instruction and lane: two columns of each of two rows


class TensorCoreKernel(BlockKernel):
    """A micro-kernel with `unit` "mma" of one problem, while its function is built.

    Attributes
    ----------
    tensors : tuple of TensorOperand
        Rows and columns.
    staged_sums : buffer of float32
        The same shared memory, where sums are on their way to the output.
    across, down : int
        Instructions for a warp's tile along its columns and its rows.
    """

    def _allocate(self) -> None:
        tile, problem = self.tile, self.problem
        kind = str(problem.storage(problem.row_operand))
        tiles = T.alloc_buffer((tile.shared_bytes // 2,), kind, scope="shared.dyn", align=128)
        IRBuilder.name("operand_tiles", tiles)
        floats = (tile.shared_bytes // 4,)
        self.staged_sums = T.decl_buffer(floats, DTYPE, data=tiles.data, scope="shared.dyn")
        across = tile.columns // tile.thread_columns
        self.warp = tirx.truncdiv(self.thread, WARP)
        self.lane = once("lane", tirx.truncmod(self.thread, WARP))
        self.warp_row = once("warp_row", tirx.truncdiv(self.warp, across) * tile.thread_rows)
        self.warp_column = once("warp_column", tirx.truncmod(self.warp, across) * tile.thread_columns)
        self.across, self.down = tile.thread_columns // _COLUMNS, tile.thread_rows // LINES
        self.sums = local("sums", self.down * self.across * _SUMS)
        address = once("address", tirx.call_extern("uint32", "shared_address", tirx.address_of(tiles[0])))
        stages = Stages(tiles, address, tile.stage_bytes)
        self.tensors = (
            TensorOperand(self, problem.row_operand, 0, stages),
            TensorOperand(self, problem.column_operand, tile.steps * tile.rows, stages),
        )
        self.turns = 2 if tile.steps > STEPS else 1
        self.fragments = [local(f"fragments_{o.name}", self.turns * n, "uint32") for o, n in self._sizes()]
        for operand, line in zip(self.tensors, (self.warp_row, self.warp_column), strict=True):
            operand.aim(line, self.lane)

    def _sizes(self) -> list[tuple[TensorOperand, int]]:
        """Registers of the fragments of 16 steps."""
        return list(zip(self.tensors, (4 * self.down, 2 * self.across), strict=True))

    def accumulate(self, is_inside: bool) -> None:
        """As `BlockKernel` has it."""
        tile = self.tile
        with T.unroll(0, self.down * self.across * _SUMS) as i:
            store(self.sums, tirx.const(0, DTYPE), [i], 1)
        low, high = self._steps()
        bounds = (
            None if is_inside or not self.has_ragged_rows else self.rows,
            None if is_inside or not self.has_ragged_columns else self.columns,
        )

        firsts = (self.first_row, self.first_column)
        for operand, first, bound in zip(self.tensors, firsts, bounds, strict=True):
            operand.prepare(first, bound)

        def begin(stage: Any, piece: Any) -> None:
            for operand, first, bound in zip(self.tensors, firsts, bounds, strict=True):
                operand.begin(stage, first_step(self.problem, tile.steps, piece), first, bound)

        def finish(stage: Any) -> None:
            for operand in self.tensors:
                operand.finish(stage)

        if tile.stages == 1:
            with T.serial(low, high) as piece:
                begin(0, piece)
                run("end_copies")
                finish(0)
                self._wait(0)
                for k in range(tile.steps // STEPS):
                    self._read(0, 0, k)
                    self._multiply(0)
                sync()
            return
        ahead = tile.stages - 1
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
        with T.serial(low, high) as piece:
            self._piece(piece, high, stages, begin, finish)

    def _piece(self, piece: Any, high: Any, stages: Any, begin: Any, finish: Any) -> None:
        """Multiply one piece, and have the next ones come."""
        tile = self.tile
        ahead, last = tile.stages - 1, tile.steps // STEPS - 1
        with only_if(piece + ahead < high):
            begin(stages[1], piece + ahead)
        run("end_copies")
        for k in range(last + 1):
            if last == 0:
                self._multiply(0)
            if k == last:
                with only_if(piece + ahead < high if any(o.by_registers for o in self.tensors) else None):
                    finish(stages[1])
                for i in range(2):
                    following = stages[i] + 1
                    store(stages, tirx.Select(following == tile.stages, 0, following), [i], 1)
                self._wait(ahead - 1)
            self._read((k + 1) % self.turns, stages[0], (k + 1) % (last + 1))
            if last:
                self._multiply(k % self.turns)

    def _wait(self, on_their_way: int) -> None:
        """For all copies of the block but those of the last pieces."""
        run(f"wait_for_copies<{on_their_way}>")
        sync()

    def _read(self, turn: int, stage: Any, k: int) -> None:
        for fragments, (operand, size) in zip(self.fragments, self._sizes(), strict=True):
            operand.read(fragments, turn * size, stage, k)

    def _multiply(self, turn: int) -> None:
        """sums += fragments."""
        (rows, columns), ((_, row_size), (_, column_size)) = self.fragments, self._sizes()
        with T.unroll(0, self.down) as i, T.unroll(0, self.across) as j:
            run(
                f"multiply_{self.problem.operand_dtype}",
                tirx.address_of(self.sums[(i * self.across + j) * _SUMS]),
                tirx.address_of(rows[turn * row_size + i * 4]),
                tirx.address_of(columns[turn * column_size + j * 2]),
            )

    def write_back(self, writer: Writer, is_inside: bool) -> None:
        """Write what exists of the block's tile: 16 rows of each warp at a time, by way of shared memory.

        A lane holds pairs of columns, and stores wider than that are fewer. What is in shared memory was read
        by everyone before the last barrier.
        """
        tile, width = self.tile, writer.width
        pitch, runs = tile.sums_pitch, tile.thread_columns // width
        own = once("own_sums", self.warp * (LINES * pitch))
        values = local("line", width)
        group, pair = tirx.truncdiv(self.lane, 4), tirx.truncmod(self.lane, 4) * 2
        total = LINES * runs
        with T.unroll(0, self.down) as i:
            with T.unroll(0, self.across) as j, T.unroll(0, 2) as half:
                at = own + (half * 8 + group) * pitch + j * _COLUMNS + pair
                value = load(self.sums, [(i * self.across + j) * _SUMS + half * 2], 2)
                store(self.staged_sums, value, [aligned(at, 2)], 2)
            sync_warp()
            with T.unroll(0, -(-total // WARP)) as turn:
                index = turn * WARP + self.lane
                line, place = tirx.truncdiv(index, runs), tirx.truncmod(index, runs) * width
                row = self.first_row + wide(self.warp_row + i * LINES + line)
                column = self.first_column + wide(self.warp_column + place)
                within = None if total % WARP == 0 else index < total
                exists = None if is_inside or not self.has_ragged_rows else row < self.rows
                past = None if is_inside or not self.has_ragged_columns else column < self.columns
                with only_if(both(within, exists, past)):
                    part = min(width, 4)
                    for u in range(0, width, part):
                        at = aligned(own + line * pitch + place + u, part)
                        store(values, load(self.staged_sums, [at], part), [u], part)
                    writer.write(lambda u: values[u], self.batch, row, column)
            if self.down > 1:
                sync_warp()
