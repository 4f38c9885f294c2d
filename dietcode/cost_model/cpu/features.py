"""The features that f_local is learned from: demands of a micro-kernel on a core, counted, never measured.

The set has a version. A later version may add, drop or recount; a model is never fitted on two of them,
because features are computed from records when they are needed and are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dietcode.cost_model.cpu.counts import Counts, count
from dietcode.cost_model.cpu.steps import LEAST_CHAIN, cycles_of_step
from dietcode.cost_model.model import Extents, Feature, FloatArray, Table
from dietcode.measure.calibration import REDUCTION
from dietcode.search_space.access import ZERO, view_of
from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.partition import NumpyOps, row_tiles_in_l2
from dietcode.search_space.problem import IntArray, Problem
from dietcode.search_space.tails import TAILS

VERSION = 4
_FLOAT_BYTES = 4
_PAGE_BYTES = 4096
_LAUNCH_SECS = (5e-7, 2e-5)  # bounds on a fork and join
_FLOPS_PER_LANE = 4  # of a cycle: two units, a multiplication and an addition each
_BODY_CYCLES = 80  # begin and end of a tile, measured with 9x48
_PACKED_PER_CYCLE = 4  # elements: 60 cycles for a square of 16 x 16
_GATHERED_PER_CYCLE = 8  # elements: half a vector, as sources come from farther away than L1


FEATURES = (
    Feature("rows", "elements", "rows of the register tile"),
    Feature("vectors", "registers", "columns of the register tile over the lanes of a vector"),
    Feature("accumulators", "registers", "rows · vectors"),
    Feature("register_share", "ratio", "(accumulators + vectors + 1) / registers of the machine"),
    Feature("loads_per_fma", "loads/FMA", "(rows + vectors) / accumulators, in one step of the reduction"),
    Feature("cycles_per_fma", "cycles/FMA", "`step_cycles` / accumulators"),
    Feature("is_partition", "0/1", "tails are partitioned"),
    Feature("is_global", "0/1", "tails are padded in memory"),
    Feature("is_checked", "0/1", "checks are left in the loop"),
    Feature("log_reduction", "log2 elements", "extent of the flattened reduction"),
    Feature("log_tiles", "log2 tiles", "tiles of a core, mean of the cores"),
    Feature("reuse", "log2 tiles", "tiles computed for each panel that is streamed in"),
    Feature("tail_share", "ratio", "tiles that reach past an edge over all tiles"),
    Feature("panel_l2_share", "ratio", "bytes of one column tile of the packed operand / L2, at most 4"),
    Feature("rows_l2_share", "ratio", "bytes of one row tile of the row operand / L2, at most 4"),
    Feature("blocks_rows", "log2 tiles", "row tiles that stay in half of L2 together"),
    Feature("log_batch", "log2", "flattened batch"),
    Feature("narrow", "0/1", "vectors are narrower than a register"),
    Feature("log_k_tile", "log2 steps", "steps of the reduction at a time; 0 for all of them"),
    Feature("direct", "0/1", "a column operand that is not constant is read where it lies"),
    Feature("window", "0/1", "windows are read from a padded copy of their rows"),
    Feature("packed_per_flop", "elements/FLOP", "elements that tasks pack over FLOPs"),
    Feature("gathered_per_flop", "elements/FLOP", "elements of rows that tasks copy over FLOPs"),
    Feature("reduction_is_last", "0/1", "the row operand's reduction is contiguous"),
    Feature("row_stride_aliases", "0/1", "the row operand's rows lie a multiple of 4096 bytes apart"),
    Feature("stages", "stages", "epilogue stages"),
    Feature("log_estimate", "log2 seconds", "estimated seconds of the call, to see launch and small calls"),
)


def step_cycles(micro_kernel: MicroKernel, lanes: int) -> float:
    """Return the cycles of one step of the reduction, as `cycles_of_step` has them."""
    return float(cycles_of_step(micro_kernel.rows, micro_kernel.columns // lanes, lanes))


@dataclass(frozen=True)
class CpuEstimator:
    """`dietcode.cost_model.model.Estimator` of a CPU.

    Attributes
    ----------
    kappa : float
        κ of f_spatial.
    flops_per_sec : float
        Rate of full waves of the reference kernel.
    launch_secs : float
        Seconds of a call without work.
    """

    limits: Limits
    kappa: float
    flops_per_sec: float
    launch_secs: float
    version: ClassVar[int] = VERSION

    @classmethod
    def of(cls, limits: Limits, calibration: Mapping[str, Any]) -> CpuEstimator:
        """Return a calibration's estimator: ``t(n) = launch + w·pad(n, P)`` over its sweep of n tiles."""
        gflops = np.asarray(calibration["tile_gflops"], dtype=np.float64)
        tiles = np.asarray(calibration["num_tiles"], dtype=np.float64)
        secs = tiles / gflops  # in units of a tile's GFLOPs
        padded = np.ceil(tiles / limits.num_cores) * limits.num_cores
        slope, intercept = np.polyfit(padded, secs, 1)
        tile_secs = REDUCTION * 2.0 * limits.narrow_tile().rows * limits.narrow_tile().columns / 1e9
        launch = float(np.clip(intercept * tile_secs, *_LAUNCH_SECS)) if slope > 0 else _LAUNCH_SECS[0]
        return cls(limits, float(calibration["kappa"]), float(gflops.max()) * 1e9, launch)

    def allows(self, problem: Problem, micro_kernel: MicroKernel) -> bool:
        """Return what `dietcode.search_space.cpu.axes.allows` does."""
        return allows(problem, micro_kernel, self.limits)

    def estimate(self, problem: Problem, micro_kernel: MicroKernel, extents: Extents) -> FloatArray:
        """Return the seconds of a call by arithmetic alone, [num_points].

        Whole tiles and the bodies of partitioned tails take their steps, a begin and an end each; what tasks
        copy is added, and the launch.
        """
        return self._secs(count(problem, micro_kernel, self.limits, extents), micro_kernel)

    @property
    def cycles_per_sec(self) -> float:
        """Cycles of a core, by what the reference kernel takes."""
        limits, reference = self.limits, self.limits.narrow_tile()
        busy = reference.rows * (reference.columns // limits.lanes) / 2 / step_cycles(reference, limits.lanes)
        return self.flops_per_sec / (limits.num_cores * _FLOPS_PER_LANE * limits.lanes * busy)

    def _secs(self, counts: Counts, micro_kernel: MicroKernel) -> FloatArray:
        lanes = self.limits.lanes_of(micro_kernel)
        partitions = micro_kernel.tails == "partition"
        whole = counts.tiles - counts.padded_tiles if partitions else counts.tiles
        tails = np.maximum(counts.tail_vectors / 2, counts.tail_bodies * LEAST_CHAIN / 2)
        cycles = counts.reduction * (whole * step_cycles(micro_kernel, lanes) + tails)
        cycles += (whole + counts.tail_bodies) * _BODY_CYCLES
        copied = counts.packed / _PACKED_PER_CYCLE + (counts.gathered + counts.copied) / _GATHERED_PER_CYCLE
        cycles = cycles * counts.stretch(self.kappa) + copied
        secs: FloatArray = self.launch_secs + cycles / self.cycles_per_sec
        return secs

    def features(
        self, problem: Problem, micro_kernel: MicroKernel, extents: Extents
    ) -> tuple[Table, FloatArray]:
        """Return features and estimate of one micro-kernel at many shapes.

        Returns
        -------
        float32 [num_points, num_features], float64 [num_points]
            Columns as in `FEATURES`; seconds as in `estimate`.
        """
        limits = self.limits
        counts = count(problem, micro_kernel, limits, extents)
        estimate = self._secs(counts, micro_kernel)
        lanes = limits.lanes_of(micro_kernel)
        vectors = micro_kernel.columns // lanes
        accumulators = micro_kernel.rows * vectors
        tile = (
            micro_kernel.rows,
            vectors,
            accumulators,
            (accumulators + vectors + 1) / limits.num_registers,
            (micro_kernel.rows + vectors) / accumulators,
            step_cycles(micro_kernel, lanes) / accumulators,
            *(micro_kernel.tails == name for name in TAILS[1:]),
        )
        batch = problem.product(problem.batch, extents)
        in_l2 = row_tiles_in_l2(counts.reduction, micro_kernel.rows, limits.l2_bytes, NumpyOps())
        l2 = limits.l2_bytes / _FLOAT_BYTES
        shape = (
            np.log2(counts.reduction),
            np.log2(counts.tiles),
            np.log2(np.maximum(counts.tiles / counts.visits, 1e-3)),
            counts.padded_tiles / counts.tiles,
            np.minimum(micro_kernel.columns * counts.reduction / l2, 4.0),
            np.minimum(micro_kernel.rows * counts.reduction / l2, 4.0),
            np.log2(in_l2),
            np.log2(batch),
            lanes < limits.lanes,
            np.log2(max(1, micro_kernel.k_tile)),
            micro_kernel.direct,
            micro_kernel.window,
            counts.packed * limits.num_cores / counts.flops,
            counts.gathered * limits.num_cores / counts.flops,
            problem.indices[problem.row_operand][-1] in problem.reduction,
            _row_stride_bytes(problem, extents) % _PAGE_BYTES == 0,
            len(problem.stages),
            np.log2(estimate),
        )
        num_points = len(counts.flops)
        table: Table = np.empty((num_points, len(FEATURES)), dtype=np.float32)
        for column, value in enumerate((*tile, *shape)):
            table[:, column] = value
        return table, estimate


def _row_stride_bytes(problem: Problem, extents: dict[str, IntArray]) -> IntArray:
    """Return the bytes from one row of the row operand to the next; 1 where they are not constant."""
    stride = view_of(problem, problem.row_operand).stride(problem.rows)
    anything = np.ones_like(next(iter(extents.values())))
    if stride is None or stride == ZERO:
        return anything
    bytes_: IntArray = _FLOAT_BYTES * anything * stride.value(extents)
    return bytes_
