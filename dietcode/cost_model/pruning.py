"""Early pruning: one wave says that a micro-kernel can win nowhere (paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dietcode.cost_model.learned import columns_of
from dietcode.cost_model.model import Estimator, Extents, FloatArray
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.problem import AnyProblem

MARGIN = 0.1


class Pruning:
    """Compares what one wave of a micro-kernel promises with what others reach.

    The paper takes f_local from that wave for every shape. It changes with the shape (launch, packing, the
    begin and end of short tiles), so that a wave is compared with its estimate, which counts these as well as
    f_spatial and f_pad, and the ratio is taken for every shape. With several waves, ratios between them are
    interpolated over the logarithm of the work.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Instances that a micro-kernel may win.
    """

    def __init__(self, problem: AnyProblem, estimator: Estimator, extents: Extents) -> None:
        self.problem, self.estimator, self.extents = problem, estimator, extents
        self._flops: FloatArray = np.asarray(problem.flops(extents), dtype=np.float64)
        self._best: FloatArray = np.zeros(len(next(iter(extents.values()))))

    def reached(
        self, micro_kernel: AnyMicroKernel, points: Sequence[dict[str, int]], secs: Sequence[float]
    ) -> FloatArray:
        """Return FLOP/s at each instance, by the waves that were timed, [num_instances]."""
        waves = columns_of(points)
        ratio = np.log(np.asarray(secs) / self._estimate(micro_kernel, waves))
        work = np.broadcast_to(np.log(np.asarray(self.problem.flops(waves), dtype=np.float64)), ratio.shape)
        order = np.argsort(work, kind="stable")
        slower = np.exp(np.interp(np.log(self._flops), work[order], ratio[order]))
        reached: FloatArray = self._flops / (self._estimate(micro_kernel, self.extents) * slower)
        return reached

    def _estimate(self, micro_kernel: AnyMicroKernel, extents: Extents) -> FloatArray:
        return self.estimator.estimate(self.problem, micro_kernel, extents)

    def note(self, reached: FloatArray) -> None:
        """Remember what a micro-kernel reaches."""
        self._best = np.maximum(self._best, reached)

    def is_hopeless(self, reached: FloatArray) -> bool:
        """Whether it stays behind by more than the margin at every instance."""
        return bool(np.all(reached * (1.0 + MARGIN) < self._best))
