"""The layout of a tile in shared memory that instructions of warpgroups read. Arithmetic alone.

A tile is panels of lines of at most `SWIZZLE_BYTES`, one panel behind the other, chunks of 16 bytes exchanged
in each line as the swizzle of that many bytes has them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dietcode.search_space.cuda.micro_kernel import SWIZZLE_BYTES, CudaMicroKernel

_CHUNK, _CHUNK_BYTES = 8, 16


class Panels(NamedTuple):
    """Panels of one operand's tile.

    Attributes
    ----------
    line_bytes, lines : int
        Of one panel.
    num_panels : int
        Panels of the tile.
    """

    line_bytes: int
    lines: int
    num_panels: int

    @property
    def num_bytes(self) -> int:
        """Bytes of one panel."""
        return self.line_bytes * self.lines


def panels_of(micro_kernel: CudaMicroKernel, is_row: bool, along_reduction: bool) -> Panels:
    """Return the panels of an operand.

    Parameters
    ----------
    along_reduction : bool
        Whether neighbouring elements are steps of the reduction, rather than rows (columns). If not, all of a
        warpgroup's own rows or columns are in whole panels.
    """
    extent, own, _ = micro_kernel.sides[0 if is_row else 1]
    length = micro_kernel.k_tile if along_reduction else own
    chunks = math.gcd(length // _CHUNK, SWIZZLE_BYTES // _CHUNK_BYTES)
    lines, width = (extent, micro_kernel.k_tile) if along_reduction else (micro_kernel.k_tile, extent)
    return Panels(chunks * _CHUNK_BYTES, lines, width // (chunks * _CHUNK))
