"""Structures: their order by levels against a plain reference, and everything that is refused."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dietcode
from dietcode.errors import ShapeError, TensorError
from dietcode.runtime import native_loops
from dietcode.runtime.compile_launcher import LOOPS
from dietcode.runtime.recursion.structure import Structure


@st.composite
def dags(draw: st.DrawFn) -> list[list[int]]:
    """Children of each node, in an order in which they may come before or behind it."""
    num_nodes, columns = draw(st.integers(0, 24)), draw(st.integers(1, 4))
    rows = [
        draw(st.lists(st.integers(-1, node - 1), min_size=columns, max_size=columns))
        for node in range(num_nodes)
    ]
    order = draw(
        st.one_of(
            st.just(list(range(num_nodes))),
            st.just(list(range(num_nodes))[::-1]),
            st.permutations(range(num_nodes)),
        )
    )
    renumbered: list[list[int]] = [[]] * num_nodes
    for node, row in enumerate(rows):
        renumbered[order[node]] = [-1 if one < 0 else order[one] for one in row]
    return renumbered


def structure_of(children: list[list[int]]) -> Structure:
    return Structure(np.array(children, np.int32).reshape(len(children), len(children[0]) if children else 2))


def level_of(children: list[list[int]], node: int) -> int:
    return max((1 + level_of(children, one) for one in children[node] if one >= 0), default=0)


@given(dags())
def test_levels_are_ranges_in_the_order_of_numbers(children: list[list[int]]) -> None:
    structure = structure_of(children)
    levels = [level_of(children, node) for node in range(len(children))]
    assert structure.order.tolist() == sorted(range(len(children)), key=lambda node: (levels[node], node))
    assert structure.positions[structure.order].tolist() == list(range(len(children)))
    sizes = [levels.count(level) for level in range(max(levels, default=-1) + 1)]
    assert np.diff(structure.level_begins).tolist() == sizes
    below = {one for row in children for one in row}
    assert structure.roots.tolist() == [node for node in range(len(children)) if node not in below]
    assert structure.root_positions.tolist() == [structure.positions[node] for node in structure.roots]


@given(dags(), st.integers(4, 6))
def test_places_of_children(children: list[list[int]], num_slots: int) -> None:
    structure = structure_of(children)
    places = structure.child_places(num_slots)
    assert places.shape == (num_slots, len(children))
    for place, node in enumerate(structure.order):
        row = [*children[node], *[-1] * num_slots][:num_slots]
        wanted = [len(children) if one < 0 else structure.positions[one] for one in row]
        assert places[:, place].tolist() == wanted
    assert structure.child_places(num_slots) is places


@given(dags(), st.booleans(), st.booleans(), st.integers(1, 5), st.booleans())
def test_ranges_cover_each_node_once(
    children: list[list[int]], has_before: bool, has_leaf: bool, max_rows: int, skips_leaves: bool
) -> None:
    structure = structure_of(children)
    ranges = structure.ranges(has_before, has_leaf, max_rows, skips_leaves).tolist()
    first = structure.num_leaves if skips_leaves else 0
    if has_before and first < len(children):
        assert ranges.pop(0) == [0, first, len(children) - first]
    if has_leaf:
        assert ranges[0] == [1, 0, structure.num_leaves]
    at = 0
    for number, (phase, begin, rows) in enumerate(ranges):
        assert phase == (1 if has_leaf and number == 0 else 2)
        assert begin == at and (phase == 1 or 1 <= rows <= max_rows)
        at += rows
        assert not any(edge in range(begin + 1, at) for edge in structure.level_begins)
    assert at == len(children)


@dataclass(eq=False)
class Item:
    name: str
    below: list[Any] = field(default_factory=list)


def test_objects_that_are_met_again_are_one_node() -> None:
    shared = Item("shared")
    left, right = Item("left", [shared, None]), Item("right", [None, shared])
    top, other = Item("top", [left, right]), Item("other")
    structure = Structure.of([other, top, left], children="below")
    assert [one.name for one in structure.objects] == ["other", "shared", "left", "right", "top"]
    assert structure.children.tolist() == [[-1, -1], [-1, -1], [1, -1], [-1, 1], [2, 3]]
    assert structure.roots.tolist() == [0, 4, 2]
    assert Structure.of([top], lambda one: one.below or None).num_nodes == 4


def test_long_chains_do_not_overflow() -> None:
    chain = Item("0")
    for _ in range(10**5):
        chain = Item("", [chain])
    structure = Structure.of([chain], "below")
    assert structure.num_levels == 10**5 + 1 and structure.roots.tolist() == [10**5]
    below = chain
    while below.below:  # it would be freed from the top, one call for each
        below.below, below = [], below.below[0]


def test_what_has_no_node_or_no_child() -> None:
    assert Structure.of([], "below").num_nodes == 0
    assert Structure.of([Item("one")], "below").children.shape == (1, 0)
    empty = Structure(np.empty((0, 2), np.int32))
    assert (empty.num_levels, empty.num_leaves, len(empty.roots)) == (0, 0, 0)
    assert Structure([]).child_places(2).shape == (2, 0)
    assert Structure([[-1, -1]]).num_leaves == 1


def test_nothing_in_it_changes() -> None:
    given_children = np.array([[-1, -1], [0, 0]], np.int32)
    structure = Structure(given_children)
    given_children[1] = 1
    assert structure.children.tolist() == [[-1, -1], [0, 0]]
    with pytest.raises(ValueError, match="read-only"):
        structure.children[0] = 1


def test_pickles_and_names() -> None:
    structure = pickle.loads(pickle.dumps(Structure([[-1], [0]], roots=[0, 1, 0])))
    assert structure.roots.tolist() == [0, 1, 0]
    assert repr(structure) == "<dietcode.Structure: 2 nodes, 3 roots, 2 levels, at most 1 children>"
    assert dietcode.Structure is Structure


LAST = 2**20


@pytest.mark.parametrize(
    ("children", "problem"),
    [
        ([[-1], [7]], "children: node 1 has child 7; allowed: -1 for none, or 0…1"),
        ([[-2], [0]], "children: node 0 has child -2; allowed: -1 for none, or 0…1"),
        ([[-1], [2**31]], "children: 2147483648; allowed: -1 for none, or the number of a node"),
        ([[0]], "children: node 0 is its own descendant; allowed: trees and DAGs"),
        ([[2, -1], [-1, 0], [-1, 1]], "children: node 0 is its own descendant; allowed: trees and DAGs"),
        (
            np.arange(-1, LAST).reshape(-1, 1),
            "children: node 1048576 is over 1048576 levels high; allowed: 1048576",
        ),
    ],
)
def test_what_is_no_structure(children: Any, problem: str) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(problem)}$"):
        Structure(children)


@pytest.mark.parametrize(
    ("children", "problem"),
    [
        ([[0.5]], "children: float64[1, 1]; allowed: int32 [nodes, children of a node], -1 for none"),
        ([-1], "children: int64[1]; allowed: int32 [nodes, children of a node], -1 for none"),
        ("tree", "children: <U4[]; allowed: int32 [nodes, children of a node], -1 for none"),
        (
            [[1], [1, 2]],
            "children: list of rows of several lengths, which -1 fills up; allowed: an array of integers",
        ),
    ],
)
def test_what_is_no_array_of_children(children: Any, problem: str) -> None:
    with pytest.raises(TensorError, match=f"^{re.escape(problem)}$"):
        Structure(children)


def test_other_refusals() -> None:
    with pytest.raises(ShapeError, match=r"^roots: 3 is no node; allowed: 0…0$"):
        Structure([[-1]], roots=[0, 3])
    with pytest.raises(ShapeError, match=r"^structure: 3 children; allowed: up to 2 a node$"):
        Structure([[-1, -1, -1]]).child_places(2)
    for roots, problem in ((Item("one"), "Item; allowed: a list"), ([None], "None is among them; allowed:")):
        with pytest.raises(TensorError, match=f"^roots: {problem} "):
            Structure.of(roots, "below")
    own = Item("own")
    own.below = [Item("", [own])]
    with pytest.raises(ShapeError, match=r"^roots: Item\(name='own'.* is its own descendant; allowed: trees"):
        Structure.of([own], "below")


def test_loops_that_were_not_compiled(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_loops, "LOOPS", tmp_path / LOOPS.name)
    with pytest.raises(Exception, match=r"missing; compile it: .* -m dietcode.runtime.compile_launcher$"):
        native_loops.loop_function.__wrapped__("linearize")
