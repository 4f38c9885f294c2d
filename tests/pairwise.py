"""Pairwise covering: some of many cases that have each two values of two parameters which any of them has.

Most faults need one value, or two together (Kuhn, Kacker, Lei: Practical Combinatorial Testing, NIST
SP 800-142).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

Pair = tuple[tuple[str, Hashable], tuple[str, Hashable]]


def covering(cases: Sequence[Mapping[str, Hashable]]) -> set[int]:
    """Positions of cases that together have every pair, found greedily: the same ones in every process.

    Parameters
    ----------
    cases : sequence of mapping of str to hashable
        The value of each parameter; all have the same parameters.
    """
    pairs = [_pairs(case) for case in cases]
    missing = set().union(*pairs) if pairs else set()
    chosen: set[int] = set()
    while missing:
        best = max(range(len(cases)), key=lambda position: len(pairs[position] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen


def _pairs(case: Mapping[str, Hashable]) -> set[Pair]:
    first, *others = sorted(case.items(), key=lambda item: item[0])
    if not others:
        return {(first, first)}
    return set(combinations([first, *others], 2))
