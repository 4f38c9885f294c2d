"""Sets of micro-kernels, built up: coverings by votes (Equation 1) and forward greedy paths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dietcode.dispatcher.problem import FloatArray, IntArray, SelectionProblem, weighted_sum

MAX_VOTE_STEPS = 24
MAX_PATH_KERNELS = 48
_TIE = 1e-12  # relative difference below which two scores are equal
_BATCH = 8  # gains measured at once
_DONE_LOSS = 1e-4  # a forward path ends here: the covering by one vote each has loss 0


def vote_counts(num_micro_kernels: int) -> list[int]:
    """Return the values of ``num_votes`` to try: 1, 2, 3, … with growing steps, at most `MAX_VOTE_STEPS`.

    >>> vote_counts(4)
    [1, 2, 3, 4]
    """
    if num_micro_kernels <= MAX_VOTE_STEPS:
        return list(range(1, num_micro_kernels + 1))
    votes = np.round(np.geomspace(1, num_micro_kernels, MAX_VOTE_STEPS)).astype(int)
    return sorted({int(num) for num in votes})


def vote_ranks(problem: SelectionProblem) -> IntArray:
    """Return int64 [num_micro_kernels, num_instances]: 0 for what an instance prefers, then 1, …"""
    by_preference = np.argsort(-problem.ratio, axis=0, kind="stable")
    ranks = np.empty(problem.ratio.shape, dtype=np.int64)
    np.put_along_axis(ranks, by_preference, np.arange(len(ranks))[:, None], axis=0)
    return ranks


def votes_of(problem: SelectionProblem, ranks: IntArray, num_votes: int) -> NDArray[np.bool_]:
    """Return bool [num_micro_kernels, num_instances]: which instance votes for which micro-kernel.

    An instance votes only for micro-kernels within ``max_loss``; one of zero weight, which never runs as far
    as is known, votes for all that serve it.
    """
    idle = problem.weights == 0
    votes: NDArray[np.bool_] = (problem.ratio >= problem.accept_ratio) & ((ranks < num_votes) | idle)
    return votes


def vote_cover(problem: SelectionProblem, ranks: IntArray, num_votes: int) -> tuple[int, ...]:
    """Cover all instances by micro-kernels they vote for, in the order chosen.

    Each iteration takes the M with the largest ``Σ_{i ∈ VoteFor(M)} w_i p_i Cost_M(i)`` (Equation 1) over the
    instances not yet covered.
    """
    votes = votes_of(problem, ranks, num_votes)
    terms = np.where(votes, problem.vote_score, 0.0)
    scores, num_voters = terms.sum(axis=1), votes.sum(axis=1)
    slack = _TIE * float(scores.max())
    uncovered = np.ones(ranks.shape[1], dtype=bool)
    chosen: list[int] = []
    while uncovered.any():
        open_scores = np.where(num_voters > 0, scores, -np.inf)
        micro_kernel = int(np.flatnonzero(open_scores >= open_scores.max() - slack)[0])
        covered = np.flatnonzero(uncovered & votes[micro_kernel])
        scores = scores - terms[:, covered].sum(axis=1)
        num_voters = num_voters - votes[:, covered].sum(axis=1)
        uncovered[covered] = False
        chosen.append(micro_kernel)
    return tuple(chosen)


def forward_path(problem: SelectionProblem, need: FloatArray, per_byte: bool) -> Iterator[tuple[int, ...]]:
    """Yield growing sets: each step adds the micro-kernel that lowers the mean loss most.

    Instances whose ratio is below `need` come first: a step lifts as many of them as it can. The path stays
    within ``max_kernels`` and ``max_bytes``, and ends where no step gains anything.

    Parameters
    ----------
    need : float64 [num_instances]
        ``serve_ratio`` or ``accept_ratio``.
    per_byte : bool
        Weigh what a step gains by the bytes it adds.
    """
    chosen: list[int] = []
    ratio, utility = np.zeros(need.shape), np.full(need.shape, float(problem.utility.min()))
    sizes = np.maximum(problem.size_bytes, 1).astype(np.float64) if per_byte else np.ones(len(problem.order))
    bound = np.full(sizes.shape, np.inf)
    while len(chosen) < MAX_PATH_KERNELS:
        fits, below = _fits(problem, chosen), ratio < need
        if below.any():
            lifted = (problem.ratio >= need)[:, below].sum(axis=1) / sizes
            fits &= lifted >= max(float(lifted[fits].max(initial=0.0)) * (1 - _TIE), _TIE)
        micro_kernel = _best_gain(problem, utility, sizes, bound, fits)
        if micro_kernel is None or (bound[micro_kernel] <= 0 and not below.any()):
            return
        chosen.append(micro_kernel)
        ratio = np.maximum(ratio, problem.ratio[micro_kernel])
        utility = np.maximum(utility, problem.utility[micro_kernel])
        yield tuple(chosen)
        done = problem.loss(float(weighted_sum(problem.mean_weight, utility))) <= _DONE_LOSS
        if done and (ratio >= need).all():
            return


def _best_gain(
    problem: SelectionProblem,
    utility: FloatArray,
    sizes: FloatArray,
    bound: FloatArray,
    fits: NDArray[np.bool_],
) -> int | None:
    """Return the first fitting micro-kernel of the largest gain over `sizes`, or None.

    Gains only shrink as a set grows, so the gain of an earlier step bounds this one's: only those whose
    `bound` reaches the best are measured again, and `bound` is lowered in place.
    """
    open_ = np.flatnonzero(fits)
    fresh = np.zeros(fits.shape, dtype=bool)
    while open_.size:
        best = float(bound[open_[fresh[open_]]].max(initial=-np.inf))
        rivals = open_[bound[open_] >= best * (1 - _TIE)]
        stale = rivals[~fresh[rivals]]
        if not stale.size:
            return int(rivals[0])
        batch = stale[np.argsort(-bound[stale], kind="stable")[:_BATCH]]
        gain = weighted_sum(problem.mean_weight, np.maximum(problem.utility[batch] - utility, 0.0))
        bound[batch], fresh[batch] = gain / sizes[batch], True
    return None


def _fits(problem: SelectionProblem, chosen: list[int]) -> NDArray[np.bool_]:
    """Mark the micro-kernels that can be added without breaking a cap; bool [num_micro_kernels]."""
    fits = np.ones(len(problem.order), dtype=bool)
    fits[chosen] = False
    objective = problem.objective
    if objective.max_kernels is not None and len(chosen) >= objective.max_kernels:
        fits[:] = False
    if objective.max_bytes is not None:
        fits &= problem.size_bytes <= objective.max_bytes - problem.num_bytes(chosen)
    return fits
