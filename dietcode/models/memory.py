"""Memory of a model's values: values that live at different times share a storage, planned over symbolic
sizes.

A storage is as large as the largest of its values; of the storages that are free, one that held a value of
the same symbolic size is taken first, then the one whose largest size is nearest (the Nimble paper, Section
4.3: storage coalescing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dietcode.graph.extent import Extent, Ranges


@dataclass
class Storage:
    """Memory that several values have one after the other.

    Attributes
    ----------
    sizes : list of Extent
        Bytes of each value, different ones alone; the largest counts.
    most : int
        Bytes at most, over all ranges.
    """

    sizes: list[Extent] = field(default_factory=list)
    most: int = 0

    def add(self, size: Extent, ranges: Ranges) -> None:
        """Make room for one more value."""
        if size not in self.sizes:
            self.sizes.append(size)
            self.most = max(self.most, size.bounds(ranges)[1])


@dataclass(frozen=True)
class Lifetime:
    """When the memory of a value is in use.

    Attributes
    ----------
    size : Extent
        Bytes.
    first, last : int
        Numbers of the steps that write it and that read it last, those through views among them.
    """

    size: Extent
    first: int
    last: int


def plan_storages(lifetimes: Mapping[str, Lifetime], ranges: Ranges) -> tuple[dict[str, int], list[Storage]]:
    """Return the storage of each value, and all storages.

    Parameters
    ----------
    lifetimes : mapping of str to Lifetime
        In any order.
    ranges : mapping of str to (int, int)
        Of the model's dimensions.
    """
    storages: list[Storage] = []
    chosen: dict[str, int] = {}
    busy: list[tuple[int, int]] = []  # until which step, which storage
    free: list[int] = []
    for name, life in sorted(lifetimes.items(), key=lambda item: (item[1].first, item[0])):
        free += [number for last, number in busy if last < life.first]
        busy = [(last, number) for last, number in busy if last >= life.first]
        number = _best(free, storages, life.size, ranges)
        if number is None:
            number = len(storages)
            storages.append(Storage())
        else:
            free.remove(number)
        storages[number].add(life.size, ranges)
        chosen[name] = number
        busy.append((life.last, number))
    return chosen, storages


def _best(free: Sequence[int], storages: Sequence[Storage], size: Extent, ranges: Ranges) -> int | None:
    """Return a free storage for a value, or None where a new one wastes less."""
    if not free:
        return None
    wanted = size.bounds(ranges)[1]

    def waste(number: int) -> tuple[bool, int]:
        return size not in storages[number].sizes, abs(storages[number].most - wanted)

    best = min(free, key=waste)
    grows_much = storages[best].most * 8 < wanted and wanted > 1 << 16
    return None if grows_much else best
