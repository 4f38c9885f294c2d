"""One device function of a micro-kernel, as a launch sees it."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.search_space.cuda.bulk_maps import OperandMap


@dataclass(frozen=True)
class Function:
    """One ``__global__`` function of a text.

    Attributes
    ----------
    symbol : str
    arguments : tuple of str
        Tensors, or regions of the workspace, whose addresses it takes, before an int64 for each index of the
        problem that is not fixed.
    threads : int
        Of a block.
    shared_bytes : int
        Shared memory of a block that its launch asks for.
    maps : tuple of OperandMap
        Of the tensor maps that it takes by value behind all of these.
    overlaps : bool
        Whether it may begin while the function that is launched before it ends: it waits for that itself,
        ahead of its first read of what that one writes.
    """

    symbol: str
    arguments: tuple[str, ...]
    threads: int
    shared_bytes: int = 0
    maps: tuple[OperandMap, ...] = ()
    overlaps: bool = False
