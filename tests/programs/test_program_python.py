"""More of plain Python in programs, compiled: scopes, aliases, effects, numbers, methods of lists."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from needs import of_extra
from program_runs import assert_same, compiled

import dietcode
from dietcode.programs.interpreter import InstanceError
from dietcode.programs.recording import copied

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))


class Point(NamedTuple):
    x: int
    y: int = 5


@dataclass
class Box:
    items: list[int]
    count: int = 0
    found: list[int] = field(default_factory=list)


def scopes(items: list[int]) -> Any:
    x = 5
    doubled = [x * 2 for x in items]
    nested = [[x + y for y in items] for x in items]
    for y in items:
        x += y
    return doubled, nested, x, [x + 1 for x in range(x % 3)]


def chains(n: int) -> Any:
    calls = [0]
    found = [one for one in range(-3, 8) if 0 <= one < n <= 9 != one]
    inside = 0 < counted(calls, n) < 5 < counted(calls, 7)
    return found, inside, calls


def counted(calls: list[int], n: int) -> int:
    calls[0] += 1
    return n


def members(n: int) -> Any:
    items = [1, 4, n]
    kind = "big" if n > 3 else "small"
    return (
        n in (1, 2, 3),
        n not in [3, 4],
        n in items,
        n + 1 not in items,
        kind in ("big", "huge"),
        9 in items[:0],
    )


def changed(box: Box) -> Any:
    same = box
    same.count += 2
    box.items[-1] *= 3
    box.items[0] += box.items[-1]
    grid = [[0] * 3 for _ in range(2)]
    shared = [[0] * 2] * 2
    grid[1][2] -= 4
    shared[0][1] = 7
    box.found.extend(box.items)
    box.found.extend(box.found)
    box.found.insert(1, -5)
    box.found.insert(-1, -6)
    box.found.insert(99, -7)
    return box.count, box.items, box.found, grid, shared, 2 * [1, box.count], [3] * 0


def orders(items: list[int]) -> Any:
    kept = items
    other = items.copy()
    other.append(1)
    kept.append(2)
    return sorted(items), sum(items), max(items), min(items), items[::-1], other, items, sorted([2.5, 1, -1])


def effects(n: int) -> Any:
    found: list[int] = []
    a = noted(found, 1) + noted(found, 2) * noted(found, 3)
    b = [noted(found, 4), noted(found, 5)]
    b[noted(found, 0)] = noted(found, 6)
    c = (noted(found, n) > 2 and noted(found, 8)) or noted(found, 9)
    d = noted(found, 10) if n > 2 else noted(found, 11)
    e = (noted(found, 12), found.pop(), noted(found, 13))
    return a, b, c, d, e, found


def noted(found: list[int], one: int) -> int:
    found.append(one)
    return one


def rebound(n: int) -> Any:
    items = [1, 2, 3]
    before = items
    items = [*items, 4]
    first, second = items, before
    first, second = second, first
    first[0] = 9
    x = y = [n]
    x.append(1)
    total = 0
    for one in before:
        before = [0]
        total += one
    return items, first, second, x, y, total, before


def divided(n: int) -> Any:
    return (
        n // 3,
        n % 3,
        -n // 3,
        -n % 3,
        n / 4,
        (n * 1.0) // 3,
        (-n * 1.0) % 3,
        int(-n / 4),
        n**2,
        2.0**-n,
        -(2**2),
    )


def defaults(n: int) -> Any:
    return with_default(n), with_default(n, 2), with_default(n, c=9), with_default(c=1, a=n)


def with_default(a: int, b: int = 4, c: int | None = None) -> Any:
    return (a, b) if c is None else (a, b, c)


def early(items: list[int]) -> Any:
    for at, one in enumerate(items):
        for other in items[at + 1 :]:
            if other == one:
                return at, one
            if other > 50:
                break
        else_ = at
        while True:
            else_ += 1
            if else_ % 2:
                continue
            if else_ > 6:
                break
    return -1, else_


def values(n: int) -> Any:
    word = n or 7
    none = None
    other = none or (n and "yes")
    return word, other, not n, n and none, bool(n), n is None, none is None, (n or none) is not None


def points(n: int) -> Any:
    made = Point(n)
    other = Point(y=n, x=made.y)
    return made.x + other.y * other.x, made.y


def walrus(n: int) -> Any:
    found = []
    while (half := n // 2) > 0:
        found.append(half)
        n = half
    return found, (last := n) + last


def generated(items: list[int]) -> Any:
    return sum(x * x for x in items), max(x % 4 for x in items), list(x + 1 for x in items if x > 1)  # noqa: C400


def lists_in_lists(n: int) -> Any:
    rows = [[] for _ in range(n)]  # type: ignore[var-annotated]
    for at in range(n):
        rows[at].append(at)
        rows[0].append(-at)
    top = rows[-1]
    top.append(8)
    rows[-1] = [5]
    return rows, top, rows[-n], rows[0][-1], [one[0] for one in rows]


def together(items: list[int]) -> Any:
    made = [len(items)]
    a, b = dietcode.concurrent(plus(made, 1), plus(made, 2))
    return a, b, dietcode.map(plus_one, items)


def plus(made: list[int], n: int) -> int:
    return made[0] + n


def plus_one(n: int) -> int:
    return n + 1


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "scopes": (scopes, [[1, 2, 3], [4]]),
    "chains": (chains, [3, 8, 12]),
    "members": (members, [1, 3, 4, 7]),
    "changes": (changed, [Box([1, 2, 3]), Box([4], 1)]),
    "orders": (orders, [[3, 1, 2, 1], [5]]),
    "effects": (effects, [1, 5]),
    "names bound again": (rebound, [3]),
    "division": (divided, [7, -7, 6, 1]),
    "defaults": (defaults, [1]),
    "early ends": (early, [[1, 2, 1], [1, 60, 3], [4, 4], [7, 8]]),
    "values of and, or": (values, [0, 3]),
    "named tuples": (points, [2, 3]),
    "assignments in expressions": (walrus, [9, 1]),
    "generators": (generated, [[1, 2, 7], [5]]),
    "lists in lists": (lists_in_lists, [1, 3]),
    "side by side": (together, [[1, 2], [3]]),
}


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_python_does(name: str) -> None:
    function, given = CASES[name]
    wanted = [function(copied(one)) for one in given]
    found = compiled(function, given, [copied(one) for one in given])
    for own, right in zip(found, wanted, strict=True):
        assert not isinstance(own, Exception), own
        assert_same(own, right)


def whole_numbers(given: tuple[int, int]) -> Any:
    a, b = given
    found = [math.gcd(a, b), math.lcm(a, b), math.isqrt(abs(a)), math.isfinite(a / 2), max(a, *[b, 3])]
    try:
        found.append(math.factorial(a))
        found.append(math.comb(a, b))
    except ValueError as error:
        found.append(str(error))
    last = collections.deque((one for one in range(a, b)), maxlen=2)
    return found, list(last), collections.deque(one * 2 for one in given).popleft(), min(*given, 3, key=abs)


def test_what_math_has_of_whole_numbers() -> None:
    given = [(4, 6), (-4, 10), (7, 0), (0, 0), (12, 5), (3, -1), (20, 19), (0, 3)]
    assert compiled(whole_numbers, given[:3] + given[5:6], given) == list(map(whole_numbers, given))


def divisor(given: tuple[Any, Any]) -> int:
    return math.gcd(given[0], given[1])


def test_a_divisor_of_floats_fails() -> None:
    assert all(isinstance(one, InstanceError) for one in compiled(divisor, [(4, 6)], [(4.0, 6), (4, "6")]))


def lists_that_grow(edges: list[list[int]]) -> Any:
    queue, seen, order = [0], {0}, []
    for node in queue:
        order.append(node)
        for other in edges[node]:
            if other not in seen:
                seen.add(other)
                queue.append(other)
    left = [3, len(edges)]
    for one in left:
        if one > 0:
            left += [one - 1, one - 2]
    few = [node % 3 for node in order]
    for one in few:
        if one == 0:
            few.remove(one)
    return order, queue, left, few


def test_a_loop_goes_over_what_its_list_gets_and_loses() -> None:
    given = [[[1, 2], [2, 3], [0], [3]], [[]], [[2, 1], [], [4, 3], [0], [1]], [[1], [1, 0]]]
    assert compiled(lists_that_grow, given[:2], given) == list(map(lists_that_grow, given))


def keys_and_ranges(items: list[int]) -> Any:
    places = {one: at for at, one in enumerate(items)}
    own, others = set(items), {1, 2, 99}
    inside = [one in range(1, 4) for one in items], [one not in range(0, 9, 2) for one in items]
    return [*places, 7], inside, sorted(own ^ others), sorted(own.symmetric_difference([1, 1, 3, 4, 4]))


def test_keys_behind_stars_ranges_and_what_one_of_two_sets_has() -> None:
    given = [[3, 1, 2, 1], [5], [4, 4, 0, -1, 7, 2], [99]]
    assert compiled(keys_and_ranges, given[:2], given) == list(map(keys_and_ranges, given))


def ordered_keys(items: list[int]) -> Any:
    first: collections.OrderedDict[int, int] = collections.OrderedDict()
    for one in items:
        first[one] = first.pop(one, 0) + 1
    second = collections.OrderedDict((one, one * 2) for one in items)
    return list(first.items()), second.popitem(), list(second), len(collections.OrderedDict(second))


def test_ordered_dicts_are_dicts() -> None:
    given = [[3, 1, 2, 1], [5], [4, 4, 0, -1, 4, 2]]
    assert compiled(ordered_keys, given[:2], given) == list(map(ordered_keys, given))


def by_patterns(items: list[int]) -> Any:
    match items:
        case []:
            return "empty"
        case [0, *rest]:
            return "zero", rest
        case [first, *_, last] if first == last:
            return first
        case [*begin, 9]:
            return begin, "nine"
    return items


def test_a_pattern_takes_the_rest_of_a_list() -> None:
    given = [[], [0], [0, 3, 4], [5, 1, 5], [5, 9], [9], [1, 2]]
    assert compiled(by_patterns, given) == list(map(by_patterns, given))
