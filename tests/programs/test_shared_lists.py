"""Lists that calls share, as defaults and those of a file: programs read them; to change one is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from needs import of_extra
from program_runs import compiled

from dietcode.errors import ModelError

pytest.importorskip("torch", reason=of_extra("bench"))

Items = list[int]
WEIGHTS, SEEN, IDS = [[1, 2], [3]], [0], {0: 5, 1: 7}


def appended(x: int, kept: Items = []) -> int:  # noqa: B006  (as people write it)
    if x > 3:
        kept.append(x)
    return len(kept)


def by_its_text(items: Items) -> Any:
    mine: Items = []
    return appended(1), appended(5, mine), appended(items[0])


def given_on(x: int, kept: Items = []) -> Items:  # noqa: B006
    return grown(kept, x)


def grown(items: Items, x: int) -> Items:
    items.append(x)
    return items


def by_another_function(items: Items) -> Any:
    return [len(given_on(one)) for one in items]


def added(x: int, kept: Items = []) -> int:  # noqa: B006
    if x > 3:
        kept += [x]
    return len(kept)


def by_a_sum(items: Items) -> Any:
    mine: Items = []
    return added(1), added(5, mine), added(items[0])


class Basket:
    def __init__(self, items: Items = []) -> None:  # noqa: B006
        self.items = items


def by_an_object(items: Items) -> Any:
    one, other = Basket(), Basket()
    one.items.append(items[0])
    return len(other.items)


def of_the_file(items: Items) -> Any:
    return len(grown(SEEN, items[0]))


def of_a_list_in_it(items: Items) -> Any:
    row = WEIGHTS[1]
    row[0] += items[0]
    return row[0]


CHANGED: dict[Callable[[Items], Any], str] = {
    by_its_text: "the default of kept is changed, which Python keeps from call to call; write kept=None",
    by_a_sum: "the default of kept is changed",
    by_another_function: "the default of kept is changed",
    by_an_object: "the default of items is changed",
    of_the_file: r"SEEN is changed, which all instances share; make one of its own, list\(SEEN\)",
    of_a_list_in_it: r"WEIGHTS\[1\] is changed, which all instances share",
}


@pytest.mark.parametrize("function", CHANGED, ids=lambda one: one.__name__)
def test_what_changes_a_list_that_calls_share_is_refused(function: Callable[[Items], Any]) -> None:
    with pytest.raises(ModelError, match=rf"test_shared_lists\.py:\d+: {CHANGED[function]}"):
        compiled(function, [[1, 2]])


def read_alone(items: Items) -> Any:
    def weighed(x: int, by: Items = [2, 3], names: dict[int, int] = {1: 4}, own: Any = []) -> Any:  # noqa: B006
        own = [*own, x]
        own.append(1)
        return by[x % 2] * names.get(x, 1), own

    return [weighed(one) for one in items], looked_up(IDS, items[0]), [one[0] for one in WEIGHTS]


def looked_up(known: dict[int, int], x: int) -> int:
    return known.get(x, -1)


def test_they_are_read() -> None:
    given: list[Items] = [[1, 2], [4], [0]]
    assert compiled(read_alone, given[:2], given) == list(map(read_alone, given))
