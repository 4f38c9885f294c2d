"""f_local fitted from measured waves, and the product of the three factors.

The paper's f_local is one number, the throughput of a full wave. On a CPU a wave's throughput depends on how
often a panel of the packed operand is reused after it was streamed in, so that f_local is a function of the
shape, fitted for each micro-kernel on its own measured waves (non-negative least squares on relative
errors):

    t_work = Σᵢ cᵢ·termᵢ                           seconds of a balanced core
    t      = c₀ + t_work · (κ·x + 1 − κ)           seconds of a call

The terms depend on how the micro-kernel treats tails:

    local, checked   visits·K, tiles·K, tiles, padded tiles, edge vectors, padded tiles·K (checked)
    partition        visits·K, full tiles·K, bodies, tail cycles·K, tail bodies·K
    global           visits·K, tiles·K, tiles, copied elements
    all              vectors written
    any              exposed cycles·K, where panels are streamed and few tiles use each
    any              elements beyond what the caches keep
    any              packed elements, where tasks pack the column operand
    any              gathered elements, where tasks copy the row operand

The coefficient of visits·K is what a panel adds wherever it comes from (instead of bytes / bandwidth), that
of tiles·K the steady rate, that of tiles the prologue of a tile, those of padded tiles and padded tiles·K
what local padding and checks add, that of edge vectors what a tile past an edge takes for each vector that it
writes, by way of a buffer. With loop partitioning a tail costs what its bodies take by arithmetic
(tail cycles·K) and what each of them adds to a step (tail bodies·K), and every body has a prologue (bodies
= full tiles + tail bodies). With global padding all tiles are alike, and the copies are added. c₀ is the
launch with its fork and join.

A micro-kernel has about as many waves as terms. What they leave open comes from the others of the workload:
all are fitted towards one set of *rates*, seconds for each cycle that arithmetic counts in a term, which is
the median of theirs (`TermRates`). So the launch, the fork and join, and panels that come from far away cost
what they were measured to cost on the device.

A panel that few tiles use arrives more slowly than they compute, and a call takes the longer of both, not
the sum: exposed cycles are those by which reading the panels, at so many elements a cycle, exceeds what the
steps take by arithmetic. How many elements is one number for all micro-kernels of a workload, one of
`_STREAMING`, or there is no such term: one is taken that fits the waves 5 % better than those tried before it
(`fit_together`). So is how many elements of operands and output a core's share of the caches keeps from one
call to the next, one of `_CAPACITIES`: those beyond come from farther away. How many FMAs a core begins in a
cycle, which decides how bodies that wait for their additions compare with whole tiles, is measured with κ;
where a calibration lacks it, it is tried out, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dietcode.cost_model.cpu.counts import Counts, count
from dietcode.cost_model.cpu.local_terms import (
    BEYOND,
    EXPOSED,
    LAUNCH_CYCLES,
    TERMS,
    UNLIMITED,
    Memory,
    terms_of,
    work_of,
)
from dietcode.cost_model.model import Factors, FloatArray
from dietcode.cost_model.regression import measured
from dietcode.measure.least_squares import fit_towards
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import IntArray, Problem
from dietcode.target.fma import FMAS

_STREAMING = (6.0, 4.0, 3.0, 2.0, 1.0)  # elements a cycle of panels that a core reads
_CAPACITIES = tuple(float(1 << bits) for bits in (22, 21, 20))  # elements: 16, 8 and 4 MiB for a core
_BETTER = 0.95  # of the mean error of what was taken so far: what fits no better is not told from it
_LEAST_ERROR = 1e-3  # of the mean: smaller ones are not told apart
_MOST_ERROR = 0.25  # of a wave, as the fits of two rates are compared: more is a disturbed reading


@dataclass(frozen=True)
class LocalModel:
    """The fitted f_local of one micro-kernel.

    Attributes
    ----------
    coefficients : float64 array [1 + num_terms]
        c₀, then one for each of `terms`.
    terms : tuple of str
        Names of the terms of t_work, see `terms_of`.
    fit_error : float
        Median relative error on the measured waves.
    fmas : float
        That a core begins in a cycle, by which cycles are counted.
    memory : Memory
        By which its terms are counted.
    """

    micro_kernel: MicroKernel
    coefficients: FloatArray
    terms: tuple[str, ...]
    fit_error: float
    fmas: float = FMAS[0]
    memory: Memory = UNLIMITED

    def predict(
        self, problem: Problem, limits: Limits, kappa: float, extents: dict[str, IntArray]
    ) -> Factors:
        """Return the three factors and their product for every instance.

        Parameters
        ----------
        limits : Limits
            Of the target.
        kappa : float
            κ of f_spatial.
        extents : dict of str to int64 array [num_instances]
        """
        counts = count(problem, self.micro_kernel, limits, extents, self.fmas)
        work = work_of(counts, self.terms, self.memory) @ self.coefficients[1:]
        f_local = counts.padded_flops / np.maximum(work, 1e-12)
        f_spatial = 1.0 / counts.stretch(kappa)
        cost = f_local * f_spatial * counts.f_pad
        secs = self.coefficients[0] + counts.flops / cost
        rates = f_local, f_spatial, counts.f_pad, counts.flops / secs
        return Factors(*rates, counts.imbalance, counts.tiles)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the report."""
        names = ("launch_secs", *self.terms)
        found = dict(zip(names, (float(c) for c in self.coefficients), strict=True))
        if EXPOSED in self.terms:
            found["streamed_elements_per_cycle"] = self.memory.streaming
        if BEYOND in self.terms:
            found["kept_elements_per_core"] = self.memory.capacity
        return found | {"fmas_per_cycle": self.fmas, "median_fit_error": self.fit_error}


@dataclass(frozen=True)
class CountedWaves:
    """The measured waves of one micro-kernel, as what arithmetic counts there.

    Attributes
    ----------
    terms : tuple of str
        The launch, then those of t_work.
    units : float64 array [1 + num_terms]
        Cycles of each that is counted.
    counted : float64 array [num_waves, 1 + num_terms]
        Not yet in cycles, f_spatial included.
    secs : float64 array [num_waves]
    counts : Counts
        Of the waves.
    kappa : float
        κ of f_spatial.
    problem, limits, extents
        As of `dietcode.cost_model.cpu.counts.count`, at the waves.
    fmas, memory
        As of `LocalModel`.
    """

    micro_kernel: MicroKernel
    terms: tuple[str, ...]
    units: FloatArray
    counted: FloatArray
    secs: FloatArray
    counts: Counts
    kappa: float
    problem: Problem
    limits: Limits
    extents: dict[str, IntArray]
    fmas: float = FMAS[0]
    memory: Memory = UNLIMITED

    @classmethod
    def of(
        cls,
        problem: Problem,
        micro_kernel: MicroKernel,
        limits: Limits,
        kappa: float,
        points: Sequence[Mapping[str, int]],
        secs: Sequence[float],
    ) -> CountedWaves:
        """Count the waves of one micro-kernel.

        Parameters
        ----------
        limits : Limits
            Of the target.
        kappa : float
            κ of f_spatial.
        points, secs
            As `measured` takes them.

        Raises
        ------
        CandidateError
            There is no usable measurement.
        """
        extents, times = measured(problem, micro_kernel, points, secs)
        counts = count(problem, micro_kernel, limits, extents, FMAS[0])
        return cls._counted(problem, micro_kernel, limits, kappa, extents, times, counts, FMAS[0], UNLIMITED)

    @classmethod
    def _counted(
        cls,
        problem: Problem,
        micro_kernel: MicroKernel,
        limits: Limits,
        kappa: float,
        extents: dict[str, IntArray],
        secs: FloatArray,
        counts: Counts,
        fmas: float,
        memory: Memory,
    ) -> CountedWaves:
        terms, lanes = (*terms_of(problem, micro_kernel), *memory.terms), limits.lanes_of(micro_kernel)
        work = work_of(counts, terms, memory) * counts.stretch(kappa)[:, None]
        units = (TERMS[name].cycles(micro_kernel, lanes, fmas) for name in terms)
        return cls(
            micro_kernel,
            ("launch_secs", *terms),
            np.asarray([LAUNCH_CYCLES, *units]),
            np.column_stack([np.ones_like(secs), work]),
            secs,
            counts,
            kappa,
            problem,
            limits,
            extents,
            fmas,
            memory,
        )

    def counted_by(self, fmas: float, memory: Memory = UNLIMITED) -> CountedWaves:
        """Return the same waves, counted by so many FMAs a cycle and by a memory."""
        if (self.fmas, self.memory) == (fmas, memory):
            return self
        kernel, extents = self.micro_kernel, self.extents
        same = fmas == self.fmas
        counts = self.counts if same else count(self.problem, kernel, self.limits, extents, fmas)
        known = self.problem, kernel, self.limits, self.kappa, extents, self.secs
        return self._counted(*known, counts, fmas, memory)

    def error(self, model: LocalModel) -> float:
        """Return the mean relative error of a fit, each at most `_MOST_ERROR`."""
        errors = np.abs(self.counted @ model.coefficients / self.secs - 1.0)
        return float(np.minimum(errors, _MOST_ERROR).mean())

    def fit(self, rates: TermRates) -> LocalModel:
        """Fit all coefficients towards the rates of the workload."""
        known = np.asarray([rates.of(name) for name in self.terms]) * self.units
        coefficients, error = fit_towards(self.counted, self.secs, known)
        return LocalModel(self.micro_kernel, coefficients, self.terms[1:], error, self.fmas, self.memory)


@dataclass(frozen=True)
class TermRates:
    """Seconds for each cycle that arithmetic counts in a term, of all micro-kernels of a workload.

    Attributes
    ----------
    usual : float
        Of a term that no micro-kernel has.
    by_term : mapping of str to float
    """

    usual: float
    by_term: Mapping[str, float]

    @classmethod
    def of_all(cls, waves: Sequence[CountedWaves]) -> TermRates:
        """Return the medians of fits towards the medians of fits towards one rate for everything."""
        totals = [one.secs / (one.counted @ one.units) for one in waves]
        rates = cls(float(np.median(np.concatenate(totals))), {})
        for _ in range(2):
            found: dict[str, list[float]] = {}
            for one in waves:
                fitted = one.fit(rates).coefficients / one.units
                for name, rate in zip(one.terms, fitted.tolist(), strict=True):
                    found.setdefault(name, []).append(rate)
            rates = cls(rates.usual, {name: float(np.median(values)) for name, values in found.items()})
        return rates

    def of(self, term: str) -> float:
        """Return the rate of a term."""
        return self.by_term.get(term, self.usual)


@dataclass(frozen=True)
class _Together:
    """The waves of all micro-kernels of a workload, counted alike, and their fits."""

    waves: Sequence[CountedWaves]
    models: list[LocalModel]
    error: float

    @classmethod
    def of(cls, waves: Sequence[CountedWaves]) -> _Together:
        rates = TermRates.of_all(waves)
        models = [one.fit(rates) for one in waves]
        errors = [one.error(model) for one, model in zip(waves, models, strict=True)]
        return cls(waves, models, max(float(np.mean(errors)), _LEAST_ERROR))


def fit_together(waves: Sequence[CountedWaves], fmas: Sequence[float] = FMAS) -> list[LocalModel]:
    """Fit all micro-kernels of a workload: with one set of rates, and the same FMAs and memory.

    Of the FMAs and ways of streaming, and then of the capacities of caches, each is taken whose mean error is
    5 % less than that of the one taken before.

    Parameters
    ----------
    fmas : sequence of float
        That cores may begin in a cycle.
    """
    if not waves:
        return []
    first, *others = _streamed(waves, fmas)
    best = _best(_Together.of(first), others)
    return _best(best, _kept(best.waves)).models


def _best(best: _Together, variants: Iterable[Sequence[CountedWaves]]) -> _Together:
    for variant in variants:
        tried = _Together.of(variant)
        if tried.error < _BETTER * best.error:
            best = tried
    return best


def _streamed(waves: Sequence[CountedWaves], allowed: Sequence[float]) -> Iterator[list[CountedWaves]]:
    """Yield the waves as each number of FMAs counts them, without streaming and with each of `_STREAMING`."""
    for fmas in allowed:
        counted = [one.counted_by(fmas) for one in waves]
        yield counted
        for streaming in _STREAMING:
            memory = Memory(streaming)
            if any((memory.exposed(one.counts) > 0).any() for one in counted):
                yield [one.counted_by(fmas, memory) for one in counted]


def _kept(waves: Sequence[CountedWaves]) -> Iterator[list[CountedWaves]]:
    """Yield the waves with each of `_CAPACITIES` that some of them exceed."""
    for capacity in _CAPACITIES:
        memory = replace(waves[0].memory, capacity=capacity)
        if any((memory.beyond(one.counts) > 0).any() for one in waves):
            yield [one.counted_by(one.fmas, memory) for one in waves]
