"""The fetches of an operand for the tensor cores: global memory, shared memory, fragments in registers.

How it lies in shared memory says `dietcode.search_space.cuda.swizzled_tile`.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import has_windows
from dietcode.search_space.cuda.block import BlockKernel
from dietcode.search_space.cuda.building import both, local, only_if, run, wide
from dietcode.search_space.cuda.operand import Operand
from dietcode.search_space.cuda.swizzled_tile import Stages, SwizzledTile
from dietcode.search_space.tir import store


class TensorOperand(Operand, SwizzledTile):
    """A tile of one operand for tensor cores.

    Parameters
    ----------
    name : str
        The operand.
    base : int
        Offset of its tile in a stage of shared memory, in elements.
    stages : Stages
        Shared memory of the block.

    Attributes
    ----------
    by_registers : bool
        Whether it goes there by way of registers: elements of two bytes cannot be copied one by one.
    """

    def __init__(self, block: BlockKernel, name: str, base: int, stages: Stages) -> None:
        self.stages = stages
        super().__init__(block, name, base)

    def _allocate(self) -> None:
        micro_kernel = self.block.micro_kernel
        self.along_reduction = self.plan.along_reduction
        self.set_chunks(micro_kernel.k_tile if self.along_reduction else self.extent)
        self.num_lines = micro_kernel.thread_rows if self.is_row else micro_kernel.thread_columns
        self.by_registers = self.plan.width == 1
        if self.by_registers:
            super()._allocate()

    def begin(self, stage: Any, step: Any, first: Any, bound: Any | None) -> None:
        """Send a tile on its way to a stage of shared memory; for the arguments see `fetch`."""
        if self.by_registers:
            self.fetch(step, first, bound)
            return
        block, width = self.block, self.plan.width
        start = self.stages.begin(stage) + 2 * self.base
        offset_of = self.offsets(step, first, bound)
        with T.unroll(0, self.turns) as turn:
            line, k, within = self._position(turn)
            offset, exists = offset_of(turn)
            outer, inner = (line, k) if self.plan.along_reduction else (k, line)
            to = start + tirx.Cast("uint32", self.byte(outer, inner))
            with only_if(within):
                given = tirx.const(True, "bool") if exists is None else exists
                source = tirx.address_of(block.memory.buffers[self.name][offset])
                run(f"copy_{2 * width}", to, source, given)

    def fetch(self, step: Any, first: Any, bound: Any | None) -> None:
        """Fetch as `Operand` does; offsets of lines at equal distances follow from that of the first."""
        block, view = self.block, self.block.memory.views[self.name]
        outer = self.indices if self.plan.along_reduction else block.problem.reduction
        stride, threads = view.stride(outer), block.micro_kernel.threads
        if stride is None or has_windows(block.problem, self.name) or threads % self.inner:
            super().fetch(step, first, bound)
            return
        line, k, _ = self._position(0)
        start, _ = self.source(first + wide(line), step + wide(k), None)
        offset = local(f"place_{self.name}", 1, "int64")
        store(offset, start, [0], 1)
        with T.unroll(0, self.turns) as turn:
            line, k, within = self._position(turn)
            _, exists = self.source(first + wide(line), step + wide(k), bound)
            store(self.fetched, tirx.const(0, self.storage), [turn], 1)
            with only_if(both(within, exists)):
                store(self.fetched, block.memory.buffers[self.name][offset[0]], [turn], 1)
            store(offset, offset[0] + block.memory.value(stride) * (threads // self.inner), [0], 1)

    def finish(self, stage: Any) -> None:
        """Write to shared memory what `begin` left in registers."""
        if not self.by_registers:
            return
        start = stage * (self.stages.num_bytes // 2) + self.base
        with T.unroll(0, self.turns) as turn:
            line, k, within = self._position(turn)
            outer, inner = (line, k) if self.plan.along_reduction else (k, line)
            with only_if(within):
                offset = start + tirx.truncdiv(self.byte(outer, inner), 2)
                store(self.stages.tiles, self.fetched[turn], [offset], 1)
