"""The choice of categories: the curve of all candidate sets and the best point of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dietcode.dispatcher.covering import forward_path, vote_counts, vote_cover, vote_ranks, votes_of
from dietcode.dispatcher.exact import minimal_cover
from dietcode.dispatcher.objective import Objective
from dietcode.dispatcher.problem import IntArray, MicroKernelSet, SelectionProblem, make_problem
from dietcode.dispatcher.smooth import smooth_assignment
from dietcode.dispatcher.trimming import backward_path, fewer_bytes, g_key, less_loss, loss_key, lossless
from dietcode.errors import TuningError

__all__ = ["CurvePoint", "Objective", "Selection", "select_categories", "smooth_assignment"]

Origin = Literal["votes", "exact", "greedy"]

_RUNGS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
"""Mean losses at which the local search runs, up to ``binary_size``. Fixed, so that a larger ``binary_size``
also has the sets of every smaller one, and never needs more bytes."""
_SMALL_CELLS = 50_000
"""Up to this many (instance, micro-kernel) pairs the local search starts from several points."""


@dataclass(frozen=True)
class CurvePoint:
    """One point of the trade-off: a set of micro-kernels, each instance at its best one.

    Attributes
    ----------
    origin : 'votes', 'exact' or 'greedy'
        A covering by votes (Equation 1), the covering of fewest bytes, or a forward greedy path.
    num_votes : int or None
        Votes of each instance (the paper's k), for origins 'votes' and 'exact'.
    chosen : tuple of int
        Micro-kernels by the caller's index, the largest share of Equation 1's sum first.
    loss_mean, loss_worst : float
        Fractions given up against each instance's best micro-kernel; the worst is over positive weights.
    num_kernels, num_bytes : int
        Size of the library, its fixed bytes included.
    trimmed : bool
        Whether micro-kernels were dropped or exchanged afterwards.
    """

    origin: Origin
    num_votes: int | None
    chosen: tuple[int, ...]
    loss_mean: float
    loss_worst: float
    num_kernels: int
    num_bytes: int
    trimmed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the point as JSON-able data."""
        return vars(self) | {"chosen": list(self.chosen)}


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen categories.

    Attributes
    ----------
    num_votes, chosen, loss_mean, loss_worst, num_bytes
        As in `CurvePoint`.
    assignment : int64 [num_instances]
        Position in `chosen` of each instance's best chosen micro-kernel.
    objective_met : bool
        False where ``max_kernels`` or ``max_bytes`` allow a larger loss only.
    reason : str
        Why not, in one line; empty where the objective is met.
    curve : tuple of CurvePoint
        Points by bytes: every covering by votes, every greedy step, and trimmed points that nothing beats.
    """

    num_votes: int | None
    chosen: tuple[int, ...]
    assignment: IntArray
    loss_mean: float
    loss_worst: float
    num_bytes: int
    objective_met: bool
    reason: str
    curve: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class _TracedSet:
    """A candidate and its origin."""

    point: MicroKernelSet
    origin: Origin
    num_votes: int | None
    trimmed: bool = False


def select_categories(
    throughput: ArrayLike,
    flops: ArrayLike,
    weights: ArrayLike,
    size_bytes: ArrayLike,
    objective: Objective,
    *,
    fixed_bytes: int = 0,
) -> Selection:
    """Choose micro-kernels and send every instance to its best chosen one (Equations 1 and 2).

    Parameters
    ----------
    throughput : float64 [num_instances, num_micro_kernels]
        Predicted FLOP/s; 0, negative and non-finite values mean that it cannot serve the instance.
    flops : float64 [num_instances]
        Operations of each instance; used under ``weight: flops``.
    weights : float64 [num_instances]
        Probabilities; they sum to 1, zeros allowed. Instances of weight 0 are served, and count for no loss.
    size_bytes : int64 [num_micro_kernels]
        Compiled bytes of each micro-kernel; may be 0.
    objective : Objective
    fixed_bytes : int
        Bytes of the library without micro-kernels.

    Raises
    ------
    ValueError
        Arrays that do not fit together.
    TuningError
        An instance that no micro-kernel serves, or caps under which no set serves all instances.
    """
    problem = make_problem(throughput, flops, weights, size_bytes, objective, fixed_bytes=fixed_bytes)
    _check_caps(problem)
    found: dict[tuple[int, ...], _TracedSet] = {}
    for item in _candidates(problem):
        found.setdefault(item.point.micro_kernels, item)
    _search_around(problem, found)
    best, met = _choose(problem, list(found.values()))
    choice = _curve_point(problem, best)
    return Selection(
        num_votes=choice.num_votes,
        chosen=choice.chosen,
        assignment=_assign(problem, choice.chosen),
        loss_mean=choice.loss_mean,
        loss_worst=choice.loss_worst,
        num_bytes=choice.num_bytes,
        objective_met=met,
        reason="" if met else _why_not(problem, best.point),
        curve=_curve(problem, list(found.values())),
    )


def _check_caps(problem: SelectionProblem) -> None:
    cap, least = problem.objective.max_bytes, problem.num_bytes([0])
    if cap is not None and least > cap:
        raise TuningError(
            f"max_bytes is {cap}, but a library with the smallest micro-kernel has {least} bytes; allow more"
        )


def _candidates(problem: SelectionProblem) -> Iterator[_TracedSet]:
    """Yield all sets that depend on no loss bound but ``max_loss``: coverings, paths forward and backward."""
    ranks = vote_ranks(problem)
    seen: set[tuple[int, ...]] = set()
    for num_votes in vote_counts(len(problem.order)):
        point = lossless(problem, vote_cover(problem, ranks, num_votes))
        yield _TracedSet(point, "votes", num_votes)
        if point.micro_kernels not in seen:
            seen.add(point.micro_kernels)
            for cut in backward_path(problem, point.micro_kernels, problem.accept_ratio):
                yield _TracedSet(cut, "votes", num_votes, trimmed=True)
        cover = minimal_cover(votes_of(problem, ranks, num_votes), problem.size_bytes)
        smallest = None if cover is None else problem.evaluated(cover)
        if smallest is not None:
            yield _TracedSet(smallest, "exact", num_votes)
    needs = [problem.serve_ratio] + [problem.accept_ratio] * (problem.objective.max_loss is not None)
    for need in needs:
        for per_byte in (False, True):
            for micro_kernels in forward_path(problem, need, per_byte):
                grown = problem.evaluated(micro_kernels)
                if grown is not None:
                    yield _TracedSet(grown, "greedy", None)


def _search_around(problem: SelectionProblem, found: dict[tuple[int, ...], _TracedSet]) -> None:
    """Add what local search finds: under the caps, and under each rung of mean loss up to the objective's."""

    def add(start: _TracedSet, point: MicroKernelSet) -> None:
        found.setdefault(point.micro_kernels, replace(start, point=point, trimmed=True))

    capped = [item for item in found.values() if problem.within_caps(item.point)]
    objective = problem.objective
    num_starts = 3 if problem.ratio.size <= _SMALL_CELLS else 1
    if capped and (objective.max_kernels is not None or objective.max_bytes is not None):
        start = min(capped, key=lambda item: loss_key(item.point))
        add(start, less_loss(problem, start.point))
    for rung in _RUNGS:
        if rung <= objective.binary_size:
            good = [item for item in found.values() if _is_good(problem, item.point, rung)]
            for start in sorted(good, key=lambda item: g_key(item.point))[:num_starts]:
                add(start, fewer_bytes(problem, start.point, rung))


def _is_good(problem: SelectionProblem, point: MicroKernelSet, mean_bound: float | None = None) -> bool:
    return problem.within_caps(point) and problem.within_bounds(point, mean_bound)


def _choose(problem: SelectionProblem, items: list[_TracedSet]) -> tuple[_TracedSet, bool]:
    """Return Equation 2's best point, or the least loss under the caps; and whether the objective is met."""
    good = [item for item in items if _is_good(problem, item.point)]
    if good:
        return min(good, key=lambda item: g_key(item.point)), True
    capped = [item for item in items if problem.within_caps(item.point)]
    if not capped:
        raise TuningError(
            f"no set of micro-kernels under {_caps(problem)} was found that serves every instance; allow more"
        )
    return min(capped, key=lambda item: loss_key(item.point)), False


def _caps(problem: SelectionProblem) -> str:
    caps = {name: getattr(problem.objective, name) for name in ("max_kernels", "max_bytes")}
    return " and ".join(f"{name} {cap}" for name, cap in caps.items() if cap is not None)


def _why_not(problem: SelectionProblem, point: MicroKernelSet) -> str:
    objective = problem.objective
    text = f"under {_caps(problem)} the smallest mean loss found is {point.loss_mean:.4g}"
    if not problem.within_bounds(replace(point, loss_worst=0.0)):
        text += f", above binary_size {objective.binary_size:g}"
    if not problem.within_bounds(replace(point, loss_mean=0.0)):
        text += f", with a worst loss of {point.loss_worst:.4g}, above max_loss {objective.max_loss:g}"
    return text


def _curve_point(problem: SelectionProblem, item: _TracedSet) -> CurvePoint:
    """Translate to the caller's indices, the largest share of Equation 1's sum first."""
    rows = np.array(item.point.micro_kernels, dtype=np.int64)
    owner = problem.ratio[rows].argmax(axis=0)
    scores = np.bincount(owner, problem.vote_score[rows[owner], np.arange(owner.size)], minlength=rows.size)
    ordered = rows[np.argsort(-scores, kind="stable")]
    point = item.point
    return CurvePoint(
        item.origin,
        item.num_votes,
        tuple(int(index) for index in problem.order[ordered]),
        point.loss_mean,
        point.loss_worst,
        len(rows),
        point.num_bytes,
        item.trimmed,
    )


def _assign(problem: SelectionProblem, chosen: tuple[int, ...]) -> IntArray:
    """Return each instance's best position in `chosen`; of equals that of fewer bytes, then lower index."""
    row_of = np.argsort(problem.order)
    rows = row_of[list(chosen)]
    positions = np.argsort(rows)
    assignment: IntArray = positions[problem.ratio[rows[positions]].argmax(axis=0)]
    return assignment


def _curve(problem: SelectionProblem, items: list[_TracedSet]) -> tuple[CurvePoint, ...]:
    ordered = sorted(items, key=lambda item: g_key(item.point))
    kept, least = [], np.inf
    for item in ordered:
        beats_all = item.point.loss_mean < least
        least = min(least, item.point.loss_mean)
        if beats_all or not item.trimmed:
            kept.append(_curve_point(problem, item))
    return tuple(kept)
