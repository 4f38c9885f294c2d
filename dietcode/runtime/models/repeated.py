"""One kernel called for each position of an axis, as a recurrent layer calls its cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dietcode.runtime.models.executable import Repeat

_MAX_KEPT_POSITIONS = 256  # whose arguments are kept, which costs a kilobyte for each
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
            for name, array, shape in given:
                if shape is None:
                    arguments.append(array)
                elif name in self.repeat.carried and before is not None:
                    arguments.append(before[self.repeat.carried[name]])
                else:
                    own = array[position] if name in self.repeat.each else array
                    arguments.append(own.reshape(shape))
            before = [one[position] for one in outputs]
            yield (*arguments, *before, *self.values)


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
        Whether all arrays stay where they are from call to call, so that arguments can be kept.
    """
    if not is_fixed or count > _MAX_KEPT_POSITIONS:

        def act(slots: Slots) -> None:
            for arguments in calls.of(slots):
                run(*arguments)

        return act
    kept: list[tuple[Any, ...]] = []

    def act_again(slots: Slots) -> None:
        if not kept:
            kept.extend(calls.of(slots))
        for arguments in kept:
            run(*arguments)

    return act_again
