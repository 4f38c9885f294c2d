"""Sets of micro-kernels, cut down: backward paths, and a local search around a set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import reduce
from itertools import chain, combinations, islice

import numpy as np
from numpy.typing import NDArray

from dietcode.dispatcher.problem import (
    LOSS_EPS,
    FloatArray,
    IntArray,
    MicroKernelSet,
    SelectionProblem,
    weighted_sum,
)

MAX_TRIALS = 400
_TRIAL_CELLS = 1_000_000  # bounds (trials x instances) of one local search
_JUDGED_CELLS = 20_000  # additions x instances that are judged at once
_GONE = -1.0  # the ratio of a dropped micro-kernel: below every need

Allowed = Callable[["Trim"], NDArray[np.bool_]]
"""Marks the members that a step may drop; bool [num_members]."""


class Trim:
    """A set of micro-kernels from which some are dropped, one after another.

    Each instance's best and second-best member are known, so that the cost of each drop takes
    ``O(num_instances)``.

    Parameters
    ----------
    micro_kernels : tuple of int
        Positions in the problem's order; every instance's best ratio must reach `need`.
    need : float64 [num_instances]
        No drop takes an instance below this ratio.
    """

    def __init__(self, problem: SelectionProblem, micro_kernels: tuple[int, ...], need: FloatArray) -> None:
        self.problem, self.need = problem, need
        self.rows: IntArray = np.array(sorted(micro_kernels), dtype=np.int64)
        self.sizes = problem.size_bytes[self.rows]
        self.alive: NDArray[np.bool_] = np.ones(len(self.rows), dtype=bool)
        self.keep: NDArray[np.bool_] = np.zeros(len(self.rows), dtype=bool)
        self._ratio = problem.ratio[self.rows]
        self._columns = np.arange(self._ratio.shape[1])
        self._first, self._second = _top_two(self._ratio)
        self._measure()

    def plus(self, micro_kernel: int) -> Trim:
        """Return this set and one more member, the last, that is never dropped; this one stays as it is."""
        more = copy(self)
        more.rows = np.append(self.rows, micro_kernel)
        more.sizes = np.append(self.sizes, self.problem.size_bytes[micro_kernel])
        more.alive, more.keep = np.append(self.alive, True), np.append(self.keep, True)
        new, count = self.problem.ratio[micro_kernel], len(self.rows)
        first = self._ratio[self._first, self._columns]
        second = self._ratio[self._second, self._columns] if count > 1 else np.full(new.shape, _GONE)
        more._ratio = np.concatenate([self._ratio, new[None]])
        more._first = np.where(new > first, count, self._first)
        more._second = np.where(new > first, self._first, np.where(new > second, count, self._second))
        more._measure()
        return more

    def _measure(self) -> None:
        """Refresh what each drop would cost: `cost` in mean utility and `blocked`, both [num_members]."""
        count, columns, weight = len(self.rows), self._columns, self.problem.mean_weight
        first = self.problem.utility[self.rows[self._first], columns]
        second = self.problem.utility[self.rows[self._second], columns]
        fails = self._ratio[self._second, columns] < self.need
        self.mean_utility = float(weighted_sum(weight, first))
        price = np.bincount(self._first, weight * (first - second), minlength=count)
        self.cost: FloatArray = price.astype(np.float64)
        self.blocked = np.bincount(self._first, fails, minlength=count) > 0
        self.blocked |= ~self.alive | self.keep | (self.alive.sum() == 1)

    def freeable(self, pairs: IntArray, mean_bound: float) -> IntArray:
        """Return at least the bytes that drops could free after two micro-kernels have been added.

        Members that cannot be dropped first cannot be dropped later: instances depend on them ever more.

        Parameters
        ----------
        pairs : int64 [num_pairs, 2]
            Micro-kernels; where one is there twice, it alone is added.
        mean_bound : float
            Of the mean loss after each drop.

        Returns
        -------
        int64 [num_pairs]
        """
        problem, weight, (num_pairs, count) = (
            self.problem,
            self.problem.mean_weight,
            (len(pairs), len(self.rows)),
        )
        first, second = self._ratio[self._first, self._columns], self._ratio[self._second, self._columns]
        best, next_best = (
            problem.utility[self.rows[owner], self._columns] for owner in (self._first, self._second)
        )
        if count == 1:  # it is its own second
            second, next_best = np.full_like(second, _GONE), np.full_like(best, -np.inf)
        ratio, utility = problem.ratio[pairs].max(axis=1), problem.utility[pairs].max(axis=1)
        stays = ratio <= first
        price = np.where(stays, weight * (best - np.maximum(next_best, utility)), 0.0)
        fails = stays & (np.maximum(second, ratio) < self.need)
        owners = (self._first + count * np.arange(num_pairs)[:, None]).ravel()
        cost, blocked = (
            np.bincount(owners, values.ravel(), minlength=num_pairs * count).reshape(num_pairs, count)
            for values in (price, fails)
        )
        mean_utility = weighted_sum(weight, np.maximum(best, utility))
        losses = problem.losses(mean_utility[:, None] - cost)
        droppable = (blocked == 0) & self.alive & ~self.keep & (losses <= mean_bound + 2 * LOSS_EPS)
        freeable: IntArray = np.where(droppable, self.sizes, 0).sum(axis=1)
        return freeable

    @property
    def num_bytes(self) -> int:
        """Bytes of the library with the members that are left."""
        return self.problem.fixed_bytes + int(self.sizes[self.alive].sum())

    def cheapest(self, mean_bound: float, allowed: Allowed | None = None) -> int | None:
        """Return the allowed member whose drop costs least for each byte and keeps the mean loss, or None."""
        losses = self.problem.losses(self.mean_utility - self.cost)
        droppable = ~self.blocked & (losses <= mean_bound + LOSS_EPS)
        if allowed is not None:
            droppable &= allowed(self)
        members = np.flatnonzero(droppable)
        if not members.size:
            return None
        per = np.ones(members.size) if self.too_many else np.maximum(self.sizes[members], 1)
        return int(members[np.lexsort((-members, self.cost[members] / per))[0]])

    @property
    def too_many(self) -> bool:
        """Whether there are more members than ``max_kernels``."""
        return not self.problem.caps_hold(int(self.alive.sum()), 0)

    def drop(self, member: int) -> None:
        """Drop one member, by its position in `rows`."""
        self.alive[member] = False
        self._ratio[member] = _GONE
        hit = np.flatnonzero((self._first == member) | (self._second == member))
        self._first[hit], self._second[hit] = _top_two(self._ratio[:, hit])
        self._measure()

    def candidate(self) -> MicroKernelSet:
        """Return the set of members that are left."""
        ratio = self._ratio[self._first, self._columns]
        return MicroKernelSet(
            tuple(sorted(int(row) for row in self.rows[self.alive])),
            self.problem.loss(self.mean_utility),
            1.0 - float(ratio[self.problem.weights > 0].min()),
            self.num_bytes,
        )


def _top_two(ratio: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the best and the second-best row of each column; a single row is its own second."""
    first = ratio.argmax(axis=0)
    rest = ratio.copy()
    rest[first, np.arange(ratio.shape[1])] = _GONE
    if len(ratio) == 1:
        return first, first.copy()
    second = rest.argmax(axis=0)
    return first, np.where(second == first, (first + 1) % len(ratio), second)


def lossless(problem: SelectionProblem, micro_kernels: tuple[int, ...]) -> MicroKernelSet:
    """Drop every member that no instance of positive weight prefers and that none needs."""
    trim = Trim(problem, micro_kernels, problem.serve_ratio)
    while True:
        free = np.flatnonzero(~trim.blocked & (trim.cost <= 0))
        if not free.size:
            return trim.candidate()
        trim.drop(int(free[-1]))  # the largest


def backward_path(
    problem: SelectionProblem, micro_kernels: tuple[int, ...], need: FloatArray
) -> Iterator[MicroKernelSet]:
    """Yield shrinking sets: each step drops the member whose loss is least for the bytes it frees."""
    trim = Trim(problem, micro_kernels, need)
    while (member := trim.cheapest(mean_bound=1.0)) is not None:
        trim.drop(member)
        yield trim.candidate()


def fewer_bytes(problem: SelectionProblem, start: MicroKernelSet, mean_bound: float) -> MicroKernelSet:
    """Search around `start` for fewer bytes under the bounds and the caps (Equation 2's G).

    Each trial adds one micro-kernel and drops others while the bounds hold: exchanges, two for one and more.
    """

    def trial(trim: Trim) -> MicroKernelSet:
        while (member := trim.cheapest(mean_bound, _worth_dropping)) is not None:
            trim.drop(member)
        return trim.candidate()

    def better(new: MicroKernelSet, old: MicroKernelSet) -> bool:
        return problem.within_bounds(new, mean_bound) and g_key(new) < g_key(old)

    def promising(base: Trim, pairs: IntArray) -> NDArray[np.bool_]:
        added = problem.size_bytes[pairs].sum(axis=1)
        added[pairs[:, 0] == pairs[:, 1]] //= 2
        enough: NDArray[np.bool_] = base.freeable(pairs, mean_bound) >= added
        return enough

    return _search(Trim(problem, start.micro_kernels, problem.accept_ratio), trial, better, promising)


def less_loss(problem: SelectionProblem, start: MicroKernelSet) -> MicroKernelSet:
    """Search around `start` for a smaller mean loss under the caps alone."""

    def over_caps(trim: Trim) -> NDArray[np.bool_]:
        over = not problem.caps_hold(int(trim.alive.sum()), trim.num_bytes)
        return np.full(trim.alive.shape, over)

    def trial(trim: Trim) -> MicroKernelSet:
        while (member := trim.cheapest(1.0, over_caps)) is not None:
            trim.drop(member)
        return trim.candidate()

    def better(new: MicroKernelSet, old: MicroKernelSet) -> bool:
        return loss_key(new) < loss_key(old)

    return _search(Trim(problem, start.micro_kernels, problem.serve_ratio), trial, better)


def g_key(point: MicroKernelSet) -> tuple[int, float, int, tuple[int, ...]]:
    """Sort key of G: fewest bytes, then smallest loss, then fewest kernels."""
    return point.num_bytes, round(point.loss_mean, 12), len(point.micro_kernels), point.micro_kernels


def loss_key(point: MicroKernelSet) -> tuple[float, int, int, tuple[int, ...]]:
    """Sort key where only the caps can be met: smallest loss first."""
    return round(point.loss_mean, 12), point.num_bytes, len(point.micro_kernels), point.micro_kernels


def _worth_dropping(trim: Trim) -> NDArray[np.bool_]:
    """Members whose drop frees something or costs nothing."""
    return (trim.sizes > 0) | (trim.cost <= 0) | trim.too_many


def _search(
    base: Trim,
    trial: Callable[[Trim], MicroKernelSet],
    better: Callable[[MicroKernelSet, MicroKernelSet], bool],
    promising: Callable[[Trim, IntArray], NDArray[np.bool_]] | None = None,
) -> MicroKernelSet:
    """Add nothing, each micro-kernel, each pair, in turn; take improvements, stop after a round without.

    Parameters
    ----------
    base : Trim
        The set to begin with.
    trial : function
        Drops what it can from a set.
    better : function
        Whether its first argument is to replace the second.
    promising : function or None
        Marks pairs of micro-kernels, int64 [num_pairs, 2], whose trial may be better; a micro-kernel alone is
        there twice.
    """
    problem, best = base.problem, base.candidate()
    num_kernels, num_instances = problem.ratio.shape
    trials = max(num_kernels + 1, min(MAX_TRIALS, _TRIAL_CELLS // num_instances))
    sets = (combinations(range(num_kernels), count) for count in range(3))
    additions = list(islice(chain.from_iterable(sets), trials))
    pairs = np.array([(added * 2)[:2] or (0, 0) for added in additions], dtype=np.int64)
    at_once = max(1, _JUDGED_CELLS // num_instances)
    num_tried = idle = 0
    while num_tried < trials and idle < len(additions):
        begin = num_tried % len(additions)
        end = min(begin + at_once, begin + trials - num_tried, begin + len(additions) - idle, len(additions))
        judged = [True] * (end - begin) if promising is None else promising(base, pairs[begin:end])
        for added, may_be_better in zip(additions[begin:end], judged, strict=True):
            num_tried, idle = num_tried + 1, idle + 1
            if (may_be_better or not added) and not set(added) & set(best.micro_kernels):
                new = trial(reduce(Trim.plus, added, base))
                if problem.within_caps(new) and better(new, best):
                    best, idle = new, 0
                    base = Trim(problem, best.micro_kernels, base.need)
                    break  # the others were judged by the set before
    return best
