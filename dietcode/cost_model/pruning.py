"""Early pruning: f_local on one wave says that a micro-kernel can win nowhere (paper, section 5.3)."""

from __future__ import annotations

import numpy as np

from dietcode.cost_model.counts import FloatArray, count
from dietcode.cost_model.learned import columns_of
from dietcode.search_space.limits import Limits, MicroKernel
from dietcode.search_space.problem import IntArray, Problem

MARGIN = 0.1


class Pruning:
    """Compares micro-kernels by the paper's cost, one measured f_local times f_spatial and f_pad.

    f_local changes with the shape on a CPU, so what comes within `MARGIN` of the best anywhere is measured
    whole.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Instances that a micro-kernel may win.
    """

    def __init__(self, problem: Problem, limits: Limits, kappa: float, extents: dict[str, IntArray]) -> None:
        self.problem, self.limits, self.kappa, self.extents = problem, limits, kappa, extents
        self._best: FloatArray = np.zeros(len(next(iter(extents.values()))))

    def cost(self, micro_kernel: MicroKernel, point: dict[str, int], secs: float) -> FloatArray:
        """FLOP/s at each instance if f_local were what it is at `point` [num_instances]."""
        probe = count(self.problem, micro_kernel, self.limits, columns_of([point]))
        counts = count(self.problem, micro_kernel, self.limits, self.extents)
        f_local = probe.padded_flops * probe.stretch(self.kappa) / secs
        return f_local / counts.stretch(self.kappa) * counts.f_pad

    def note(self, cost: FloatArray) -> None:
        """Remember what a micro-kernel reaches."""
        self._best = np.maximum(self._best, cost)

    def is_hopeless(self, cost: FloatArray) -> bool:
        """Whether it stays behind by more than the margin at every instance."""
        return bool(np.all(cost * (1.0 + MARGIN) < self._best))
