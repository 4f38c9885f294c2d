"""Attention on tensor cores: a warp has some queries, and the scores of all keys of a tile with these.

Queries stay in shared memory; tiles of keys and values lie there as they do in global memory, with two stages
one tile ahead. Weights are rounded to the operands' dtype in registers, where accumulators of scores are what
the next product reads; their sum is of what was not rounded.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.blocks.attention import AttentionTile, Write
from dietcode.search_space.cuda.blocks.attention_layout import FRAGMENT_COLUMNS, TensorLayout, copied_width
from dietcode.search_space.cuda.blocks.copies import send
from dietcode.search_space.cuda.building import local, narrow, once, only_if, run, sync, wide
from dietcode.search_space.cuda.swizzled_tile import FRAGMENT_STEPS, LINES, Stages, SwizzledTile
from dietcode.search_space.tir import DTYPE, as_int64, i64, store
from dietcode.target.multiprocessor import WARP

_COLUMNS = 8  # of one instruction
_ACCUMULATORS = 4  # of one instruction and lane: two columns of each of two rows
_LANES = 4  # that have a row of accumulators


class TensorAttention(AttentionTile):
    """A micro-kernel with `unit` "mma".

    Attributes
    ----------
    down : int
        Instructions for a warp's queries, 16 each.
    key_parts, value_parts : int
        Instructions for a tile of keys, and for the elements of a result, 8 each.
    """

    unit: ClassVar[str] = "mma"

    def _allocate(self) -> None:
        micro_kernel = self.micro_kernel
        self.layout = layout = TensorLayout.of(self.problem, micro_kernel)
        self.down = micro_kernel.thread_rows // LINES
        self.key_parts, self.value_parts = micro_kernel.columns // _COLUMNS, layout.width // _COLUMNS
        self.num_rows, self.num_keys, self.lanes = 2 * self.down, 2 * self.key_parts, _LANES
        self.own_columns = 2 * self.value_parts
        warp = tirx.truncdiv(self.thread, WARP)
        self.lane = once("lane", tirx.truncmod(self.thread, WARP))
        self.warp_row = once("warp_row", warp * micro_kernel.thread_rows)
        kind = str(self.problem.storage(self.plan.query))
        tiles = T.alloc_buffer((layout.num_bytes // 2,), kind, scope="shared.dyn", align=128)
        IRBuilder.name("operand_tiles", tiles)
        address = once("address", tirx.call_extern("uint32", "shared_address", tirx.address_of(tiles[0])))
        stages = Stages(tiles, address, layout.stage_bytes)
        k_tile, columns = micro_kernel.k_tile, micro_kernel.columns
        keys, values = layout.queries, layout.queries + columns * k_tile
        self.query_tile = SwizzledTile("queries", True, True, 0, stages, k_tile, micro_kernel.thread_rows)
        self.query_tile.aim(self.warp_row, self.lane)
        self.key_tiles = self._parts("keys", True, keys, stages, k_tile, columns)
        self.value_tiles = self._parts("values", False, values, stages, layout.width, layout.width)
        self.fragments = local("row_fragments", 4 * self.down, "uint32")
        self.column_fragments = local("column_fragments", 2 * FRAGMENT_COLUMNS // _COLUMNS, "uint32")

    def _parts(
        self, name: str, along_reduction: bool, base: int, stages: Stages, length: int, lines: int
    ) -> list[SwizzledTile]:
        """Return one tile of shared memory as parts of `FRAGMENT_COLUMNS`, which are read at a time."""
        found = []
        for first in range(0, lines, FRAGMENT_COLUMNS):
            num_lines = min(FRAGMENT_COLUMNS, lines - first)
            part = SwizzledTile(f"{name}_{first}", False, along_reduction, base, stages, length, num_lines)
            part.aim(tirx.IntImm("int32", first), self.lane)
            found.append(part)
        return found

    def row_of(self, slot: Any) -> Any:
        group = tirx.truncdiv(self.lane, _LANES)
        return self.warp_row + tirx.truncdiv(slot, 2) * LINES + tirx.truncmod(slot, 2) * 8 + group

    def key_of(self, slot: Any) -> Any:
        pair = tirx.truncmod(self.lane, _LANES) * 2
        return tirx.truncdiv(slot, 2) * _COLUMNS + pair + tirx.truncmod(slot, 2)

    def score_at(self, row: Any, key: Any) -> Any:
        return self._at(row, key, self.key_parts)

    def sum_at(self, row: Any, column: Any) -> Any:
        return self._at(row, column, self.value_parts)

    def _at(self, row: Any, column: Any, parts: int) -> Any:
        """Return where the accumulator of two slots is, of so many instructions for a row."""
        instruction = tirx.truncdiv(row, 2) * parts + tirx.truncdiv(column, 2)
        return instruction * _ACCUMULATORS + tirx.truncmod(row, 2) * 2 + tirx.truncmod(column, 2)

    def prepare(self, low: Any, high: Any) -> None:
        """Send the queries on their way, and the first keys where there are two stages."""
        self.low, self.high = low, high
        self.key_begin = self.memory.offset(self.plan.key, self.at_group)
        self.value_begin = self.memory.offset(self.plan.value, self.at_group)

        def begin(line: Any) -> Any:
            row = once("copied_row", tirx.min(self.first_row + wide(line), self.rows - 1))
            return self.offset(self.plan.query, row)

        self._send_lines(self.query_tile, 0, self.plan.query, self.micro_kernel.rows, begin)
        if self.micro_kernel.stages > 1:
            with only_if(low < high):
                self._begin(0, low * self.micro_kernel.columns)
        run("end_copies")

    def _begin(self, stage: Any, first_key: Any) -> None:
        """Send a tile of keys and its values on their way to a stage."""
        stride = as_int64(self.memory.stride(self.plan.key, self.plan.keys))

        def begin(line: Any) -> Any:
            return self.key_begin + tirx.min(first_key + wide(line), self.keys - 1) * stride

        self._send_lines(self.key_tiles[0], stage, self.plan.key, self.micro_kernel.columns, begin)
        self._send_values(stage, first_key)

    def _send_lines(self, tile: SwizzledTile, stage: Any, tensor: str, lines: int, begin: Any) -> None:
        """Send some queries or keys, zeros past their end."""
        width, threads = copied_width(self.depth), self.micro_kernel.threads
        inner = self.micro_kernel.k_tile // width
        total, source = lines * inner, self.memory.buffers[tensor]
        with T.unroll(0, -(-total // threads)) as turn:
            index = once("vector", self.thread + turn * threads)
            with only_if(None if total % threads == 0 else index < total):
                line = once("line", tirx.truncdiv(index, inner))
                k = once("element", tirx.truncmod(index, inner) * width)
                exists = None if self.depth == self.micro_kernel.k_tile else k < self.depth
                offset = once("offset", begin(line) + wide(k))
                send(tile, stage, (line, k), (source, offset, width), exists)

    def _send_values(self, stage: Any, first_key: Any) -> None:
        """Send the values of a tile of keys, zeros past the last key and past their end."""
        width, threads, tensor = copied_width(self.width), self.micro_kernel.threads, self.plan.value
        stride = as_int64(self.memory.stride(tensor, self.plan.keys))
        inner = self.layout.width // width
        total, source = self.micro_kernel.columns * inner, self.memory.buffers[tensor]
        with T.unroll(0, -(-total // threads)) as turn:
            index = once("vector", self.thread + turn * threads)
            with only_if(None if total % threads == 0 else index < total):
                key = once("value_key", tirx.truncdiv(index, inner))
                column = once("value_column", tirx.truncmod(index, inner) * width)
                position = once("position", first_key + wide(key))
                exists = tirx.And(position < self.keys, column < self.width)
                offset = once("offset", self.value_begin + position * stride + wide(column))
                send(self.value_tiles[0], stage, (key, column), (source, offset, width), exists)

    def score(self, number: Any, first_key: Any) -> None:
        """Wait for a tile of keys, begin with the next one, and multiply."""
        if self.micro_kernel.stages > 1:
            run("wait_for_copies<0>")
            sync()  # also of those who still read the last tile
            self.stage = once("stage", narrow(tirx.truncmod(number - self.low, i64(2))))
            with only_if(number + 1 < self.high):
                self._begin(1 - self.stage, first_key + self.micro_kernel.columns)
            run("end_copies")
        else:
            self.stage = 0
            sync()  # of those who still read the last tile
            self._begin(0, first_key)
            run("end_copies")
            run("wait_for_copies<0>")
            sync()
        with T.unroll(0, self.num_rows * self.num_keys) as i:
            store(self.scores, tirx.const(0, DTYPE), [i], 1)
        for k in range(self.micro_kernel.k_tile // FRAGMENT_STEPS):
            self.query_tile.read(self.fragments, 0, 0, k)
            self._multiply(self.scores, self.key_parts, self.key_tiles, k)

    def _multiply(self, accumulators: Any, parts: int, tiles: list[SwizzledTile], k: int) -> None:
        """Emit ``acc += fragments``, those of the columns being read from step ``16·k`` on.

        Parameters
        ----------
        parts : int
            Instructions along the columns of all tiles.
        """
        for number, tile in enumerate(tiles):
            tile.read(self.column_fragments, 0, self.stage, k)
            first = number * (FRAGMENT_COLUMNS // _COLUMNS)
            with T.unroll(0, self.down) as i, T.unroll(0, tile.num_lines // _COLUMNS) as j:
                run(
                    f"multiply_{self.problem.operand_dtype}",
                    tirx.address_of(accumulators[(i * parts + first + j) * _ACCUMULATORS]),
                    tirx.address_of(self.fragments[i * 4]),
                    tirx.address_of(self.column_fragments[j * 2]),
                )

    def add_values(self, first_key: Any) -> None:
        for k in range(self.micro_kernel.columns // FRAGMENT_STEPS):
            with T.unroll(0, self.down) as i, T.unroll(0, 4) as r:
                # A fragment's registers: rows 0 to 7 and 8 to 15 of the first 8 steps, then of the others.
                part = (i * self.key_parts + 2 * k + tirx.truncdiv(r, 2)) * _ACCUMULATORS
                at = part + tirx.truncmod(r, 2) * 2
                pair = (self.scores[at], self.scores[at + 1])
                packed = tirx.call_extern("uint32", f"pack_{self.problem.operand_dtype}", *pair)
                store(self.fragments, packed, [i * 4 + r], 1)
            self._multiply(self.accumulators, self.value_parts, self.value_tiles, k)

    def write(self, write: Write) -> None:
        with T.unroll(0, self.num_rows) as i:
            row = once("row", self.first_row + wide(self.row_of(i)))
            with T.If(self.exists(row)), T.Then(), T.unroll(0, self.value_parts) as part:
                column = part * _COLUMNS + tirx.truncmod(self.lane, _LANES) * 2
                write(self.sum_at(i, part * 2), column, row, i, 2)
