"""Extents: arithmetic, texts, bounds and simplification agree with whole numbers."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietcode.graph.extent import (
    Extent,
    floor_divide,
    larger,
    parse_extent,
    remainder,
    simplified,
    smaller,
)

RANGES = {"L": (1, 40), "B": (1, 5), "M": (0, 9)}
BINDINGS = st.fixed_dictionaries({name: st.integers(*bounds) for name, bounds in RANGES.items()})
Number = Callable[[dict[str, int]], int]
# An extent beside the function of plain numbers that it has to be.
Pair = tuple[Extent, Number]


def _leaf(value: int | str) -> Pair:
    if isinstance(value, int):
        return Extent.of(value), lambda binding: value
    return Extent.of(value), lambda binding: binding[value]


def _both(
    first: Pair,
    second: Pair,
    symbolic: Callable[[Extent, Extent], Extent],
    plain: Callable[[int, int], int],
) -> Pair:
    return symbolic(first[0], second[0]), lambda binding: plain(first[1](binding), second[1](binding))


def _positive(pair: Pair, by: int) -> Pair:
    """Return a divisor: a dimension's square and a number above 0."""
    square = _both(pair, pair, operator.mul, operator.mul)
    return _both(square, _leaf(by), operator.add, operator.add)


def _grown(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    simple = {
        "add": (operator.add, operator.add),
        "sub": (operator.sub, operator.sub),
        "mul": (operator.mul, operator.mul),
        "min": (smaller, min),
        "max": (larger, max),
    }
    divisors = st.one_of(
        st.integers(1, 6).map(_leaf),
        st.tuples(st.sampled_from(list(RANGES)).map(_leaf), st.integers(1, 3)).map(
            lambda two: _positive(*two)
        ),
    )
    return st.one_of(
        st.tuples(inner, inner, st.sampled_from(list(simple.values()))).map(
            lambda three: _both(three[0], three[1], *three[2])
        ),
        st.tuples(inner, divisors).map(lambda two: _both(*two, floor_divide, operator.floordiv)),
        st.tuples(inner, divisors).map(lambda two: _both(*two, remainder, operator.mod)),
    )


LEAVES = st.one_of(st.integers(-9, 9), st.sampled_from(list(RANGES))).map(_leaf)
PAIRS = st.recursive(LEAVES, _grown, max_leaves=6)


@given(pair=PAIRS, binding=BINDINGS)
def test_arithmetic(pair: Pair, binding: dict[str, int]) -> None:
    assert pair[0].evaluate(binding) == pair[1](binding)


@given(pair=PAIRS, binding=BINDINGS)
def test_text_is_read_back(pair: Pair, binding: dict[str, int]) -> None:
    extent = pair[0]
    if len(str(extent)) <= 400:
        read = parse_extent(str(extent))
        assert read == extent and str(read) == str(extent)


@given(pair=PAIRS, binding=BINDINGS)
def test_bounds_enclose(pair: Pair, binding: dict[str, int]) -> None:
    low, high = pair[0].bounds(RANGES)
    assert low <= pair[1](binding) <= high


@given(pair=PAIRS, binding=BINDINGS)
def test_simplification_keeps_the_value(pair: Pair, binding: dict[str, int]) -> None:
    assert simplified(pair[0], RANGES).evaluate(binding) == pair[1](binding)


@given(first=PAIRS, second=PAIRS)
def test_equal_sums_are_equal(first: Pair, second: Pair) -> None:
    assert first[0] + second[0] == second[0] + first[0]
    assert (first[0] + second[0]) - second[0] == first[0]
    assert first[0] * second[0] == second[0] * first[0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("min(L, 40)", "L"),
        ("max(L, 1)", "L"),
        ("min(L, 128)", "L"),
        ("max(L - 40, 0)", "0"),
        ("L//64", "0"),
        ("L % 64", "L"),
        ("min(L, 12)", "min(12, L)"),
        ("(min(L, 40) + B)*2", "2*B + 2*L"),
        ("(8*L)//8", "L"),
        ("(L*B)//L", "B"),
        ("(L*B + L)//(B + 1)", "L"),
        ("(2*L + 3)//2", "L + 1"),
        ("(L + 1)//2", "((L + 1)//(2))"),
        ("(L//5)//2", "((L)//(10))"),
        ("((L - 10)//5 + 1)//2", "((L + 5)//(10)) - 1"),
        ("(L - 30)//20 + 1", "((L + 10)//(20)) - 1"),
        ("(L//2 + 2*B)//2", "((L)//(4)) + B"),
        ("(L//2 + 2*B + 5)//2", "((L + 2)//(4)) + B + 2"),
        ("(2*(L//5))//3", "((2*((L)//(5)))//(3))"),
        ("max(min(L, 128), L)", "L"),
    ],
)
def test_simplification(text: str, wanted: str) -> None:
    assert str(simplified(parse_extent(text), RANGES)) == wanted


def test_a_quotient_and_its_numerator_move_together() -> None:
    assert parse_extent("7*((L + 6)//7) - L").bounds(RANGES) == (0, 6)
    assert parse_extent("L - 4*(L//4)").bounds(RANGES) == (0, 3)
    assert parse_extent("2*L - 6*(L//3) + 1").bounds(RANGES) == (1, 5)
    assert parse_extent("L//2 - 2*(L//4)").bounds(RANGES) == (0, 1)
    assert parse_extent("(L + 1)//2 - 3*((L + 3)//6)").bounds(RANGES) == (-1, 1)


def test_constants() -> None:
    assert parse_extent("3*4 - 2").constant == 10
    assert Extent.of(0) == Extent() and Extent().constant == 0 and str(Extent()) == "0"
    assert parse_extent("L - L").is_constant
    with pytest.raises(ValueError, match="L is no constant"):
        _ = parse_extent("L").constant


@pytest.mark.parametrize(
    ("given_", "problem"),
    [
        ("L**2", "allowed: names, numbers"),
        ("L/2", "allowed: names, numbers"),
        ("print(L)", "allowed: names, numbers"),
        ("__import__('os').system('x')", "allowed: names, numbers"),
        ("L if B else M", "allowed: names, numbers"),
        ("min(L)", "allowed: names, numbers"),
        ("L +", "allowed: names, numbers"),
        ("1.5", "allowed: names, numbers"),
        ("True", "allowed: names, numbers"),
        ("", "allowed: names, numbers"),
        ("L + " * 100 + "L", "400 characters"),
        ("Ł", "400 characters"),
        (2**70, r"2\*\*62"),
        (f"{2**62}*{2**62}", r"2\*\*62"),
        (True, "a number or"),
        (None, "a number or"),
        ([1], "a number or"),
        ("L//0", "divided by 0"),
        ("L % (B - B)", "divided by 0"),
    ],
)
def test_refusals(given_: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_extent(given_)


def test_no_text_grows_without_end() -> None:
    """A sum of two quotients of itself doubles with each step."""
    extent = Extent.of("L")
    with pytest.raises(ValueError, match="256 quotients"):
        for _ in range(60):
            extent = floor_divide(extent + 1, Extent.of(2)) * 5 + floor_divide(extent + 1, Extent.of(3))


def _calls_to_read(depth: int) -> int:
    """Calls of Python's functions while quotients of quotients are read, so many within each other."""
    text = "(" * depth + "L" + "+M)//2" * depth
    return _calls(lambda: parse_extent(text))


def _calls(work: Callable[[], object]) -> int:
    """Calls of Python's functions in some work."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_nested_quotients_take_time_in_proportion_to_their_text() -> None:
    """A graph of a stranger may hold thousands of such texts: each inner one is written and hashed once."""
    assert _calls_to_read(56) < 3 * _calls_to_read(28)


def test_bounds_of_nested_quotients_take_time_in_proportion_to_a_power_of_their_depth() -> None:
    """Each quotient here moves with its numerator, so that both are asked for: twice at each level before."""

    def nested(depth: int) -> Extent:
        text = "L"
        for level in range(depth):
            divisor = 2 + level % 2
            text = f"{divisor}*(({text}+M)//{divisor})"
        return parse_extent(text)

    ranges = {"L": (1, 99), "M": (1, 99)}
    few, many = nested(6), nested(12)
    assert many.bounds(ranges)[1] <= 99 + 12 * 99
    assert _calls(lambda: nested(12).bounds(ranges)) < 16 * _calls(lambda: nested(6).bounds(ranges))
    assert few.bounds(ranges)[0] <= few.evaluate({"L": 1, "M": 1}) <= few.bounds(ranges)[1]


def test_bounds_compare_no_quotients_of_different_dimensions() -> None:
    """Of a sum of many quotients there are many pairs, and each took a division."""
    names = [f"d{number}" for number in range(24)]
    ranges = dict.fromkeys(names, (1, 99))

    def calls(count: int) -> int:
        terms = [f"{64 >> number % 6}*({name}//{2 << number % 6})" for number, name in enumerate(names)]
        extent = parse_extent(" + ".join(terms[:count]))
        return _calls(lambda: extent.bounds(ranges))

    assert calls(24) < 6 * calls(8)
