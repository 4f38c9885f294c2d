"""The rule of a sample of shapes: by values alone, or by remainders where that loses less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dietcode.dispatcher.problem import FloatArray, IntArray
from dietcode.dispatcher.rule import Rule, by_remainder, fit_rule, regret
from dietcode.dispatcher.smooth import smooth_assignment

BoolArray = npt.NDArray[np.bool_]
_SMOOTHING = 0.005  # an instance may lose this much so that the rule stays short


@dataclass(frozen=True, eq=False)
class FittingSample:
    """Shapes that a rule is fitted on, and its largest size.

    Attributes
    ----------
    bindings : int64 [num_points, num_variables]
    throughput : float64 [num_points, num_categories]
        FLOP/s of the chosen micro-kernels.
    best : int64 [num_points]
        The category of each shape.
    weights : float64 [num_points]
    max_leaves : int or None
        None for as many as `fit_rule` allows.
    """

    bindings: IntArray
    throughput: FloatArray
    best: IntArray
    weights: FloatArray
    max_leaves: int | None = None

    def of(self, chosen: BoolArray) -> FittingSample:
        """Return some of the shapes."""
        points = self.bindings[chosen], self.throughput[chosen], self.best[chosen], self.weights[chosen]
        return FittingSample(*points, self.max_leaves)


def best_rule(variables: tuple[str, ...], sample: FittingSample, divisors: Sequence[int]) -> Rule:
    """Fit the rule; by the remainders of a variable where that loses less, or as little with fewer leaves.

    Parameters
    ----------
    divisors : sequence of int
        By whose remainders it may tell shapes apart, the largest first.

    Raises
    ------
    ValueError, TuningError
        As `fit_rule` has it.
    """
    plain = _rule(variables, sample)
    if not divisors:
        return plain
    found = [plain]
    for position, variable in enumerate(variables):
        values, parts = sample.bindings[:, position], []
        rest = np.ones(len(values), dtype=bool)
        for divisor in divisors:
            parts.append(rest & (values % divisor == 0))
            rest &= ~parts[-1]
        if all(sample.weights[part].any() for part in (*parts, rest)):
            rules = [_rule(variables, sample.of(part), len(parts) + 1) for part in (*parts, rest)]
            found.append(by_remainder(variable, divisors, rules))

    def standing(rule: Rule) -> tuple[int, int]:
        mean, _ = regret(rule.predict(sample.bindings), sample.throughput, sample.weights)
        return round(mean / _SMOOTHING), rule.num_leaves

    return min(found, key=standing)


def _rule(variables: tuple[str, ...], sample: FittingSample, parts: int = 1) -> Rule:
    """Fit the rule, or one of so many parts; exact within `_SMOOTHING` where all instances are known."""
    smoothed = smooth_assignment(sample.throughput, sample.bindings, sample.best, tolerance=_SMOOTHING)
    leaves = {} if sample.max_leaves is None else {"max_leaves": sample.max_leaves // parts}
    return fit_rule(variables, sample.bindings, smoothed, sample.throughput, sample.weights, **leaves)
