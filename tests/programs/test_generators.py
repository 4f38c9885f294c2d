"""Generators in programs: they are lists of what they yield, beside what Python gives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from needs import of_extra
from program_runs import assert_same, compiled

import dietcode
from dietcode.errors import ModelError
from dietcode.programs import evaluated_methods
from dietcode.programs.recording import Recording, copied

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))


@dataclass
class Node:
    word: int
    below: list[Node] = field(default_factory=list)


def leaves(node: Node) -> Iterator[int]:
    if not node.below:
        yield node.word
    for one in node.below:
        yield from leaves(one)


def until(items: list[int], last: int) -> Iterator[tuple[int, int]]:
    for at, one in enumerate(items):
        if one == last:
            return
        yield at, one


def counted_down(n: int) -> Iterator[int]:
    while True:
        if n < 0:
            break
        yield n
        n -= 1


def words(tree: Node) -> Any:
    found = []
    for word in leaves(tree):
        if word > 7:
            break
        found.append(word)
    return found, list(leaves(tree)), sum(leaves(tree))


def pairs(items: list[int]) -> Any:
    found = {one: at for at, one in until(items, 3)}
    return list(found), max(at + one for at, one in until([1, 2], 3)), list(counted_down(len(items)))


def within(items: list[int]) -> Any:
    most = len(items)

    def larger() -> Iterator[int]:
        for one in items:
            if one <= most:
                continue
            yield one + most

    return [one * 2 for one in larger()], most


def looped(items: list[int]) -> Any:
    total = 0
    for one in (one * one for one in items if one > 1):
        total += one
    both = [a - b for a, b in zip((a + 1 for a in items), (b * 2 for b in items), strict=True)]
    with contextlib.nullcontext():
        some = next((one for one in items if one > 4), -1)
    return total, both, some, next(one for one in items), [k for k, _ in enumerate(x for x in items)]


def in_vain(items: list[int]) -> int:
    return next(one for one in items if one > 4)


TREES = [Node(3), Node(0, [Node(1), Node(0, [Node(2), Node(9)]), Node(4)])]


def checked(n: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return n


def until_decided(items: list[int]) -> Any:
    """What is behind the item that decides is not computed, so it cannot raise."""
    try:
        first = next(checked(one) for one in items if one != 3)
        mapped, kept = next(map(checked, items)), next(filter(checked, items), -7)
        return first, mapped, kept, any(checked(one) > 2 for one in items), all(map(checked, items))
    except ValueError:
        return "negative"
    except StopIteration:
        return "nothing"


def taken_between(items: list[int]) -> Any:
    """What a round of a loop does comes before the next item."""
    total = 0
    try:
        for one in (10 // one for one in items):
            total += one
    except ZeroDivisionError:
        total += 1000
    try:
        for at, one in enumerate(map(checked, items), 5):
            total += at * one
    except ValueError:
        total *= 2
    for at, one in enumerate(one * other for one in items for other in (1, 2) if one != other):
        if one == 4:
            break
        if one == 6:
            continue
        total += at * one
    else:
        total += 7
    try:
        return total, [one + 1 for one in (10 // two for two in map(checked, items) if two != 2)]
    except (ValueError, ZeroDivisionError):
        return total


def nothing_next(items: list[int]) -> Any:
    found = next(iter(items), None), next((one for one in items if one > 4), "none"), next(leaves(Node(3)))
    try:
        return found, next(iter(items)), next(larger_than(items, 0))
    except StopIteration as error:
        return found, error.args


def larger_than(items: list[int], least: int) -> Iterator[int]:
    for one in items:
        if one > least:
            yield one


def shadowed(items: list[int]) -> Any:
    one = 3
    found = [one for one in (one + other for other in items)]  # noqa: C416
    for one in (one * other for other in items):
        found.append(one)
    return found, one


def parsed(items: list[int]) -> Iterator[int]:
    for one in items:
        if one == 0:
            raise ValueError("zero")
        yield 10 // one


def whole(items: list[int]) -> Any:
    """All values are there before any of them is used, so exceptions come in Python's order."""
    try:
        return sum(parsed(items)), list(parsed(items)), sorted(parsed(items)), max(parsed(items))
    except ValueError:
        return -1


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "yield from": (words, TREES),
    "return, and loops that end": (pairs, [[1, 2, 3, 4], [5], [3]]),
    "within a function": (within, [[1, 2, 7, 9], [0], [3]]),
    "expressions that loops go over": (looped, [[1, 2, 7, 5], [3]]),
    "what decides": (until_decided, [[1, 2], [4, -1], [-1], [3], [], [1, -1], [0, 0]]),
    "exceptions between rounds": (taken_between, [[1, 2, 5], [0, 1], [3, 0, 2], [2, 2], [1, -1]]),
    "nothing that comes next": (nothing_next, [[], [0], [2, 5]]),
    "names of outer variables": (shadowed, [[1, 2], [4]]),
    "all values at once": (whole, [[1, 2], [3, 0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_python_yields(name: str) -> None:
    function, given = CASES[name]
    wanted = [function(copied(one)) for one in given]
    for own, right in zip(compiled(function, given, [copied(one) for one in given]), wanted, strict=True):
        assert not isinstance(own, Exception), own
        assert_same(own, right)


def taken_early(items: list[int]) -> Any:
    total = 0
    try:
        for one in parsed(items):
            total += one
    except ValueError:
        total += 100
    return total


def taken_early_of_a_pair(items: list[int]) -> Any:
    total = 0
    try:
        for one, other in zip((10 // one for one in items), items):  # noqa: B905
            total += one * other
    except ZeroDivisionError:
        total += 100
    return total


def taken_by_the_caller(items: list[int]) -> Any:
    def summed() -> int:
        total = 0
        for one in parsed(items):
            if one > 3:
                break
            total += one
        return total

    try:
        return summed()
    except Exception:
        return -1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (taken_early, "parsed may raise ValueError, which the program takes: a generator runs to its end"),
        (taken_early_of_a_pair, r"10 // .* may raise ZeroDivisionError, which the program takes"),
        (taken_by_the_caller, "parsed may raise (ValueError|ZeroDivisionError), which the program takes"),
    ],
)
def test_a_generator_whose_exceptions_would_come_too_early_is_refused(function: Any, words: str) -> None:
    with pytest.raises(ModelError, match=rf"test_generators\.py:\d+: {words}"):
        compiled(function, [[1, 2], [4, 5]])


def test_an_instance_fails_where_nothing_comes_next() -> None:
    found, failed = compiled(in_vain, [[1, 7]], [[5], [1]])
    assert found == 5 and isinstance(failed, Exception)


def endless(n: int) -> Iterator[int]:
    while True:
        yield n
        for _ in range(3):
            break
        n += 1


def answered(n: int) -> Any:
    given = yield n
    yield given


def with_a_value(n: int) -> Any:
    yield n
    return n


@pytest.mark.parametrize("generator", [endless, answered, with_a_value], ids=lambda one: one.__name__)
def test_what_does_not_end_or_has_a_value_is_refused(generator: Any) -> None:
    def first(n: int) -> Any:
        for one in generator(n):
            return one
        return 0

    with pytest.raises(
        ModelError, match=r"test_generators\.py:\d+: yield .*that ends by itself and returns no"
    ):
        Recording(first).run([1])


def counting(n: int) -> Iterator[int]:
    while n > 0:
        yield n
        n += 1


def test_one_that_goes_on_in_a_sample_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluated_methods, "MOST", 50)

    def numbered(items: list[int]) -> Any:
        return [(at, one) for at, one in zip(counting(1), items)]  # noqa: B905

    with pytest.raises(
        ModelError, match=r"test_generators\.py:\d+: yields more than 50 values: a generator runs"
    ):
        Recording(numbered).run([[1, 2]])


def test_a_program_is_no_generator() -> None:
    with pytest.raises(ModelError, match="program: leaves is a generator; allowed: a function that returns"):
        dietcode.program(leaves)

    async def later(n: int) -> int:
        return n

    with pytest.raises(ModelError, match="program: later is a coroutine"):
        dietcode.program(later)
