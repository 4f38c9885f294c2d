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
    cluster : int
        Blocks of a cluster, neighbours in x, which its launch asks for.
    persistent : bool
        Whether a launch has no more blocks in x than the device runs at a time: each goes on to the tiles of
        those that are left out.
    """

    symbol: str
    arguments: tuple[str, ...]
    threads: int
    shared_bytes: int = 0
    maps: tuple[OperandMap, ...] = ()
    overlaps: bool = False
    cluster: int = 1
    persistent: bool = False
