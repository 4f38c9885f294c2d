"""The code of one thread block of a block with products whose warps multiply on tensor cores.

Tiles of the rows, and of the columns of each gate, lie in shared memory as tensor cores read them, some steps
of the reduction ahead; a warp has all sums of its tile in registers, and computes their functions there.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import view_of
from dietcode.search_space.cuda.blocks.copies import send
from dietcode.search_space.cuda.blocks.product_layout import (
    OperandLayout,
    Targets,
    columns_layout,
    distinct_gates,
    rows_layout,
    stage_elements,
)
from dietcode.search_space.cuda.blocks.product_tile import ProductBlock
from dietcode.search_space.cuda.building import both, local, narrow, once, only_if, run, sync, wide
from dietcode.search_space.cuda.swizzled_tile import FRAGMENT_STEPS, LINES, Stages, SwizzledTile
from dietcode.search_space.tir import i64, store
from dietcode.target.multiprocessor import WARP
from dietcode.workload.products import ProductTerm

_COLUMNS = 8  # of one instruction
_ACCUMULATORS = 4  # of one instruction and lane: two columns of each of two rows


class TensorProducts(ProductBlock):
    """A micro-kernel with `unit` "mma".

    Attributes
    ----------
    down, across : int
        Instructions for a warp's tile along its rows and its columns.
    """

    def _allocate(self) -> None:
        micro_kernel = self.micro_kernel
        self.down, self.across = micro_kernel.thread_rows // LINES, micro_kernel.thread_columns // _COLUMNS
        self.row_slots, self.column_slots = 2 * self.down, 2 * self.across
        across = micro_kernel.columns // micro_kernel.thread_columns
        warp = tirx.truncdiv(self.thread, WARP)
        self.lane = once("lane", tirx.truncmod(self.thread, WARP))
        self.warp_row = once("warp_row", tirx.truncdiv(warp, across) * micro_kernel.thread_rows)
        self.warp_column = once("warp_column", tirx.truncmod(warp, across) * micro_kernel.thread_columns)
        elements = stage_elements(self.problem, micro_kernel)
        kind = str(self.problem.storage(self.problem.plan.terms[0][0].columns))
        tiles = T.alloc_buffer((micro_kernel.stages * elements,), kind, scope="shared.dyn", align=128)
        IRBuilder.name("operand_tiles", tiles)
        address = once("address", tirx.call_extern("uint32", "shared_address", tirx.address_of(tiles[0])))
        self.stages = Stages(tiles, address, 2 * elements)
        self.fragments = local("row_fragments", 4 * self.down, "uint32")
        self.column_fragments = local("column_fragments", 2 * self.across, "uint32")

    def row_of(self, slot: Any) -> Any:
        group = tirx.truncdiv(self.lane, 4)
        return self.warp_row + tirx.truncdiv(slot, 2) * LINES + tirx.truncmod(slot, 2) * 8 + group

    def column_of(self, slot: Any) -> Any:
        pair = tirx.truncmod(self.lane, 4) * 2
        return self.warp_column + tirx.truncdiv(slot, 2) * _COLUMNS + pair + tirx.truncmod(slot, 2)

    def sum_at(self, row: Any, column: Any) -> Any:
        instruction = tirx.truncdiv(row, 2) * self.across + tirx.truncdiv(column, 2)
        return instruction * _ACCUMULATORS + tirx.truncmod(row, 2) * 2 + tirx.truncmod(column, 2)

    def accumulate(self, number: int, term: ProductTerm, targets: Targets) -> None:
        micro_kernel = self.micro_kernel
        stages, k_tile = micro_kernel.stages, micro_kernel.k_tile
        operands = _Operands(self, number, term, targets)
        depth = operands.depth
        tiles = once("tiles", tirx.truncdiv(depth + (k_tile - 1), i64(k_tile)))
        if number:
            sync()  # of those who still read the last product's tiles
        for stage in range(stages - 1):
            with only_if(i64(stage) < tiles):
                operands.begin(stage, i64(stage))
            run("end_copies")
        with T.serial(i64(0), tiles) as tile:
            if stages == 1:
                operands.begin(0, tile)
                run("end_copies")
            run(f"wait_for_copies<{max(stages - 2, 0)}>")
            sync()
            if stages > 1:
                later = once("later", tile + (stages - 1))
                with only_if(later < tiles):
                    operands.begin(once("to", narrow(tirx.truncmod(later, i64(stages)))), later)
                run("end_copies")
            stage = once("stage", narrow(tirx.truncmod(tile, i64(stages))))
            for k in range(k_tile // FRAGMENT_STEPS):
                self._multiply(operands, stage, k)
            if stages == 1:
                sync()

    def _multiply(self, operands: _Operands, stage: Any, k: int) -> None:
        """Emit 16 steps of the accumulation of each sum."""
        operands.rows.read(self.fragments, 0, stage, k)
        for gate, columns in operands.columns.items():
            columns.read(self.column_fragments, 0, stage, k)
            for own, name in operands.targets:
                if own != gate:
                    continue
                with T.unroll(0, self.down) as i, T.unroll(0, self.across) as j:
                    run(
                        f"multiply_{self.problem.operand_dtype}",
                        tirx.address_of(self.accumulators[name][(i * self.across + j) * _ACCUMULATORS]),
                        tirx.address_of(self.fragments[i * 4]),
                        tirx.address_of(self.column_fragments[j * 2]),
                    )


class _Operands:
    """The operands of one product, in shared memory.

    Attributes
    ----------
    rows : SwizzledTile
    columns : dict of tuple to SwizzledTile
        Of each position along gates.
    depth : int64 expression
        Steps of the reduction.
    """

    def __init__(self, block: TensorProducts, number: int, term: ProductTerm, targets: Targets) -> None:
        self.block, self.term, self.targets = block, term, targets
        micro_kernel, problem = block.micro_kernel, block.problem
        self.ways = rows_layout(problem, term, micro_kernel), columns_layout(problem, term, micro_kernel)
        self.depth = block.depth(term)
        self.rows = self._tile(f"rows_{number}", True, 0)
        size = micro_kernel.k_tile * micro_kernel.rows
        self.columns = {}
        for position, gate in enumerate(distinct_gates(targets)):
            base = size + position * micro_kernel.k_tile * micro_kernel.columns
            self.columns[gate] = self._tile(f"columns_{number}_{position}", False, base)
        self.begins = self._row_begins()

    def _tile(self, name: str, is_row: bool, base: int) -> SwizzledTile:
        block, micro_kernel = self.block, self.block.micro_kernel
        along_reduction = self.ways[not is_row].along_reduction
        length = micro_kernel.k_tile if along_reduction else micro_kernel.columns
        num_lines = micro_kernel.thread_rows if is_row else micro_kernel.thread_columns
        tile = SwizzledTile(name, is_row, along_reduction, base, block.stages, length, num_lines)
        tile.aim(block.warp_row if is_row else block.warp_column, block.lane)
        return tile

    def _turns(self, lines: int, length: int, way: OperandLayout) -> tuple[int, int, int]:
        """Return the vectors of a line, the lines that all threads copy at once, and how often they do."""
        inner = length // way.width
        together = self.block.micro_kernel.threads // inner
        return inner, together, -(-lines // together)

    def _row_begins(self) -> Any:
        """Return where the rows that a thread copies begin; those past the edge are the last one, not read.

        If they were, all blocks would read one line as often as there are such rows, and wait for it.
        """
        block, micro_kernel = self.block, self.block.micro_kernel
        inner, together, turns = self._turns(micro_kernel.rows, micro_kernel.k_tile, self.ways[0])
        begins = local("begins", turns, "int64")
        with T.unroll(0, turns) as turn:
            line = tirx.truncdiv(block.thread, inner) + turn * together
            row = once("copied_row", tirx.min(block.first_row + wide(line), block.rows - 1))
            store(begins, block.memory.begin(self.term.rows, row), [turn], 1)
        return begins

    def begin(self, stage: Any, number: Any) -> None:
        """Send the tiles of some steps on their way to a stage."""
        first = once("first_step", number * self.block.micro_kernel.k_tile)
        self._begin_rows(stage, first)
        self._begin_columns(stage, first)

    def _begin_rows(self, stage: Any, first: Any) -> None:
        block, memory, way = self.block, self.block.memory, self.ways[0]
        extent, k_tile = block.micro_kernel.rows, block.micro_kernel.k_tile
        inner, together, turns = self._turns(extent, k_tile, way)
        k = once("element", tirx.truncmod(block.thread, inner) * way.width)
        step = once("step", first + wide(k))
        view = memory.view(self.term.rows)
        along = once("along", memory.offset(view, tuple(self.term.reduction), step))
        source = memory.buffers[self.term.rows.tensor]
        with T.unroll(0, turns) as turn:
            line = tirx.truncdiv(block.thread, inner) + turn * together
            with only_if(None if extent % together == 0 else line < extent):
                row_exists = block.first_row + wide(line) < block.rows
                exists = both(row_exists, block.is_step(step, self.depth))
                send(self.rows, stage, (line, k), (source, self.begins[turn] + along, way.width), exists)

    def _begin_columns(self, stage: Any, first: Any) -> None:
        block, memory, way = self.block, self.block.memory, self.ways[1]
        extent, k_tile = block.micro_kernel.columns, block.micro_kernel.k_tile
        lines, length = (extent, k_tile) if way.along_reduction else (k_tile, extent)
        inner, together, turns = self._turns(lines, length, way)
        element = once("element", tirx.truncmod(block.thread, inner) * way.width)
        view, source = view_of(block.problem, self.term.columns), memory.buffers[self.term.columns]
        with T.unroll(0, turns) as turn:
            line = once("line", tirx.truncdiv(block.thread, inner) + turn * together)
            own, k = (line, element) if way.along_reduction else (element, line)
            last = block.columns - (1 if way.along_reduction else way.width)
            with only_if(None if lines % together == 0 else line < lines):
                step = once("step", first + wide(k))
                column = once("column", tirx.min(block.first_column + wide(own), last))
                offset = memory.offset(view, block.problem.columns, column)
                offset = once("offset", offset + memory.offset(view, tuple(self.term.reduction), step))
                for gate, tile in self.columns.items():
                    read = (source, offset + block.gate_offset(view, gate), way.width)
                    send(tile, stage, (line, element), read, block.is_step(step, self.depth))
