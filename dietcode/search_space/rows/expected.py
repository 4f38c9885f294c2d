"""The right outputs of a block, or of a sample of its rows where all would take too long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.problem import IntArray
from dietcode.search_space.rows.reference import FloatArray, block_reference, exact


@dataclass(frozen=True, eq=False)
class ExpectedRows:
    """The right outputs at some positions of one row index.

    Attributes
    ----------
    values : dict of str to float64 array
        Each output, at the positions alone.
    index : str or None
        The row index that is sampled; None where everything is known.
    positions : int64 array
        Along that index, ascending.
    rows : dict of str to int64 array
        Of each output that is written to a table, the rows that are known where not everything is.
    """

    problem: BlockProblem
    values: Mapping[str, FloatArray]
    index: str | None
    positions: IntArray
    rows: Mapping[str, IntArray] = field(default_factory=dict)

    def error_of_all(self, outputs: Sequence[Any]) -> float:
        """Return the largest error of any output over the largest value that is known of it.

        Parameters
        ----------
        outputs : sequence of array
            In their order, NaN before they were computed.

        Returns
        -------
        float
            NaN where any of an output is NaN, also outside the sample; where some of the right ones are, NaN
            where others are.
        """
        worst = 0.0
        for name, output in zip(self.problem.outputs, outputs, strict=True):
            found, right = exact(output, self.problem.dtype(name)), self.values[name]
            is_odd = np.isnan(right)
            if np.isnan(found).any() and (is_odd.all() or not is_odd.any()):
                return math.nan
            if self.index is not None and name in self.problem.into:
                found, right = found[self.rows[name]], right[self.rows[name]]
            elif self.index is not None:
                found = np.take(found, self.positions, axis=self.problem.indices[name].index(self.index))
            if not right.size:  # no row of the sample is in the table
                continue
            if is_odd.any():  # roots and logarithms of differences
                if not np.array_equal(np.isnan(found), np.isnan(right)):
                    return math.nan
                found, right = (np.nan_to_num(one, nan=0.0) for one in (found, right))
            worst = max(worst, float(np.abs(found - right).max()) / (float(np.abs(right).max()) or 1.0))
        return worst


def expect_rows(
    problem: BlockProblem,
    arrays: Mapping[str, Any],
    extents: Mapping[str, int],
    max_flops: float = math.inf,
) -> ExpectedRows:
    """Compute the right outputs, at a sample of rows where all of them take more than `max_flops`.

    Parameters
    ----------
    arrays : mapping of str to array
        As `block_reference` takes them.
    extents : mapping of str to int
        Of every index.
    max_flops : float
        Most operations to spend; the longest row index that no operator names is thinned out.
    """
    named = {node.attribute("causal") for node in problem.nodes.values()}
    named |= {window.output for window in problem.windows}
    free = [index for index in problem.rows if index not in named]
    longest = max(free, key=lambda index: int(extents[index]), default=None)
    flops = float(problem.flops(extents))
    if longest is None or flops <= max_flops:
        return ExpectedRows(problem, block_reference(problem, arrays), None, np.arange(0))
    extent = int(extents[longest])
    count = max(1, int(extent * max_flops / flops))
    picked = np.unique(np.append(np.linspace(0, extent - 1, count).round(), extent - 1)).astype(np.int64)
    some = {
        name: np.take(arrays[name], picked, axis=problem.indices[name].index(longest))
        if longest in problem.indices[name]
        else arrays[name]
        for name in problem.inputs
    }
    rows = {name: np.unique(some[at]) for name, (_, at) in problem.into.items()}
    known = {name: own[own < len(some[problem.into[name][0]])] for name, own in rows.items()}
    return ExpectedRows(problem, block_reference(problem, some), longest, picked, known)
