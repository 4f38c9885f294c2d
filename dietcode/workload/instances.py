"""The instances to tune for: all of a product of ranges, a sample of a large one, or joint tuples."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dietcode.workload.spec import RangeVariable, Spec, ValuesVariable
from dietcode.workload.thinning import thin
from dietcode.workload.work import call_flops

MAX_ROUNDS = 48


@dataclass(frozen=True, eq=False)
class Instances:
    """Static bindings of the shape variables, with probabilities.

    Parameters
    ----------
    variables : tuple of str
        Names, in declaration order.
    bindings : int64 array [num_instances, num_vars]
        Each row once; read-only.
    weights : float64 array [num_instances]
        Non-negative, summing to 1; read-only.
    exhaustive : bool
        Whether every instance of positive probability is there, rather than a sample.
    """

    variables: tuple[str, ...]
    bindings: NDArray[np.int64]
    weights: NDArray[np.float64]
    exhaustive: bool

    def __post_init__(self) -> None:
        self.bindings.setflags(write=False)
        self.weights.setflags(write=False)

    def __len__(self) -> int:
        """Return num_instances."""
        return len(self.bindings)

    def columns(self) -> dict[str, NDArray[np.int64]]:
        """Return the values of each variable, int64 [num_instances], as `DimExpr.evaluate` takes them."""
        return {name: self.bindings[:, i] for i, name in enumerate(self.variables)}


def make_instances(spec: Spec, limit: int = 4096, seed: int = 0) -> Instances:
    """Enumerate or sample the instances of `spec`.

    Up to `limit` joint instances are exactly those given; more are thinned, see `dietcode.workload.thinning`.
    A product of at most `limit` points is enumerated, without points of weight 0. A larger one is sampled:
    its corners, then points stratified along each axis, alternately evenly in the logarithm and by
    probability. A sampled point's weight is its probability over its chance of having been drawn (Horvitz and
    Thompson's estimator), so weighted means estimate those over the whole range.

    Parameters
    ----------
    spec : Spec
        A valid spec.
    limit : int
        Most instances, at least 2.
    seed : int
        The same seed gives the same instances.

    Raises
    ------
    ValueError
        `limit` is below 2.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}; allowed: at least 2")
    if spec.instances:
        rows = _joint_rows(spec)
        weights = np.array([instance.weight for instance in spec.instances], dtype=np.float64)
        kept, weights = thin(rows, weights, limit, seed)
        return Instances(spec.variables, rows[kept], weights / weights.sum(), len(kept) == len(rows))
    axes = [_Axis.of(variable) for variable in spec.shape_vars.values()]
    num_points = math.prod(axis.size for axis in axes)
    if num_points <= limit:
        bindings = _decode(axes, np.arange(num_points, dtype=np.int64))
        weights = _product(axes, bindings, spread=False)
    else:
        bindings, weights = _sample(axes, limit, np.random.default_rng(seed))
    return Instances(spec.variables, bindings, weights / weights.sum(), num_points <= limit)


def largest_instance(spec: Spec) -> dict[str, int]:
    """Return the binding with the most FLOPs; of joint instances the first of those."""
    if not spec.instances:
        return {name: variable.max for name, variable in spec.shape_vars.items()}
    columns = dict(zip(spec.variables, _joint_rows(spec).T, strict=True))
    best = int(np.argmax(call_flops(spec, columns)))
    return {name: int(values[best]) for name, values in columns.items()}


def _joint_rows(spec: Spec) -> NDArray[np.int64]:
    rows = [[instance.bindings[name] for name in spec.variables] for instance in spec.instances]
    return np.array(rows, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The values of one variable: ``low…high``, or ascending `values` with positive `probabilities`."""

    low: int
    high: int
    values: NDArray[np.int64] | None = None
    probabilities: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, variable: RangeVariable | ValuesVariable) -> _Axis:
        if variable.weights is not None:
            chosen = sorted((value, weight) for value, weight in variable.weights.items() if weight > 0)
            values = np.array([value for value, _ in chosen], dtype=np.int64)
            weights = np.array([weight for _, weight in chosen], dtype=np.float64)
            return cls(int(values[0]), int(values[-1]), values, weights / weights.sum())
        if isinstance(variable, RangeVariable):
            return cls(variable.min, variable.max)
        count = len(variable.values)
        return cls(
            variable.min, variable.max, np.array(variable.values, dtype=np.int64), np.full(count, 1 / count)
        )

    @property
    def size(self) -> int:
        return self.high - self.low + 1 if self.values is None else len(self.values)

    def at(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.low + index if self.values is None else self.values[index]

    def draw(self, quantiles: NDArray[np.float64], spread: bool) -> NDArray[np.int64]:
        """Map quantiles in [0, 1) to values: by probability, or `spread` evenly over magnitudes."""
        if self.values is None and spread:
            ratio = (self.high + 1) / self.low
            return np.clip((self.low * ratio**quantiles).astype(np.int64), self.low, self.high)
        if self.probabilities is None or spread:
            return self.at(np.minimum((quantiles * self.size).astype(np.int64), self.size - 1))
        index = np.searchsorted(np.cumsum(self.probabilities), quantiles, side="right")
        return self.at(np.minimum(index, self.size - 1).astype(np.int64))

    def density(self, values: NDArray[np.int64], spread: bool) -> NDArray[np.float64]:
        """Return the chance of one draw to give each of `values`."""
        if self.values is None and spread:
            chance: NDArray[np.float64] = np.log1p(1 / values) / math.log((self.high + 1) / self.low)
            return chance
        if self.values is None or self.probabilities is None or spread:
            return np.full(len(values), 1 / self.size)
        return self.probabilities[np.searchsorted(self.values, values)]


def _decode(axes: list[_Axis], flat: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the points with these indices into the product, the last axis fastest."""
    index = np.unravel_index(flat, tuple(axis.size for axis in axes))
    return np.stack(
        [axis.at(column.astype(np.int64)) for axis, column in zip(axes, index, strict=True)], axis=1
    )


def _product(axes: list[_Axis], points: NDArray[np.int64], spread: bool) -> NDArray[np.float64]:
    chances = [axis.density(points[:, i], spread) for i, axis in enumerate(axes)]
    return np.asarray(math.prod(chances, start=np.ones(len(points))), dtype=np.float64)


def _corners(axes: list[_Axis], limit: int) -> NDArray[np.int64]:
    """Return all-min and all-max first, then the mixed corners that fit."""
    ends = [(axis.low, axis.high) for axis in axes]
    extremes = [tuple(low for low, _ in ends), tuple(high for _, high in ends)]
    rows = list(dict.fromkeys([*extremes, *itertools.product(*ends)]))
    return np.array(rows[:limit], dtype=np.int64)


def _sample(
    axes: list[_Axis], limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw up to `limit` distinct points, and weigh each by probability over chance of inclusion."""
    corners = _corners(axes, limit)
    points, num_drawn = np.unique(corners, axis=0), {True: 0, False: 0}
    for number in range(MAX_ROUNDS):
        missing, spread = limit - len(points), number % 2 == 0
        if missing <= 0:
            break
        count = max(1, missing // 2) if number == 0 else missing
        quantiles = [(rng.permutation(count) + rng.random(count)) / count for _ in axes]
        drawn = [axis.draw(column, spread) for axis, column in zip(axes, quantiles, strict=True)]
        points = np.unique(np.concatenate([points, np.stack(drawn, axis=1)]), axis=0)
        num_drawn[spread] += count
    expected = sum(num * _product(axes, points, spread) for spread, num in num_drawn.items())
    chance = -np.expm1(-np.asarray(expected, dtype=np.float64))
    corner_rows = set(map(tuple, corners.tolist()))
    chance[[tuple(row) in corner_rows for row in points.tolist()]] = 1.0
    return points, _product(axes, points, spread=False) / chance
