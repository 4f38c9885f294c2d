"""Tiles that reach past an edge: the four alternatives of the paper's Figure 7.

- ``local`` (d): fetch clamped, compute the whole tile, write back what exists;
- ``partition`` (c): inside tiles apart, the rest computed exactly by smaller register tiles;
- ``global`` (b): a padded copy of the row operand and of the output;
- ``checked`` (a): a check at every fetch.
"""

from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.cpu.tails.boundary_checks import BoundaryChecks
from dietcode.search_space.cpu.tails.global_padding import GlobalPadding
from dietcode.search_space.cpu.tails.local_padding import LocalPadding
from dietcode.search_space.cpu.tails.loop_partitioning import LoopPartitioning
from dietcode.search_space.tails import TAILS

ALTERNATIVES: dict[str, type[Tails]] = dict(
    zip(TAILS, (LocalPadding, LoopPartitioning, GlobalPadding, BoundaryChecks), strict=True)
)

__all__ = ["ALTERNATIVES", "Tails"]
