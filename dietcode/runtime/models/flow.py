"""Control flow in an executable: steps that have steps within them, and the actions that run them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dietcode.graph.extent import Extent, parse_extent

Slots: TypeAlias = list[Any]
Action: TypeAlias = Callable[[Slots], Any]
Steps: TypeAlias = tuple[Any, ...]
ReadSteps: TypeAlias = Callable[[Any], Steps]


@dataclass(frozen=True)
class BranchStep:
    """One of two lists of steps, by a truth value; both write the results.

    Attributes
    ----------
    predicate : str
        A bool scalar.
    then, otherwise : tuple of step
    results : tuple of str
    """

    predicate: str
    then: Steps
    otherwise: Steps
    results: tuple[str, ...]


@dataclass(frozen=True)
class Carried:
    """A state of a loop: two memories, which change places after each round.

    Attributes
    ----------
    first : str
        What it is before the loop.
    state, next : str
        Its names in the body: what a round reads, and what it writes.
    """

    first: str
    state: str
    next: str


@dataclass(frozen=True)
class LoopStep:
    """Steps again and again, while a condition holds or for each position.

    Attributes
    ----------
    condition : tuple of step
    predicate : str
        A bool scalar that these compute; empty where there is none.
    count : Extent, optional
        How often, where there is no condition.
    body : tuple of step
    carried : tuple of Carried
    each : tuple of (str, str)
        A value, and the name in the body of its part at a position of the first axis.
    stacked : tuple of (str, str)
        A name in the body, and the result whose part at a position it is.
    results : tuple of str
        Of each state, then those that are stacked.
    """

    condition: Steps
    predicate: str
    count: Extent | None
    body: Steps
    carried: tuple[Carried, ...]
    each: tuple[tuple[str, str], ...]
    stacked: tuple[tuple[str, str], ...]
    results: tuple[str, ...]

    @property
    def states(self) -> list[str]:
        """The names of its states, and of what they become."""
        return [name for one in self.carried for name in (one.state, one.next)]


def read_flow(data: Mapping[str, Any], read_steps: ReadSteps) -> BranchStep | LoopStep:
    """Return a step that has others within it, out of plain data."""
    results = tuple(map(str, data["results"]))
    if "branch" in data:
        return BranchStep(str(data["branch"]), read_steps(data["then"]), read_steps(data["else"]), results)
    loop = data["loop"]
    condition = loop["condition"]
    step = LoopStep(
        read_steps(condition["steps"]) if condition else (),
        str(condition["value"]) if condition else "",
        None if loop["count"] is None else parse_extent(loop["count"]),
        read_steps(loop["body"]),
        tuple(Carried(str(one["first"]), str(one["state"]), str(one["next"])) for one in loop["carried"]),
        tuple((str(one["of"]), str(one["as"])) for one in loop["each"]),
        tuple((str(one["value"]), str(one["result"])) for one in loop["stacked"]),
        results,
    )
    if bool(step.predicate) == (step.count is not None):
        raise ValueError("a loop with a condition and a count, or with none; allowed: one of them")
    if len(results) != len(step.carried) + len(step.stacked) or not results:
        raise ValueError(f"a loop with {len(results)} results; allowed: one of each state and each stack")
    if tuple(one for _, one in step.stacked) != results[len(step.carried) :]:
        raise ValueError("a loop whose stacks are not its last results")
    return step


def values_of(step: BranchStep | LoopStep) -> list[str]:
    """Return what a step reads, without what steps within it read."""
    if isinstance(step, BranchStep):
        return [step.predicate]
    firsts = [*(one.first for one in step.carried), *(of for of, _ in step.each)]
    return [*firsts, *([step.predicate] if step.predicate else [])]


def inner_steps(step: Any) -> Steps:
    """Return the steps within a step, none for most."""
    if isinstance(step, BranchStep):
        return step.then + step.otherwise
    if isinstance(step, LoopStep):
        return step.condition + step.body
    return ()


def all_steps(steps: Iterable[Any]) -> Iterator[Any]:
    """Return steps and those within them, each before what is in it."""
    for step in steps:
        yield step
        yield from all_steps(inner_steps(step))


def branch_action(predicate: Action, then: Sequence[Action], otherwise: Sequence[Action]) -> Action:
    """Return what runs one side of a branch."""

    def act(slots: Slots) -> None:
        for action in then if predicate(slots) else otherwise:
            action(slots)

    return act


@dataclass(frozen=True)
class CarriedSlots:
    """A state at work.

    Attributes
    ----------
    first, result : callable
        The arrays before and after the loop.
    state, next : int
        Slots of what changes places after each round.
    memories : tuple of int
        Slots of its two memories.
    """

    first: Action
    result: Action
    state: int
    next: int
    memories: tuple[int, int]


@dataclass(frozen=True)
class Positions:
    """An array of which the body sees one position.

    Attributes
    ----------
    whole : callable
    slot : int
        Where the part goes.
    """

    whole: Action
    slot: int


def loop_action(
    condition: Sequence[Action],
    holds: Action | None,
    count: int | None,
    body: Sequence[Action],
    carried: Sequence[CarriedSlots],
    positions: Sequence[Positions],
) -> Action:
    """Return what runs a loop.

    A loop ends when its condition does not hold; nothing else ends it but an exception, such as that of an
    interrupt, between two actions.

    Parameters
    ----------
    condition : sequence of callable
    holds : callable, optional
        Returns whether there is one more round, after the condition's actions.
    count : int, optional
        The slot of the number of rounds; None where the condition tells their end.
    body : sequence of callable
    carried : sequence of CarriedSlots
    positions : sequence of Positions
    """

    def act(slots: Slots) -> None:
        for one in carried:
            slots[one.state], slots[one.next] = (slots[number] for number in one.memories)
            np.copyto(slots[one.state], one.first(slots))
        parts = [(one.slot, one.whole(slots)) for one in positions]
        for position in itertools.repeat(0) if count is None else range(slots[count]):
            for action in condition:
                action(slots)
            if holds is not None and not holds(slots):
                break
            for slot, whole in parts:
                slots[slot] = whole[position, ...]
            for action in body:
                action(slots)
            for one in carried:
                slots[one.state], slots[one.next] = slots[one.next], slots[one.state]
        for one in carried:
            np.copyto(one.result(slots), slots[one.state])

    return act
