"""The selection problem: a checked and normalised cost array.

Micro-kernels are held in the order (fewer bytes, lower index), so that the first of several equals is the one
that wins every tie.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dietcode.dispatcher.objective import Objective
from dietcode.errors import TuningError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LOSS_EPS = 1e-9
"""Losses are compared with a bound within this much."""

_TINY = float(np.finfo(np.float64).tiny)


def weighted_sum(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Return ``values @ weights`` over the last axis, in this thread.

    OpenBLAS shares products of this size among its threads, which on a busy machine made selection ten times
    slower, and gives other last bits on another number of cores.
    """
    return np.asarray(np.einsum("...i,i->...", values, weights), dtype=np.float64)


@dataclass(frozen=True)
class MicroKernelSet:
    """A set of micro-kernels, by position in `SelectionProblem`'s order, with its losses and its bytes."""

    micro_kernels: tuple[int, ...]  # ascending
    loss_mean: float
    loss_worst: float
    num_bytes: int


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """Arrays over (micro-kernels in order, instances).

    Attributes
    ----------
    ratio : float64 [num_micro_kernels, num_instances]
        Throughput over the instance's best; 0 where the micro-kernel cannot serve it.
    utility : float64 [num_micro_kernels, num_instances]
        ``log(ratio)``, or ``ratio`` itself under ``weight: flops``; the mean loss is a function of its mean.
    mean_weight : float64 [num_instances]
        Weights of that mean; they sum to 1.
    vote_score : float64 [num_micro_kernels, num_instances]
        ``w_i · p_i · Cost_M(i)``, the terms of Equation 1.
    serve_ratio, accept_ratio : float64 [num_instances]
        The least ratio at which an instance is served at all, and at which ``max_loss`` holds too.
    weights : float64 [num_instances]
        Probabilities p_i; they sum to 1.
    size_bytes : int64 [num_micro_kernels]
    order : int64 [num_micro_kernels]
        The caller's index of each micro-kernel.
    """

    objective: Objective
    ratio: FloatArray
    utility: FloatArray
    mean_weight: FloatArray
    vote_score: FloatArray
    serve_ratio: FloatArray
    accept_ratio: FloatArray
    weights: FloatArray
    size_bytes: IntArray
    order: IntArray
    fixed_bytes: int

    def losses(self, mean_utility: FloatArray) -> FloatArray:
        """Return mean losses, fractions, of mean utilities; any shape."""
        loss = 1.0 - mean_utility if self.objective.weight == "flops" else -np.expm1(mean_utility)
        return np.clip(loss, 0.0, 1.0) + 0.0  # no negative zero

    def loss(self, mean_utility: float) -> float:
        """Return the mean loss, a fraction, of one mean utility."""
        return float(self.losses(np.array(mean_utility)))

    def num_bytes(self, micro_kernels: Iterable[int]) -> int:
        """Return the bytes of a library with these micro-kernels."""
        return self.fixed_bytes + sum(int(self.size_bytes[micro_kernel]) for micro_kernel in micro_kernels)

    def evaluated(self, micro_kernels: Iterable[int]) -> MicroKernelSet | None:
        """Evaluate a set of micro-kernels; return None where it does not serve every instance."""
        rows = tuple(sorted(micro_kernels))
        if not rows:
            return None
        ratio = self.ratio[list(rows)].max(axis=0)
        if (ratio < self.serve_ratio).any():
            return None
        utility = self.utility[list(rows)].max(axis=0)
        return MicroKernelSet(
            rows,
            self.loss(float(weighted_sum(self.mean_weight, utility))),
            1.0 - float(ratio[self.weights > 0].min()),
            self.num_bytes(rows),
        )

    def within_bounds(self, point: MicroKernelSet, mean_bound: float | None = None) -> bool:
        """Whether the mean loss (against `mean_bound` if given) and the worst loss hold."""
        mean_bound = self.objective.binary_size if mean_bound is None else mean_bound
        worst_bound = 1.0 if self.objective.max_loss is None else self.objective.max_loss
        return point.loss_mean <= mean_bound + LOSS_EPS and point.loss_worst <= worst_bound + LOSS_EPS

    def within_caps(self, point: MicroKernelSet) -> bool:
        """Whether ``max_kernels`` and ``max_bytes`` hold."""
        return self.caps_hold(len(point.micro_kernels), point.num_bytes)

    def caps_hold(self, num_kernels: int, num_bytes: int) -> bool:
        """Whether ``max_kernels`` and ``max_bytes`` allow this many."""
        max_kernels, max_bytes = self.objective.max_kernels, self.objective.max_bytes
        return (max_kernels is None or num_kernels <= max_kernels) and (
            max_bytes is None or num_bytes <= max_bytes
        )


def make_problem(
    throughput: ArrayLike,
    flops: ArrayLike,
    weights: ArrayLike,
    size_bytes: ArrayLike,
    objective: Objective,
    *,
    fixed_bytes: int = 0,
) -> SelectionProblem:
    """Check the arrays and normalise them.

    Parameters
    ----------
    throughput : array [num_instances, num_micro_kernels]
        In FLOP/s; not positive or not finite where a micro-kernel cannot serve an instance.
    flops : array [num_instances]
    weights : array [num_instances]
        Probabilities.
    size_bytes : array [num_micro_kernels]
    objective : Objective
    fixed_bytes : int
        Of every library, whatever is in it.

    Raises
    ------
    ValueError
        Arrays that do not fit together, negative sizes, weights that do not sum to 1.
    TuningError
        An instance that no micro-kernel serves.
    """
    cost = np.asarray(throughput, dtype=np.float64)
    sizes = np.asarray(size_bytes, dtype=np.int64)
    work = np.asarray(flops, dtype=np.float64)
    probs = np.asarray(weights, dtype=np.float64)
    _check(cost, work, probs, sizes, fixed_bytes)
    order = np.lexsort((np.arange(sizes.size), sizes)).astype(np.int64)
    cost = np.ascontiguousarray(cost.T[order])
    cost = np.where(np.isfinite(cost) & (cost > 0), cost, 0.0)
    best = cost.max(axis=0)
    _check_served(best)
    probs = probs / probs.sum()
    ratio = cost / best
    by_flops = objective.weight == "flops"
    mean_weight = probs * work * best if by_flops else probs
    if not mean_weight.sum() > 0:
        raise ValueError("flops of the instances with positive weight are all 0; give their operation counts")
    serve = np.full(best.shape, _TINY)
    worst = 1.0 if objective.max_loss is None else objective.max_loss
    return SelectionProblem(
        objective=objective,
        ratio=ratio,
        utility=ratio if by_flops else np.log(np.maximum(ratio, _TINY)),
        mean_weight=mean_weight / mean_weight.sum(),
        vote_score=cost * (probs * work) if by_flops else ratio * probs,
        serve_ratio=serve,
        accept_ratio=np.where(probs > 0, np.maximum(serve, 1.0 - worst - LOSS_EPS), serve),
        weights=probs,
        size_bytes=sizes[order],
        order=order,
        fixed_bytes=int(fixed_bytes),
    )


def _check(cost: FloatArray, work: FloatArray, probs: FloatArray, sizes: IntArray, fixed_bytes: int) -> None:
    if cost.ndim != 2 or 0 in cost.shape:
        raise ValueError(
            f"throughput has shape {cost.shape}; give [num_instances, num_micro_kernels], none 0"
        )
    num_instances, num_kernels = cost.shape
    for name, array, size in (
        ("flops", work, num_instances),
        ("weights", probs, num_instances),
        ("size_bytes", sizes, num_kernels),
    ):
        if array.shape != (size,):
            raise ValueError(f"{name} has shape {array.shape}; throughput {cost.shape} asks for ({size},)")
        if not np.isfinite(array).all() or (array < 0).any():
            raise ValueError(f"{name} has a negative or non-finite value; give finite values, at least 0")
    if abs(float(probs.sum()) - 1.0) > 1e-6:
        raise ValueError(f"weights sum to {float(probs.sum())}; give probabilities that sum to 1")
    if fixed_bytes < 0:
        raise ValueError(f"fixed_bytes is {fixed_bytes}; give at least 0")


def _check_served(best: FloatArray) -> None:
    unserved = np.flatnonzero(best <= 0)
    if unserved.size:
        raise TuningError(
            f"no micro-kernel serves {unserved.size} of {best.size} instances (the first is number "
            f"{int(unserved[0])}); add micro-kernels that do, or narrow the range of shapes"
        )
