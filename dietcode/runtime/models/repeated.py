"""One kernel called for each position of an axis, as a recurrent layer calls its cell."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dietcode.runtime.models.executable import Repeat
from dietcode.runtime.native_loops import (
    BEFORE,
    ROWS,
    WHOLE,
    LoopCall,
    LoopTensor,
    NativeProgram,
    address_of,
    ranges_of,
)

Slots: TypeAlias = list[Any]
Action: TypeAlias = Callable[[Slots], Any]


@dataclass(frozen=True)
class Repeated:
    """An argument of repeated calls.

    Attributes
    ----------
    name : str
        Of the kernel's tensor.
    given : object
        A constant as the kernel takes it; or an action that finds the array in the slots of a call.
    shape : tuple of int or None
        As the kernel has it; None of a constant.
    """

    name: str
    given: Any
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class RepeatedCalls:
    """The arguments of the calls, one after the other; states of one call are arguments of the next.

    Attributes
    ----------
    repeat : Repeat
    order : sequence of int
        The positions.
    arguments : sequence of Repeated
    results : sequence of action
        Each finds an array with all positions.
    values : sequence of int
        Of the kernel's shape variables.
    """

    repeat: Repeat
    order: Sequence[int]
    arguments: Sequence[Repeated]
    results: Sequence[Action]
    values: Sequence[int]

    def of(self, slots: Slots) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of each call."""
        outputs = [one(slots) for one in self.results]
        given = [
            (one.name, one.given if one.shape is None else one.given(slots), one.shape)
            for one in self.arguments
        ]
        before: list[Any] | None = None
        for position in self.order:
            arguments = []
            for name, whole, shape in given:
                if shape is None:
                    arguments.append(whole)
                elif name in self.repeat.carried and before is not None:
                    arguments.append(before[self.repeat.carried[name]])
                else:
                    own = whole[position] if name in self.repeat.each else whole
                    arguments.append(own.reshape(shape))
            before = [one[position] for one in outputs]
            yield (*arguments, *before, *self.values)


class NativeCalls:
    """The same calls in one native loop.

    Parameters
    ----------
    run : callable
        The kernel, of tvm-ffi.
    calls : RepeatedCalls
    is_fixed : bool
        Whether all arrays stay where they are from call to call.
    """

    def __init__(self, run: Callable[..., Any], calls: RepeatedCalls, is_fixed: bool) -> None:
        self._run, self._calls, self._is_fixed = run, calls, is_fixed
        self._program: NativeProgram | None = None
        self._ranges = ranges_of((0, position, 1) for position in calls.order)
        self._addresses: array[int] | None = None

    def __call__(self, slots: Slots) -> bool:
        """Compute the results; False where an array is not contiguous, which Python has to copy first."""
        addresses = self._addresses
        if addresses is None:
            arrays = self._arrays(slots)
            if arrays is None:
                return False
            addresses = array("q", [_address(one) for one in arrays])
            if self._program is None:
                self._program = NativeProgram(len(arrays), [[self._call(arrays)]])
            if self._is_fixed:
                self._addresses = addresses
        assert self._program is not None  # made with the first addresses
        self._program(addresses, self._ranges)
        return True

    def _arrays(self, slots: Slots) -> list[Any] | None:
        """Return the arguments and the results as they are for all positions, or None."""
        given = [one.given if one.shape is None else one.given(slots) for one in self._calls.arguments]
        outputs = [one(slots) for one in self._calls.results]
        plain = [one for one in (*given, *outputs) if isinstance(one, np.ndarray)]
        return [*given, *outputs] if all(one.flags.c_contiguous for one in plain) else None

    def _call(self, arrays: Sequence[Any]) -> LoopCall:
        repeat, arguments = self._calls.repeat, self._calls.arguments
        outputs = range(len(arguments), len(arrays))
        tensors = []
        for number, one in enumerate(arguments):
            own = arrays[number]
            shape = tuple(own.shape) if one.shape is None else one.shape
            mode, buffer, row_bytes = WHOLE, number, 0
            if one.name in repeat.carried:
                mode, buffer = BEFORE, outputs[repeat.carried[one.name]]
                row_bytes = _row_bytes(arrays[buffer])
            elif one.name in repeat.each:
                mode, row_bytes = ROWS, _row_bytes(own)
            tensors.append(LoopTensor(buffer, _dtype(own), _constant(shape), mode, row_bytes, number))
        for number in outputs:
            own = arrays[number]
            tensors.append(LoopTensor(number, _dtype(own), _constant(own.shape[1:]), ROWS, _row_bytes(own)))
        return LoopCall(self._run, tensors, _constant(self._calls.values))


def _address(tensor: Any) -> int:
    return address_of(tensor) if isinstance(tensor, np.ndarray) else int(tensor.data_ptr())


def _dtype(tensor: Any) -> np.dtype[Any]:
    return np.dtype(str(tensor.dtype))


def _row_bytes(tensor: Any) -> int:
    return int(tensor.nbytes // len(tensor))


def _constant(extents: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    return tuple((int(one), 0, 0) for one in extents)


def repeated_action(run: Callable[..., Any], calls: RepeatedCalls, count: int, is_fixed: bool) -> Action:
    """Return what calls a kernel for each position.

    Parameters
    ----------
    run : callable
        The kernel.
    calls : RepeatedCalls
    count : int
        Of the positions.
    is_fixed : bool
        Whether all arrays stay where they are from call to call.
    """

    def act(slots: Slots) -> None:
        for arguments in calls.of(slots):
            run(*arguments)

    if not count or not hasattr(run, "__chandle__"):
        return act
    native = NativeCalls(run, calls, is_fixed)

    def act_natively(slots: Slots) -> None:
        if not native(slots):
            act(slots)

    return act_natively
