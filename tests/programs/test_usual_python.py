"""What people write in Python without thinking of it, in programs: beside what Python gives."""

from __future__ import annotations

import enum
import heapq
import itertools
import math
import operator
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import reduce
from typing import Any, ClassVar

import pytest
from needs import of_extra
from program_runs import as_torch, assert_same, compiled, native_program

import dietcode
from dietcode.errors import ModelError
from dietcode.programs.modeling import model_of
from dietcode.programs.planning import plan_program
from dietcode.programs.recording import copied

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))

ITEMS = [[1, 2, 3, 2], [], [5, -1, 5, 0], [4], [2, 2, 7, -3, 1], [0, 0]]
TEXTS = [" a,b,,c ", "Hello World", "", "a", "x=1;y=2", "123", "aXbXc", "aaa"]
NUMBERS = [0, 1, 2, 3, 5, 8, -1, -4]


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3


class Walker:
    """A class with what all objects share, and with functions of its own."""

    MOVES: ClassVar = {0: (0, 1), 1: (1, 0), 2: (0, -1)}

    def __init__(self, n: int) -> None:
        self.n = n

    @staticmethod
    def twice(n: int) -> int:
        return 2 * n

    def moved(self, move: int) -> int:
        x, y = self.MOVES[move]
        return self.twice(x) + self.twice(n=y) * self.n + len(self.MOVES)


class Runner(Walker):
    @staticmethod
    def twice(n: int) -> int:
        return 3 * n


class Named:
    """A class that says its texts."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __repr__(self) -> str:
        return f"Named({self.n})"

    def __str__(self) -> str:
        return f"<{self.n}>"


def asserted(n: int) -> str:
    try:
        assert n > 1, f"{n} is too small"
        assert n < 5, "it is large"
    except AssertionError as error:
        return str(error).split("\n")[0]  # pytest says more behind it
    return "fine"


def places(items: list[int]) -> Any:
    found = []
    for low, high in ((1, 9), (-2, 3), (0, -1)):
        try:
            found.append((items.index(2, low), items.index(2, low, high)))
        except ValueError:
            found.append((-1, -1))
    both = (len(items), 2, 2)
    return found, both.index(2), both.count(2)


def queues(items: list[int]) -> Any:
    queue = deque(items)
    queue.extendleft([8, 9])
    queue.extendleft(items)
    queue.rotate(3)
    queue.rotate(-1)
    queue.rotate()
    return list(queue)


def heaps(items: list[int]) -> Any:
    heap = [9, 8, 7, 10, 4, 3, 12, 11]
    heapq.heapify(heap)
    found = []
    for one in items:
        found.append(heapq.heappushpop(heap, one))
        found.append(heapq.heapreplace(heap, one * 3))
    few: list[int] = []
    return heap, found, heapq.heappushpop(few, 3), few


def by_items(items: list[int]) -> Any:
    pairs = list(map(lambda a, b: a * b, items, items[1:]))
    kept = list(itertools.compress(items, [1, 0, 1])), list(itertools.filterfalse(lambda x: x > 0, items))
    again = list(itertools.islice(itertools.cycle([1, *items]), 7)), list(itertools.filterfalse(None, items))
    chosen = list(itertools.combinations_with_replacement(items[:3], 2))
    keys = dict.fromkeys(items, 0), list(dict.fromkeys(items)), dict.fromkeys("abca")
    return pairs, kept, again, chosen, keys, list(itertools.starmap(max, [(1, 2), (4, 3)]))


def by_operators(items: list[int]) -> Any:
    least = reduce(operator.or_, items, 0), reduce(operator.xor, items, 0), reduce(operator.and_, items, 7)
    more = sum(items, start=10), sum((one for one in items), start=0.5), list(map(operator.neg, items))
    return least, more, operator.lt(len(items), 3), operator.not_(len(items))


def by_math(n: int) -> Any:
    powers = pow(n, 3, 7), pow(abs(n), abs(n), 11), pow(n, 2, -5), pow(2, 3)
    return powers, math.trunc(n / 2), math.log(8.0, 2), math.degrees(n), math.radians(n)


def in_sets(items: list[int]) -> Any:
    found = set(items)
    same = found
    found |= {77}
    found -= {1}
    found &= {2, 77, 3, 5}
    frozen = frozenset(items)
    other = frozen
    frozen |= {77}
    third = frozen.union([5])
    fourth = third
    third |= {6}
    orders = found > {2}, found < {2, 3, 5, 77, 9}, {2} < found, found > same
    found.difference_update([2])
    found.intersection_update([77, 3])
    return sorted(same), sorted(frozen), sorted(other), sorted(third), sorted(fourth), orders, 3 in other


def in_dicts(items: list[int]) -> Any:
    found = dict.fromkeys(items, 1)
    same = found
    found |= {5: 2}
    more = found | {6: 1}
    equal = found == {1: 1, 5: 2}, more != found, {} == {}, {1: [len(items)]} == {1: [2]}
    counts = Counter(items)
    counts.update(Counter([1, 1]))
    alike = counts == Counter([1, 1, 2]), Counter("ab") == Counter("ba"), Counter("ab") != Counter("bb")
    return same, more, equal, counts.total(), alike


def in_order(items: list[int]) -> Any:
    found = OrderedDict((one, at) for at, one in enumerate(items))
    if 2 in found:
        found.move_to_end(2)
    if 1 in found:
        found.move_to_end(1, last=False)
    if 5 in found:
        found.move_to_end(5, last=True)
    pairs = list(found.items())
    return pairs, found.popitem(last=False) if found else None, found.popitem() if found else None


def of_defaults(items: list[int]) -> Any:
    pairs: Any = defaultdict(lambda: (0.0, -1))
    lists: Any = defaultdict(lambda: [0, 0])
    low: Any = defaultdict(lambda: -1.5)
    for one in items:
        pairs[one] = (pairs[one][0] + 1, one)
        lists[one][0] += 1
        low[one] = max(low[one], one / 2)
    return dict(pairs), dict(lists), dict(low), lists[99], low[99]


def split(text: str) -> Any:
    found = [text.split(",", most) for most in (1, 0, -1, 9)] + [
        text.rsplit(",", most) for most in (1, 0, -1)
    ]
    words = (
        text.split(maxsplit=1),
        text.split(None, 1),
        text.rsplit(),
        text.split(sep="="),
        ["a", ""],
    )
    wide = f"  a{text}b  c "
    spaces = wide.split(None, 1), wide.split(None, 0), text.split(",", maxsplit=1)
    return found, words, spaces


def filled(text: str) -> Any:
    wide = text.ljust(5, "."), text.rjust(4, "0"), text.center(7), text.center(8, "*"), text.center(4)
    ends = text.startswith(("a", "H")), text.endswith(("d", "c", "zzz")), "-".join(text)
    places = text.find("a", 1), text.find("b", -2), text.replace("a", "b", 1), text.replace(",", "", 2)
    return wide, ends, places, list(map(str.upper, text.split())), sorted(text.split(), key=str.lower)


def starred(items: list[int]) -> Any:
    log: list[int] = []

    def noted(one: int) -> tuple[int, int]:
        log.append(one)
        return one, one + 1

    def four(a: int, b: int, c: int = 0, d: int = 0) -> int:
        return a - b + c * d

    def total(*given: int) -> int:
        return sum(given)

    found = four(*divmod(7, 2)), four(*[5, 3]), four(noted(1)[0], *noted(7)), four(*noted(4), *noted(5))
    sums = (
        total(*(x for x in items)),
        total(*map(abs, items), 1),
        total(*range(3)),
        total(1, *sorted(items), 5),
    )
    return found, sums, log, "{}-{}".format(*divmod(17, 5))


def apart(items: list[int]) -> Any:
    a, (b, *c) = 1, (2, *items)
    (d, *e), [f, (g, *h)] = (5, 6), [7, (8, 9, 10)]
    for k, (first, *rest) in enumerate([(1, 2, 3), (4,)]):
        items.extend([k, first, *rest])
    for first, *rest in [(1, 2, 3), (4,)]:
        items.extend([first, len(rest)])
    return a, b, c, d, e, f, g, h, items


def displayed(items: list[int]) -> Any:
    plain = str(items), f"<{items}>", repr(items[:1]), str([[items[:1], []], [[2]]] if items else [])
    return plain, f"{(len(items), 'a', None)}", str((1,)), str(()), str([("it's", len(items))])


def of_classes(n: int) -> Any:
    one = Named(n)
    return str(one), repr(one), f"{one} {one!r}", str([one.n, n])


def loops_as_values(items: list[int]) -> Any:
    numbers, pairs, ahead = range(len(items)), zip(items, items[2:]), enumerate(items, 2)  # noqa: B905
    found = [a + b for a, b in pairs], list(pairs), next(ahead, None), list(ahead)
    back = reversed(items)
    sums = [one + 1 for one in back], list(back), sum(range(4)), len(range(0, 10, 3)), range(9)[-1]
    return found, sums, [k for k in numbers], 2 in numbers  # noqa: C416


def members(n: int) -> Any:
    found = [one.name for one in Colour if one.value > n]
    for one in Colour:
        found.append(one.name.lower())
    return found, len(Colour), list(Colour)[1].value, max(one.value for one in Colour)


def of_objects(n: int) -> Any:
    kinds = [Walker(n), Runner(n)] if n < 5 else [Runner(n)]
    return [[one.moved(k) for k in range(3)] for one in kinds]


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "assertions": (asserted, NUMBERS),
    "places": (places, ITEMS),
    "queues": (queues, ITEMS),
    "heaps": (heaps, ITEMS),
    "itertools": (by_items, ITEMS),
    "operators": (by_operators, ITEMS),
    "math": (by_math, NUMBERS),
    "sets": (in_sets, ITEMS),
    "dicts": (in_dicts, ITEMS),
    "ordered dicts": (in_order, ITEMS),
    "defaults": (of_defaults, ITEMS),
    "splits": (split, TEXTS),
    "fills": (filled, TEXTS),
    "stars": (starred, ITEMS),
    "parts": (apart, ITEMS),
    "displays": (displayed, ITEMS),
    "texts of classes": (of_classes, NUMBERS),
    "loops as values": (loops_as_values, ITEMS),
    "members of Enums": (members, NUMBERS),
    "static methods": (of_objects, NUMBERS),
}


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_python_does(name: str) -> None:
    function, given = CASES[name]
    wanted = [function(copied(one)) for one in given]
    found = compiled(function, [copied(one) for one in given[:5]], [copied(one) for one in given])
    for own, right in zip(found, wanted, strict=True):
        assert not isinstance(own, Exception), own
        assert_same(own, right)


def with_wrong_arguments(items: list[int]) -> Any:
    try:
        items.insert(1)  # type: ignore[call-arg]
    except TypeError:
        return None
    return items


def with_what_an_assertion_says(n: int) -> str:
    try:
        assert n > 1
    except AssertionError as error:
        return str(error)
    return "fine"


def with_a_set_as_key(n: int) -> bool:
    return frozenset([n]) in {1: 2}


def with_ordered_dicts(n: int) -> bool:
    return OrderedDict([(n, 1)]) == OrderedDict([(1, n)])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (with_wrong_arguments, "calls insert of list with 1 values; allowed"),
        (with_what_an_assertion_says, "what Python says of an AssertionError; write a text"),
        (with_a_set_as_key, "a set as a key, or as a member of a set; write a tuple"),
        (with_ordered_dicts, "an operator of these dicts; allowed"),
    ],
)
def test_it_is_refused_with_what_is_allowed(function: Any, words: str) -> None:
    with pytest.raises(ModelError, match=r"test_usual_python\.py:\d+: ") as caught:
        compiled(function, [[1]] if function is with_wrong_arguments else [1])
    assert words in str(caught.value)


def test_what_programs_have_of_modules_in_slices_and_of_pairs() -> None:
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(4)]).eval()

    def program(x: Any, depth: int) -> Any:
        used = []
        for at, layer in enumerate(layers[1:]):
            if at < depth:
                x = torch.tanh(layer(x))
                used.append(at)
        pairs = zip([x, x * 2], [x + 1, x - 1])  # noqa: B905
        return [torch.cat(pair) for pair in pairs], used, [layer(x) for layer in layers[:-1]][1]

    given = [(torch.ones(2) * k, k) for k in range(5)]
    model, weights = model_of(dietcode.program(program), given, "slices")
    found = native_program(plan_program(model, {}), weights)(given)
    for own, one in zip(found, given, strict=True):
        assert_same(as_torch(own), program(*one))
