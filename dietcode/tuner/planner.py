"""What to measure next: the space, the promise of each candidate, and instances that need other tiles."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dietcode.backends.protocol import Domain
from dietcode.cost_model.learned import LearnedLocal, Waves, gather, joined, learn
from dietcode.cost_model.model import Estimator, Fitted, FloatArray
from dietcode.dispatcher.problem import weighted_sum
from dietcode.errors import TuningError
from dietcode.measure.records import Records
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.problem import AnyProblem, IntArray
from dietcode.tuner.search import Search
from dietcode.workload.thinning import thin

BATCH = 8
_NUM_SEEDS = 3
_MAX_INSTANCES = 256
_MAX_SHAPES = 4  # badly served shapes that the space grows around in one round
_MAX_TRIED = 16  # shapes that are looked at for these
_TILES_PER_SHAPE = 6
_BADLY_SERVED = 0.05  # of what the same core does on shapes that fit
_LEAST_PADDING = 0.01
_SURE = 2.0  # spreads above its prediction at which a candidate is given up
_UNTRIED = 0.1  # spread of the log: windows gained 14 % over gathering, narrow vectors 34 % at T = 5
_FAR = 1.0  # log of a throughput below every prediction, for instances that nothing serves yet


@dataclass(frozen=True)
class Expansion:
    """The space grown for one shape.

    Attributes
    ----------
    shape : dict of str to int
        Extents of the dynamic indices.
    cause : str
        ``padding`` or ``occupancy``, the factor that loses more, or ``axes``: other axes of its tile.
    served : float
        Share of the best f_local that today's micro-kernels reach there.
    added : tuple of Candidate
    """

    shape: dict[str, int]
    cause: str
    served: float
    added: tuple[Candidate, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        names = [candidate.micro_kernel.name for candidate in self.added]
        return {"shape": self.shape, "cause": self.cause, "served": self.served, "micro_kernels": names}


@dataclass(frozen=True)
class Plan:
    """One round.

    Attributes
    ----------
    batch : tuple of Candidate
        Candidates to measure, the most promising first; empty where the space is exhausted.
    promise : float or None
        Mean gain in throughput that measuring the batch is expected to bring, a fraction; None where
        nothing predicts it.
    dropped : tuple of str
        Candidates that no instance would vote for even if they beat their prediction by two spreads.
    expansions : tuple of Expansion
    model : LearnedLocal or None
        The model that ranked them.
    num_left : int
        Candidates that are not measured, those of the batch included.
    features_version : int
        Of the features that `model` takes.
    served : float64 array [num_sampled] or None
        Log of the best predicted FLOP/s of each sampled instance; None where nothing is measured.
    """

    batch: tuple[Candidate, ...]
    promise: float | None = None
    dropped: tuple[str, ...] = ()
    expansions: tuple[Expansion, ...] = ()
    model: LearnedLocal | None = None
    num_left: int = 0
    features_version: int = 0
    served: FloatArray | None = None


@dataclass
class Planner:
    """Chooses batches.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
    weights : float64 array [num_instances]
    others : sequence of (Domain, Records)
        Other workloads of the device.

    Attributes
    ----------
    space : dict of micro-kernel to str
        Every candidate and its provenance, in the order in which they are tried where nothing ranks them.
    reopened : set of micro-kernel
        Pruned for another job's instances, candidates again for these.
    """

    domain: Domain
    extents: dict[str, IntArray]
    weights: FloatArray
    search: Search
    others: Sequence[tuple[Domain, Records]] = ()
    space: dict[AnyMicroKernel, str] = field(default_factory=dict)
    reopened: set[AnyMicroKernel] = field(default_factory=set)
    _earlier: Waves | None = field(default=None, init=False)
    _made_of: tuple[Any, ...] = field(default=(), init=False)
    _last_fit: Fitted | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        possible = np.flatnonzero(self.weights > 0)
        points = np.stack([values[possible] for values in self.extents.values()], axis=1)
        picked, weights = thin(points, self.weights[possible], _MAX_INSTANCES)
        self.sample = {index: values[possible[picked]] for index, values in self.extents.items()}
        self.sample_weights = weights / weights.sum()

    def add(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Add candidates to the space; returns those that are new."""
        new = tuple(dict.fromkeys(c for c in candidates if c.micro_kernel not in self.space))
        self.space.update({c.micro_kernel: c.provenance for c in new})
        return new

    def plan(self, records: Records, most: int = BATCH) -> Plan:
        """Grow the space and plan the next round, of so many candidates at most."""
        fitted = self._fitted(records)
        served = _served(fitted)
        expansions: tuple[Expansion, ...] = ()
        if fitted is not None and self.search.mutation:
            expansions = (*self._tails(fitted), *self._axes(fitted))
        model, estimator = self._model(records)
        if fitted is not None and self.search.mutation:
            expansions += self._expansions(fitted, model, estimator)
        known = records.measurements
        left = [Candidate(k, p) for k, p in self.space.items() if k not in known or k in self.reopened]
        if not left or model is None or estimator is None:
            first = [c for e in expansions for c in e.added if c in left]
            ordered = [*first, *(c for c in left if c not in first)]
            batch = _scattered(ordered, most) if self.search.learning else ordered[:most]
            return Plan(tuple(batch), None, (), expansions, None, len(left), served=served)
        tried = frozenset[str]().union(*map(self.domain.ways, known))
        return self._ranked(left, tried, served, model, estimator, expansions, most)

    def mean_gain(self, before: FloatArray | None, records: Records) -> float | None:
        """Return the weighted geometric mean of the gain since a plan's `served`, a fraction."""
        after = _served(self._fitted(records))
        if before is None or after is None:
            return None
        return float(np.expm1(weighted_sum(self.sample_weights, after - before)))

    def _fitted(self, records: Records) -> Fitted | None:
        """Fit what is measured, once: a round's gain and the next plan are of the same measurements."""
        if records.calibration is None or not any(m.usable for m in records.measurements.values()):
            return None
        made_of = (records.calibration, records.fixed_bytes, *records.measurements.values())
        if len(made_of) != len(self._made_of) or any(map(operator.is_not, made_of, self._made_of)):
            self._made_of = made_of
            try:
                self._last_fit = self.domain.fit(records, self.sample)
            except TuningError:  # measurements of another version, none of which can be used
                self._last_fit = None
        return self._last_fit

    def _model(self, records: Records) -> tuple[LearnedLocal | None, Estimator | None]:
        estimator = self.domain.estimator(records)
        if estimator is None or not self.search.learning:
            return None, None
        if self._earlier is None:
            self._earlier = gather([_known(*other) for other in self.others])
        waves = joined(self._earlier, gather([_known(self.domain, records)]))
        return learn(waves, self.search.random_state), estimator

    def _ranked(
        self,
        left: list[Candidate],
        tried: frozenset[str],
        before: FloatArray | None,
        model: LearnedLocal,
        estimator: Estimator,
        expansions: tuple[Expansion, ...],
        most: int,
    ) -> Plan:
        """Choose a batch greedily by expected improvement, each pick believed before the next.

        The spread is larger for ways of computing that were not tried on this workload.
        """
        kernels = [candidate.micro_kernel for candidate in left]
        throughput, spread = model.predict(self.domain.problem, kernels, estimator, self.sample)
        untried = [not self.domain.ways(kernel) <= tried for kernel in kernels]
        spread = np.hypot(spread, _UNTRIED * np.asarray(untried))
        logs = np.log(throughput)
        served = before if before is not None else logs.min(axis=1) - _FAR
        hopeless = np.all(logs + _SURE * spread < served[:, None], axis=0)
        batch: list[Candidate] = []
        promise, open_ = 0.0, ~hopeless
        while len(batch) < most and open_.any():
            improvement = _improvement(logs, spread, served)
            gains = np.where(open_, weighted_sum(self.sample_weights, improvement.T), -1.0)
            best = int(gains.argmax())
            batch.append(left[best])
            promise += float(gains[best])
            open_[best] = False
            served = np.maximum(served, logs[:, best])
        dropped = tuple(kernel.name for kernel, out in zip(kernels, hopeless, strict=True) if out)
        expected = None if before is None else float(np.expm1(promise))
        version = estimator.version
        return Plan(tuple(batch), expected, dropped, expansions, model, len(left), version, before)

    def _tails(self, fitted: Fitted) -> tuple[Expansion, ...]:
        """Add other treatments of tails for micro-kernels that instances prefer in spite of padding."""
        best = fitted.throughput.argmax(axis=1)
        found = []
        for index in np.unique(best):
            kernel, rows = fitted.models[index].micro_kernel, np.flatnonzero(best == index)
            padding = 1.0 - fitted.factors[index].f_pad[rows]
            if padding.max() < _LEAST_PADDING:
                continue
            added = self.add([Candidate(other, "tails") for other in self.domain.tails(kernel)])
            if added:
                worst = int(rows[padding.argmax()])
                found.append(self._expansion(worst, "padding", 1.0 - float(padding.max()), added))
        return tuple(found)

    def _axes(self, fitted: Fitted) -> tuple[Expansion, ...]:
        """Add the other axes, one at a time, of the micro-kernels that instances prefer."""
        best, problem = fitted.throughput.argmax(axis=1), self.domain.problem
        longest = int(np.max(problem.product(problem.reduction, self.sample)))
        found = []
        for index in np.unique(best):
            kernel, rows = fitted.models[index].micro_kernel, np.flatnonzero(best == index)
            others = self.domain.neighbours(kernel, longest)
            added = self.add([Candidate(other, "axes") for other in others])
            if added:
                most = int(rows[self.sample_weights[rows].argmax()])
                served = fitted.factors[index].f_pad[most] * fitted.factors[index].f_spatial[most]
                found.append(self._expansion(most, "axes", min(1.0, float(served)), added))
        return tuple(found)

    def _expansions(
        self, fitted: Fitted, model: LearnedLocal | None, estimator: Estimator | None
    ) -> tuple[Expansion, ...]:
        """Add tiles that fit the shapes at which padding and idle cores cost most."""
        everyone = np.arange(len(self.sample_weights))
        best = fitted.throughput.argmax(axis=1)
        f_pad = np.stack([f.f_pad for f in fitted.factors], axis=1)[everyone, best]
        f_spatial = np.stack([f.f_spatial for f in fitted.factors], axis=1)[everyone, best]
        served = np.minimum(f_pad, 1.0) * np.minimum(f_spatial, 1.0)
        cost = self.sample_weights * -np.log(served)
        found: list[Expansion] = []
        badly = [row for row in np.argsort(-cost, kind="stable") if served[row] < 1.0 - _BADLY_SERVED]
        for row in badly[:_MAX_TRIED]:
            if len(found) == _MAX_SHAPES:
                break
            now = float(fitted.throughput[row, best[row]])
            tiles = self._tiles_for(int(row), now, model, estimator)
            added = self.add([Candidate(tile, "expansion") for tile in tiles])
            if added:
                cause = "padding" if f_pad[row] <= f_spatial[row] else "occupancy"
                found.append(self._expansion(int(row), cause, float(served[row]), added))
        return tuple(found)

    def _tiles_for(
        self, row: int, now: float, model: LearnedLocal | None, estimator: Estimator | None
    ) -> list[AnyMicroKernel]:
        """Return new tiles for one instance, those that promise more than `now` FLOP/s, the best first."""
        at = {index: values[row : row + 1] for index, values in self.sample.items()}
        _, rows, columns, _ = self.domain.problem.sizes({index: int(v[0]) for index, v in at.items()})
        tiles = [t for t in self.domain.fitting_tiles(rows, columns) if t not in self.space]
        if not tiles or model is None or estimator is None:
            return tiles[:_TILES_PER_SHAPE]
        throughput, spread = model.predict(self.domain.problem, tiles, estimator, at)
        hopeful = throughput[0] * np.exp(spread)
        order = [int(i) for i in np.argsort(-hopeful, kind="stable") if hopeful[i] > now]
        return [tiles[i] for i in order[:_TILES_PER_SHAPE]]

    def _expansion(self, row: int, cause: str, served: float, added: tuple[Candidate, ...]) -> Expansion:
        shape = {index: int(self.sample[index][row]) for index in self.domain.problem.dynamic}
        return Expansion(shape, cause, served, added)


def _known(domain: Domain, records: Records) -> tuple[AnyProblem, Records, Estimator | None]:
    return domain.problem, records, domain.estimator(records)


def _served(fitted: Fitted | None) -> FloatArray | None:
    return None if fitted is None else np.log(fitted.throughput.max(axis=1))


def _scattered(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """Choose a batch to learn from: the first three (T0 of the seeds), then those farthest from all picked.

    Distance is that of the logarithms of rows and columns.
    """
    logs = np.log([[c.micro_kernel.rows, c.micro_kernel.columns] for c in candidates])
    picked = list(range(min(_NUM_SEEDS, len(candidates))))
    while len(picked) < min(most, len(candidates)):
        apart = np.abs(logs[:, None] - logs[picked]).sum(axis=2).min(axis=1)
        apart[picked] = -1.0
        picked.append(int(apart.argmax()))
    return [candidates[index] for index in picked]


def _improvement(logs: FloatArray, spread: FloatArray, served: FloatArray) -> FloatArray:
    """Return the expected improvement of the log of throughput, [num_instances, num_candidates]."""
    from scipy.special import ndtr  # SciPy takes half a second

    distance = (logs - served[:, None]) / spread
    result: FloatArray = spread * (
        distance * ndtr(distance) + np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    )
    return result
