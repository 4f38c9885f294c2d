"""The fetches of an operand for the tensor cores: global memory, shared memory, fragments in registers.

In shared memory an operand lies as it does in global memory, along the reduction or along its rows (columns),
in chunks of 16 bytes. A line there has `chunks` of them, and chunk c of line l is at position

    c ^ ((l / s) mod g)        g = the largest power of two that divides `chunks`, at most 8;  s = 8 / g

of the line: eight lines of one chunk, which ldmatrix reads at a time, are in eight different parts of the
128 bytes that shared memory gives at once, and so are eight neighbouring chunks that are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import has_windows
from dietcode.search_space.cuda.block import BlockKernel
from dietcode.search_space.cuda.building import both, local, once, only_if, run, wide
from dietcode.search_space.cuda.operand import Operand
from dietcode.search_space.tir import store

CHUNK = 8  # elements of 16 bytes
LINES, FRAGMENT_STEPS = 16, 16  # of what four 8x8 matrices hold


@dataclass(frozen=True)
class Stages:
    """Shared memory of a block, a tile of both operands in each stage.

    Attributes
    ----------
    tiles : buffer
        Of elements of the operands.
    address : uint32 expression
        Of its first byte.
    num_bytes : int
        Size of a stage.
    """

    tiles: Any
    address: Any
    num_bytes: int

    def begin(self, stage: Any) -> Any:
        """Return the address of a stage, uint32."""
        return self.address + tirx.Cast("uint32", stage * self.num_bytes)


class TensorOperand(Operand):
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
    chunks : int
        Of a line in shared memory.
    by_registers : bool
        Whether it goes there by way of registers: elements of two bytes cannot be copied one by one.
    """

    def __init__(self, block: BlockKernel, name: str, base: int, stages: Stages) -> None:
        self.stages = stages
        super().__init__(block, name, base)

    def _allocate(self) -> None:
        micro_kernel = self.block.micro_kernel
        self.chunks = (micro_kernel.k_tile if self.plan.along_reduction else self.extent) // CHUNK
        self.groups = next(g for g in (8, 4, 2, 1) if self.chunks % g == 0)
        self.num_lines = micro_kernel.thread_rows if self.is_row else micro_kernel.thread_columns
        self.by_registers = self.plan.width == 1
        if self.by_registers:
            super()._allocate()

    def _swizzled(self, line: Any, chunk: Any) -> Any:
        """Return the position of a chunk in its line, int32."""
        return chunk ^ self._mixed(line)

    def _mixed(self, line: Any) -> Any:
        return tirx.truncmod(tirx.truncdiv(line, 8 // self.groups), self.groups)

    def _byte(self, line: Any, element: Any) -> Any:
        """Return the offset in the tile of an element of a line in shared memory, in bytes, int32."""
        chunk, rest = tirx.truncdiv(element, CHUNK), tirx.truncmod(element, CHUNK)
        return line * (16 * self.chunks) + self._swizzled(line, chunk) * 16 + rest * 2

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
            to = start + tirx.Cast("uint32", self._byte(outer, inner))
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
                offset = start + tirx.truncdiv(self._byte(outer, inner), 2)
                store(self.stages.tiles, self.fetched[turn], [offset], 1)

    def aim(self, line: Any, lane: Any) -> None:
        """Compute which rows of matrices each lane of a warp gives the addresses of.

        Four matrices are 16 lines by 16 steps: of the rows in the order lines first, of the columns steps
        first; where they are read transposed the other way round.

        Parameters
        ----------
        line, lane : int32 expressions
            First row (column) of the warp's tile in the block's, and the thread of the warp.
        """
        low, high = tirx.truncmod(lane, 8), tirx.truncdiv(lane, 16)
        middle = tirx.truncmod(tirx.truncdiv(lane, 8), 2)
        is_transposed = not self.plan.along_reduction
        if self.is_row != is_transposed:
            outer, chunk = low + middle * 8, high
        else:
            outer, chunk = low + high * 8, middle
        mixed = self._mixed(outer)  # lines that are a multiple of 8 further are mixed alike
        pitch = 16 * self.chunks
        if not is_transposed:
            self.at = once(f"at_{self.name}", (line + outer) * pitch + 2 * self.base)
            self.chunk = once(f"chunk_{self.name}", chunk ^ mixed)
            return
        count = -(-self.num_lines // LINES)
        self.at = local(f"at_{self.name}", count, "int32")
        with T.unroll(0, count) as i:
            line_chunk = tirx.truncdiv(line, CHUNK) + i * 2 + chunk
            store(self.at, outer * pitch + (line_chunk ^ mixed) * 16 + 2 * self.base, [i], 1)

    def read(self, fragments: Any, start: int, stage: Any, k: int) -> None:
        """Read the fragments of 16 steps of the warp's tile, from step ``16·k`` of the stage on.

        Parameters
        ----------
        fragments : buffer of uint32
            Takes four numbers for 16 rows, and two for 8 columns, from `start` on.
        """
        suffix = "" if self.plan.along_reduction else "_transposed"
        whole = self.num_lines // LINES
        with T.unroll(0, whole) as i:
            to = tirx.address_of(fragments[start + i * 4])
            run(f"read_matrices_4{suffix}", to, self._matrices_at(i, stage, k))
        if self.num_lines % LINES:
            to = tirx.address_of(fragments[start + whole * 4])
            run(f"read_matrices_2{suffix}", to, self._matrices_at(whole, stage, k))

    def _matrices_at(self, i: Any, stage: Any, k: int) -> Any:
        pitch = 16 * self.chunks
        if self.plan.along_reduction:
            offset = self.at + (self.chunk ^ (2 * k)) * 16 + i * (LINES * pitch)
        else:
            offset = self.at[i] + k * (FRAGMENT_STEPS * pitch)
        return self.stages.begin(stage) + tirx.Cast("uint32", offset)
