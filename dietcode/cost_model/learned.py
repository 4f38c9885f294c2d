"""A learned f_local: gradient-boosted trees that rank micro-kernels before they are measured.

The target is what arithmetic misses, ``log(measured seconds / estimated seconds)`` of each measured wave, so
that a model of few waves falls back on the estimate (`Estimator.estimate`). Several models on resampled
micro-kernels give a spread, and micro-kernels outside of a model's sample an honest error (bagging).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.cost_model.model import Estimator, Extents, FloatArray, Table
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.problem import AnyProblem, IntArray

_NUM_MODELS = 4
_NUM_ROUNDS = 40
_BAG_SHARE = 0.75
_MIN_MICRO_KERNELS = 4
_MAX_WAVES = 20_000
_LEAST_ERROR = 0.02
_PARAMETERS = {
    "objective": "reg:squarederror",
    "eta": 0.1,
    "max_depth": 4,
    "min_child_weight": 2,
    "subsample": 0.8,
    "lambda": 10.0,  # so that a dozen micro-kernels do not outweigh the estimate
    "base_score": 0.0,
    "verbosity": 0,
}


@dataclass(frozen=True, eq=False)
class Waves:
    """Measured waves as rows to learn from.

    Attributes
    ----------
    features : float32 [num_waves, num_features]
    log_ratio : float64 [num_waves]
        Log of measured over estimated seconds.
    micro_kernel : int64 [num_waves]
        Number of the micro-kernel; waves of one are never split between training and test.
    num_workloads : int
    """

    features: Table
    log_ratio: FloatArray
    micro_kernel: IntArray
    num_workloads: int

    @property
    def num_micro_kernels(self) -> int:
        """Measured micro-kernels."""
        return len(np.unique(self.micro_kernel))


def gather(workloads: Sequence[tuple[AnyProblem, Records, Estimator | None]]) -> Waves | None:
    """Return rows of every usable measurement of several workloads on one device; None without any.

    Each workload's rows are relative to its own calibration, since machines drift. At most `_MAX_WAVES` are
    taken, the last workload's first.
    """
    tables: list[Table] = []
    ratios: list[FloatArray] = []
    micro_kernels: list[IntArray] = []
    num_workloads = num_waves = 0
    for problem, records, estimator in reversed(workloads):
        before = num_waves
        if estimator is None:
            continue
        for measurement in records.measurements.values():
            known = all(set(p) == set(problem.extents) for p in measurement.points)
            micro_kernel = measurement.micro_kernel
            if not measurement.points or not known or not estimator.allows(problem, micro_kernel):
                continue
            if num_waves >= _MAX_WAVES:
                break
            extents = columns_of(measurement.points)
            table, estimate = estimator.features(problem, micro_kernel, extents)
            tables.append(table)
            ratios.append(np.log(np.asarray(measurement.secs) / estimate))
            micro_kernels.append(np.full(len(estimate), len(micro_kernels), dtype=np.int64))
            num_waves += len(estimate)
        num_workloads += num_waves > before
    if not tables:
        return None
    return Waves(np.concatenate(tables), np.concatenate(ratios), np.concatenate(micro_kernels), num_workloads)


def joined(first: Waves | None, second: Waves | None) -> Waves | None:
    """Return the rows of both, of different workloads."""
    if first is None or second is None:
        return first or second
    return Waves(
        np.concatenate([first.features, second.features]),
        np.concatenate([first.log_ratio, second.log_ratio]),
        np.concatenate([first.micro_kernel, second.micro_kernel + first.micro_kernel.max() + 1]),
        first.num_workloads + second.num_workloads,
    )


def columns_of(points: Sequence[dict[str, int]]) -> dict[str, IntArray]:
    """Return points as columns, int64 [num_points] for each index."""
    return {index: np.asarray([p[index] for p in points], dtype=np.int64) for index in points[0]}


@dataclass(frozen=True, eq=False)
class LearnedLocal:
    """Trees that predict the seconds of unmeasured micro-kernels.

    Attributes
    ----------
    boosters : tuple
        One for each bag.
    error : float
        Root mean square error of the log of seconds on micro-kernels that are not in a bag.
    num_waves, num_workloads : int
        What it was trained on.
    """

    boosters: tuple[Any, ...]
    error: float
    num_waves: int
    num_workloads: int

    def predict(
        self,
        problem: AnyProblem,
        micro_kernels: Sequence[AnyMicroKernel],
        estimator: Estimator,
        extents: Extents,
    ) -> tuple[FloatArray, FloatArray]:
        """Return predicted FLOP/s [num_instances, num_micro_kernels], and the spread of its log.

        Parameters
        ----------
        micro_kernels : sequence
            Of the device.
        estimator : Estimator
            Of the device.
        extents : dict of str to int64 array [num_instances]

        Returns
        -------
        throughput : float64 [num_instances, num_micro_kernels]
        spread : float64 [num_micro_kernels]
        """
        import xgboost

        parts = [estimator.features(problem, micro_kernel, extents) for micro_kernel in micro_kernels]
        estimate = np.stack([secs for _, secs in parts], axis=1)
        table = xgboost.DMatrix(np.concatenate([rows for rows, _ in parts]), nthread=1)
        logs = np.stack([booster.predict(table) for booster in self.boosters])
        logs = logs.reshape(len(self.boosters), len(micro_kernels), -1).astype(np.float64)
        throughput = np.reshape(problem.flops(extents), (-1, 1)) / (estimate * np.exp(logs.mean(axis=0).T))
        spread = np.hypot(logs.mean(axis=2).std(axis=0), self.error)
        return throughput, spread


def learn(waves: Waves | None, random_state: int = 0) -> LearnedLocal | None:
    """Fit the trees; None where fewer than a handful of micro-kernels were measured.

    Parameters
    ----------
    waves : Waves or None
        As `gather` gives them.
    random_state : int
        The same waves and state give the same model.
    """
    if waves is None or waves.num_micro_kernels < _MIN_MICRO_KERNELS:
        return None
    import xgboost

    rng = np.random.default_rng(random_state)
    present = np.unique(waves.micro_kernel)
    boosters, errors = [], []
    for number in range(_NUM_MODELS):
        order = rng.permutation(present)
        in_bag = np.isin(waves.micro_kernel, order[: max(2, round(_BAG_SHARE * len(order)))])
        train = xgboost.DMatrix(waves.features[in_bag], waves.log_ratio[in_bag], nthread=1)
        parameters = {**_PARAMETERS, "seed": random_state * _NUM_MODELS + number, "nthread": 1}
        booster = xgboost.train(parameters, train, _NUM_ROUNDS)
        residual = (
            booster.predict(xgboost.DMatrix(waves.features[~in_bag], nthread=1)) - waves.log_ratio[~in_bag]
        )
        boosters.append(booster)
        errors.append(float(np.mean(residual**2)))
    error = max(_LEAST_ERROR, float(np.sqrt(np.mean(errors))))
    return LearnedLocal(tuple(boosters), error, len(waves.log_ratio), waves.num_workloads)


def missed(
    model: LearnedLocal, problem: AnyProblem, estimator: Estimator, measurements: Sequence[Measurement]
) -> float | None:
    """Return the median relative error of predictions for waves measured since; None for a few micro-kernels.

    A factor common to all of them is taken out: machines drift, and only the ranking counts.

    Parameters
    ----------
    model : LearnedLocal
        Trained before the measurements.
    measurements : sequence of Measurement
        Of micro-kernels of `problem`.
    """
    errors = []
    for measurement in measurements:
        if measurement.points:
            extents = columns_of(measurement.points)
            throughput, _ = model.predict(problem, [measurement.micro_kernel], estimator, extents)
            measured = problem.flops(extents) / np.asarray(measurement.secs)
            errors.append(np.log(throughput[:, 0] / measured))
    if len(errors) < _MIN_MICRO_KERNELS:
        return None
    logs = np.concatenate(errors)
    return float(np.expm1(np.median(np.abs(logs - np.median(logs)))))
