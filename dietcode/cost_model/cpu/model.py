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
    any              packed elements, where tasks pack the column operand
    any              gathered elements, where tasks copy the row operand

The coefficient of visits·K is what a panel adds wherever it comes from (instead of bytes / bandwidth), that
of tiles·K the steady rate, that of tiles the prologue of a tile, those of padded tiles, edge vectors and
padded tiles·K what local padding and checks add: edge vectors are those that tiles past an edge write. With
loop partitioning a tail costs what its bodies take by arithmetic (tail cycles·K) and what each of them adds
to a step (tail bodies·K), and every body has a prologue (bodies = full tiles + tail bodies). With global
padding all tiles are alike, and the copies are added. c₀ is the launch with its fork and join.

A micro-kernel has about as many waves as terms. What they leave open comes from the others of the workload:
all are fitted towards one set of *rates*, seconds for each cycle that arithmetic counts in a term, which is
the median of theirs (`TermRates`). So the launch, the fork and join, and panels that come from far away cost
what they were measured to cost on the device.

A panel that few tiles use arrives more slowly than they compute, and a call takes the longer of both, not
the sum: exposed cycles are those by which reading the panels, at so many elements a cycle, exceeds what the
steps take by arithmetic. How many elements is one number for all micro-kernels of a workload, one of
`_STREAMING`, or there is no such term: one is taken that fits the waves 5 % better than those tried before it
(`fit_together`). How many FMAs a core begins in a cycle, which decides how bodies that wait for their
additions compare with whole tiles, is measured with κ; where a calibration lacks it, it is tried out, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dietcode.cost_model.cpu.counts import Counts, count
from dietcode.cost_model.cpu.steps import cycles_of_step
from dietcode.cost_model.model import Factors, FloatArray
from dietcode.cost_model.regression import measured
from dietcode.measure.least_squares import fit_towards
from dietcode.search_space.cpu.axes import copies_rows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import IntArray, Problem
from dietcode.target.fma import FMAS

_LAUNCH_CYCLES = 6000.0
_TILE_CYCLES = 80.0  # begin and end of a tile
_VECTOR_CYCLES = 2.0  # of a vector that is written
_EDGE_CYCLES = 10.0  # of one that goes to the output by way of a buffer
_STREAMED_PER_CYCLE = 16.0  # elements of a panel
_PACKED_PER_CYCLE, _GATHERED_PER_CYCLE = 4.0, 8.0  # elements
_STREAMING = (6.0, 4.0, 3.0, 2.0, 1.0)  # elements a cycle of panels that a core reads
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
    streaming : float
        Elements a cycle by which exposed cycles are counted, where that is a term.
    """

    micro_kernel: MicroKernel
    coefficients: FloatArray
    terms: tuple[str, ...]
    fit_error: float
    fmas: float = FMAS[0]
    streaming: float = np.inf

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
        work = _work(counts, self.terms, self.streaming) @ self.coefficients[1:]
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
            found["streamed_elements_per_cycle"] = self.streaming
        return found | {"fmas_per_cycle": self.fmas, "median_fit_error": self.fit_error}


EXPOSED = "secs_per_exposed_cycle_k"
_PACKED, _GATHERED = "secs_per_packed_element", "secs_per_gathered_element"


@dataclass(frozen=True)
class Term:
    """A term of t_work.

    Attributes
    ----------
    count : callable
        ``Counts -> float64 array [num_instances]``.
    cycles : callable
        ``(micro_kernel, lanes, fmas) -> float``: of each that is counted, by arithmetic.
    """

    count: Callable[[Counts], FloatArray]
    cycles: Callable[[MicroKernel, int, float], float]


def _step(micro_kernel: MicroKernel, lanes: int, fmas: float) -> float:
    return float(cycles_of_step(micro_kernel.rows, micro_kernel.columns // lanes, lanes, fmas))


def _always(cycles: float) -> Callable[[MicroKernel, int, float], float]:
    return lambda micro_kernel, lanes, fmas: cycles


# By the name of its coefficient in the report.
_TERMS: dict[str, Term] = {
    "secs_per_visit_k": Term(lambda c: c.visits * c.reduction, lambda k, *_: k.columns / _STREAMED_PER_CYCLE),
    "secs_per_tile_k": Term(lambda c: c.tiles * c.reduction, _step),
    "secs_per_tile": Term(lambda c: c.tiles, _always(_TILE_CYCLES)),
    "secs_per_padded_tile": Term(lambda c: c.padded_tiles, _always(_TILE_CYCLES)),
    "secs_per_edge_vector": Term(lambda c: c.edge_written, _always(_EDGE_CYCLES)),
    "secs_per_padded_tile_k": Term(lambda c: c.padded_tiles * c.reduction, _always(1.0)),
    "secs_per_full_tile_k": Term(lambda c: (c.tiles - c.padded_tiles) * c.reduction, _step),
    "secs_per_body": Term(lambda c: c.tiles - c.padded_tiles + c.tail_bodies, _always(_TILE_CYCLES)),
    "secs_per_tail_cycle_k": Term(lambda c: c.tail_cycles * c.reduction, _always(1.0)),
    "secs_per_tail_body_k": Term(lambda c: c.tail_bodies * c.reduction, _always(1.0)),
    "secs_per_copied_element": Term(lambda c: c.copied, _always(1.0 / _GATHERED_PER_CYCLE)),
    "secs_per_written_vector": Term(lambda c: c.written, _always(_VECTOR_CYCLES)),
    _PACKED: Term(lambda c: c.packed, _always(1.0 / _PACKED_PER_CYCLE)),
    _GATHERED: Term(lambda c: c.gathered, _always(1.0 / _GATHERED_PER_CYCLE)),
}
_CLAMPED = (
    *("secs_per_visit_k", "secs_per_tile_k", "secs_per_tile"),
    *("secs_per_padded_tile", "secs_per_edge_vector"),
)
_TERMS_OF: dict[str, tuple[str, ...]] = {
    "local": _CLAMPED,
    "checked": (*_CLAMPED, "secs_per_padded_tile_k"),
    "partition": (
        "secs_per_visit_k",
        "secs_per_full_tile_k",
        "secs_per_body",
        "secs_per_tail_cycle_k",
        "secs_per_tail_body_k",
    ),
    "global": ("secs_per_visit_k", "secs_per_tile_k", "secs_per_tile", "secs_per_copied_element"),
}


def terms_of(problem: Problem, micro_kernel: MicroKernel) -> tuple[str, ...]:
    """Return the names of the terms of t_work."""
    terms = (*_TERMS_OF[micro_kernel.tails], "secs_per_written_vector")
    if not problem.column_operand_constant and not micro_kernel.direct:
        terms = (*terms, _PACKED)
    if copies_rows(problem, micro_kernel):
        terms = (*terms, _GATHERED)
    return terms


def _work(counts: Counts, terms: tuple[str, ...], streaming: float = np.inf) -> FloatArray:
    """Return the terms of t_work, [num_instances, num_terms]."""

    def of(name: str) -> FloatArray:
        return _exposed(counts, streaming) if name == EXPOSED else _TERMS[name].count(counts)

    return np.stack([of(name) for name in terms], axis=1)


def _exposed(counts: Counts, streaming: float) -> FloatArray:
    """Return the cycles by which reading the panels exceeds the steps that use them, [num_instances]."""
    cycles: FloatArray = np.maximum(counts.streamed / streaming - counts.step_cycles, 0.0) * counts.reduction
    return cycles


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
    fmas, streaming : float
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
    streaming: float = np.inf

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
        return cls._counted(problem, micro_kernel, limits, kappa, extents, times, FMAS[0])

    @classmethod
    def _counted(
        cls,
        problem: Problem,
        micro_kernel: MicroKernel,
        limits: Limits,
        kappa: float,
        extents: dict[str, IntArray],
        secs: FloatArray,
        fmas: float,
    ) -> CountedWaves:
        terms, lanes = terms_of(problem, micro_kernel), limits.lanes_of(micro_kernel)
        counts = count(problem, micro_kernel, limits, extents, fmas)
        work = _work(counts, terms) * counts.stretch(kappa)[:, None]
        units = (_TERMS[name].cycles(micro_kernel, lanes, fmas) for name in terms)
        return cls(
            micro_kernel,
            ("launch_secs", *terms),
            np.asarray([_LAUNCH_CYCLES, *units]),
            np.column_stack([np.ones_like(secs), work]),
            secs,
            counts,
            kappa,
            problem,
            limits,
            extents,
            fmas,
        )

    def with_fmas(self, fmas: float) -> CountedWaves:
        """Return the same waves, counted by so many FMAs a cycle, without streaming."""
        known = self.problem, self.micro_kernel, self.limits, self.kappa, self.extents, self.secs
        return self if (self.fmas, self.streaming) == (fmas, np.inf) else self._counted(*known, fmas)

    def with_streaming(self, streaming: float) -> CountedWaves:
        """Return the same with exposed cycles as a term, at so many elements of panels a cycle."""
        exposed = _exposed(self.counts, streaming) * self.counts.stretch(self.kappa)
        return replace(
            self,
            terms=(*self.terms, EXPOSED),
            units=np.append(self.units, 1.0),
            counted=np.column_stack([self.counted, exposed]),
            streaming=streaming,
        )

    def error(self, model: LocalModel) -> float:
        """Return the mean relative error of a fit, each at most `_MOST_ERROR`."""
        errors = np.abs(self.counted @ model.coefficients / self.secs - 1.0)
        return float(np.minimum(errors, _MOST_ERROR).mean())

    def fit(self, rates: TermRates) -> LocalModel:
        """Fit all coefficients towards the rates of the workload."""
        known = np.asarray([rates.of(name) for name in self.terms]) * self.units
        coefficients, error = fit_towards(self.counted, self.secs, known)
        return LocalModel(self.micro_kernel, coefficients, self.terms[1:], error, self.fmas, self.streaming)


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


def fit_together(waves: Sequence[CountedWaves], fmas: Sequence[float] = FMAS) -> list[LocalModel]:
    """Fit all micro-kernels of a workload: with one set of rates, and the same FMAs and streaming.

    Of `_variants` each is taken whose mean error is 5 % less than that of the one taken before.

    Parameters
    ----------
    fmas : sequence of float
        That cores may begin in a cycle.
    """
    best: list[LocalModel] = []
    least = np.inf
    for variant in _variants(waves, fmas) if waves else ():
        rates = TermRates.of_all(variant)
        found = [one.fit(rates) for one in variant]
        errors = [one.error(model) for one, model in zip(variant, found, strict=True)]
        error = max(float(np.mean(errors)), _LEAST_ERROR)
        if error < _BETTER * least:
            best, least = found, error
    return best


def _variants(waves: Sequence[CountedWaves], allowed: Sequence[float]) -> Iterator[list[CountedWaves]]:
    """Yield the waves as each number of FMAs counts them, without streaming and with each of `_STREAMING`."""
    for fmas in allowed:
        counted = [one.with_fmas(fmas) for one in waves]
        yield counted
        for streaming in _STREAMING:
            if any((_exposed(one.counts, streaming) > 0).any() for one in counted):
                yield [one.with_streaming(streaming) for one in counted]
