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
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "yield from": (words, TREES),
    "return, and loops that end": (pairs, [[1, 2, 3, 4], [5], [3]]),
    "within a function": (within, [[1, 2, 7, 9], [0], [3]]),
    "expressions that loops go over": (looped, [[1, 2, 7, 5], [3]]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_python_yields(name: str) -> None:
    function, given = CASES[name]
    wanted = [function(copied(one)) for one in given]
    for own, right in zip(compiled(function, given, [copied(one) for one in given]), wanted, strict=True):
        assert not isinstance(own, Exception), own
        assert_same(own, right)


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
