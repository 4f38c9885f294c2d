"""Functions as values, iterators and loops over generators in programs, compiled: as Python has them."""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from needs import of_extra
from program_runs import assert_same, compiled

from dietcode.programs.recording import copied

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))


def counters(items: list[int]) -> Any:
    def counter() -> Callable[..., int]:
        count = 0

        def more(by: int = 1) -> int:
            nonlocal count
            count += by
            return count

        return more

    first, second = counter(), counter()
    for one in items:
        first(one)
        second()
    order = sorted(items, key=partial(operator.mul, -1)), max(items, key=lambda one: (one % 3, one))
    return first(), second(2), order


def composed(items: list[int]) -> Any:
    def twice(function: Callable[[int], int], one: int) -> int:
        return function(function(one))

    def compose(*functions: Callable[[int], int]) -> Callable[[int], int]:
        def run(one: int) -> int:
            for function in functions:
                one = function(one)
            return one

        return run

    def adding(k: int) -> Callable[[int], int]:
        return lambda one: one + k

    whole = compose(adding(1), adding(10), lambda one: one * 2)
    return [twice(adding(one), one) for one in items], [whole(one) for one in items]


def tables(items: list[int]) -> Any:
    table = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": operator.mul}
    order, found = ["add", "sub", "mul"], 1
    for at, one in enumerate(items):
        found = table[order[at % 3]](found, one)
    least = [partial(max, one) for one in items]
    chosen = max if len(items) > 2 else min
    return found, [own(3) for own in least], chosen(items[0], 3)


def taken_in_turns(items: list[int]) -> Any:
    def down(n: int) -> Iterator[int]:
        if n > 0:
            yield n
            yield from down(n - 1)

    found = []
    for one in down(len(items)):
        for other in (other for other in items if other > one):
            found.append((one, other))
            break
    stream, pairs = iter(items), []
    for one in stream:
        pairs.append((one, next(stream, None)))
    if any((large := one) > 3 for one in items):
        return found, pairs, large
    return found, pairs, [one for one in map(lambda a, b: a * b, items, items[1:]) if one != 2]


def everyday(items: list[int]) -> Any:
    counts: dict[int, int] = {}
    for one in items:
        counts[one] = counts.get(one, 0) + 1
    heap: list[tuple[int, str]] = []
    for one in items:
        heapq.heappush(heap, (one % 2, f"{one}"))
    last: collections.deque[int] = collections.deque(maxlen=2)
    steps, windows = 0, []
    for one in items:
        last.append(one)
        windows.append(list(last))
        for other in range(one, 0, -len(items)):
            steps += other
        for at, other in enumerate(range(0, one, len(items))):
            steps += at * other
    hashed = functools.reduce(lambda a, b: (a * 31 + b) % 1009, items, 7)
    best = max(counts, key=counts.get)  # type: ignore[arg-type]
    return best, [heapq.heappop(heap) for _ in range(len(heap))], windows, steps, hashed


def by_numbers(items: list[int]) -> Any:
    numbers, found = itertools.count(10, -2), []
    for at in itertools.count():
        if at >= len(items):
            break
        found.append((next(numbers), items[at]))
    groups = [(key, list(own)) for key, own in itertools.groupby(items, key=lambda one: one % 2)]
    sums = list(itertools.accumulate(items, operator.mul, initial=2)), list(itertools.accumulate(items))
    return found, groups, sums, [*itertools.repeat(3, 2), *range(len(items))]


def iterators_beside_others(items: list[int]) -> Any:
    """What one has given is gone, also where the one beside it has nothing left."""
    own, found = iter(items), []
    for one, at in zip(own, range(2), strict=False):
        found.append((one, at))
    for at, one in enumerate(own, 5):
        found.append((at, one + next(own, 0)))
    pairs, rest = list(zip(*[iter(items)] * 2, strict=False)), iter(items)
    both = [(one, at, other) for one, (at, other) in zip(rest, enumerate(rest), strict=False)]
    numbers = itertools.count(3)
    known = dict(zip(items, numbers, strict=False)), next(numbers), [a * b for a, b in pairs], both
    first = [one for _, one in zip(range(1), rest, strict=False)]
    letters = iter("".join(map(str, items)))
    return found, known, first, next(letters, "-"), list(letters), max(zip(iter(items), items, strict=False))


def defaults_of_functions_within(items: list[int]) -> Any:
    log: list[int] = []

    def noted(one: int) -> int:
        log.append(one)
        return one

    def near(one: int, n: int = len(items), *, k: int = noted(sum(items))) -> int:
        return one + n + k

    def kept(one: int, seen: list[int] = [], counts: dict[int, int] = {}) -> int:  # noqa: B006
        seen.append(one)
        counts[one] = counts.get(one, 0) + 1
        return len(seen) * 100 + len(counts)

    def down(n: int, least: int = min(items)) -> int:
        return least if n <= 0 else n + down(n - 1)

    made = []
    for one in items:

        def beside(other: int, one: int = one) -> int:
            return other * 10 + one

        made.append(beside)
    first = [near(one) for one in items], near(1, 2), near(1, k=3), near(n=9, one=1), list(map(near, items))
    counts = [kept(one) for one in items], kept(1, [7, 8]), kept(1)
    return first, counts, down(3), down(2, 100), [f(1) for f in made], [f(1, 2) for f in made], log


def defaults_that_are_computed(items: list[int]) -> Any:
    several = [lambda one, k=k: one + k for k in range(3)]
    for k in items:
        several.append(lambda one, by=2, k=k: one * by + k)
    count = 1
    kept = lambda one, count=count: one + count  # noqa: E731
    count = 5
    shadowed = [list(map(lambda one: one - 1, [one, 7])) for one in items]  # noqa: C417
    return [own(items[0]) for own in several], several[-1](1, by=7), kept(count), several[0](1, k=9), shadowed


class Sized:
    def __init__(self, items: list[int]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)


class Opened:
    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return self.number > 1


def truths_of_objects(items: list[int]) -> Any:
    stack, found = Sized(items), []
    while stack:
        found.append(stack.items.pop())
    for one in items:
        own = Opened(one) if one % 2 else Sized([7] * (one % 3)) if one else None
        other = own or Opened(9)
        found += [1 if own else 2, bool(own), isinstance(other, Opened), not own, bool(own and one > 1)]
        if (own and one > 2) or not Sized([]):
            found.append(len(other))
    some = any(Opened(one) for one in items), all(list(map(Opened, items))), bool(stack)
    return found, some, [one for one in items if Opened(one)], bool(items), bool(items[0] if items else "")


def taken_apart(items: list[int]) -> Any:
    found: list[Any] = []
    for own in ([items], [items, *items], items):
        try:
            left, right = own
            found.append((left, right))
        except ValueError:
            found.append("other than two")
        try:
            first, *rest = items[: len(own)]
            found.append((first, rest))
        except ValueError as error:
            found.append(str(error))
    return found


ITEMS = [[1, 2, 3], [9, 4], [5], [2, 2, 7, 8, 1]]
CASES = (
    *(counters, composed, tables, taken_in_turns, everyday, by_numbers),
    *(iterators_beside_others, truths_of_objects, taken_apart, defaults_that_are_computed),
    defaults_of_functions_within,
)


@pytest.mark.parametrize("function", CASES, ids=lambda one: one.__name__)
def test_what_python_gives(function: Any) -> None:
    found = compiled(function, [copied(one) for one in ITEMS[:4]], [copied(one) for one in ITEMS[::-1]])
    for own, one in zip(found, ITEMS[::-1], strict=True):
        assert not isinstance(own, Exception), own
        assert_same(own, function(copied(one)))


def test_an_instance_whose_function_no_sample_called_fails() -> None:
    def program(n: int) -> Any:
        several = [lambda one: one + 1, lambda one: one * 2]
        return several[n](5)

    found, failed = compiled(program, [1], [1, 0])
    assert found == 10
    assert str(failed).endswith("TypeError: no sample called such a function here; give samples that do")
