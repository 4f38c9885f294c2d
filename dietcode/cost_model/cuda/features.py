"""The features that f_local is learned from on a GPU: demands of a block, counted, never measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dietcode.cost_model.cuda.model import count
from dietcode.cost_model.cuda.waves import CudaCounts, Spread, fit_sweep
from dietcode.cost_model.model import Extents, Feature, FloatArray, Table
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.tails import TAILS
from dietcode.target.cuda import CudaTarget

VERSION = 5
# Of an element from shared memory, in multiply-adds.
_READ_COST = {"simt": 2.0, "mma": 16.0, "wgmma": 32.0, "tma": 32.0}
# Of a load or store of global memory, in FLOPs of a full wave.
_VECTOR_COST = {"simt": 8.0, "mma": 128.0, "wgmma": 128.0, "tma": 128.0}
# Of a warpgroup's multiply-add, in those of a warp: mma.sync reaches 62 % of what wgmma does on an H100
# ("Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024).
_WARPGROUP_COST = 0.62
_COPY_COST = 64.0  # of an element that another function reads or writes, in FLOPs of a full wave

FEATURES = (
    Feature("log_rows", "log2 elements", "rows of a block's tile"),
    Feature("log_columns", "log2 elements", "columns of a block's tile"),
    Feature("thread_rows", "elements", "rows of a thread's tile, or a warp's"),
    Feature("thread_columns", "elements", "columns of a thread's tile, or a warp's"),
    Feature("k_tile", "steps", "steps of the reduction in shared memory at a time"),
    Feature("stages", "stages", "tiles of the reduction on their way or in use"),
    Feature("splits", "parts", "parts of the reduction"),
    Feature("threads", "threads", "threads of a block"),
    Feature("resident", "blocks", "blocks on a multiprocessor, by estimated registers"),
    Feature("registers", "registers", "estimate of a thread's"),
    Feature("shared_bytes", "bytes", "shared memory of a block"),
    Feature("reads_per_fma", "ratio", "`step_cost`"),
    Feature("is_partition", "0/1", "tails are partitioned"),
    Feature("is_global", "0/1", "tails are padded in memory"),
    Feature("is_checked", "0/1", "checks are left in the loop"),
    Feature("is_mma", "0/1", "tensor cores multiply, from registers of a warp"),
    Feature("is_wgmma", "0/1", "tensor cores multiply, from shared memory for a warpgroup"),
    Feature("is_tma", "0/1", "as `is_wgmma`, of what a warpgroup of its own copies in bulk"),
    Feature("cluster_rows", "blocks", "of a cluster along the rows, which copy columns for each other"),
    Feature("cluster_columns", "blocks", "of a cluster along the columns, which copy rows for each other"),
    Feature("is_persistent", "0/1", "the grid is as large as a wave, and blocks go on from tile to tile"),
    Feature("log_num_steps", "log2 steps", "steps of the reduction that a block does"),
    Feature("log_waves", "log2 waves", "blocks over those that run at a time"),
    Feature("imbalance", "ratio", "pad(n, P) / n"),
    Feature("f_pad", "ratio", "FLOPs over those of whole tiles"),
    Feature("copied_per_flop", "elements/FLOP", "elements of other functions over FLOPs"),
    Feature("vectors_per_flop", "vectors/FLOP", "loads and stores of global memory over FLOPs"),
    Feature("log_estimate", "log2 seconds", "estimated seconds of the call"),
)


def step_cost(micro_kernel: CudaMicroKernel) -> float:
    """Return multiply-adds and shared-memory reads of a thread's or warp's step over its multiply-adds.

    A warpgroup's instructions read while they multiply: what takes longer counts, over multiply-adds of a
    warp. Of 64 rows and n columns a step reads 2·(64 + n) bytes, 128 in a cycle, and multiplies 64·n, 2048 in
    a cycle.
    """
    extents = micro_kernel.thread_rows + micro_kernel.thread_columns
    reads = _READ_COST[micro_kernel.unit] * extents / micro_kernel.num_accumulators
    return _WARPGROUP_COST * max(1.0, reads) if micro_kernel.has_warpgroups else 1.0 + reads


# `step_cost` of the sweep's micro-kernel: 8x8 of a thread, 64x64 of a warp, 64x256 of a warpgroup.
_SWEEP_COSTS = {"simt": 1.5, "mma": 1.5, "wgmma": _WARPGROUP_COST, "tma": _WARPGROUP_COST}


@dataclass(frozen=True)
class CudaEstimator:
    """`dietcode.cost_model.model.Estimator` of a GPU.

    Attributes
    ----------
    spread : Spread
        κ of f_spatial.
    flops_per_sec : float
        Rate of full waves of the sweep's micro-kernel, if its reads cost nothing.
    launch_secs : float
        Seconds of a call without work.
    """

    target: CudaTarget
    num_sms: int
    spread: Spread
    flops_per_sec: float
    launch_secs: float
    version: ClassVar[int] = VERSION

    @classmethod
    def of(cls, target: CudaTarget, num_sms: int, calibration: Mapping[str, Any]) -> CudaEstimator:
        """Return the estimator of a calibration on record.

        Raises
        ------
        TuningError
            Its sweep cannot be fitted.
        """
        sweep = fit_sweep(calibration, num_sms)
        cost = _SWEEP_COSTS[calibration.get("unit", "simt")]
        return cls(target, num_sms, sweep.spread, cost * sweep.flops_per_sec, sweep.launch_secs)

    def allows(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> bool:
        """Return what `CudaLimits.holds` does."""
        return CudaLimits.of(self.target).holds(problem, micro_kernel)

    def _count(
        self, problem: AnyProblem, micro_kernel: CudaMicroKernel, extents: Extents
    ) -> tuple[CudaCounts, int, int]:
        """Return counts, and estimates of the blocks on a multiprocessor and of a thread's registers."""
        limits = CudaLimits.of(self.target)
        registers = limits.registers(problem, micro_kernel)
        shared_bytes = limits.shared_bytes(problem, micro_kernel)
        resident = max(1, self.target.sm.resident_blocks(micro_kernel.threads, registers, shared_bytes))
        wave = max(1, self.num_sms * resident // micro_kernel.cluster) * micro_kernel.cluster
        return count(problem, micro_kernel, wave, extents), resident, registers

    def estimate(self, problem: AnyProblem, micro_kernel: CudaMicroKernel, extents: Extents) -> FloatArray:
        """Return the seconds of a call by arithmetic alone, [num_points]."""
        return self._secs(self._count(problem, micro_kernel, extents)[0], micro_kernel)

    def _secs(self, counts: CudaCounts, micro_kernel: CudaMicroKernel) -> FloatArray:
        """Return padded work at the sweep's rate, stretched where SMs idle, with copies and launch."""
        work = (
            counts.padded_flops * step_cost(micro_kernel) + counts.vectors * _VECTOR_COST[micro_kernel.unit]
        )
        work = work * counts.stretched(self.spread) / counts.waves
        secs: FloatArray = self.launch_secs + (work + _COPY_COST * counts.elements) / self.flops_per_sec
        return secs

    def features(
        self, problem: AnyProblem, micro_kernel: CudaMicroKernel, extents: Extents
    ) -> tuple[Table, FloatArray]:
        """Return features, columns as in `FEATURES`, and `estimate`."""
        counts, resident, registers = self._count(problem, micro_kernel, extents)
        estimate = self._secs(counts, micro_kernel)
        columns = (
            np.log2(micro_kernel.rows),
            np.log2(micro_kernel.columns),
            micro_kernel.thread_rows,
            micro_kernel.thread_columns,
            micro_kernel.k_tile,
            micro_kernel.stages,
            micro_kernel.splits,
            micro_kernel.threads,
            resident,
            registers,
            CudaLimits.of(self.target).shared_bytes(problem, micro_kernel),
            step_cost(micro_kernel),
            *(micro_kernel.tails == name for name in TAILS[1:]),
            micro_kernel.unit == "mma",
            micro_kernel.unit == "wgmma",
            micro_kernel.unit == "tma",
            micro_kernel.cluster_rows,
            micro_kernel.cluster_columns,
            micro_kernel.persistent,
            np.log2(counts.num_steps),
            np.log2(counts.waves),
            counts.imbalance,
            counts.f_pad,
            counts.elements / counts.flops,
            counts.vectors / counts.flops,
            np.log2(estimate),
        )
        table: Table = np.empty((len(estimate), len(FEATURES)), dtype=np.float32)
        for column, value in enumerate(columns):
            table[:, column] = value
        return table, estimate
