"""A recursion as a native program: a number for each buffer, and memory for what lies inside."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from itertools import islice

import numpy as np

from dietcode.errors import LibraryError
from dietcode.runtime.models.executable import TensorRead
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.models.storages import StorageMemory
from dietcode.runtime.native_loops import (
    ROWS,
    WHOLE,
    LoopTensor,
    NativeProgram,
)
from dietcode.runtime.recursion.loop_buffers import LoopBuffers
from dietcode.runtime.recursion.plan import RecursionDescription, linear
from dietcode.runtime.recursion.workspace import Sizes, laid_out

_MAX_LAYOUTS = 64


class RecursionProgram(LoopBuffers):
    """The calls of a recursion over numbered buffers.

    Parameters
    ----------
    description : RecursionDescription
    kernels : Kernels

    Attributes
    ----------
    numbers : dict of str to int
        The buffers that a call gives: inputs of the description, ``out0`` and so on for the states that it
        asks for, and ``wanted`` for their positions.

    step_numbers : list of dict of int to step
        Of each phase its steps, by their numbers as phases of `stepwise`.

    Raises
    ------
    LibraryError
        A call has more tensors than a program takes.
    """

    def __init__(self, description: RecursionDescription, kernels: Kernels) -> None:
        self._description = description
        states = range(len(description.states))
        results = range(description.num_results)
        given = [*description.inputs, *(f"out{state}" for state in results), "wanted"]
        self.numbers = {name: number for number, name in enumerate(given)}
        self._inside: dict[tuple[int, str], int] = {}
        super().__init__(kernels, description.rule, linear, len(given))
        state_bytes = [4 * type_.num_elements.constant for type_ in description.states]
        self._tables = [f"state{state}" for state in states]
        # What stays: where the states of a range are written, and what `before` writes.
        self._written = {f"next{state}": f"state{state}" for state in states}
        self._written |= {name: name for name in description.hoisted}
        for name in self._tables:
            self._new(0, name)
        phases = [[self._loop_step(n, step) for step in steps] for n, steps in enumerate(description.phases)]
        tables = [self._inside[0, f"state{state}"] for state in states]
        fills = list(zip(tables, state_bytes, strict=True))
        wanted = self.numbers["wanted"]
        copies = [(tables[k], self.numbers[f"out{k}"], wanted, state_bytes[k]) for k in results]
        try:
            self.run = NativeProgram(self._num_buffers, phases, fills, copies)
        except ValueError as error:
            raise LibraryError(f"recursion.json: {error}") from error
        self._calls, self._fills = [call for phase in phases for call in phase], fills
        numbered = enumerate(step for steps in description.phases for step in steps)
        self.step_numbers = [dict(islice(numbered, len(steps))) for steps in description.phases]

    @cached_property
    def stepwise(self) -> NativeProgram:
        """The same with a phase for each step, for a profile."""
        return NativeProgram(self._num_buffers, [[call] for call in self._calls], self._fills)

    def addresses(self) -> array[int]:
        """Return the addresses of all buffers, of which only those of constants are there yet."""
        return array("q", [self._fixed.get(number, 0) for number in range(self._num_buffers)])

    def layout(self, sizes: Sizes) -> tuple[dict[int, int], int]:
        """Return the offset of each buffer inside, and the bytes of all."""
        offsets, num_bytes = laid_out(self._description, self._inside, sizes)
        return {self._inside[one]: offset for one, offset in offsets.items()}, num_bytes

    def _new(self, phase: int, name: str) -> int:
        """Return the number of a buffer inside; those of phase 0 hold rows of all nodes, and stay."""
        number = self._inside.get((phase, name))
        if number is None:
            number = self._inside[phase, name] = self._num_buffers
            self._num_buffers += 1
        return number

    def _tensor(self, group: int, read: TensorRead) -> LoopTensor:
        rule = self._rule(group, read.value)
        if read.value in self.numbers:
            number = self.numbers[read.value]
        elif read.value in self._written or read.value in self._tables:
            number = self._new(0, self._written.get(read.value, read.value))
        else:
            number = self._new(group, read.value)
        # What one range alone reads lies at the begin of its buffer.
        is_own = (group, read.value) in self._inside and group > 0
        shape = tuple(linear(extent) for extent in read.shape)
        dtype = np.dtype(rule.dtype)
        if not rule.is_rows or is_own:
            return LoopTensor(number, dtype, shape, WHOLE)
        return LoopTensor(number, dtype, shape, ROWS, rule.row_bytes)


class RecursionWorkplace:
    """What one call at a time works in: memory that grows, and where in it everything lies."""

    def __init__(self) -> None:
        self._memory = StorageMemory()
        self._layouts: OrderedDict[tuple[bool, Sizes], array[int]] = OrderedDict()
        self._generation = 0

    def addresses(
        self, program: RecursionProgram, sizes: Sizes, beside_torch: bool, given: Mapping[str, int]
    ) -> array[int]:
        """Return the addresses of all buffers of a call.

        Parameters
        ----------
        program : RecursionProgram
        sizes : Sizes
        beside_torch : bool
            Whether it is the program for calls beside PyTorch's.
        given : mapping of str to int
            Addresses of the program's `numbers`.
        """
        found = self._layouts.get((beside_torch, sizes))
        if found is None:
            offsets, num_bytes = program.layout(sizes)
            self._memory.reserve(num_bytes)
            if self._generation != self._memory.generation:
                self._layouts.clear()
                self._generation = self._memory.generation
            found = program.addresses()
            for number, offset in offsets.items():
                found[number] = self._memory.address + offset
            self._layouts[beside_torch, sizes] = found
            if len(self._layouts) > _MAX_LAYOUTS:
                self._layouts.popitem(last=False)
        own = found[:]
        for name, address in given.items():
            own[program.numbers[name]] = address
        return own
