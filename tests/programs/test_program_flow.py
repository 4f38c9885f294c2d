"""What a program's plain Python means, compiled: the form beside the function itself, without tensor code."""

from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from needs import of_extra
from program_runs import assert_same, compiled, form_of

import dietcode
from dietcode.errors import ModelError
from dietcode.programs import roles
from dietcode.programs.interpreter import InstanceError
from dietcode.programs.modeling import model_of
from dietcode.programs.ownership import Ownership

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))

from torch._C._dynamo import eval_frame  # noqa: E402  (it needs PyTorch)


@dataclass
class Pair:
    first: Any
    second: Any = 7


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def numbers(x: float) -> tuple[Any, ...]:
    y = -x
    return abs(y), min(x, 1, 0.5), max(x, 2), int(x), float(3), bool(x), x**2, 7 // 2, -7 % 3, x / 4


def swapped(n: int) -> tuple[int, int]:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a, b


def loops(items: list[int]) -> list[Any]:
    found: list[Any] = []
    for at, one in enumerate(items):
        if one < 0:
            continue
        if one > 90:
            break
        found.append((at, one))
    for one, other in zip(items, reversed(items), strict=True):
        found.append(one - other)
    for at in range(len(items) - 1, -1, -2):
        found.append(items[at])
    found.append([one * 2 for one in items if one > 0])
    found.append(list(reversed(items)))
    return found


def joined(items: list[int]) -> Any:
    same, both = [*items], [0, *items, 1, 2, *items, *items]
    same.append(9)
    return same, both, items, [*items, 5]


def lists(items: list[int]) -> Any:
    own = items[1:]
    same = own
    same.append(5)
    own[0] = 9
    last = own.pop()
    first = own.pop(0) if len(own) > 1 else None
    return own, same, last, first, items[-1], (first, 2) + (3,), own + [4]  # noqa: RUF005


def short_circuits(n: int) -> tuple[Any, ...]:
    items: list[int] = []
    is_empty = len(items) == 0 or items[0] == 1
    both = n > 2 and 10 // n > 2
    return is_empty, both, not both, n if n > 2 else -n


def records(pair: Pair) -> Any:
    made = Pair(pair.second)
    made.first = (pair.first, made.second)
    pair.second = 1 if pair.first is None else 2
    return made, pair.second


def ackermann(given: tuple[int, int]) -> int:
    m, n = given
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann((m - 1, 1))
    return ackermann((m - 1, ackermann((m, n - 1))))


def maybe(n: int, before: int | None = None) -> int:
    if before is None:
        return maybe(n, 1)
    if n == 0:
        return before
    return maybe(n - 1, before * 2)


def power(n: int) -> int:
    return maybe(n)


def doubled(n: int) -> int:
    return n * 2


def side_by_side(items: list[int]) -> Any:
    one, other = dietcode.concurrent(collatz(items[0]), collatz(items[1]))
    return dietcode.map(doubled, items), one + other


def nested(n: int) -> list[int]:
    found = []
    for i in range(n):
        for j in range(i):
            if j == 2:
                break
            found.append(i * 10 + j)
    return found


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "while": (collatz, [1, 6, 27]),
    "numbers": (numbers, [2.5, -0.25]),
    "assigned together": (swapped, [0, 1, 10]),
    "loops": (loops, [[1, -2, 3, 95, 4], [5], []]),
    "lists joined": (joined, [[1, 2, 3], []]),
    "lists": (lists, [[1, 2, 3], [4, 5]]),
    "and, or": (short_circuits, [0, 3, 9]),
    "recursion": (ackermann, [(2, 2), (1, 0), (0, 3)]),
    "none or a number": (power, [0, 3]),
    "side by side": (side_by_side, [[6, 7, 8], [1, 2]]),
    "nested loops": (nested, [0, 5]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_form_does_what_python_does(name: str) -> None:
    function, given = CASES[name]
    wanted = [function(_copied(one)) for one in given]
    found = compiled(function, [_copied(one) for one in given], [_copied(one) for one in given])
    for own, right in zip(found, wanted, strict=True):
        assert_same(own, right)


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def test_records_are_made_read_and_changed() -> None:
    given = [Pair(None, 3), Pair(4, 5)]
    found = compiled(records, [Pair(1), Pair(None)], given)
    assert [(one[0].fields, one[1]) for one in found] == [
        ({"second": 7, "first": (None, 7)}, 1),
        ({"second": 7, "first": (4, 7)}, 2),
    ]


def test_few_registers_are_left() -> None:
    (function,) = form_of(numbers, [2.5])["functions"]
    assert function["registers"] < 14  # ten results, and what they are made of
    assert len(function["lines"]) == len(function["code"])


def test_an_item_that_nobody_needs_is_there_nevertheless() -> None:
    def program(items: list[int]) -> int:
        _, _last = items[0], items[2]
        return len(items)

    found = compiled(program, [[1, 2, 3]], [[1, 2, 3, 4], [1]])
    assert found[0] == 4
    assert isinstance(found[1], InstanceError)


def test_deep_recursion_needs_no_stack() -> None:
    (found,) = compiled(power, [3], [5000])
    assert found == 2**5000


def failing(n: int) -> int:
    items = [1, 2]
    if n > 100:
        raise ValueError(f"{n} is too much")
    assert n != 50
    if n > 60:
        return 0
    return items[n]


def test_an_instance_fails_alone_with_its_line() -> None:
    found = compiled(failing, [0, 1], [1, 7, 101, 50, 70, 0])
    assert [one if isinstance(one, int) else str(one).partition(": ")[2] for one in found] == [
        2,
        "IndexError: list index out of range",
        "ValueError: {n} is too much",
        "AssertionError: n != 50",
        "RuntimeError: no sample reached this line; give samples that do",
        1,
    ]
    lines = [str(one).partition(": ")[0] for one in found if isinstance(one, InstanceError)]
    first = failing.__code__.co_firstlineno
    assert lines == [f"test_program_flow.py:{first + at}" for at in (7, 3, 4, 6)]


# ---- What is refused ----


def with_float_as_key(x: float) -> Any:
    return {x: 1}


def with_tensor_as_key(x: Any) -> Any:
    found = {}
    found[x] = 1
    return found


def with_view_of_dict(n: int) -> Any:
    found = {n: 1}
    keys = found.keys()
    found[n + 1] = 2
    return list(keys)


def with_view_given_on(n: int) -> Any:
    return longest({n: 1}.items())


def longest(items: Any) -> Any:
    return len(items)


def with_dict_or_another(n: int) -> Any:
    found = {n: 1} if n else {}
    return found or {2: 3}


def with_dicts_compared(n: int) -> Any:
    return collections.Counter([n]) | collections.Counter([1])


def with_dict_or_none(n: int) -> Any:
    found = {n: 1} if n else None
    return 1 if found else 2


KEYS, NAMES = {"a": 1}, ["a"]


@dataclass
class Halved:
    x: float

    def __post_init__(self) -> None:
        self.x /= 2


def with_code_at_birth(n: int) -> Any:
    return dataclasses.replace(Halved(n), x=n).x


def with_order_of_objects(n: int) -> Any:
    return sorted([Pair(n, 1), Pair(2, 1)])


class Point(NamedTuple):
    x: int
    y: int


def doubled_result(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def twice(n: int) -> Any:
        return 2 * function(n)

    return twice


@doubled_result
def twice(n: int) -> int:
    return n + 1


def with_decorated(n: int) -> Any:
    return twice(n)


@functools.cache
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def with_kept_recursion(n: int) -> Any:
    return fibonacci(n)


def with_other_numbers(items: list[int]) -> Any:
    return with_defaults(*items)


def with_defaults(a: int, b: int = 2) -> int:
    return a + b


def with_copied_defaults(n: int) -> Any:
    found: dict[int, int] = collections.defaultdict(int)
    return found.copy()[n]


def with_maximum(x: Any) -> Any:
    return max(x, 2 * x)


def with_text(n: int) -> Any:
    return f"{n}"


def with_digits_computed(x: float) -> Any:
    return f"{x:.{len(NAMES)}f}"


def with_texts_filled_in(text: str) -> Any:
    return text % 2


def with_other_names(n: int) -> Any:
    given = {"b": n} if n == 1 else {"a": n}
    return with_defaults(1, **given)


def with_text_of_index(n: int) -> Any:
    try:
        return [1][n]
    except IndexError as error:
        return str(error)


def with_bare_raise(n: int) -> Any:
    if n:
        raise  # noqa: PLE0704  (which is refused)
    return n


def with_missing_key(text: str) -> Any:
    return KEYS[text]


def with_shared_list(n: int) -> Any:
    NAMES.append("b")
    return n


def with_nonlocal(n: int) -> Any:
    def more() -> None:
        nonlocal n
        n = n + 1

    while (n := 2 * n) < 9:
        more()
    return n


def with_large_letters(text: str) -> Any:
    return text.swapcase()


def with_print(n: int) -> Any:
    print(n)  # noqa: T201
    return n


def with_set(n: int) -> Any:
    for one in {n}:
        n += one
    return n


def with_random(n: int) -> Any:
    return torch.rand(3) * n


def with_in_place(x: Any) -> Any:
    x.add_(1)
    return x


def with_list_of_any_length(items: list[Any]) -> Any:
    return torch.cat(items)


def with_stack_as_result(items: list[Any]) -> Any:
    return torch.stack(items)


def with_stack_turned(items: list[Any]) -> Any:
    return torch.stack(items).T @ items[0]


def with_item_of_dict(given: Any) -> Any:
    return given["a"]


def with_loop_over_tensor(x: Any) -> Any:
    return [one + 1 for one in x]


def with_shared_tensor(x: Any) -> Any:
    y = torch.tanh(x)
    found = [y]
    y += x
    return found


def with_view(x: Any) -> Any:
    y = torch.tanh(x)
    first = y[0]
    y += x
    return first


def with_tensor_of_instance(x: Any) -> Any:
    x += 1
    return x


def with_out(x: Any) -> Any:
    return torch.add(x, x, out=x)


def with_function_in_place(x: Any) -> Any:
    return torch.relu_(x)


def with_number_called(n: int) -> Any:
    step = n + 1
    return step(torch.ones(2))  # type: ignore[operator]


def with_record_apart(pair: Pair) -> Any:
    first, second = pair
    return first, second


def with_order_between(n: int) -> Any:
    found = [n]
    dietcode.concurrent(waited(found, torch.ones(2)), noted(found))
    return found


def waited(found: list[int], x: Any) -> int:
    if torch.sigmoid(x).sum() > 0:
        found.append(1)
    return 0


def noted(found: list[int]) -> int:
    found.append(2)
    return 0


def with_two_shapes(x: Any) -> Any:
    return torch.tanh(x)


def with_wide_condition(x: Any) -> Any:
    return 1 if x > 0 else 2


def with_unknown_name(n: int) -> Any:
    return n + nothing_of_this_name  # type: ignore[name-defined]  # noqa: F821


class Memory:
    """Whose objects are made in a way of their own."""

    items: list[Any]

    def __new__(cls) -> Memory:
        made = super().__new__(cls)
        made.items = []
        return made


def with_plain_class(n: int) -> Any:
    memory = Memory()
    memory.items.append(n)
    return memory.items


def with_random_numbers(n: int) -> Any:
    return random.randrange(n)


def with_pairs_of_itertools(n: int) -> Any:
    return [a * b for a, b in itertools.tee(list(range(n)), 2)]


def with_late_binding(items: list[int]) -> Any:
    several = [lambda one: one + k for k in items]  # noqa: B023  (which is refused)
    return [own(1) for own in several]


def with_function_as_result(n: int) -> Any:
    return lambda one: one + n


def with_iterator_as_result(items: list[int]) -> Any:
    return iter(items)


class Basket:
    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)


def with_iterator_beside(items: list[int]) -> Any:
    both = iter(items)
    return list(zip(both, both, strict=True))


def with_bounded_extended(items: list[int]) -> Any:
    found = collections.deque(items, maxlen=2)
    found.extend(items)
    return list(found)


REFUSED: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "a plain class": (
        with_plain_class,
        [1],
        "calls 'Memory'; a class of a program has fields, methods and properties, and no __new__",
    ),
    "numbers of random": (with_random_numbers, [3], "'random.randrange'; give the instance its random"),
    "pairs of itertools": (
        with_pairs_of_itertools,
        [3],
        "calls 'itertools.tee'; write",
    ),
    "a float as a key": (with_float_as_key, [1.5], "float as a key of a dict; allowed: whole numbers, bools"),
    "a tensor as a key": (with_tensor_as_key, [torch.tensor(1)], "a key of a dict; allowed"),
    "a view of a dict": (
        with_view_of_dict,
        [1],
        "keeps what found.keys() gives, which changes with the dict",
    ),
    "a view that is given on": (
        with_view_given_on,
        [1],
        "gives on what changes with a dict; write list of it",
    ),
    "a dict or another": (with_dict_or_another, [1], "a dict in `and` or `or`; write len of it"),
    "dicts compared": (
        with_dicts_compared,
        [1],
        "an operator of these dicts; allowed: |, == and != of two plain",
    ),
    "a dict or none": (with_dict_or_none, [0, 1], "is a dict or None as a condition; write `is None`"),
    "a variable that changes": (with_late_binding, [[1, 2]], "and reads k, which is assigned anew"),
    "a function as result": (with_function_as_result, [1], "returns a function; return what it gives"),
    "an iterator as result": (with_iterator_as_result, [[1]], "returns an iterator; return list of it"),
    "an iterator in zip, which is strict": (with_iterator_beside, [[1, 2]], "with strict=True; leave that"),
    "a bounded deque extended": (
        with_bounded_extended,
        [[1]],
        "calls extend of a deque with maxlen; allowed",
    ),
    "texts that are filled in": (
        with_texts_filled_in,
        ["%d"],
        "% of a text that is computed; write an f-string",
    ),
    "a text of a tensor": (with_text, [torch.ones(2)], "a text of a tensor float32[2]; allowed: of whole"),
    "another form of a number": (with_digits_computed, [1.0], "of float; allowed: a fill, <, > or ^, a sign"),
    "an order of objects": (with_order_of_objects, [1], "< of a Pair, which its class does not say; give it"),
    "other names": (
        with_other_names,
        [1, 2],
        "** of other names in another sample; allowed: always the same",
    ),
    "what Python says": (with_text_of_index, [9], "what Python says of an IndexError; write a text"),
    "raise without an exception": (with_bare_raise, [1], "raise without an exception, outside of except"),
    "a key that is missing": (with_missing_key, ["z"], "a sample asks for 'z', which KEYS lacks"),
    "a shared list": (with_shared_list, [1], "NAMES.append of what all instances share; make one of its own"),
    "nonlocal": (with_nonlocal, [1], "nonlocal `nonlocal n`; allowed: a list that holds the value"),
    "large letters": (with_large_letters, ["ab"], "calls swapcase of a text; allowed: join, split, rsplit"),
    "an object with code, with other fields": (
        with_code_at_birth,
        [1],
        "has __post_init__ or fields that it makes itself; allowed: dataclasses without",
    ),
    "a decorated function": (with_decorated, [1], "twice is decorated; allowed: torch.no_grad()"),
    "recursion that is kept": (with_kept_recursion, [3], "calls itself and keeps its results; write it"),
    "other numbers of arguments": (with_other_numbers, [[1], [1, 2]], "* of other numbers of items"),
    "a copy of what has defaults": (with_copied_defaults, [1], "copies a defaultdict or a Counter"),
    "a maximum of tensors": (with_maximum, [torch.ones(())], "write torch.maximum, or item()"),
    "print": (with_print, [1], "calls 'print'; a program computes results"),
    "a set": (with_set, [1], "set"),
    "random numbers": (with_random, [1.0], "rand gives random numbers; give them with the instance"),
    "a change in place": (with_in_place, [torch.ones(2)], "add_ changes a tensor in place; allowed: add"),
    "a list in tensor code": (
        with_list_of_any_length,
        [[torch.ones(2)]],
        "of two axes or more, along",
    ),
    "a stack as result": (with_stack_as_result, [[torch.ones(2)]], "return the list, and stack it outside"),
    "a stack turned": (with_stack_turned, [[torch.ones(2)]], "T of a stack of any length; allowed: sum"),
    "an item of a dict": (with_item_of_dict, [{"a": 1}], "reads an item of a dict; allowed: of lists"),
    "a loop over a tensor": (with_loop_over_tensor, [torch.ones(2)], "a loop over a tensor float32[2]"),
    "a shared tensor": (with_shared_tensor, [torch.ones(2)], "something else may have too; write x = x + y"),
    "a view": (with_view, [torch.ones(2)], "something else may have too"),
    "a tensor of the instance": (with_tensor_of_instance, [torch.ones(2)], "something else may have too"),
    "out": (with_out, [torch.ones(2)], "allowed: results that are new"),
    "a function in place": (with_function_in_place, [torch.ones(2)], "allowed: relu"),
    "a number that is called": (with_number_called, [1], "calls int, which a value chooses; name the"),
    "a record taken apart": (with_record_apart, [Pair(1)], "takes a Pair apart; allowed: tuples, lists and"),
    "two shapes": (
        with_two_shapes,
        [torch.ones(2), torch.ones(3)],
        "in different samples; allowed: one shape at a place of the text",
    ),
    "a condition of several": (with_wide_condition, [torch.ones(2)], "allowed: one number"),
    "an unknown name": (with_unknown_name, [1], "stands for nothing"),
}


def owned(x: Any) -> Any:
    total = torch.zeros(2)
    for _ in range(2):
        y = torch.tanh(x)
        y *= 2
        total += y
    return total


def test_a_tensor_that_nothing_else_has_may_be_added_to() -> None:
    assert form_of(owned, [torch.ones(2)])["functions"]


def test_it_may_also_where_pytorch_evaluates_frames() -> None:
    """As it does at times from the first `torch.compile` on; calls hold more references then."""
    before = eval_frame.set_eval_frame(False)  # evaluates and compiles nothing
    try:
        assert form_of(owned, [torch.ones(2)])["functions"]
    finally:
        eval_frame.set_eval_frame(before)


def test_memory_of_what_is_gone_is_shared_with_nothing() -> None:
    ownership, made, kept, empty = Ownership(), [], torch.ones(2), []
    for _ in range(300):
        operands = [torch.ones(2) for _ in range(4)]  # nothing but the operations has them
        for number in range(4):
            ownership.note(torch.neg, [torch.neg(operands[number])], [operands[number]])
        operands.clear()
        empty.append([torch.empty(0) for _ in range(6)])  # have their numbers, and no memory
        made.append(torch.tanh(kept))  # may have their memory
        ownership.note(torch.tanh, made[-1:], [kept])
    assert all(ownership.is_alone(one, 2) for one in made)
    assert not ownership.is_alone(made[0], -2)


def test_what_comes_out_different_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"instance 0: compiled, the program gives 2, and not 1 as the function"
    ):
        model_of(dietcode.program(with_order_between), [7], "order")


def test_advice_is_as_good_where_a_package_has_replaced_print(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray does, once it is used in a process."""

    def safe_print(*args: Any) -> None:
        raise AssertionError(args)

    safe_print.__module__ = "ray.experimental.tqdm_ray"
    monkeypatch.setattr(roles, "is_users", lambda function: function is not safe_print)
    monkeypatch.setattr(builtins, "print", safe_print)
    with pytest.raises(ModelError, match="calls 'print'; a program computes results"):
        form_of(with_print, [1])


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_refused_with_its_line(name: str) -> None:
    function, samples, words = REFUSED[name]
    with pytest.raises(ModelError) as caught:
        form_of(function, samples)
    message = str(caught.value)
    assert message.startswith("test_program_flow.py:")
    line = int(message.split(":")[1])
    assert 0 < line - function.__code__.co_firstlineno < 5
    assert words in message
