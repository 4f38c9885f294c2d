"""Exceptions, texts that are made, orders of objects, names of arguments, compiled: beside the functions."""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import pytest
from needs import of_extra
from program_runs import assert_same, compiled, form_of

from dietcode.errors import ModelError
from dietcode.programs.interpreter import InstanceError

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))


class LostError(Exception):
    """With a text alone."""


class UnexpectedError(LostError):
    """With fields of its own."""

    def __init__(self, token: int, place: int) -> None:
        super().__init__("unexpected")
        self.token, self.place = token, place


def classes_of_exceptions(tokens: list[int]) -> Any:
    def need(place: int) -> int:
        if place >= len(tokens):
            raise LostError("end")
        if tokens[place] > 5:
            raise UnexpectedError(tokens[place], place)
        return tokens[place]

    try:
        return need(0) + need(1)
    except UnexpectedError as error:
        return error.place, error.token, str(error)
    except LostError as error:
        return error.args[0], isinstance(error, UnexpectedError)


def what_the_machine_notices(items: list[int]) -> Any:
    found: list[Any] = []
    known = {1: 2}
    for one in items:
        try:
            found.append(items[one])
            found.append(10 // (one - 2))
            found.append(known[one])
        except (IndexError, ZeroDivisionError) as error:
            found.append(isinstance(error, IndexError))
        except KeyError:
            found.append("key")
        else:
            found.append("fine")
    try:
        while True:
            items.pop()
    except IndexError:
        found.append(len(items))
    return found


def variables_of_a_handler(items: list[int]) -> Any:
    """What was assigned before a line that throws is seen behind it, and nothing else."""
    total = 0
    for one in items:
        last = -1
        try:
            last = one
            last = items[one]
            last = items[last] + 100
            if one == 3:
                continue
        except IndexError:
            total += 1000
        total += last
    return total


def finally_in_order(items: list[int]) -> Any:
    log: list[Any] = []

    def step(one: int) -> Any:
        for _ in range(2):
            try:
                try:
                    if one == 1:
                        raise ValueError
                    if one == 2:
                        return "returned"
                    if one == 3:
                        break
                    if one == 4:
                        continue
                    log.append("body")
                finally:
                    log.append("inner")
                    if one == 5:
                        return "from finally"  # noqa: B012  (that is what it is for)
            except ValueError:
                log.append("caught")
                raise
            finally:
                log.append("outer")
        return "end"

    for one in items:
        try:
            log.append(step(one))
        except ValueError:
            log.append("thrown")
    return log


def thrown_again(n: int) -> Any:
    def first(k: int) -> int:
        if k > 2:
            raise RuntimeError("first") if k == 3 else KeyError(k)
        return k

    def second(k: int) -> int:
        try:
            return first(k)
        except RuntimeError as error:
            raise ValueError("second") from error
        except KeyError:
            if k == 4:
                raise
            return -k

    try:
        return second(n)
    except (ValueError, KeyError) as error:
        return "value" if isinstance(error, ValueError) else error.args[0]


def suppressed(items: list[int]) -> Any:
    found = 0
    for one in items:
        with contextlib.suppress(IndexError, ZeroDivisionError):
            found += items[one] // one
            found += 100
    return found


def checked(n: int) -> Any:
    try:
        assert n < 3, "large"
        return n
    except AssertionError:
        return -1


def uncaught(n: int) -> Any:
    try:
        if n == 1:
            raise KeyError("one")
        if n == 2:
            raise LostError(f"two of {n}")
    except KeyError:
        return 1
    return n


def raised_by_no_sample(n: int) -> Any:
    """What an exception says is its text, also where no sample raised it."""
    try:
        if n == 1:
            raise ValueError("one")
        if n == 2:
            raise ValueError(f"two: {n:03d}")
        if n == 3:
            raise ValueError(n)
    except ValueError as error:
        return error.args[0]
    return "none"


def deep(n: int) -> Any:
    def down(k: int) -> int:
        if k == n:
            raise LostError(k)
        return down(k + 1) + 1

    try:
        return down(0)
    except LostError as error:
        return error.args[0]


def texts(given: tuple[str, list[Any]]) -> Any:
    name, numbers = given
    keys: dict[str, int] = {}
    for at in range(len(numbers)):
        key = f"{name}:{at % 2}"
        keys[key] = keys.get(key, 0) + 1
    parts = [f"{one}|{at:03d}|{at:4d}|{at is None}" for at, one in enumerate(numbers)]
    fixed = [f"{float(one):.3f}|{float(one):9.2f}|{float(one):e}|{float(one):.0f}" for one in numbers]
    text = ""
    for one in numbers:
        text += str(one) + ","
    return keys, parts, fixed, text, "-".join(parts), name + "!" == "a!", sorted([name, "b", "é", ""])


def rounded(x: float) -> Any:
    return round(x, 1), round(x, 3), round(x)


@dataclass(order=True)
class Ranked:
    score: float
    name: str


@functools.total_ordering
class Cost:
    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: Any) -> bool:
        return self.value < other.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cost) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class Point(NamedTuple):
    x: int
    y: int


LETTERS = ["a", "b"]


def orders(items: list[int]) -> Any:
    ranked = sorted(Ranked(one % 3, LETTERS[one % 2]) for one in items)
    costs = [Cost(one) for one in items]
    heapq.heapify(costs)
    least = heapq.heappop(costs)
    other = Cost(items[0])
    points = sorted([Point(one % 2, one) for one in items], reverse=True)
    both = (least <= other, least > other, least >= other, least == other, least != other)
    pairs = [(one.x, one.y) for one in [*points, min(points)]]
    return [(one.score, one.name) for one in ranked], least.value, both, pairs, max(ranked).name


def options(n: int) -> Any:
    def inner(x: int, *, scale: int = 1, **more: int) -> Any:
        return x * scale, more.get("bias", 0), len(more), sorted(more)

    def outer(*args: int, **named: int) -> Any:
        return inner(*args, **named)

    known = {"scale": n, "bias": 4}
    return inner(n), inner(n, bias=2), outer(n, scale=3, bias=1), inner(1, **known), inner(2, **{"scale": n})


class Colour(Enum):
    RED = 1
    BLUE = 2


class Action(IntEnum):
    STOP = 0
    GO = 1


def members(n: int) -> Any:
    try:
        action = Action(n)
    except ValueError:
        return "none"
    colour = Colour.RED if action is Action.GO else Colour(2)
    return colour.name, colour.value, action.value + 1, isinstance(n, int | float), isinstance(n, (str, list))


TABLE = [lambda one: one + 1, lambda one: one * 2, lambda one: -one]


def functions_of_a_table(n: int) -> Any:
    return TABLE[n % 3](n), [function(n) for function in TABLE[:1]] if n < 0 else n


def columns(items: list[int]) -> Any:
    longest = list(itertools.zip_longest(items, items[1:], fillvalue=-1))
    return longest, list(itertools.pairwise(items)), list(itertools.product(items[:2], items[:2]))


class Base:
    def __init__(self, value: int) -> None:
        super().__init__()
        self.value = value

    def found(self, more: int = 1) -> int:
        return self.value + more


class Derived(Base):
    def __init__(self, value: int) -> None:
        super().__init__(value * 2)
        self.other = 3

    def found(self, more: int = 1) -> int:
        return super().found(more=more * 10) + self.other


def parents(n: int) -> Any:
    return Derived(n).found(), Base(n).found(2), [one.found() for one in (Base(1), Derived(2))]


def names_of_inner_functions(n: int) -> Any:
    h = n

    def outer(x: int) -> int:
        def inner(h: int) -> int:
            return h * 2

        return inner(x) + inner(3)

    return outer(h)


WORDS: list[Any] = [[], [0], [1, 2], [3, 1, 0, 9], [2, 4, 4, 1, 5], [5, 3, 1, 2]]
NUMBERS = [0.1, 1.0, -2.5, 1 / 3, 1e16, 123456789.125, 1e-5, 0.0001, -0.0, 2.5e-300, 7, True]
CASES: dict[str, tuple[Callable[..., Any], list[Any], list[Any]]] = {
    "classes of exceptions": (classes_of_exceptions, [[1, 2], [1], [1, 9], [8]], [[], [5, 5, 5], [2, 7]]),
    "what the machine notices": (what_the_machine_notices, WORDS, [[1, 1, 1], [-9, 2]]),
    "variables of a handler": (variables_of_a_handler, WORDS, [[0, 0, 3], [9]]),
    "finally, in order": (finally_in_order, [[0, 1, 2, 3, 4, 5]], WORDS),
    "thrown again": (thrown_again, list(range(6)), [7, 9]),
    "suppressed": (suppressed, WORDS[1:], [[0, 0], [3, 1, 1, 2]]),
    "assertions": (checked, [1, 5], [2, 3]),
    "uncaught": (uncaught, [0, 1], [2, 3, 1]),
    "raised by no sample": (raised_by_no_sample, [0, 1], [2, 3]),
    "through many calls": (deep, [3], [200]),
    "texts": (texts, [("a", NUMBERS)], [("né", NUMBERS[:3]), ("", [5])]),
    "rounded": (rounded, [0.25], [0.35, 2.675, -1.0005, 1e20, 0.0]),
    "orders": (orders, WORDS[2:], [[4, 4, 4]]),
    "options": (options, [2], [3, 0]),
    "members of Enums": (members, [0, 1, 4], [1, -1]),
    "functions of a table": (functions_of_a_table, [3, 4, 5], [7]),
    "columns": (columns, WORDS[2:], [[1]]),
    "parents": (parents, [1], [4]),
    "names of inner functions": (names_of_inner_functions, [1], [5]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_what_it_gives_in_python(name: str) -> None:
    function, samples, further = CASES[name]
    given = [*samples, *further]
    for one, found in zip(given, compiled(function, samples, _copied(given)), strict=True):
        try:
            wanted = function(*_copied([one]))
        except LostError as error:
            assert isinstance(found, InstanceError)
            assert str(found).split(":")[0] == "test_exceptions.py"
            assert str(found).endswith(f"LostError: {error}")
            continue
        assert_same(found, wanted)


def test_a_program_without_try_keeps_its_exceptions_as_texts() -> None:
    """Nothing takes them, so that an older machine runs it, too."""

    def program(n: int) -> int:
        if n > 3:
            raise ValueError("large")
        return n

    form = form_of(program, [1])
    words = {one[0] for function in form["functions"] for one in function["code"]}
    assert "raise" in words
    assert "throw" not in words
    assert not any("handlers" in one for one in form["functions"])


def test_a_function_that_is_a_value_and_reads_what_changes_is_refused() -> None:
    """It would have the variable as it was when it was made; Python has it as it is."""

    def program(n: int) -> int:
        found = []
        for k in range(n):
            found.append(lambda one: one + k)  # noqa: B023  (which is refused)
        return found[0](1)

    with pytest.raises(ModelError, match=r"is a value, and reads k, which is assigned anew; give it as an"):
        form_of(program, [2])


def _copied(given: list[Any]) -> list[Any]:
    return [list(one) if isinstance(one, list) else one for one in given]
