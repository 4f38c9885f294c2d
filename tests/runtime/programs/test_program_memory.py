"""Memory of programs: it stays as it is from call to call, and rows are given up while one goes on."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
from hand_programs import (
    ENCODE,
    FIRST,
    LEAF,
    MERGE,
    ONE,
    TWO,
    ZERO,
    H,
    function,
    leaf,
    load,
    random_tree,
    weights,
)

from dietcode.errors import ShapeError


def test_memory_stays_as_it_is() -> None:
    program = load(ENCODE, with_kernel=False)
    rng = np.random.default_rng(3)
    given = [random_tree(rng, int(rng.integers(1, 30))) for _ in range(8)]
    program(given)

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(2_000):
        program(given[:3])
        program([leaf(1), leaf(99)], errors="return")
    before = peak()
    for _ in range(8_000):
        program(given[:2])
        program([leaf(1), leaf(99)], errors="return")
    assert peak() - before < 2_000  # KiB


STEPS = function("steps", 2, [  # a decision in each; a list keeps the rows of the last two
    ["const", 2, ZERO], ["const", 3, ONE], ["const", 4, TWO], ["list", 5, [2, 2]], ["tuple", 6, [1]],
    ["const", 10, ZERO], ["binary", 7, "<", 2, 0], ["else", 7, 20],  # 5
    ["block", [8], LEAF, [3]], ["get", 9, 6, 10], ["block", [9], MERGE, [8, 9]],
    ["block", [11], FIRST, [9]], ["value", 12, 11, "float"],
    ["tuple", 6, [9]], ["binary", 13, "%", 2, 4], ["put", 5, 13, 9], ["tuple", 14, [5, 6]],
    ["get", 6, 14, 3], ["binary", 2, "+", 2, 3], ["jump", 6],
    ["tuple", 6, [5, 6, 1]], ["return", 6],  # 20
])  # fmt: skip


def test_rows_that_nothing_reads_are_given_up() -> None:
    """Of a call that goes on for long; what lists, tuples and registers have stays what it is."""
    program = load(STEPS, max_rows=100)
    start = np.arange(H, dtype=np.float32)
    counts = [3, 1000, 0, 700, 1]
    found = program([(count, start + count) for count in counts])
    row = weights()["E"][1]
    for count, (last, (own,), given) in zip(counts, found, strict=True):
        assert (given == start + count).all() and (own == (row if count else given)).all()
        assert [np.ndim(one) for one in last] == [int(count > 0), int(count > 1)]
        assert all((one == row).all() for one in last[: min(count, 2)])
    with pytest.raises(ShapeError, match="over 100 tensors"):
        program([(2, start + count) for count in range(60)])


def test_calls_of_changing_sizes_take_no_more_memory() -> None:
    """Nor fresh memory: pages that a call needs were there before it."""
    program, rng = load(ENCODE), np.random.default_rng(5)
    pool = [random_tree(rng, int(rng.integers(1, 20))) for _ in range(100)]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    def call_some(times: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            first = int(rng.integers(90))
            program(pool[first : first + int(rng.integers(1, 11))])
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    program(pool)
    call_some(1_000)
    pages = resident()
    assert call_some(4_000) < 400  # of which Python takes some
    assert resident() <= 1.1 * pages
