"""Numbers, lists and objects in programs are as in Python; what Python refuses ends an instance."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hand_programs import (
    FIRST,
    HALF,
    JOIN,
    LAST,
    NONE,
    ONE,
    OTHER,
    TWO,
    WRONG,
    ZERO,
    Tree,
    computed,
    function,
    leaf,
    load,
    weights,
)

from dietcode.errors import ProgramError, TensorError
from dietcode.runtime.programs.results import ResultDecoder

NUMBERS = [
    *(
        0,
        1,
        -1,
        2,
        3,
        -3,
        7,
        10,
        -10,
        63,
        2**31,
        2**53 + 1,
        2**62,
        -(2**62),
        2**63 - 1,
        -(2**63),
        True,
        False,
    ),
    *(0.0, -0.0, 0.5, -0.5, 1.0, 3.0, -2.5, 1e300, -1e300, 2.0**53, 9.3e18, math.inf, -math.inf, math.nan),
]
PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "**": operator.pow, "min": min, "max": max, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
SINGLE: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "not": operator.not_, "abs": abs, "int": int, "float": float, "bool": bool,
}  # fmt: skip


def in_python(compute: Callable[..., Any], *given: Any) -> Any:
    """What Python gives; its name where it refuses, or where the result is no number of 64 bits."""
    try:
        found = compute(*given)
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        return type(error).__name__
    if isinstance(found, complex):
        return "ValueError"
    if type(found) is int and not -(2**63) <= found < 2**63:
        return "OverflowError"
    return found


def name_of(error: ProgramError) -> str:
    said = str(error)
    kinds = {"by zero": "ZeroDivisionError", "64 bits": "OverflowError", "no real": "ValueError"}
    return next(name for words, name in kinds.items() if words in said)


def alike(own: Any, right: Any) -> bool:
    if isinstance(own, ProgramError):
        # An infinite number as a whole one overflows in Python; here neither has a whole number.
        return isinstance(right, str) and (name_of(own) == right or "no real" in str(own))
    if type(own) is not type(right):
        return False
    if isinstance(right, float) and math.isnan(right):
        return math.isnan(own)
    return bool(own == right) and math.copysign(1, own) == math.copysign(1, right)


@pytest.mark.parametrize("sign", PYTHON)
def test_two_numbers(sign: str) -> None:
    program = load(function("f", 2, [["binary", 2, sign, 0, 1], ["return", 2]]))
    pairs = [(a, b) for a, b in itertools.product(NUMBERS, NUMBERS)
             if not (sign == "**" and type(a) is int and abs(b) > 100)]  # fmt: skip
    if sign == "/":  # whole numbers that no float has are rounded first
        pairs = [(a, b) for a, b in pairs if all(type(x) is float or abs(x) < 2**53 for x in (a, b))]
    results = program(pairs, errors="return")
    wrong = [(pair, own, right) for pair, own in zip(pairs, results, strict=True)
             if not alike(own, right := in_python(PYTHON[sign], *pair))]  # fmt: skip
    assert wrong == []


def test_a_key_among_others() -> None:
    program = load(function("f", 2, [["binary", 2, "find", 0, 1], ["return", 2]]))
    keys = [
        None,
        False,
        True,
        0,
        1,
        2,
        -1,
        2**62,
        "",
        "a",
        "b",
        (),
        (1,),
        (1, "a"),
        (1, (None, "b")),
        (True, 2),
    ]
    draw = random.Random(2)
    pairs = [(draw.sample(keys, draw.randrange(len(keys))), draw.choice(keys)) for _ in range(300)]
    pairs += [([1.0, 0.0, 2.5], 1), ([[1], 1], 1), ([(1.0, "a")], (1, "a"))]
    right = [next((at for at, one in enumerate(items) if one == key), -1) for items, key in pairs]
    assert program(pairs) == right
    assert min(right) == -1 and max(right) > 0
    unfit = [([1.0], 1.0), ([1], [1]), ([1], (1, 2.0)), ((1,), 1), (1, 1)]
    for one in program(unfit, errors="return"):
        assert isinstance(one, ProgramError)
        assert "as a key of a dict; allowed: whole numbers" in str(one)


@pytest.mark.parametrize("word", SINGLE)
def test_one_number(word: str) -> None:
    program = load(function("f", 1, [["unary", 1, word, 0], ["return", 1]]))
    results = program(NUMBERS, errors="return")
    wrong = [(one, own) for one, own in zip(NUMBERS, results, strict=True)
             if not alike(own, in_python(SINGLE[word], one))]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    ("given", "truth"),
    [(None, False), ([], False), ([0], True), ((), False), ((None,), True), (0.0, False), (leaf(0), True)],
)
def test_truth(given: Any, truth: bool) -> None:
    code = [["else", 0, 3], ["const", 1, ONE], ["return", 1], ["const", 1, ZERO], ["return", 1]]
    assert computed(1, *code)(given) == truth


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ([1, (2.0, None)], [1.0, (2, None)], True),
        ([1, 2], [1], False),
        ([1], (1,), False),
        ("wrong", "wrong", True),
        ("wrong", "never seen", False),
        ("never seen", "never seen", True),
        ("1", 1, False),
        (None, None, True),
        (None, False, False),
    ],
)
def test_what_is_equal(first: Any, second: Any, equal: bool) -> None:
    compare = [["binary", 2, "==", 0, 1], ["binary", 3, "!=", 0, 1], ["tuple", 4, [2, 3]], ["return", 4]]
    assert computed(2, *compare)(first, second) == (equal, not equal)


def test_the_same_object_is_one() -> None:
    code = [["binary", 2, "is", 0, 1], ["return", 2]]
    shared = [1]
    assert computed(2, *code)(shared, shared) is True
    assert computed(2, *code)([1], [1]) is False
    assert computed(2, *code)(None, None) is True


LIST = list(range(5))


@pytest.mark.parametrize("index", range(-7, 7))
def test_items(index: int) -> None:
    def right(compute: Callable[[list[int]], Any]) -> Any:
        try:
            return compute(list(LIST))
        except IndexError:
            return "wrong"

    def put(items: list[int]) -> list[int]:
        items[index] = 1
        return items

    def popped(items: list[int]) -> tuple[int, list[int]]:
        return items.pop(index), items

    cases: list[tuple[list[Any], Callable[[list[int]], Any]]] = [
        ([["get", 2, 0, 1], ["return", 2]], lambda items: items[index]),
        ([["const", 2, ONE], ["put", 0, 1, 2], ["return", 0]], put),
        ([["pop", 2, 0, 1], ["tuple", 3, [2, 0]], ["return", 3]], popped),
        ([["const", 2, NONE], ["slice", 3, 0, 1, 2], ["return", 3]], lambda items: items[index:]),
        ([["const", 2, NONE], ["slice", 3, 0, 2, 1], ["return", 3]], lambda items: items[:index]),
        ([["const", 2, LAST], ["slice", 3, 0, 1, 2], ["return", 3]], lambda items: items[index:-1]),
    ]
    for code, compute in cases:
        program = load(function("f", 2, code))
        (own,) = program([(LIST, index)], errors="return")
        if isinstance(own, ProgramError):
            assert right(compute) == "wrong"
            assert f"index {index} of 5 items; allowed: -5…4" in str(own)
        else:
            assert own == right(compute)
    assert list(range(5)) == LIST, "what is given is copied"


def test_lists_grow_and_shrink() -> None:
    code = [
        ["list", 1, []], ["const", 2, ZERO], ["const", 3, ONE], ["const", 9, NONE],
        ["binary", 4, "<", 2, 0], ["else", 4, 9],  # 4
        ["append", 1, 2], ["binary", 2, "+", 2, 3], ["jump", 4],
        ["len", 5, 1], ["pop", 6, 1, 9], ["const", 8, TWO], ["binary", 7, "+", 1, 1],  # 9
        ["tuple", 7, [1, 7, 5, 6]], ["return", 7],
    ]  # fmt: skip
    for count in (1, 3, 1000):
        items = list(range(count - 1))
        assert computed(1, *code)(count) == (items, items + items, count, count - 1)
    assert "index" not in str(load(function("f", 1, code))([0], errors="return")[0])


def test_lists_are_shared_and_may_hold_themselves() -> None:
    code = [["append", 0, 0], ["tuple", 1, [0, 0]], ["return", 1]]
    first, second = computed(1, *code)([5])
    assert first is second
    assert first[0] == 5
    assert first[1] is first


def test_instances_share_nothing_that_is_changed() -> None:
    program = load(function("f", 1, [["const", 1, ONE], ["append", 0, 1], ["return", 0]]))
    shared: list[int] = []
    assert program([shared, shared, shared]) == [[1], [1], [1]]


def test_objects_come_and_go() -> None:
    code = [
        ["field", 1, 0, 0], ["const", 2, TWO], ["setfield", 0, 2, 2],
        ["record", 3, 0, [0, 1, 2]], ["return", 3],
    ]  # fmt: skip
    tree = Tree(leaf(3), None, 7)
    found = computed(1, *code)(tree)
    assert type(found).__name__ == "Tree"
    assert (found.left.word, found.right.word, found.word, found.left.left.word) == (2, 3, 2, 3)
    assert found.left.left is found.right
    assert tree.word == 7


def test_texts_come_back() -> None:
    code = [["const", 1, OTHER], ["tuple", 2, [0, 1]], ["return", 2]]
    for text in ("wrong", "a text of its own", ""):
        assert computed(1, *code)(text) == (text, "other")


def test_tensors_come_and_go() -> None:
    rows = np.arange(16, dtype=np.float32)
    code = [["tensor", 1, 0], ["list", 2, [0, 1, 0]], ["return", 2]]
    own, start, again = computed(1, *code)(rows)
    assert (own == rows).all()
    assert (start == weights()["start"]).all()
    assert (again == rows).all()
    own[0] = -1
    assert again[0] == 0
    assert rows[0] == 0


def test_numbers_become_tensors_and_tensors_numbers() -> None:
    code = [["block", [2], JOIN, [0, 1]], ["values", 3, 2], ["argmax", 4, 2], ["tuple", 5, [2, 3, 4]],
            ["return", 5]]  # fmt: skip
    pair, values, most = computed(2, *code)(0.5, 3)
    assert pair.tolist() == values == [0.5, 3.0]
    assert most == 1
    assert computed(2, *code)(2, 2.0)[2] == 0
    assert computed(2, *code)(1.0, math.nan)[2] == 1
    code = [["block", [1], FIRST, [0]], ["value", 2, 1, "float"], ["value", 3, 1, "int"],
            ["value", 4, 1, "bool"], ["value", 5, 2, "int"], ["tuple", 6, [2, 3, 4, 5]],
            ["return", 6]]  # fmt: skip
    assert computed(1, *code)(np.full(16, 2.5, np.float32)) == (2.5, 2, True, 2)
    assert computed(1, *code)(np.zeros(16, np.float32)) == (0.0, 0, False, 0)


@pytest.mark.parametrize(
    ("code", "given", "said"),
    [
        ([["raise", WRONG]], 1, "wrong"),
        ([["field", 1, 0, 2], ["return", 1]], 5, "int has no word"),
        ([["block", [1], JOIN, [0, 0]], ["return", 1]], None, "operand 0 is None; allowed: float32[]"),
        ([["tensor", 1, 0], ["value", 2, 1, "int"], ["return", 2]], 1, "a tensor float32[16] as a number"),
        ([["tensor", 1, 0], ["else", 1, 2], ["return", 1]], 1, "the truth of a tensor"),
        ([["tensor", 1, 0], ["binary", 2, "+", 1, 0], ["return", 2]], 1, "a tensor + int"),
        ([["binary", 2, "==", 0, 0], ["return", 2]], leaf(1), None),
        ([["unary", 2, "neg", 0], ["return", 2]], "text", "neg of str"),
        ([["const", 2, NONE], ["pop", 1, 0, 2], ["return", 1]], [], "pop from an empty list"),
        ([["const", 2, HALF], ["get", 1, 0, 2], ["return", 1]], [1], "get of list"),
        ([["append", 0, 0], ["return", 0]], (1,), "append of tuple"),
        ([["wait", 1, 0], ["return", 1]], 3, "wait of int"),
        ([["spawn", 1, 0, [0]], ["return", 1]], 3, "returns a task"),
        ([["spawn", 1, 0, [0]], ["list", 2, [0, 1]], ["tuple", 2, [2]], ["return", 2]], 3, "returns a task"),
    ],
)
def test_what_python_refuses_too(code: list[Any], given: Any, said: str | None) -> None:
    code = [[one[0], one[1], 1, one[3]] if one[0] == "spawn" else one for one in code]
    program = load(function("f", 1, code), function("g", 1, [["return", 0]]))
    (found,) = program([given], errors="return")
    if said is None:
        assert found is True
        return
    assert isinstance(found, ProgramError)
    assert said in str(found)
    assert "\n" not in str(found)
    assert str(found).startswith("instance 0: ")


@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "a dict; allowed: numbers, texts, lists, tuples, tensors, objects as Tree(left, right, word)"),
        ([1, 2**63], "the number 9223372036854775808; allowed: 64 bits"),
        (
            np.zeros(3, np.float32),
            "a tensor float32[3]; allowed: float32[16], int32[], float32[], float32[2]",
        ),
        (np.zeros(16), "a tensor float64[16]"),
        (leaf(3).__class__(leaf(1), object(), 0), "a object"),  # type: ignore[arg-type]
    ],
)
def test_what_no_program_takes(in_c: bool, given: Any, said: str) -> None:
    program = load(function("f", 1, [["return", 0]]))
    program._encoder._in_c &= in_c
    with pytest.raises(TensorError) as caught:
        program([1, given])
    assert str(caught.value).startswith("instance 1: ")
    assert said in str(caught.value)


def test_several_parameters_are_a_tuple() -> None:
    program = load(function("f", 2, [["binary", 2, "-", 0, 1], ["return", 2]]))
    assert program([(3, 1), (1.5, 1)]) == [2, 0.5]
    with pytest.raises(TensorError, match="instance 1: 3 values; allowed: a tuple of 2"):
        program([(3, 1), (1, 2, 3)])
    with pytest.raises(TensorError, match="instance 0: list; allowed: a tuple of 2"):
        program([[3, 1]])


class Wide(int):
    """A number of a class of its own."""


@pytest.mark.parametrize("in_c", [True, False])
def test_dicts_are_returned(in_c: bool) -> None:
    """A record of lists of keys and values; the dict is in itself, in a list and in a tuple."""
    code = [["record", 2, 0, [0, 1]], ["const", 3, 5], ["append", 0, 3], ["append", 1, 2],
            ["list", 4, [2]], ["tuple", 5, [2, 4]], ["return", 5]]  # fmt: skip
    own = {"records": [{"name": "dict", "fields": ["dict_keys", "dict_values"]}], "names": ["left"]}
    program = load(function("f", 2, code), **own)
    program._decoder = ResultDecoder(program.plan, in_c)
    for keys, values in (([1, "a", (3, (None, "b"))], [0.5, [7], "x"]), ([], []), ([True], [None])):
        found, (again,) = program([(keys, values)])[0]
        assert type(found) is dict and found is again and found[2] is found
        assert list(found) == [*keys, 2]
        assert [found[key] for key in keys] == values
    for keys, values in (([1, 3], []), ([1], [1, 2]), ([[1]], [1])):
        with pytest.raises((ValueError, TypeError)):
            program([(keys, values)])


@pytest.mark.parametrize("in_c", [True, False])
def test_both_ways_read_instances_alike(in_c: bool) -> None:
    program = load(function("f", 1, [["return", 0]]))
    program._encoder._in_c &= in_c
    rows = np.arange(16, dtype=np.float32)
    shared = [1, -(2**63), 2**63 - 1, 0.25, True, None, "a", "wrong", (), ((1,), [2.5])]
    given = [shared, (shared, shared), {"tree": 1}.get("tree"), rows, [rows, rows[:2], rows.copy()], Wide(3)]
    given += [np.int64(4), np.float32(0.5), np.bool_(True), np.array(3), [leaf(1), Tree(leaf(2), None, 3)]]
    given += [rows[::-1], np.arange(32, dtype=np.float32)[::2], []]
    found = program(given)
    assert str(found[:3]) == str(given[:3])
    assert found[1][0] is found[1][1]
    assert found[1][0] is found[0]
    assert (found[3] == rows).all()
    assert [one.tolist() for one in found[4]] == [one.tolist() for one in given[4]]
    assert found[5:10] == [3, 4, 0.5, True, 3]
    assert [(type(one).__name__, one.word) for one in found[10]] == [("Tree", 1), ("Tree", 3)]
    assert (found[11] == rows[::-1]).all()
    assert (found[12] == given[12]).all()
    assert found[13] == []
