"""The right result of attention, or of a sample of its queries where all would take too long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.attention.reference import FloatArray, attention_reference
from dietcode.search_space.problem import IntArray


@dataclass(frozen=True, eq=False)
class ExpectedAttention:
    """The right result at some positions of one index.

    Attributes
    ----------
    values : float64 array
        The result, at the positions alone.
    index : str or None
        The index that is sampled; None where everything is known.
    positions : int64 array
        Along that index, ascending.
    """

    problem: AttentionProblem
    values: FloatArray
    index: str | None
    positions: IntArray

    def error_of_all(self, outputs: Sequence[Any]) -> float:
        """Return the largest error over the largest value that is known; NaN where any of it is NaN.

        Parameters
        ----------
        outputs : sequence of array
            The result alone, NaN before it was computed.
        """
        (output,) = outputs
        found = np.asarray(output, dtype=np.float64)
        if np.isnan(found).any():
            return math.nan
        if self.index is not None:
            axis = self.problem.indices[self.problem.output].index(self.index)
            found = np.take(found, self.positions, axis=axis)
        return float(np.abs(found - self.values).max()) / (float(np.abs(self.values).max()) or 1.0)


def expect_attention(
    problem: AttentionProblem,
    arrays: Mapping[str, Any],
    extents: Mapping[str, int],
    max_flops: float = math.inf,
) -> ExpectedAttention:
    """Compute the right result, at a sample of positions where all of it takes more than `max_flops`.

    Parameters
    ----------
    arrays : mapping of str to array
        The inputs by tensor name.
    extents : mapping of str to int
        Of every index.
    max_flops : float
        Most operations to spend; the longest index of the result but `causal` is thinned out.
    """
    free = [index for index in (*problem.groups, *problem.rows) if index != problem.causal]
    longest = max(free, key=lambda index: int(extents[index]), default=None)
    flops = float(problem.flops(extents))
    if longest is None or flops <= max_flops:
        return ExpectedAttention(problem, attention_reference(problem, arrays), None, np.arange(0))
    extent = int(extents[longest])
    count = max(1, int(extent * max_flops / flops))
    picked = np.unique(np.append(np.linspace(0, extent - 1, count).round(), extent - 1)).astype(np.int64)
    some = {
        name: np.take(arrays[name], picked, axis=problem.indices[name].index(longest))
        if longest in problem.indices[name]
        else arrays[name]
        for name in problem.inputs
    }
    return ExpectedAttention(problem, attention_reference(problem, some), longest, picked)
