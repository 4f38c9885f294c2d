"""Dispatch in the generated host code."""

from __future__ import annotations

import pytest
from compiled import Compiled, make_problem

from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.target.cpu import CpuTarget

TREE: DispatchTree = ("T", 4, 0, ("S", 2, 1, ("T", 16, 2, ("T", "%", 8, 0, 1))))


def by_hand(t: int, s: int) -> int:
    if t <= 4:
        return 0
    if s <= 2:
        return 1
    return 2 if t <= 16 else 0 if t % 8 == 0 else 1


@pytest.fixture
def library(avx2: CpuTarget) -> Compiled:
    problem = make_problem("mk,nk->mn", {"k": 12})
    return Compiled(problem, [(1, 16), (6, 16), (4, 24)], avx2, TREE, ("T", "S"))


def test_select_follows_the_tree_at_its_thresholds(library: Compiled) -> None:
    for t in (1, 4, 5, 16, 17, 20, 24, 2**40, 2**40 + 1):
        for s in (0, 2, 3, 2**33):
            assert library.module["select"](t, s) == by_hand(t, s)


def test_run_is_right_in_every_category(library: Compiled) -> None:
    for t in (1, 4, 5, 16, 17):
        for s in (1, 2, 3):
            library.check({"m": t, "n": 30 * s, "k": 12}, values=(t, s))


def test_run_uses_the_category_that_select_tells(avx2: CpuTarget) -> None:
    """The order of summation is the same in all tiles, so tell them apart by a wrong tree instead."""
    problem = make_problem("mk,nk->mn", {"n": 16, "k": 5})
    one = Compiled(problem, [(1, 8), (5, 16)], avx2, ("T", 3, 0, 1), ("T",))
    for t in (3, 4):
        one.check({"m": 7, "n": 16, "k": 5}, values=(t,))  # the rule reads its argument, not a shape
    assert [one.module["select"](t) for t in (3, 4)] == [0, 1]


def test_one_category_and_no_variables(avx2: CpuTarget) -> None:
    library = Compiled(make_problem("mk,nk->mn", {"m": 3, "n": 5, "k": 7}), [(2, 8)], avx2)
    assert library.module["select"]() == 0
    library.check({"m": 3, "n": 5, "k": 7})


def test_a_column_operand_that_varies_has_no_pack(avx2: CpuTarget) -> None:
    library = Compiled(make_problem("mk,nk->mn", constant=False), [(2, 8)], avx2)
    assert not library.module.implements_function("pack")
    library.check({"m": 3, "n": 9, "k": 4})
