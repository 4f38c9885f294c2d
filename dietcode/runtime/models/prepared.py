"""A model for one binding of its dimensions: its slots filled, and calls of its actions on these."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from dietcode.runtime.models.executable import Executable, Step
from dietcode.runtime.models.kernels import Array
from dietcode.runtime.models.placed import part_of
from dietcode.runtime.models.sizes import Continuations, SizeBounds, size_bounds
from dietcode.runtime.models.slot_program import SizedStep, SlotProgram
from dietcode.runtime.models.slots import Slots
from dietcode.runtime.models.storages import StorageMemory


class Prepared:
    """A model, or what follows a step in it that tells a size, for one binding of the dimensions.

    Parameters
    ----------
    executable : Executable
    program : SlotProgram
    binding : mapping of str to int
        Of the dimensions.
    memory : StorageMemory
        Large enough.
    offsets : sequence of int
        Of each storage in it.
    """

    def __init__(
        self,
        executable: Executable,
        program: SlotProgram,
        binding: Mapping[str, int],
        memory: StorageMemory,
        offsets: Sequence[int],
    ) -> None:
        self._executable, self._program, self._binding = executable, program, binding
        self._memory, self._offsets = memory, offsets
        self._tails: Continuations[Prepared] = Continuations()
        self._bounds: dict[int, SizeBounds] = {}  # of the size that a step tells
        self._slots: Slots = []
        self._fill(self._slots)

    def _fill(self, slots: Slots) -> None:
        """Find the slots that stay from call to call, behind those that are there."""
        self._program.table.fill(slots, self._binding, self._memory, self._offsets)
        self._program.skip_empty(slots)

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the outputs, new arrays; `inputs` are contiguous and of the shapes of the binding."""
        slots = self._begun(inputs)
        for action in self._program.actions:
            action(slots)
        answer = self._program.answer
        return (slots[answer] if answer >= 0 else self._program).outputs(slots)

    def step_secs(self, inputs: Sequence[Array]) -> list[tuple[Step, float]]:
        """Run the steps as a call does, and return the seconds of each that does something.

        Those of a step that has others in it, or that tells a size, are theirs too.
        """
        slots, found = self._begun(inputs), []
        for step, action in zip(self._program.sources, self._program.actions, strict=True):
            begin = time.perf_counter()
            action(slots)
            found.append((step, time.perf_counter() - begin))
        return found

    def _begun(self, inputs: Sequence[Array]) -> Slots:
        slots = self._slots.copy()
        slots[: len(inputs)] = inputs
        if self._program.answer >= 0:
            slots[self._program.answer] = self._program  # or what follows the last size
        self._allocate(slots)
        return slots

    def _allocate(self, slots: Slots) -> None:
        program = self._program
        slots[program.here] = self
        for number, shape, dtype in program.values.new:
            slots[number] = np.empty(slots[shape], dtype)
        for number, whole, places, position in program.values.parts:
            slots[number] = part_of(slots[whole], slots[places][position])

    def run_tail(
        self, sized: SizedStep, program: SlotProgram, count: int, result: Array, slots: Slots
    ) -> None:
        """Run what follows a step that told a size.

        Parameters
        ----------
        sized : SizedStep
        program : SlotProgram
            What follows.
        count : int
            The size.
        result : array
            Of the step.
        slots : list
            Of the call.

        Raises
        ------
        ShapeError
            The size is out of bounds.
        """
        bounds = self._bounds.get(id(sized))
        if bounds is None:
            bounds = size_bounds(self._executable, self._binding, sized.step, sized.unbound)
            self._bounds[id(sized)] = bounds
        bounds.check(count)
        binding = {**self._binding, **({sized.unbound: count} if sized.unbound else {})}
        tail = self._tails.get((id(sized), *binding.values()), lambda: self._tail(program, binding, slots))
        slots[program.table.first :] = tail._slots
        if sized.ends_call:
            slots[program.answer] = program
        tail._allocate(slots)
        np.copyto(slots[program.values.slots[sized.step.results[0]]], result)
        for action in program.actions:
            action(slots)

    def _tail(self, program: SlotProgram, binding: Mapping[str, int], slots: Slots) -> Prepared:
        tail: Prepared = object.__new__(Prepared)
        tail._executable, tail._program, tail._binding = self._executable, program, binding
        tail._memory, tail._offsets, tail._tails = self._memory, self._offsets, self._tails
        tail._bounds = {}
        tail._fill(slots)
        tail._slots = slots[program.table.first :]
        return tail
