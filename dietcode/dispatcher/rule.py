"""Fitting a dispatch rule to an assignment, and what a rule gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dietcode.dispatcher.problem import FloatArray, IntArray, weighted_sum
from dietcode.dispatcher.tree import MAX_LEAVES, Branch, Leaf, Modulus, Node, Rule, balanced, merged
from dietcode.errors import TuningError

__all__ = ["Branch", "Leaf", "Modulus", "Node", "Rule", "by_remainder", "fit_rule", "regret"]

_FIT_DEPTH = 32  # repairs may go deeper, by halving, and stay below tree.MAX_DEPTH
_LEAST_WEIGHT = 1e-3  # of the mean: an instance of weight 0 still counts slightly
_UNSERVED = -50.0  # log of a ratio: what sending an instance to a category that cannot serve it counts


@dataclass(frozen=True, eq=False)
class _LabelledPoints:
    """Distinct bindings, each with its category, or what each category would lose on it."""

    variables: tuple[str, ...]
    points: IntArray  # [n, v], distinct, in lexicographic order
    merit: FloatArray  # [n, c]: weighted, summed over the instances of one binding; higher is better
    label: IntArray  # [n]: the category of most merit
    weight: FloatArray  # [n], positive
    num_categories: int


def fit_rule(
    variables: Sequence[str],
    bindings: ArrayLike,
    assignment: ArrayLike,
    throughput_chosen: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    max_leaves: int = 4096,
) -> Rule:
    """Fit the rule that sends every instance to its assigned category.

    Exact for every binding with one assigned category, if `max_leaves` allow. Where they do not, and where
    one binding has several categories, a leaf takes the category that loses least; `regret` says how much.
    One variable gets the shallowest tree over its runs, several get scikit-learn's. A threshold between two
    enumerated values lies halfway.

    Parameters
    ----------
    bindings : int64 [num_instances, num_variables]
    assignment : int64 [num_instances]
        Categories, from 0.
    throughput_chosen : float64 [num_instances, num_categories] or None
        Predicted FLOP/s, by which a leaf that cannot be exact chooses; None: by weight.
    weights : float64 [num_instances] or None
        At least 0; zeros still count slightly. None: all alike.
    max_leaves : int
        At least 1.

    Raises
    ------
    ValueError
        Arrays that do not fit together.
    TuningError
        A rule that does not reproduce the assignment although it should.
    """
    if not 1 <= max_leaves <= MAX_LEAVES:
        raise ValueError(f"max_leaves is {max_leaves}; allowed: 1 to {MAX_LEAVES}")
    sample = _sample(tuple(variables), bindings, assignment, throughput_chosen, weights)
    has_one = len(sample.variables) == 1
    root, exact = _fit_runs(sample, max_leaves) if has_one else None, True
    if root is None:
        root, exact = _fit_tree(sample, max_leaves)
        root = _rebalanced(sample, root) if has_one else root
    rule = Rule(sample.variables, sample.num_categories, merged(root))
    if exact and (rule.predict(sample.points) != sample.label).any():
        raise TuningError("the fitted dispatch rule does not reproduce the assignment; please report this")
    return rule


def by_remainder(variable: str, divisors: Sequence[int], rules: Sequence[Rule]) -> Rule:
    """Join rules, one for the multiples of each divisor that no earlier one divides, and one for the rest.

    Parameters
    ----------
    divisors : sequence of int
        The largest first.
    rules : sequence of Rule
        Over the same variables and categories, one more than divisors.
    """
    *firsts, last = (rule.root for rule in rules)
    root: Node = last
    for divisor, own in zip(reversed(divisors), reversed(firsts), strict=True):
        root = Modulus(variable, divisor, own, root)
    return Rule(rules[0].variables, rules[0].num_categories, merged(root))


def regret(
    rule_predictions: ArrayLike, throughput_chosen: ArrayLike, weights: ArrayLike
) -> tuple[float, float]:
    """Return the mean and the worst loss of a rule against each instance's best chosen category.

    Parameters
    ----------
    rule_predictions : int64 [num_instances]
    throughput_chosen : float64 [num_instances, num_categories]
    weights : float64 [num_instances]
        At least 0, of positive sum.

    Returns
    -------
    tuple of float
        Fractions: 1 minus the weighted geometric mean of the ratios, and the worst over positive weights. Any
        instance sent to a category that cannot serve it makes the worst 1, whatever its weight.
    """
    cost = np.asarray(throughput_chosen, dtype=np.float64)
    cost = np.where(np.isfinite(cost) & (cost > 0), cost, 0.0)
    probs = np.asarray(weights, dtype=np.float64)
    reached = cost[np.arange(len(cost)), np.asarray(rule_predictions, dtype=np.int64)]
    counts = probs > 0
    ratio = reached[counts] / np.maximum(cost[counts].max(axis=1), np.finfo(np.float64).tiny)
    if (ratio <= 0).any():
        return 1.0, 1.0
    mean = -float(np.expm1(weighted_sum(probs[counts], np.log(ratio)) / probs.sum()))
    return max(mean, 0.0) + 0.0, 1.0 if (reached <= 0).any() else 1.0 - float(ratio.min())


def _sample(
    variables: tuple[str, ...],
    bindings: ArrayLike,
    assignment: ArrayLike,
    throughput_chosen: ArrayLike | None,
    weights: ArrayLike | None,
) -> _LabelledPoints:
    """Check the arguments of `fit_rule` and merge instances of one binding."""
    points, given = np.asarray(bindings, dtype=np.int64), np.asarray(assignment, dtype=np.int64)
    if points.ndim != 2 or points.shape[1] != len(variables) or not variables or not len(points):
        raise ValueError(
            f"bindings have shape {points.shape}; give [num_instances, {len(variables)}], none 0"
        )
    if given.shape != (len(points),) or (given < 0).any():
        raise ValueError(f"assignment must be {len(points)} categories, from 0")
    weight = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != given.shape or (weight < 0).any() or not weight.sum() > 0:
        raise ValueError(f"weights must be {len(points)} numbers, at least 0 and not all 0")
    weight = np.maximum(weight / weight.mean(), _LEAST_WEIGHT)
    merit, num_categories = _merit(given, throughput_chosen)
    distinct, of = np.unique(points, axis=0, return_inverse=True)
    of = of.reshape(-1)
    summed, votes = np.zeros((len(distinct), num_categories)), np.zeros((len(distinct), num_categories))
    np.add.at(summed, of, merit * weight[:, None])
    np.add.at(votes, (of, given), weight)
    # An assigned category stands, also where another has more merit: the assignment may have been smoothed.
    label = np.where(votes > 0, summed, -np.inf).argmax(axis=1)
    return _LabelledPoints(
        variables, distinct, summed, label, np.bincount(of, weight).astype(np.float64), num_categories
    )


def _merit(given: IntArray, throughput_chosen: ArrayLike | None) -> tuple[FloatArray, int]:
    """Return each category's merit for each instance: log of its ratio to the best, or 1 for the assigned."""
    if throughput_chosen is None:
        num_categories = int(given.max()) + 1
        return np.eye(num_categories)[given], num_categories
    cost = np.asarray(throughput_chosen, dtype=np.float64)
    if cost.ndim != 2 or len(cost) != len(given) or cost.shape[1] <= int(given.max()):
        raise ValueError(f"throughput_chosen has shape {cost.shape}; give one column for each category")
    serves = np.isfinite(cost) & (cost > 0)
    safe = np.where(serves, cost, 0.0)
    ratio = safe / np.maximum(safe.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    merit: FloatArray = np.maximum(np.log(np.where(ratio > 0, ratio, 1e-300)), _UNSERVED)
    return merit, cost.shape[1]


def _fit_runs(sample: _LabelledPoints, max_leaves: int) -> Node | None:
    """Fit one variable: a balanced tree over the runs of the assignment; None if they are too many."""
    last = np.flatnonzero(sample.label[1:] != sample.label[:-1])
    if last.size + 1 > max_leaves:
        return None
    values = sample.points[:, 0].tolist()
    ends = [_between(values[index], values[index + 1]) for index in last.tolist()]
    categories = [*sample.label[last].tolist(), int(sample.label[-1])]
    return balanced(sample.variables[0], ends, categories)


def _rebalanced(sample: _LabelledPoints, root: Node) -> Node:
    """Make a tree over one variable shallow."""
    low, high = int(sample.points[0, 0]), int(sample.points[-1, 0])
    runs = Rule(sample.variables, sample.num_categories, root).ranges(low, high)
    return balanced(sample.variables[0], [run[1] for run in runs[:-1]], [run[2] for run in runs])


def _between(low: int, high: int) -> int:
    """Return the threshold that separates two values: halfway, rounded down."""
    return (low + high) // 2


def _fit_tree(sample: _LabelledPoints, max_leaves: int) -> tuple[Node, bool]:
    """Fit scikit-learn's tree, and halve the leaves that its depth left impure; and whether it is exact.

    It is fitted on the rank of each value among the variable's values: its features are float32, which hold
    integers exactly only to 2**24, and splits depend on order alone.
    """
    from sklearn.tree import DecisionTreeClassifier

    columns = [np.unique(column, return_inverse=True) for column in sample.points.T]
    ranks = np.stack([inverse.reshape(-1) for _, inverse in columns], axis=1).astype(np.float32)
    if max_leaves == 1:
        return _leaf(sample, np.arange(len(ranks))), bool((sample.label == sample.label[0]).all())
    # Without a limit that cannot be reached scikit-learn goes depth first, which is faster.
    limit = max_leaves if len(sample.points) > max_leaves else None
    classifier = DecisionTreeClassifier(max_depth=_FIT_DEPTH, max_leaf_nodes=limit, random_state=0)
    tree = classifier.fit(ranks, sample.label, sample_weight=sample.weight).tree_
    grower = _Grower(sample, [values.tolist() for values, _ in columns], ranks, tree)
    grower.spare = max_leaves - int(tree.n_leaves)
    return grower.grow(0, np.arange(len(ranks))), grower.exact


def _leaf(sample: _LabelledPoints, where: IntArray) -> Leaf:
    """Return the leaf for some points: their category, or the one of most merit."""
    labels = sample.label[where]
    if (labels == labels[0]).all():
        return Leaf(int(labels[0]))
    return Leaf(int(sample.merit[where].sum(axis=0).argmax()))


@dataclass
class _Grower:
    """Turns scikit-learn's arrays into nodes."""

    sample: _LabelledPoints
    values: list[list[int]]  # of each variable, ascending
    ranks: NDArray[np.float32]  # [n, v]
    tree: Any
    spare: int = 0  # leaves that repairs may still add
    exact: bool = True

    def grow(self, node: int, where: IntArray) -> Node:
        """Convert scikit-learn's node number `node`, which the points `where` reach."""
        below, above = int(self.tree.children_left[node]), int(self.tree.children_right[node])
        if below < 0:
            return self.halve(where)
        axis, cut = int(self.tree.feature[node]), int(np.floor(self.tree.threshold[node]))
        inside = self.ranks[where, axis] <= cut
        return Branch(
            self.sample.variables[axis],
            self.threshold(axis, cut),
            self.grow(below, where[inside]),
            self.grow(above, where[~inside]),
        )

    def halve(self, where: IntArray) -> Node:
        """Split points until each leaf has one category, along the axis of most values."""
        labels = self.sample.label[where]
        is_pure = bool((labels == labels[0]).all())
        if is_pure or self.spare < 1:
            self.exact &= is_pure
            return _leaf(self.sample, where)
        self.spare -= 1
        distinct = [np.unique(column) for column in self.ranks[where].T]
        axis = int(np.argmax([ranks.size for ranks in distinct]))
        cut = int(distinct[axis][(distinct[axis].size - 1) // 2])
        inside = self.ranks[where, axis] <= cut
        threshold = self.threshold(axis, cut)
        return Branch(
            self.sample.variables[axis], threshold, self.halve(where[inside]), self.halve(where[~inside])
        )

    def threshold(self, axis: int, rank: int) -> int:
        """Return the integer threshold after the value of rank `rank`."""
        return _between(self.values[axis][rank], self.values[axis][rank + 1])
