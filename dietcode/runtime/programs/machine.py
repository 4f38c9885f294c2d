"""A program as a native machine: its functions, and a phase of the loops for each block."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dietcode.errors import LibraryError
from dietcode.runtime.models.executable import TensorRead
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.native_loops import (
    WHOLE,
    LoopTensor,
    address_of,
    loop_function,
    program_integers,
)
from dietcode.runtime.programs.plan import ProgramPlan, is_number, linear, row_bytes
from dietcode.runtime.recursion.loop_buffers import LoopBuffers

# As the machine numbers kinds of values.
NONE, BOOL, INT, FLOAT, TEXT, TUPLE, LIST, RECORD, TENSOR = range(9)


class BlockBuffers(LoopBuffers):
    """The blocks of a program in words, with numbered buffers.

    Parameters
    ----------
    plan : ProgramPlan
    kernels : Kernels
    id_limits : mapping of (int, int) to int
        By block and operand, the rows of the smallest table that its numbers are rows of.

    Attributes
    ----------
    blocks, program : array of int64
        All blocks, and their steps.

    Raises
    ------
    LibraryError
        A call has more tensors than a program takes, or a constant has another size than what reads it.
    """

    def __init__(self, plan: ProgramPlan, kernels: Kernels, id_limits: Mapping[tuple[int, int], int]) -> None:
        super().__init__(
            kernels, lambda n, name: plan.blocks[n].rules[name], partial(linear, max_rows=plan.max_rows)
        )
        self._plan = plan
        self._buffers: dict[tuple[int, str], int] = {}
        try:
            phases = [[self._loop_step(n, one) for one in block.steps] for n, block in enumerate(plan.blocks)]
            self.blocks = [n for number in range(len(plan.blocks)) for n in self._block(number, id_limits)]
            self.program = program_integers(self._num_buffers, phases)
        except ValueError as error:
            raise LibraryError(f"program.json: {error}") from error

    @property
    def num_buffers(self) -> int:
        """How many buffers there are."""
        return self._num_buffers

    @property
    def fixed(self) -> list[int]:
        """Pairs of buffers and the addresses of constants."""
        return [number for pair in self._fixed.items() for number in pair]

    def _block(self, number: int, id_limits: Mapping[tuple[int, int], int]) -> list[int]:
        block, types = self._plan.blocks[number], self._plan.types
        found = [block.phase, block.max_batch, len(block.operands), len(block.results)]
        found.append(len(block.temporaries))
        for k, type_ in enumerate(block.operands):
            if is_number(types[type_]):
                ids = self._buffer(number, f"ids{k}")
                found += [type_, ids, ids, 1, id_limits.get((number, k), -1)]
            else:
                names = f"operand{k}", f"rows{k}"
                found += [type_, *(self._buffer(number, name) for name in names), 0, -1]
        for type_, name in zip(block.results, block.outputs, strict=True):
            found += [type_, self._buffer(number, name)]
        for name in block.temporaries:
            found += [self._buffer(number, name), block.rules[name].row_bytes]
        return [*found, *self._lowest(number)]

    def _lowest(self, number: int) -> list[int]:
        """Return the block that takes over calls of another one, and their sources; -1 for none."""
        for other, block in enumerate(self._plan.blocks):
            if block.lowest_of is not None and block.lowest_of.block == number:
                words = [one or (-1, -1, -1) for one in block.lowest_of.sources]
                return [other, *(word for one in words for word in one)]
        return [-1]

    def _buffer(self, block: int, name: str) -> int:
        number = self._buffers.get((block, name))
        if number is None:
            number = self._buffers[block, name] = self._num_buffers
            self._num_buffers += 1
        return number

    def _tensor(self, group: int, read: TensorRead) -> LoopTensor:
        shape = tuple(map(self._linear, read.shape))
        dtype = np.dtype(self._rule(group, read.value).dtype)
        return LoopTensor(self._buffer(group, read.value), dtype, shape, WHOLE)


class NativeMachine(BlockBuffers):
    """A machine, which makes workplaces: each runs one call at a time.

    Attributes
    ----------
    workplace : callable
        Makes one.
    """

    def __init__(self, plan: ProgramPlan, kernels: Kernels, id_limits: Mapping[tuple[int, int], int]) -> None:
        super().__init__(plan, kernels, id_limits)
        machine = array("q", self._integers(self.blocks))
        given = *machine.buffer_info(), *self.program.buffer_info()
        try:
            self.workplace: Callable[[], Callable[..., Any]] = loop_function("machine")(*given)
        except ValueError as error:
            raise LibraryError(f"program.json: {error}") from error

    def _integers(self, blocks: Sequence[int]) -> list[int]:
        plan = self._plan
        found = [self._num_buffers, plan.max_rows, plan.entry, plan.constants.index(""), len(plan.types)]
        for type_ in plan.types:
            found += [row_bytes(type_), type_.num_elements.constant, int(type_.dtype == "int32")]
        found += [len(plan.constants), *(n for one in plan.constants for n in constant_words(plan, one))]
        found += [len(plan.tensors)]
        for name, number in plan.tensors:
            found += [number, address_of(self._kernels.constants[name])]
        found += [len(plan.records), len(plan.names)]
        for _, fields in plan.records:
            found += [fields.index(name) if name in fields else -1 for name in plan.names]
        found += [len(plan.blocks), *blocks]
        found += [len(plan.functions), *(number for one in plan.functions for number in one.integers)]
        found += [len(plan.lookups), *(n for one in plan.lookups for n in _lookup_words(plan, one))]
        found += [len(self._fixed), *(number for pair in self._fixed.items() for number in pair)]
        texts = [one for one in plan.constants if isinstance(one, str)] if plan.makes_texts else []
        words = [number for one in texts for number in text_words(one)]
        return [*found, int(plan.makes_texts), len(words), *words]


def _lookup_words(plan: ProgramPlan, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return how many pairs there are, and the pairs as the machine searches them."""

    def order(pair: tuple[int, int]) -> tuple[int, float]:
        key = plan.constants[pair[0]]
        if isinstance(key, str):
            return 2, constant_words(plan, key)[1]
        return (0, 0) if key is None else (1, key)

    return [len(pairs), *(number for pair in sorted(pairs, key=order) for number in pair)]


def constant_words(plan: ProgramPlan, value: bool | int | float | str | None) -> tuple[int, int]:
    """Return a constant's kind and what it is, as the machine has both."""
    if value is None:
        return NONE, 0
    if isinstance(value, str):
        return TEXT, plan.constants.index(value)
    if isinstance(value, float):
        return FLOAT, float_bits(value)
    return (BOOL if isinstance(value, bool) else INT), int(value)


def text_words(text: str) -> list[int]:
    """Return how many bytes a text has, and these, eight in an integer."""
    own = text.encode("utf-8", "surrogatepass")
    padded = own + bytes(-len(own) % 8)
    return [len(own), *array("q", padded)]


def float_bits(value: float) -> int:
    """Return the bits of a float as an integer."""
    bits: int = struct.unpack("q", struct.pack("d", value))[0]
    return bits
