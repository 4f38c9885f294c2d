"""Results: tensors are where handles were, and everything else is as it was."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hand_machine import EMBED_CALL, SCORE_CALL, E, Pair, begun, machine, site
from torch import nn

from dietcode.runtime.recorded.calling import settle
from dietcode.runtime.recorded.handles import install
from dietcode.runtime.recorder import Handle

install()
MACHINE = machine()
embed, score = site(MACHINE, EMBED_CALL).call, site(MACHINE, SCORE_CALL).call


@dataclass
class Node:
    state: Any
    children: list[Any]


@dataclass(frozen=True)
class Frozen:
    state: Any


@dataclass(frozen=True, slots=True)
class Slots:
    state: Any
    other: Any = None


class Named(Pair):
    """A named tuple with attributes."""


class Listed(list):  # type: ignore[type-arg]
    pass


class _Hidden:
    __slots__ = ("__own", "unset")

    def __init__(self, own: Any) -> None:
        self.__own = own

    @property
    def own(self) -> Any:
        return self.__own


class Deep(NamedTuple):
    head: Any
    tail: Any


def settled(build: Callable[..., Any]) -> Any:
    """What is made of three handles, at the end of a call."""
    with begun(MACHINE) as run:
        rows = [embed(n) for n in range(3)]
        results = [build(*rows)]
        del rows
        run.flush()
        settle(run, results)
    return results[0]


def _with_attribute(cls: Any, *given: Any) -> Any:
    made = cls(given[:2]) if cls is Listed else cls(*given[:2])
    made.extra = given[2]
    return made


_CASES: list[tuple[Callable[..., Any], Callable[[Any], list[Any]]]] = [
    (lambda a, b, c: (a, (b, 1), [c]), lambda r: [r[0], r[1][0], r[2][0]]),
    (lambda a, b, c: [a, {"b": b, "c": (c, None)}], lambda r: [r[0], r[1]["b"], r[1]["c"][0]]),
    (lambda a, b, c: Node(a, [Node(b, []), Frozen(c)]),
     lambda r: [r.state, *[one.state for one in r.children]]),
    (lambda a, b, c: Slots(Slots(a), (b, c)), lambda r: [r.state.state, *r.other]),
    (lambda a, b, c: Pair(a, Pair(b, c)), lambda r: [r.h, r.c.h, r.c.c]),
    (lambda a, b, c: _with_attribute(Named, a, b, c), lambda r: [r.h, r.c, r.extra]),
    (lambda a, b, c: _with_attribute(Listed, a, b, c), lambda r: [*r, r.extra]),
    (lambda a, b, c: (_Hidden(a), _Hidden((b, c))), lambda r: [r[0].own, *r[1].own]),
    (lambda a, b, c: deque([a, (b,), [c]], 5), lambda r: [r[0], r[1][0], r[2][0]]),
    (lambda a, b, c: OrderedDict([("z", a), ("y", b), ("x", c)]), lambda r: [r["z"], r["y"], r["x"]]),
    (lambda a, b, c: defaultdict(list, {1: [a], 2: [b, c]}), lambda r: [*r[1], *r[2]]),
    (lambda a, b, c: {a: 0, "b": b, (c, 1): 2}, lambda r: [next(iter(r)), r["b"], list(r)[2][0]]),
    (lambda a, b, c: ValueError(a, [b, c]), lambda r: [r.args[0], *r.args[1]]),
    (lambda a, b, c: [{a}, frozenset([(b, frozenset([c]))])],
     lambda r: [*r[0], *(one for pair in r[1] for one in (pair[0], *pair[1]))]),
]  # fmt: skip


@pytest.mark.parametrize("build, parts", _CASES)
def test_tensors_are_in_the_place_of_handles(build: Any, parts: Any) -> None:
    found = settled(build)
    like = build(*map(torch.tensor, E[:3]))
    assert type(found) is type(like) and dir(found) == dir(like)
    if isinstance(found, dict | list | tuple | deque):
        assert len(found) == len(like)
    assert [type(one) for one in parts(found)] == [torch.Tensor] * 3
    for one, row in zip(parts(found), E, strict=False):
        torch.testing.assert_close(one, torch.tensor(row), rtol=0, atol=0)


def test_what_is_shared_stays_shared_and_cycles_end() -> None:
    def build(a: Any, b: Any, c: Any) -> Any:
        pair, own, node = (a, b), [c], Node(a, [])
        node.children += [node, pair, own]
        tied = (own, pair)
        own += [tied, tied]
        return [pair, own, node, pair, tied, {"own": own}]

    pair, own, node, again, tied, by_name = settled(build)
    assert again is pair and by_name["own"] is own
    assert node.children[0] is node and node.children[1] is pair and node.children[2] is own
    assert node.state is pair[0] and type(pair[1]) is torch.Tensor and type(own[0]) is torch.Tensor
    assert own[1] is own[2] is tied and tied[0] is own and tied[1] is pair


def test_what_has_no_handle_is_the_same_object() -> None:
    plain = [(1, (2, "a")), frozenset([3]), Pair(4, [5]), deque([6])]
    items = list(plain)
    found = settled(lambda a, b, c: [plain, a, plain])
    assert found[0] is found[2] is plain and all(
        one is other for one, other in zip(plain, items, strict=True)
    )


def test_deep_results() -> None:
    def build(a: Any, b: Any, c: Any) -> Any:
        found: Any = c
        for _ in range(50_000):
            found = Deep(1, (found,))
        return found

    found, depth = settled(build), 0
    while type(found) is Deep:
        found, depth = found.tail[0], depth + 1
    assert depth == 50_000 and type(found) is torch.Tensor
    del found


def test_objects_of_a_class_have_different_attributes() -> None:
    """Also where the dict of one exists, or has other names than that of the last."""

    def build(a: Any, b: Any, c: Any) -> Any:
        nodes = [Node(1, [a]) for _ in range(5)]
        nodes[1].extra = b
        nodes[2].__dict__["more"] = c
        nodes[3].state, nodes[4].children = b, c
        del nodes[3].children
        return nodes

    nodes = settled(build)
    found = [nodes[0].children[0], nodes[1].extra, nodes[2].more, nodes[2].children[0], nodes[3].state,
             nodes[4].children]  # fmt: skip
    assert [type(one) for one in found] == [torch.Tensor] * 6
    assert [float(one[0]) for one in found] == [float(E[n][0]) for n in (0, 1, 2, 0, 1, 2)]


def test_dtypes_and_shapes() -> None:
    results = [1, 0, 0], [1, 0, 1], [1, 0, 2], [1, 0, 3]
    calls = [site(MACHINE, [*SCORE_CALL[:-3], *one]).call for one in results]
    with begun(MACHINE) as run:
        found: list[Any] = [call(embed(n)) for call in calls for n in (0, 1)]
        run.flush()
        settle(run, found)
    right = [torch.tensor(E[n].sum()).to(dtype)
             for dtype in (torch.float32, torch.bool, torch.int64, torch.int32) for n in (0, 1)]  # fmt: skip
    assert all(type(one) is torch.Tensor and one.dtype == other.dtype and torch.equal(one, other)
               for one, other in zip(found, right, strict=True))  # fmt: skip


class Untouchable:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AssertionError("looked at")


def test_results_without_handles_are_not_looked_at() -> None:
    with begun(MACHINE) as run:
        results: list[Any] = [float(score(embed(2))), Untouchable(), [[1]] * 3]
        before = list(results)
        run.settle(results, None, None)  # type: ignore[arg-type]
    assert all(one is other for one, other in zip(results, before, strict=True))


def test_handles_elsewhere_pass_as_tensors() -> None:
    """Of modules they are tensors, where the call has set them."""
    module, kept = nn.Module(), []
    with begun(MACHINE) as run:
        module.state = embed(1)
        kept.append(embed(2))
        inside = embed(3)
        results = [lambda: inside, module]
        run.flush()
        settle(run, results, {(id(module), "state"): module, (id(module), "none"): module})
    assert type(module.state) is torch.Tensor and torch.equal(module.state, torch.tensor(E[1]))
    assert type(kept[0]) is Handle and torch.equal(kept[0] + 0, torch.tensor(E[2]))
    assert torch.equal(results[0]() * 1, torch.tensor(E[3]))


def test_handles_of_a_call_around_stay() -> None:
    with begun(MACHINE) as outer:
        own = embed(1)
        with begun(MACHINE) as run:
            results: list[Any] = [(own, embed(2))]
            run.flush()
            settle(run, results)
        assert results[0][0] is own and type(results[0][1]) is torch.Tensor
        outer.flush()
        settle(outer, results)
    assert type(results[0][0]) is torch.Tensor and torch.equal(results[0][0], torch.tensor(E[1]))


def test_an_error_of_what_is_described() -> None:
    def refuse(cls: type) -> Any:
        raise KeyError(cls.__name__)

    with begun(MACHINE) as run:
        results: list[Any] = [[embed(1)], (1, [Frozen(embed(2)), embed(3)])]
        run.flush()
        with pytest.raises(KeyError, match="Frozen"):
            run.settle(results, lambda run, handles: [torch.zeros(4)] * len(handles), refuse)
        with pytest.raises(KeyError, match="make"):
            run.settle([embed(1)], lambda run, handles: {}["make"], refuse)
