"""Where the values of a model are: in memory that stays from call to call, or in slots that calls fill."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from dietcode.errors import ShapeError
from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.executable import Executable, HostStep, KernelStep, TensorRead
from dietcode.runtime.models.flow import LoopStep
from dietcode.runtime.models.kernels import Array
from dietcode.runtime.models.placed import part_of, placed_steps, placing
from dietcode.runtime.models.slots import Action, Shape, SlotTable


class ValueSlots:
    """The slots of a model's values, as far as the sizes are known that their shapes follow from.

    Parameters
    ----------
    executable : Executable
    constants : mapping of str to array

    Attributes
    ----------
    table : SlotTable
    slots : dict of str to int
        Of each value.
    fixed : set of str
        The values that stay from call to call.
    storages : dict of str to (int, TensorType)
        The storage of each of those that lie at the beginning of one, and what it is there.
    memories : dict of str to int
        The memory of states of loops, whose own slots change from round to round.
    new : list of (int, int, numpy.dtype)
        What each call allocates: its slot, that of its shape, and its dtype.
    parts : list of (int, int, int, int)
        What lies in what each call allocates: its slot, that of the whole, that of all places, and its number
        among these.
    bound : frozenset of str
        The dimensions that are known.
    """

    def __init__(self, executable: Executable, constants: Mapping[str, Array]) -> None:
        self._executable, self._constants = executable, constants
        self.table = SlotTable()
        self.slots: dict[str, int] = {name: self.table.new() for name in executable.inputs}
        self.slots |= {name: self.table.new(array) for name, array in constants.items()}
        self.fixed = set(constants)
        self.storages: dict[str, tuple[int, TensorType]] = {}
        self.memories: dict[str, int] = {}
        self._reserved: frozenset[str] = frozenset()  # loops by their first result
        self.bound = frozenset(executable.ranges) - frozenset(executable.sizes)
        self.new: list[tuple[int, int, np.dtype[np.generic]]] = []
        self.parts: list[tuple[int, int, int, int]] = []
        self._allocate()

    def after(self, size: str) -> ValueSlots:
        """Return the slots when one more size is known, behind these; `new` and `parts` are its own alone."""
        later: ValueSlots = object.__new__(ValueSlots)
        later._executable, later._constants = self._executable, self._constants
        later.table = SlotTable(self.table)
        later.slots, later.fixed = dict(self.slots), set(self.fixed)
        later.storages, later.memories = dict(self.storages), dict(self.memories)
        later._reserved, later.bound = self._reserved, self.bound | {size}
        later.new, later.parts = [], []
        later._allocate()
        return later

    def _allocate(self) -> None:
        """Give every value memory whose shape is known, and that has none yet."""
        executable = self._executable
        for name, number in executable.storage_of.items():
            type_ = executable.values[name]
            if name not in self.slots and self._is_bound(type_.shape):
                self.slots[name] = self.table.view(number, type_.dtype, type_.shape)
                self.fixed.add(name)
                self.storages[name] = number, type_
        for step in executable.all_steps:
            if isinstance(step, LoopStep):
                self._reserve(step)
        self._place()
        self._allocate_outputs()

    def _place(self) -> None:
        """Give the parts of concatenations their places in the whole."""
        values = self._executable.values
        for step in placed_steps(self._executable):
            (whole,) = step.results
            if not self._is_bound(values[whole].shape):
                continue
            if whole not in self.slots:
                self._new_slot(whole)
            shapes = [self.table.shape(values[name].shape) for name in step.placed]
            size = self.table.shape(values[whole].shape)
            places, own = self.table.made(placing(step, size, shapes)), self.slots[whole]
            for position, name in enumerate(step.placed):
                if name in self.slots:
                    continue
                if whole in self.fixed:
                    self.slots[name] = self.table.made(_fixed_part(own, places, position))
                    self.fixed.add(name)
                else:
                    self.slots[name] = self.table.new()
                    self.parts.append((self.slots[name], own, places, position))

    def _is_bound(self, shape: Shape) -> bool:
        return not self._executable.sizes or all(extent.variables <= self.bound for extent in shape)

    def _reserve(self, step: LoopStep) -> None:
        """Give what changes from round to round slots instead of memory that stays."""
        values = self._executable.values
        if step.results[0] in self._reserved or not all(
            self._is_bound(values[one].shape) for one in step.states
        ):
            return
        self._reserved = self._reserved | {step.results[0]}
        for name in step.states:
            self.memories[name] = self.slots[name]
            self.fixed.remove(name)
            self.storages.pop(name, None)
        for name in (*step.states, *(name for _, name in step.each), *(name for name, _ in step.stacked)):
            self.slots[name] = self.table.new()
            self.fixed.discard(name)

    def _allocate_outputs(self) -> None:
        """Give each value that a step writes, and that has no storage, a slot: it goes to the caller."""
        executable = self._executable
        for step in executable.all_steps:
            if isinstance(step, HostStep) and step.is_view:
                continue
            names = [one.value for one in step.results] if isinstance(step, KernelStep) else step.results
            for name in names:
                if name not in self.slots and self._is_bound(executable.values[name].shape):
                    self._new_slot(name)

    def _new_slot(self, name: str) -> None:
        """Have each call allocate a value."""
        type_ = self._executable.values[name]
        number = self.slots[name] = self.table.new()
        self.new.append((number, self.table.shape(type_.shape), np.dtype(type_.dtype)))

    def holds(self, name: str, shape: Shape) -> bool:
        """Whether a value lies in a storage, and a shape has as many elements for all sizes."""
        if name not in self.storages:
            return False
        own = self.storages[name][1].shape
        return own == shape or _num_elements(own) == _num_elements(shape)

    def read(self, read: TensorRead) -> int:
        """Return the slot of a value that stays, in the shape of a kernel."""
        if self.holds(read.value, read.shape):
            storage, type_ = self.storages[read.value]
            return self.table.view(storage, type_.dtype, read.shape)
        source, shape, name = self.slots[read.value], self.table.shape(read.shape), read.value
        constant = self._constants.get(name)
        if constant is not None and all(extent.is_constant for extent in read.shape):
            own = tuple(extent.constant for extent in read.shape)
            return self.table.same((source, shape), _reshaped(constant, own, name))
        return self.table.made(lambda slots: _reshaped(slots[source], slots[shape], name), (source, shape))


def _fixed_part(whole: int, places: int, position: int) -> Action:
    return lambda slots: part_of(slots[whole], slots[places][position])


@lru_cache(maxsize=1024)
def _num_elements(shape: Shape) -> Extent | None:
    """Return the product of extents; None where it is no extent."""
    try:
        return math.prod(shape, start=Extent.of(1))
    except ValueError:
        return None


def _reshaped(array: Array, shape: tuple[int, ...], name: str) -> Array:
    if array.shape == shape and array.flags.c_contiguous:
        return array
    result = array.reshape(shape)
    if not array.flags.c_contiguous and result.size and not np.shares_memory(result, array):
        raise ShapeError(f"{name}: is not contiguous")
    return result
