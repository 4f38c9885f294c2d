"""Which products one loop over the reduction computes, with its sums in registers. Imports no compiler.

Products of the same columns go into one loop, so that the forget gates of all children of a node are a tile
of as many more rows. Where the sums of all gates do not fit the registers, some gates are computed after the
others, and finished sums wait in L1: a tile of two gates at a time has twice the rows of one of four. What
is added to each sum stays in order, whatever the loops.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.products.problem import ProductProblem
from dietcode.workload.products import Gates, ProductTerm, Read

Term = tuple[ProductTerm, list[tuple[Gates, str]]]


@dataclass(frozen=True)
class ProductLoop:
    """One loop over a reduction.

    Attributes
    ----------
    columns, reduction : str
        The column tensor, and the indices that are summed over.
    targets : dict of Read to list of (Gates, str)
        By what has the rows: the gates, and the sum that each is added to.
    """

    columns: str
    reduction: str
    targets: dict[Read, list[tuple[Gates, str]]]

    @property
    def num_accumulators(self) -> int:
        """Sums of each row and column."""
        return len({name for own in self.targets.values() for _, name in own})

    @property
    def gates(self) -> list[Gates]:
        """What is read of the column tensor."""
        return list(dict.fromkeys(gates for own in self.targets.values() for gates, _ in own))


def loops_of(problem: ProductProblem, rows: int, vectors: int, num_registers: int) -> list[ProductLoop]:
    """Return the loops of a tile, in order.

    Parameters
    ----------
    rows, vectors : int
        Of the tile.
    num_registers : int
        Vector registers.
    """
    most = most_accumulators(rows, vectors, num_registers)
    return [part for group in _together(problem.plan.terms, most) for part in _parts(group, most)]


def most_accumulators(rows: int, vectors: int, num_registers: int) -> int:
    """Return the sums of an element that fit the registers, beside a row of vectors and a broadcast."""
    return (num_registers - vectors - 1) // (rows * vectors)


def num_parts(loops: Sequence[ProductLoop]) -> int:
    """Return the most loops among which the gates of the same products are divided."""
    counts = Counter((loop.columns, tuple(loop.targets)) for loop in loops)
    return max(counts.values())


def has_equal_parts(loops: Sequence[ProductLoop]) -> bool:
    """Return whether the gates of the same products are divided evenly, as two and one are slow."""
    counts: dict[Any, set[int]] = {}
    for loop in loops:
        counts.setdefault((loop.columns, tuple(loop.targets)), set()).add(len(loop.gates))
    return all(len(own) == 1 for own in counts.values())


def _together(terms: Sequence[Term], most: int) -> list[ProductLoop]:
    """Return products in groups of the same columns, for sums of their own."""
    groups: list[ProductLoop] = []
    for term, targets in terms:
        group = _group_of(groups, term, targets)
        if group is None or len(group.targets) >= most:
            groups.append(ProductLoop(term.columns, term.reduction, {term.rows: targets}))
        else:
            group.targets[term.rows] = targets
    return groups


def _group_of(
    groups: Sequence[ProductLoop], term: ProductTerm, targets: Sequence[tuple[Gates, str]]
) -> ProductLoop | None:
    """Return the last group that a product may join: nothing is added to its sums there or later."""
    own = {name for _, name in targets}
    for group in reversed(groups):
        if not own.isdisjoint(name for taken in group.targets.values() for _, name in taken):
            return None
        if (group.columns, group.reduction) == (term.columns, term.reduction):
            return group if {gates for gates, _ in targets} == set(group.gates) else None
    return None


def _parts(group: ProductLoop, most: int) -> list[ProductLoop]:
    """Return the loops of a group: as few as have at most so many sums each, about as many gates in each.

    Gates that are added to one sum stay together.
    """
    gates, count = group.gates, 1
    if all(len({name for _, name in own}) == len(own) for own in group.targets.values()):
        of_gate = group.num_accumulators // len(gates)
        count = min(len(gates), -(-len(gates) // max(1, most // of_gate)))
    bounds = [len(gates) * at // count for at in range(count + 1)]
    return [_with_gates(group, gates[low:high]) for low, high in itertools.pairwise(bounds)]


def _with_gates(group: ProductLoop, gates: Sequence[Gates]) -> ProductLoop:
    targets = {rows: [one for one in own if one[0] in gates] for rows, own in group.targets.items()}
    return ProductLoop(group.columns, group.reduction, targets)
