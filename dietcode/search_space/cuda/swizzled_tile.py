"""A tile of an operand in shared memory, as tensor cores read it.

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

from dietcode.search_space.cuda.building import local, once, run
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


class SwizzledTile:
    """A tile of one operand in shared memory.

    Attributes
    ----------
    name : str
        The operand.
    is_row, along_reduction : bool
        Whether it is the rows of products, not the columns; whether its lines are these, not steps of the
        reduction.
    base : int
        Offset of the tile in a stage of shared memory, in elements.
    stages : Stages
        Shared memory of the block.
    chunks, groups : int
        Chunks of a line, and the power of two among which they are exchanged.
    num_lines : int
        Rows or columns of a warp's tile.

    Parameters
    ----------
    length : int
        Elements of a line.
    """

    chunks: int
    groups: int

    def __init__(
        self,
        name: str,
        is_row: bool,
        along_reduction: bool,
        base: int,
        stages: Stages,
        length: int,
        num_lines: int,
    ) -> None:
        self.name, self.is_row, self.along_reduction = name, is_row, along_reduction
        self.base, self.stages, self.num_lines = base, stages, num_lines
        self.set_chunks(length)

    def set_chunks(self, length: int) -> None:
        """Set the chunks of a line of so many elements."""
        self.chunks = length // CHUNK
        self.groups = next(g for g in (8, 4, 2, 1) if self.chunks % g == 0)

    def _swizzled(self, line: Any, chunk: Any) -> Any:
        """Return the position of a chunk in its line, int32."""
        return chunk ^ self._mixed(line)

    def _mixed(self, line: Any) -> Any:
        return tirx.truncmod(tirx.truncdiv(line, 8 // self.groups), self.groups)

    def byte(self, line: Any, element: Any) -> Any:
        """Return the offset in the tile of an element of a line in shared memory, in bytes, int32."""
        chunk, rest = tirx.truncdiv(element, CHUNK), tirx.truncmod(element, CHUNK)
        return line * (16 * self.chunks) + self._swizzled(line, chunk) * 16 + rest * 2

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
        is_transposed = not self.along_reduction
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
        suffix = "" if self.along_reduction else "_transposed"
        whole = self.num_lines // LINES
        with T.unroll(0, whole) as i:
            to = tirx.address_of(fragments[start + i * 4])
            run(f"read_matrices_4{suffix}", to, self._matrices_at(i, stage, k))
        if self.num_lines % LINES:
            to = tirx.address_of(fragments[start + whole * 4])
            run(f"read_matrices_2{suffix}", to, self._matrices_at(whole, stage, k))

    def _matrices_at(self, i: Any, stage: Any, k: int) -> Any:
        pitch = 16 * self.chunks
        if self.along_reduction:
            offset = self.at + (self.chunk ^ (2 * k)) * 16 + i * (LINES * pitch)
        else:
            offset = self.at[i] + k * (FRAGMENT_STEPS * pitch)
        return self.stages.begin(stage) + tirx.Cast("uint32", offset)
