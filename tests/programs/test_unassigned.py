"""Variables of programs that are read where nothing may have been assigned to them, beside Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from needs import of_extra
from program_runs import compiled

from dietcode.programs.interpreter import InstanceError

pytest.importorskip("torch", reason=of_extra("bench"))

Items = list[int]


def constant_in_a_branch(items: Items) -> Any:
    if len(items) > 2:
        y = 1
    return y


def behind_a_loop(items: Items) -> Any:
    for one in items:
        last = one
    return last, len(items)


def target_of_a_loop(items: Items) -> Any:
    for at, one in enumerate(items):
        if one > 3:
            found = at
            break
    return [found, one]


def correlated(items: Items) -> Any:
    if items[0] > 2:
        y = items[0]
    first = y + 1 if len(items) > 1 else 3
    if len(items) > 1:
        y += 1
    return first, len(items)


def in_a_function_within(items: Items) -> Any:
    def more() -> int:
        return y + 1

    if items[0] > 2:
        y = 5
    return more() if len(items) > 1 else 0


def behind_a_loop_without_end(items: Items) -> Any:
    while True:
        last = items.pop()
        if len(items) < 2:
            break
    return last


CASES: dict[str, tuple[Callable[[Items], Any], list[Items], list[Items]]] = {
    "constant in a branch": (constant_in_a_branch, [[1, 2, 3]], [[1], [1, 2, 3]]),
    "behind a loop": (behind_a_loop, [[1, 2]], [[], [3]]),
    "target of a loop": (target_of_a_loop, [[1, 7, 3]], [[1, 2], [], [9]]),
    "branches that belong together": (correlated, [[3, 4], [4]], [[0, 1], [0], [5, 5]]),
    "a function within": (in_a_function_within, [[3, 4], [4]], [[0, 1], [0], [5, 5]]),
    "a loop without end": (behind_a_loop_without_end, [[3, 4, 5]], [[1], [3, 4, 5, 6]]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_variable_without_a_value_ends_the_instance(name: str) -> None:
    function, samples, given = CASES[name]
    found = compiled(function, [list(one) for one in samples], [list(one) for one in given])
    for own, one in zip(found, given, strict=True):
        try:
            wanted = function(list(one))
        except NameError:
            assert isinstance(own, InstanceError) and "where it is not associated with a value" in str(own)
        else:
            assert own == wanted
