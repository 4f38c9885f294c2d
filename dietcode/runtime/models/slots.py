"""Slots: all that a call of a model works with has a number, and what depends on sizes is found by these.

What to do with a slot does not depend on sizes, so that it is decided once for a model. What is in it may:
extents, shapes, views of memory. These are few, since equal ones share a slot, and finding them is all that a
new size costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from dietcode.graph.extent import Extent
from dietcode.runtime.models.executable import evaluated
from dietcode.runtime.models.storages import StorageMemory

Slots: TypeAlias = list[Any]
Action: TypeAlias = Callable[[Slots], Any]
Shape: TypeAlias = tuple[Extent, ...]


class SlotTable:
    """The slots of a model, and how those are found that do not change from call to call.

    Parameters
    ----------
    before : SlotTable, optional
        The one that this one goes on from, with slots of its own behind.

    Attributes
    ----------
    first : int
        The number of its first slot.
    """

    def __init__(self, before: SlotTable | None = None) -> None:
        self.first = 0 if before is None else before.size
        self._same: list[Any] = []  # for all sizes; None where it is found or changes
        self._extents: list[tuple[int, Extent]] = []
        self._shapes: list[tuple[int, Action]] = []
        self._views: list[tuple[int, int, np.dtype[Any], int]] = []
        self._made: list[tuple[int, Action]] = []
        self._known: dict[Any, int] = {} if before is None else dict(before._known)

    @property
    def size(self) -> int:
        """One more than its last slot."""
        return self.first + len(self._same)

    def new(self, value: Any = None) -> int:
        """Return a slot with what is the same for all sizes; or with None, for what a call puts there."""
        self._same.append(value)
        return self.size - 1

    def same(self, key: Any, value: Any) -> int:
        """Return the slot of what is the same for all sizes; one for equal keys."""
        found = self._known.get(("same", key))
        if found is None:
            found = self._known["same", key] = self.new(value)
        return found

    def extent(self, extent: Extent) -> int:
        """Return the slot of an extent's value."""
        found = self._known.get(extent)
        if found is None:
            if extent.is_constant:
                found = self.new(extent.constant)
            else:
                found = self.new()
                self._extents.append((found, extent))
            self._known[extent] = found
        return found

    def shape(self, shape: Shape) -> int:
        """Return the slot of a tuple of values."""
        key = "shape", shape
        found = self._known.get(key)
        if found is None:
            if all(extent.is_constant for extent in shape):
                found = self.new(tuple(extent.constant for extent in shape))
            else:
                numbers = [self.extent(extent) for extent in shape]
                found = self.new()
                self._shapes.append((found, tuple_of(numbers)))
            self._known[key] = found
        return found

    def attribute(self, value: Any) -> int:
        """Return the slot of an attribute, with extents in it as numbers."""
        if _is_same(value):
            return self.new(evaluated(value, {}))
        if isinstance(value, Extent):
            return self.extent(value)
        if all(isinstance(one, Extent) for one in value):
            return self.shape(tuple(value))
        return self.made(tuple_of([self.attribute(one) for one in value]))

    def attributes(self, attributes: Mapping[str, Any]) -> int:
        """Return the slot of a dict of attributes."""
        if all(map(_is_same, attributes.values())):
            return self.new({key: evaluated(value, {}) for key, value in attributes.items()})
        keys = list(attributes)
        values = tuple_of([self.attribute(value) for value in attributes.values()])
        return self.made(lambda slots: dict(zip(keys, values(slots), strict=True)))

    def view(self, storage: int, dtype: str, shape: Shape) -> int:
        """Return the slot of an array at the beginning of a storage."""
        key = "view", storage, dtype, shape
        found = self._known.get(key)
        if found is None:
            extents = self.shape(shape)
            found = self._known[key] = self.new()
            self._views.append((found, storage, np.dtype(dtype), extents))
        return found

    def made(self, make: Action, key: Any = None) -> int:
        """Return the slot of what a function makes of slots that are found before; one for equal keys."""
        found = None if key is None else self._known.get(("made", key))
        if found is None:
            found = self.new()
            self._made.append((found, make))
            if key is not None:
                self._known["made", key] = found
        return found

    def fill(
        self, slots: Slots, binding: Mapping[str, int], memory: StorageMemory, offsets: Sequence[int]
    ) -> None:
        """Add its slots to those before it, for one binding of the dimensions.

        Parameters
        ----------
        slots : list
            All before its first one; those behind are replaced.
        binding : mapping of str to int
        memory : StorageMemory
        offsets : sequence of int
            Of each storage in the memory.
        """
        slots[self.first :] = self._same
        for number, extent in self._extents:
            slots[number] = extent.evaluate(binding)
        for number, shape in self._shapes:
            slots[number] = shape(slots)
        for number, storage, dtype, extents in self._views:
            slots[number] = memory.view(offsets[storage], dtype, slots[extents])
        for number, make in self._made:
            slots[number] = make(slots)


def _is_same(value: Any) -> bool:
    """Whether an attribute is the same for all sizes."""
    if isinstance(value, tuple | list):
        return all(map(_is_same, value))
    return not isinstance(value, Extent) or value.is_constant


def tuple_of(numbers: Sequence[int]) -> Action:
    """Return a function of slots: the tuple of those with these numbers."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    own = tuple(numbers)
    return lambda slots: tuple([slots[number] for number in own])
