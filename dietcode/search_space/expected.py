"""The expected output: all of it in float64, or a sample of its rows where that takes too long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import FloatArray, Positions, part, reference
from dietcode.workload.dtypes import widened


@dataclass(frozen=True, eq=False)
class Expected:
    """The right output of a problem, or a part of it.

    Attributes
    ----------
    extents : mapping of str to int
        Of every index.
    values : float64 array
        In the shape that callers see, at `positions` alone.
    positions : Positions
        The part that is known; empty for the whole output.
    """

    problem: Problem
    extents: Mapping[str, int]
    values: FloatArray
    positions: Positions

    def error_of_all(self, outputs: Sequence[Any]) -> float:
        """Return `error_of` the one output."""
        (output,) = outputs
        return self.error_of(output)

    def error_of(self, output: Any) -> float:
        """Return the largest error of an output over the largest value that is known.

        Parameters
        ----------
        output : array
            As generated code stores it, in the shape that callers see, NaN before it was computed.

        Returns
        -------
        float
            NaN where any of it is NaN, also outside the part.
        """
        if self.positions and np.isnan(widened(output, self.problem.output_dtype)).any():
            return math.nan
        name = self.problem.output
        found = widened(
            part(self.problem, name, output, self.extents, self.positions), self.problem.output_dtype
        )
        scale = float(np.abs(self.values).max()) or 1.0
        return float(np.abs(found - self.values).max()) / scale


def expect(
    problem: Problem,
    arrays: Mapping[str, Any],
    extents: Mapping[str, int],
    max_flops: float = math.inf,
) -> Expected:
    """Compute the expected output, at a sample of positions where all of it takes more than `max_flops`.

    Parameters
    ----------
    arrays : mapping of str to array
        As `reference` takes them.
    extents : mapping of str to int
        Of every index.
    max_flops : float
        Most FLOPs to spend.
    """
    positions = sample_positions(problem, extents, max_flops)
    return Expected(problem, extents, reference(problem, arrays, positions), positions)


def sample_positions(problem: Problem, extents: Mapping[str, int], max_flops: float) -> Positions:
    """Choose positions of the output whose values take at most `max_flops`, or a single one.

    The longest axes are thinned out first. Of each, half of what stays is at the end, where tiles reach past
    the edge, a quarter at the beginning, and the rest is drawn at random between them, the same each time.

    Returns
    -------
    Positions
        Empty where all of the output takes no more.
    """
    counts = {index: int(extents[index]) for index in problem.indices[problem.output]}
    flops = float(problem.flops(dict(extents)))
    while flops > max_flops and max(counts.values()) > 1:
        longest = max(counts, key=lambda index: counts[index])
        halved = counts[longest] // 2
        flops *= halved / counts[longest]
        counts[longest] = halved
    rng, positions = np.random.default_rng(0), {}
    for index, count in counts.items():
        extent = int(extents[index])
        if count < extent:
            first, last = count // 4, -(-count // 2)
            between = rng.choice(extent - first - last, count - first - last, replace=False) + first
            ends = [np.arange(first), np.arange(extent - last, extent)]
            positions[index] = np.sort(np.concatenate([between, *ends])).astype(np.int64)
    return positions
