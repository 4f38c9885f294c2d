"""One thread block whose warpgroups multiply on tensor cores from shared memory, while its function is built.

    begin copies of the first tiles of the reduction
    for k_outer, tiles of `k_tile` steps:
      wait for the copies of tile k_outer, publish them, meet          all threads
      begin copies of a later tile                                     to the stage that nobody reads any more
      for 16 steps of the tile: acc += shared · shared                 wgmma.mma_async, on its own from here
      wait for the products of tile k_outer - 1
    Y[row, column] = epilogue(acc)                                     as `TensorCoreKernel` does

With three stages or more the products of one tile are on their way while the next one's copies are waited
for: so the stage of the tile before is free behind the barrier, and copies are `stages - 2` tiles ahead. With
two stages products are waited for at once, and copies are one tile ahead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.building import local, once, only_if, run, sync
from dietcode.search_space.cuda.micro_kernel import SWIZZLE_BYTES
from dietcode.search_space.cuda.swizzled_tile import CHUNK, FRAGMENT_STEPS, LINES, Stages
from dietcode.search_space.cuda.tensor_core import Copies, TensorCoreKernel
from dietcode.search_space.cuda.tensor_operand import TensorOperand
from dietcode.search_space.cuda.warpgroup_instructions import DESCRIPTOR, SWIZZLE_MODES, multiply_name
from dietcode.search_space.tir import store
from dietcode.target.multiprocessor import WARP, WARPGROUP

ROWS = 64  # of one instruction
_WARPS = WARPGROUP // WARP


class WarpgroupOperand(TensorOperand):
    """A tile of one operand for instructions of warpgroups.

    It lies in panels of lines of at most `SWIZZLE_BYTES`, one panel behind the other, each with the chunks of
    a line exchanged as in `TensorOperand`, which is the swizzle of that many bytes that descriptors know.
    """

    def _allocate(self) -> None:
        super()._allocate()
        micro_kernel = self.block.micro_kernel
        if self.plan.along_reduction:
            length, self.panel_lines = micro_kernel.k_tile, self.extent
        else:  # all of a warpgroup's own rows or columns are in whole panels
            length, self.panel_lines = self.num_lines, micro_kernel.k_tile
        self.chunks = self.groups = math.gcd(length // CHUNK, SWIZZLE_BYTES // 16)
        self.pitch_bytes = 16 * self.chunks
        self.panel_bytes = self.panel_lines * self.pitch_bytes

    def byte(self, line: Any, element: Any) -> Any:
        chunk, rest = tirx.truncdiv(element, CHUNK), tirx.truncmod(element, CHUNK)
        panel, own = tirx.truncdiv(chunk, self.chunks), tirx.truncmod(chunk, self.chunks)
        of_line = line * self.pitch_bytes + self._swizzled(line, own) * 16 + rest * 2
        return panel * self.panel_bytes + of_line

    def describe(self, stage: Any, line: Any, k: int) -> Any:
        """Return the descriptor, uint64, of 16 steps from step ``16·k`` of a stage on.

        Parameters
        ----------
        line : int32 expression
            First row (column) in the block's tile.
        """
        if self.plan.along_reduction:
            panel, inner = divmod(k * FRAGMENT_STEPS // CHUNK, self.chunks)
            leading = 16  # not read: an instruction's 16 steps are in one panel
            offset = panel * self.panel_bytes + line * self.pitch_bytes + 16 * inner
        else:
            leading = self.panel_bytes
            panel = tirx.truncdiv(line, self.chunks * CHUNK)
            offset = panel * self.panel_bytes + k * (FRAGMENT_STEPS * self.pitch_bytes)
        mode, stride = SWIZZLE_MODES[self.pitch_bytes], 8 * self.pitch_bytes
        address = self.stages.begin(stage) + tirx.Cast("uint32", offset + 2 * self.base)
        return tirx.call_extern("uint64", f"{DESCRIPTOR}<{mode}, {leading}, {stride}>", address)


class WarpgroupKernel(TensorCoreKernel):
    """A micro-kernel with `unit` "wgmma" of one problem, while its function is built.

    Accumulators of an instruction lie in a warp's lanes as those of `TensorCoreKernel` do, 16 rows of the 64
    in each warp, and are written back alike.
    """

    instruction_rows = ROWS
    shared_alignment = 8 * SWIZZLE_BYTES

    def _locate(self) -> None:
        """Compute which tile a warpgroup accumulates, and which rows of it are the warp's."""
        micro_kernel = self.micro_kernel
        across = micro_kernel.columns // micro_kernel.thread_columns
        group = tirx.call_extern("int32", "same_in_warp", tirx.truncdiv(self.thread, WARPGROUP))
        group = once("warpgroup", group)
        self.first_line = once("group_row", tirx.truncdiv(group, across) * micro_kernel.thread_rows)
        of_group = tirx.truncmod(self.warp, _WARPS) * LINES
        self.warp_row = once("warp_row", self.first_line + of_group)
        self.warp_column = once("warp_column", tirx.truncmod(group, across) * micro_kernel.thread_columns)

    def _make_operands(self, stages: Stages) -> None:
        problem, micro_kernel = self.problem, self.micro_kernel
        base = micro_kernel.k_tile * micro_kernel.rows
        self.operands_in_shared = (
            WarpgroupOperand(self, problem.row_operand, 0, stages),
            WarpgroupOperand(self, problem.column_operand, base, stages),
        )
        self.tensors = self.operands_in_shared

    def _accumulate(self, low: Any, high: Any, begin: Copies, finish: Callable[[Any], None]) -> None:
        """Accumulate the tiles of the reduction from `low` to `high`."""
        stages, count = self.micro_kernel.stages, self.num_accumulators
        run(f"hold_sums<{count}>", tirx.address_of(self.accumulators[0]))
        if stages == 1:
            with T.serial(low, high) as k_outer:
                begin(0, k_outer)
                run("end_copies")
                finish(0)
                self._meet(0)
                self._multiply_tile(0)
                run("wait_for_products<0>")
                sync()
        else:
            self._pipeline(low, high, begin, finish)
        run(f"hold_sums<{count}>", tirx.address_of(self.accumulators[0]))

    def _pipeline(self, low: Any, high: Any, begin: Copies, finish: Callable[[Any], None]) -> None:
        num_stages = self.micro_kernel.stages
        behind = 1 if num_stages > 2 else 0  # tiles whose products are on their way
        ahead = num_stages - 1 - behind
        by_registers = any(operand.by_registers for operand in self.tensors)
        for stage in range(ahead):
            with only_if(low + stage < high):
                begin(stage, low + stage)
                finish(stage)
            run("end_copies")
        stages = local("stages", 2, "int32")  # that is read, that is written
        store(stages, tirx.const(0, "int32"), [0], 1)
        store(stages, tirx.const(ahead, "int32"), [1], 1)
        with T.serial(low, high) as k_outer:
            self._meet(ahead - 1)
            with only_if(k_outer + ahead < high):
                begin(stages[1], k_outer + ahead)
            run("end_copies")
            self._multiply_tile(stages[0])
            if by_registers:
                with only_if(k_outer + ahead < high):
                    finish(stages[1])
            run(f"wait_for_products<{behind}>")
            for i in range(2):
                following = stages[i] + 1
                store(stages, tirx.Select(following == num_stages, 0, following), [i], 1)
        run("wait_for_products<0>")
        sync()  # accumulators go to the output by way of the same shared memory

    def _meet(self, on_their_way: int) -> None:
        """Wait for all copies of the block but those of the last tiles, and show them to the tensor cores."""
        run(f"wait_for_copies<{on_their_way}>")
        run("publish_copies")
        sync()

    def _multiply_tile(self, stage: Any) -> None:
        """Begin ``acc += rows · columnsᵀ`` of one tile of the reduction."""
        micro_kernel, (rows, columns) = self.micro_kernel, self.operands_in_shared
        name = multiply_name(self.problem.operand_dtype, micro_kernel.thread_columns)
        transposed = ", ".join(str(int(not operand.plan.along_reduction)) for operand in (rows, columns))
        run("begin_products")
        for k in range(micro_kernel.k_tile // FRAGMENT_STEPS):
            for i in range(self.down):
                run(
                    f"{name}<{transposed}>",
                    tirx.address_of(self.accumulators[i * (self.num_accumulators // self.down)]),
                    rows.describe(stage, self.first_line + i * ROWS, k),
                    columns.describe(stage, self.warp_column, k),
                )
        run("end_products")
