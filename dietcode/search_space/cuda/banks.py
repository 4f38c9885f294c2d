"""The banks of shared memory: which lanes of a warp do what, so that they do not wait for each other.

Shared memory gives one word of 4 bytes of each of 32 banks at a time; word ``a`` is in bank ``a mod 32``, and
lanes that read the same word share it. So an instruction of a warp takes as many transactions as there are
words in its fullest bank. That counts the words that a warp touches, in whatever order a GPU takes them up:
it is the least that an instruction can take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

from dietcode.target.multiprocessor import WARP

BANKS = 32
SPACER = 4
"""Floats after each step of a tile of a block in shared memory: steps start in other banks, at 16 bytes."""
_SECTOR_BYTES = 32  # of global memory, that are read together


def transactions(words: Iterable[int]) -> int:
    """Return how many transactions an instruction takes that touches these words."""
    return max(Counter(word % BANKS for word in set(words)).values(), default=0)


@cache
def line_exchange(
    pitch: int, lines: int, inner: int, width: int, apart: int, itemsize: int
) -> tuple[int, int] | None:
    """Return which lines lanes exchange so that a tile is written transposed in the fewest transactions.

    A lane fetches `width` neighbouring steps of one line, and writes them one after the other, `pitch` floats
    apart; `inner` lanes have the steps of a line. Lane i of these takes ``line ^ ((i >> shift) << bit)``
    where the lanes would meet in a bank otherwise. Lanes that fetch one sector together stay together.

    Parameters
    ----------
    lines : int
        Of the tile.
    apart : int
        Lines from a thread's line to its next one.
    itemsize : int
        Bytes of an element in global memory.

    Returns
    -------
    tuple of int or None
        ``shift, bit``; None where no exchange takes fewer.
    """
    log = inner.bit_length() - 1
    if inner != 1 << log or inner > WARP:
        return None
    found = [(log, 0)]  # nothing is exchanged: i >> log is 0
    least = (max(1, _SECTOR_BYTES // (width * itemsize)) - 1).bit_length()
    for shift in range(least, log):
        for bit in range(WARP.bit_length() - 1):
            group = inner >> shift << bit
            found += [(shift, bit)] if lines % group == apart % group == 0 else []

    def cost(exchange: tuple[int, int]) -> int:
        lanes = ((lane % inner, lane // inner) for lane in range(WARP))
        return transactions(
            i * width * pitch + (line ^ (i >> exchange[0] << exchange[1])) for i, line in lanes
        )

    best = min(found, key=lambda exchange: (cost(exchange), -exchange[0]))
    return None if best[0] == log else best
