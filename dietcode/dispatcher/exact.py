"""The minimal covering set, exactly, by branch and bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dietcode.dispatcher.problem import IntArray

MAX_CELLS = 20_000
"""Above this many (micro-kernel, distinct set of voters) pairs the greedy covering has to do."""
_FEW_NODES, _MANY_NODES = 1000, 50_000
"""Nodes of a first search, which few problems exceed, and of one with better bounds: half a second."""

BoolArray = NDArray[np.bool_]


def minimal_cover(votes: BoolArray, size_bytes: IntArray) -> tuple[int, ...] | None:
    """Return the set of fewest bytes in which every instance has a micro-kernel that it votes for.

    ``min Σ s_j x_j`` subject to ``Σ_{j: i votes for j} x_j ≥ 1`` for each instance i, x binary. Instances
    with the same votes are one constraint, and a constraint that contains another's votes follows from it.

    Parameters
    ----------
    votes : bool [num_micro_kernels, num_instances]
        Every instance votes for at least one.
    size_bytes : int64 [num_micro_kernels]
        At least 0, which counts as 1.

    Returns
    -------
    tuple of int or None
        Micro-kernels, ascending; None where the problem is larger than `MAX_CELLS`, or the search too long.

    >>> votes = np.array([[True, True, False], [False, True, True], [True, False, True]])
    >>> minimal_cover(votes, np.array([5, 5, 7]))
    (0, 1)
    """
    bits = np.ascontiguousarray(np.packbits(votes, axis=0).T)
    keys = bits.view(np.dtype((np.void, bits.shape[1]))).reshape(-1)
    distinct = votes.T[np.unique(keys, return_index=True)[1]]
    if distinct.size > MAX_CELLS:
        return None
    rows, sizes = _needed(distinct), np.maximum(size_bytes, 1)
    cover = _greedy(rows, sizes)
    search = _Branching(rows, sizes, int(sizes[cover].sum()), _FEW_NODES)
    search.run(np.zeros(len(rows), dtype=np.int64))
    if search.num_nodes > _FEW_NODES:
        search = _Branching(rows, sizes, int(sizes[cover].sum()), _MANY_NODES)
        search.run(_relaxed_prices(rows, sizes))
    if search.num_nodes > _MANY_NODES:
        return None
    return tuple(sorted(cover if search.best is None else search.best))


def _needed(rows: BoolArray) -> BoolArray:
    """Return distinct voter sets without those that contain another; [num_sets, num_micro_kernels]."""
    ordered = rows[np.argsort(rows.sum(axis=1), kind="stable")]
    kept = ordered[:1]
    for row in ordered[1:]:
        if not (kept <= row).all(axis=1).any():
            kept = np.append(kept, row[None], axis=0)
    return kept


def _greedy(rows: BoolArray, sizes: IntArray) -> list[int]:
    """Return a covering: most open sets a byte first, in the end without the superfluous."""
    chosen: list[int] = []
    open_ = np.ones(len(rows), dtype=bool)
    while open_.any():
        micro_kernel = int((rows[open_].sum(axis=0) / sizes).argmax())
        chosen.append(micro_kernel)
        open_ &= ~rows[:, micro_kernel]
    num_covers = rows[:, chosen].sum(axis=1)
    for micro_kernel in sorted(chosen, key=lambda index: -int(sizes[index])):
        covered = rows[:, micro_kernel]
        if (num_covers[covered] > 1).all():
            chosen.remove(micro_kernel)
            num_covers -= covered
    return chosen


def _relaxed_prices(rows: BoolArray, sizes: IntArray) -> IntArray:
    """Return bytes [num_sets]: the dual prices of the covering in which micro-kernels may be divided.

    Without SciPy, as on a GPU's machine where nothing can be installed, none: the search is longer then.
    """
    try:
        from scipy.optimize import linprog
    except ImportError:
        return np.zeros(len(rows), dtype=np.int64)

    needs = -rows.astype(np.float64)
    result = linprog(sizes.astype(np.float64), A_ub=needs, b_ub=-np.ones(len(rows)), method="highs-ds")
    prices: IntArray = np.floor(-result.ineqlin.marginals).astype(np.int64)
    return prices


class _Branching:
    """Branch and bound below the bytes of a known covering.

    Each voter set gets a price, and no micro-kernel's sets cost more together than its bytes (a solution of
    the dual program): so the prices of the open sets are bytes that any covering of them still needs. All
    numbers are integers, and nothing is lost to rounding.

    Parameters
    ----------
    rows : bool [num_sets, num_micro_kernels]
        By the number of voters, ascending: a node branches on its first open set.
    sizes : int64 [num_micro_kernels]
        At least 1.
    num_bytes : int
        Of the known covering; only smaller ones are looked for.
    max_nodes : int
        The search stops when `num_nodes` exceeds it.
    """

    def __init__(self, rows: BoolArray, sizes: IntArray, num_bytes: int, max_nodes: int) -> None:
        self.best: list[int] | None = None
        self.num_bytes, self.max_nodes, self.num_nodes = num_bytes, max_nodes, 0
        self._rows, self._sizes = rows, sizes
        packed = np.packbits(rows, axis=0, bitorder="little").T
        self._sets = [int.from_bytes(column.tobytes(), "little") for column in packed]

    def run(self, wanted: IntArray) -> None:
        """Find the smallest covering of fewer bytes, if there is one; `wanted` are prices to begin with."""
        left = self._sizes.copy()  # bytes that no price has used
        prices = np.zeros_like(wanted)
        for at_most in (np.maximum(wanted, 0), np.full_like(wanted, left.max())):
            for index, row in enumerate(self._rows):
                price = min(at_most[index], left[row].min())
                prices[index] += price
                left[row] -= price
        self._prices: list[int] = prices.tolist()
        self._left: list[int] = left.tolist()
        voters = [map(int, np.flatnonzero(row)) for row in self._rows]
        self._voters = [sorted(row, key=lambda index: self._left[index]) for row in voters]
        self._visit((1 << len(self._rows)) - 1, sum(self._prices), 0, [])

    def _visit(self, open_: int, least_bytes: int, excluded: int, chosen: list[int]) -> None:
        """Visit the coverings that have `chosen`, none of `excluded`, and at least `least_bytes`.

        Parameters
        ----------
        open_ : int
            A bit for each voter set that `chosen` does not cover.
        least_bytes : int
            The bytes of `chosen` and the prices of the open sets.
        excluded : int
            A bit for each micro-kernel whose coverings were visited already.
        chosen : list of int
        """
        self.num_nodes += 1
        if not open_:
            self.best, self.num_bytes = chosen, least_bytes
            return
        for micro_kernel in self._voters[(open_ & -open_).bit_length() - 1]:
            if self.num_nodes > self.max_nodes:
                return
            if excluded >> micro_kernel & 1:
                continue
            least = least_bytes + self._left[micro_kernel]
            again = self._sets[micro_kernel] & ~open_  # what is covered already has been paid for
            while again and least < self.num_bytes:
                least += self._prices[(again & -again).bit_length() - 1]
                again &= again - 1
            if least < self.num_bytes:
                still_open = open_ & ~self._sets[micro_kernel]
                self._visit(still_open, least, excluded, [*chosen, micro_kernel])
            excluded |= 1 << micro_kernel
