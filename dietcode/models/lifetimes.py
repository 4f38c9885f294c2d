"""When values of an executable are in use: numbers of steps, counted through steps within steps.

The two sides of a branch are counted one after the other, so that they share memory. What a loop reads from
outside lives until the loop ends, and so do the two memories of each state that it carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Step = Mapping[str, Any]


def reads_of(step: Step) -> list[str]:
    """Return what a step reads, without what steps within it read."""
    if "kernel" in step:
        return [one["value"] for one in step["arguments"].values()]
    if "host" in step:
        return [one["value"] for one in step["operands"] if isinstance(one, Mapping)]
    if "branch" in step:
        return [step["branch"]]
    loop = step["loop"]
    return [*(one["first"] for one in loop["carried"]), *(one["of"] for one in loop["each"])]


def writes_of(step: Step) -> list[str]:
    """Return what a step writes; for one with steps within it, its results."""
    if "kernel" in step:
        return [one["value"] for one in step["results"]]
    return list(step["results"])


def inner_steps(step: Step) -> list[Sequence[Step]]:
    """Return the lists of steps within a step."""
    if "branch" in step:
        return [step["then"], step["else"]]
    if "loop" in step:
        loop = step["loop"]
        return [*([loop["condition"]["steps"]] if loop["condition"] else []), loop["body"]]
    return []


def all_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """Return steps and those within them."""
    for step in steps:
        yield step
        for inner in inner_steps(step):
            yield from all_steps(inner)


def loop_values(step: Step) -> list[str]:
    """Return the names that a loop gives: its states, what they become, and positions of its operands."""
    loop = step["loop"]
    names = [name for one in loop["carried"] for name in (one["state"], one["next"])]
    return [*names, *(one["as"] for one in loop["each"]), *(one["value"] for one in loop["stacked"])]


class Lifetimes:
    """First and last steps of values.

    Parameters
    ----------
    steps : sequence of step
    root : mapping of str to str
        The value whose memory each value lies in.

    Attributes
    ----------
    first, last : dict of str to int
        Of each value that a step writes into memory of its own.
    """

    def __init__(self, steps: Sequence[Step], root: Mapping[str, str]) -> None:
        self._root, self._now = root, 0
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self._inside: dict[str, None] = {}  # what memory of others' holds
        self._visit(steps)
        for name in self._inside:
            self.first.pop(name, None)

    def _read(self, names: Iterable[str]) -> None:
        for name in names:
            self.last[self._root.get(name, name)] = self._now

    def _write(self, names: Iterable[str]) -> None:
        for name in names:
            own = self._root.get(name, name)  # another one's memory where it is a part of that
            self.first.setdefault(own, self._now)
            self.last[own] = max(self._now, self.last.get(own, 0))

    def _visit(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if "loop" in step:
                self._visit_loop(step)
            else:
                self._read(reads_of(step))
                if "branch" in step:
                    for inner in inner_steps(step):
                        self._now += 1
                        self._visit(inner)
                elif not step.get("view"):
                    self._write(writes_of(step))
            self._now += 1

    def _visit_loop(self, step: Step) -> None:
        loop, begin = step["loop"], self._now
        states = [name for one in loop["carried"] for name in (one["state"], one["next"])]
        self._read(reads_of(step))
        self._write(states)
        self._write(one["result"] for one in loop["stacked"])
        self._inside.update(dict.fromkeys(one["value"] for one in loop["stacked"]))
        for inner in inner_steps(step):
            self._now += 1
            self._visit(inner)
            if loop["condition"] and inner is loop["condition"]["steps"]:
                self._read([loop["condition"]["value"]])
        self._now += 1
        read_again = [n for n, last in self.last.items() if last >= begin > self.first.get(n, -1)]
        self._read([*read_again, *states])
        self._write(step["results"])
