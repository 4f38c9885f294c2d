"""f_local fitted from measured waves, and the product of the three factors.

The paper's f_local is one number, the throughput of a full wave. On a CPU a wave's throughput depends on how
often a panel of the packed operand is reused after it was streamed in, so that f_local is a function of the
shape, fitted for each micro-kernel on its own measured waves (non-negative least squares on relative
errors):

    t_work = Σᵢ cᵢ·termᵢ                           seconds of a balanced core
    t      = c₀ + t_work · (κ·x + 1 − κ)           seconds of a call

The terms depend on how the micro-kernel treats tails:

    local, checked   visits·K, tiles·K, tiles, padded tiles·K
    partition        visits·K, full tiles·K, bodies, tail vectors·K, tail bodies·K
    global           visits·K, tiles·K, tiles, copied elements
    any              packed elements, where tasks pack the column operand
    any              gathered elements, where tasks copy the row operand

The coefficient of visits·K is the time to stream a panel beyond what computing hides (instead of bytes /
bandwidth), that of tiles·K the steady rate, that of tiles the prologue and write-back of a tile, that of
padded tiles·K what local padding, or a check, adds. With loop partitioning a tail costs what it computes
(tail vectors·K) and what its small register tiles miss of the steady rate (tail bodies·K), and every body has
a prologue (bodies = full tiles + tail bodies). With global padding all tiles are alike, and the copies are
added. c₀ is the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.cost_model.cpu.counts import Counts, count
from dietcode.cost_model.model import Factors, FloatArray
from dietcode.cost_model.regression import measured
from dietcode.measure.least_squares import fit_terms
from dietcode.search_space.cpu.axes import copies_rows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import IntArray, Problem


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
    """

    micro_kernel: MicroKernel
    coefficients: FloatArray
    terms: tuple[str, ...]
    fit_error: float

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
        counts = count(problem, self.micro_kernel, limits, extents)
        work = _work(counts, self.terms) @ self.coefficients[1:]
        f_local = counts.padded_flops / np.maximum(work, 1e-12)
        f_spatial = 1.0 / counts.stretch(kappa)
        cost = f_local * f_spatial * counts.f_pad
        secs = self.coefficients[0] + counts.flops / cost
        rates = f_local, f_spatial, counts.f_pad, counts.flops / secs
        return Factors(*rates, counts.imbalance, counts.tiles)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the report."""
        names = ("launch_secs", *self.terms)
        return dict(zip(names, (float(c) for c in self.coefficients), strict=True)) | {
            "median_fit_error": self.fit_error
        }


_PACKED, _GATHERED = "secs_per_packed_element", "secs_per_gathered_element"
# The term of each coefficient, by its name in the report.
_TERMS: dict[str, Callable[[Counts], FloatArray]] = {
    "secs_per_visit_k": lambda c: c.visits * c.reduction,
    "secs_per_tile_k": lambda c: c.tiles * c.reduction,
    "secs_per_tile": lambda c: c.tiles,
    "secs_per_padded_tile_k": lambda c: c.padded_tiles * c.reduction,
    "secs_per_full_tile_k": lambda c: (c.tiles - c.padded_tiles) * c.reduction,
    "secs_per_body": lambda c: c.tiles - c.padded_tiles + c.tail_bodies,
    "secs_per_tail_vector_k": lambda c: c.tail_vectors * c.reduction,
    "secs_per_tail_piece_k": lambda c: c.tail_bodies * c.reduction,
    "secs_per_copied_element": lambda c: c.copied,
    _PACKED: lambda c: c.packed,
    _GATHERED: lambda c: c.gathered,
}
_CHECKED_OR_CLAMPED = ("secs_per_visit_k", "secs_per_tile_k", "secs_per_tile", "secs_per_padded_tile_k")
_TERMS_OF: dict[str, tuple[str, ...]] = {
    "local": _CHECKED_OR_CLAMPED,
    "checked": _CHECKED_OR_CLAMPED,
    "partition": (
        "secs_per_visit_k",
        "secs_per_full_tile_k",
        "secs_per_body",
        "secs_per_tail_vector_k",
        "secs_per_tail_piece_k",
    ),
    "global": ("secs_per_visit_k", "secs_per_tile_k", "secs_per_tile", "secs_per_copied_element"),
}


def terms_of(problem: Problem, micro_kernel: MicroKernel) -> tuple[str, ...]:
    """Return the names of the terms of t_work."""
    terms = _TERMS_OF[micro_kernel.tails]
    if not problem.column_operand_constant and not micro_kernel.direct:
        terms = (*terms, _PACKED)
    if copies_rows(problem, micro_kernel):
        terms = (*terms, _GATHERED)
    return terms


def _work(counts: Counts, terms: tuple[str, ...]) -> FloatArray:
    """Return the terms of t_work, [num_instances, num_terms]."""
    return np.stack([_TERMS[name](counts) for name in terms], axis=1)


def fit_local(
    problem: Problem,
    micro_kernel: MicroKernel,
    limits: Limits,
    kappa: float,
    points: tuple[dict[str, int], ...],
    secs: tuple[float, ...],
) -> LocalModel:
    """Fit all coefficients on the measured waves of one micro-kernel.

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
    counts = count(problem, micro_kernel, limits, extents)
    terms = terms_of(problem, micro_kernel)
    work = _work(counts, terms) * counts.stretch(kappa)[:, None]
    coefficients, error = fit_terms(np.column_stack([np.ones_like(times), work]), times)
    return LocalModel(micro_kernel, coefficients, terms, error)
