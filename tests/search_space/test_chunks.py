"""Loops that are cut into more tasks than cores run them: every element is computed, once, in all cuts."""

from __future__ import annotations

import pytest
from compiled import Compiled, make_problem

from dietcode.search_space.cpu.limits import CHUNKS, MicroKernel
from dietcode.target.cpu import CpuTarget

LONG = 1100  # a reduction with which a block of rows that fits L2 is short


@pytest.mark.parametrize(
    ("einsum", "fixed", "options", "sizes"),
    [
        # Few rows: between columns. On both sides of the fewest tiles that are cut, and uneven.
        ("mk,nk->mn", {"k": 5}, {}, [(3, 500), (3, 517), (7, 1031), (1, 3000)]),
        # Blocks of rows: between these, and columns as well where they are few.
        ("mk,nk->mn", {"k": LONG}, {}, [(130, 220), (400, 100), (1500, 70)]),
        # Where rows are copied first it is between blocks of rows alone, of which there may be one.
        ("mk,nk->mn", {"k": LONG}, {"gather": True}, [(20, 700), (130, 220), (700, 90)]),
        ("mk,nk->mn", {"k": 70}, {"k_tile": 16, "tails": "partition"}, [(90, 300), (33, 1031)]),
        ("mk,nk->mn", {"k": 9}, {"tails": "global"}, [(90, 300), (33, 1031)]),
        # Between batch indices, fewer and more than chunks.
        ("bmk,bnk->bmn", {"k": 7, "b": 3}, {}, [(40, 300)]),
        ("bmk,bnk->bmn", {"k": 7, "b": 2 * CHUNKS + 5}, {"tails": "partition"}, [(5, 37), (17, 90)]),
    ],
)
def test_every_element_is_computed(
    einsum: str,
    fixed: dict[str, int],
    options: dict[str, object],
    sizes: list[tuple[int, int]],
    target: CpuTarget,
) -> None:
    problem = make_problem(einsum, fixed, constant="b" not in einsum)
    kernel = Compiled(problem, [MicroKernel(3, 2 * target.lanes(), **options)], target)
    for m, n in sizes:
        kernel.check({"m": m, "n": n} | fixed)
