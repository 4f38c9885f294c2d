"""The cost model of GPUs (paper, section 5.3): f_local from full waves, f_spatial with κ, f_pad.

    Cost_M(W) = f_local(M) · f_spatial(W/M) · f_pad(W, M)              FLOP/s, equation 3

P = SMs × resident blocks is the wave: blocks that run at a time. A wave of a micro-kernel takes longer the
more steps of the reduction each block does, so that f_local is a function of their number, fitted for each
micro-kernel on its measured waves (non-negative least squares on relative errors):

    t_wave = α + β·steps                          seconds; steps are padded to whole pieces
    t      = c₀ + t_wave · w + γ·elements         w = n/P · (κ·x + 1 − κ), x = pad(n, P) / n, n blocks

c₀ is the launch, shared by all shapes of a micro-kernel; γ is there only where the block function is not
alone: others read and write `elements` numbers, to add the parts of a split reduction, or to copy operands
and output with global padding. f_spatial = 1 / (κ·x + 1 − κ) is equations 4 and 5 inverted: the paper's are
ratios of time, and everything here is throughput.

No number comes from a data sheet: without measurements there is no model, and so no prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from dietcode.cost_model.model import Factors, FloatArray
from dietcode.errors import CandidateError
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import writes_parts
from dietcode.search_space.cuda.shape import copy_shapes, grid_of
from dietcode.search_space.partition import NumpyOps, ceildiv
from dietcode.search_space.problem import IntArray, Problem
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget

_MIN_SWEEP = 4


def wave_blocks(target: CudaTarget, num_sms: int, tile: CudaMicroKernel, facts: KernelFacts) -> int:
    """P, the blocks of one wave: multiprocessors by the blocks that are resident on each.

    Parameters
    ----------
    num_sms : int
        Of the device that measured.
    facts : KernelFacts
        Registers and shared memory, from the cubin.

    Raises
    ------
    CandidateError
        Not even one block fits.
    """
    resident = target.sm.resident_blocks(tile.threads, facts.registers, facts.shared_bytes)
    if not resident:
        needs = f"{tile.threads} threads of {facts.registers} registers, {facts.shared_bytes} bytes shared"
        raise CandidateError(f"{tile.name}: {needs}: no multiprocessor of {target.arch} holds that")
    return num_sms * resident


@dataclass(frozen=True)
class CudaCounts:
    """How a micro-kernel covers many instances; every array is float64 [num_instances].

    Attributes
    ----------
    flops, padded_flops : FLOPs of the instance, and of all tiles, reduction included.
    blocks : n, the blocks of all parts of the reduction.
    imbalance : x = pad(n, P) / n.
    waves : n / P.
    steps : steps of the reduction that a block does, whole pieces.
    elements : elements that other functions than the block function read and write.
    """

    flops: FloatArray
    padded_flops: FloatArray
    blocks: FloatArray
    imbalance: FloatArray
    waves: FloatArray
    steps: FloatArray
    elements: FloatArray

    @property
    def f_pad(self) -> FloatArray:
        """FLOPs(W) / FLOPs(pad(W, M)), at most 1."""
        return self.flops / self.padded_flops

    def stretched(self, kappa: float) -> FloatArray:
        """w: waves, the last one counted by κ."""
        return self.waves * (kappa * self.imbalance + 1.0 - kappa)


def count(problem: Problem, tile: CudaMicroKernel, wave: int, extents: Mapping[str, IntArray]) -> CudaCounts:
    """Count for all instances at once.

    Parameters
    ----------
    wave : int
        P, see `wave_blocks`.
    extents : mapping of str to int64 array [num_instances]
        Extent of every letter.
    """
    ops, given = NumpyOps(), dict(extents)
    shape = next(iter(given.values())).shape
    grid = grid_of(problem, tile, given, ops)
    pieces = ceildiv(np.asarray(grid.step_tiles), tile.splits, ops)
    blocks = np.broadcast_to(np.asarray(grid.blocks * tile.splits, dtype=np.float64), shape)
    steps = np.broadcast_to(np.asarray(pieces * tile.steps, dtype=np.float64), shape)
    copied = sum(2 * copy.elements for copy in copy_shapes(problem, tile, given, ops).values())
    added = grid.elements * (tile.splits + 1 if writes_parts(problem, tile) else 0)
    waves = blocks / wave
    return CudaCounts(
        flops=np.broadcast_to(np.asarray(problem.flops(given), dtype=np.float64), shape),
        padded_flops=2.0 * blocks * tile.rows * tile.columns * steps,
        blocks=blocks,
        imbalance=np.ceil(waves) * wave / blocks,
        waves=waves,
        steps=steps,
        elements=np.broadcast_to(np.asarray(copied + added, dtype=np.float64), shape),
    )


@dataclass(frozen=True)
class CudaLocalModel:
    """The fitted f_local of one micro-kernel on one device.

    Attributes
    ----------
    wave : int
        P.
    coefficients : float64 array [num_terms]
        c₀, α, β, and γ where the block function is not alone.
    fit_error : float
        Median relative error on the measured points.
    """

    micro_kernel: CudaMicroKernel
    wave: int
    coefficients: FloatArray
    fit_error: float

    def predict(self, problem: Problem, kappa: float, extents: Mapping[str, IntArray]) -> Factors:
        """The three factors and their product for every instance."""
        counts = count(problem, self.micro_kernel, self.wave, extents)
        launch, alpha, beta, *gamma = self.coefficients
        wave_secs = np.maximum(alpha + beta * counts.steps, 1e-12)
        f_local = counts.padded_flops / (counts.waves * wave_secs)
        f_spatial = counts.waves / counts.stretched(kappa)
        secs = launch + counts.flops / (f_local * f_spatial * counts.f_pad)
        secs = secs + (gamma[0] * counts.elements if gamma else 0.0)
        return Factors(f_local, f_spatial, counts.f_pad, counts.flops / secs, counts.imbalance, counts.waves)

    def to_json(self) -> dict[str, float]:
        """Plain data for the report."""
        names = ("launch_secs", "secs_per_wave", "secs_per_wave_step", "secs_per_copied_element")
        facts = dict(zip(names, (float(c) for c in self.coefficients), strict=False))
        return facts | {"wave_blocks": self.wave, "median_fit_error": self.fit_error}


def fit_local(
    problem: Problem,
    tile: CudaMicroKernel,
    wave: int,
    kappa: float,
    points: Sequence[Mapping[str, int]],
    secs: Sequence[float],
) -> CudaLocalModel:
    """Fit the coefficients of one micro-kernel on its measured calls.

    Raises
    ------
    CandidateError
        There is no usable measurement.
    """
    times = np.asarray(secs, dtype=np.float64)
    known = all(set(p) == set(problem.extents) and min(p.values()) >= 1 for p in points)
    if (
        not known
        or not len(times)
        or len(times) != len(points)
        or not np.all(np.isfinite(times) & (times > 0))
    ):
        raise CandidateError(f"{tile.name}: no usable measurement")
    extents = {k: np.asarray([p[k] for p in points], dtype=np.int64) for k in problem.extents}
    counts = count(problem, tile, wave, extents)
    stretched = counts.stretched(kappa)
    terms = [np.ones_like(times), stretched, stretched * counts.steps]
    if counts.elements.any():
        terms.append(counts.elements)
    regressors = np.column_stack(terms)
    scale = np.maximum(np.abs(regressors).max(axis=0), 1e-30)
    solution, _ = nnls(regressors / scale / times[:, None], np.ones_like(times))
    coefficients = solution / scale
    error = float(np.median(np.abs(regressors @ coefficients / times - 1.0)))
    return CudaLocalModel(tile, wave, coefficients, error)


def fit_kappa(blocks: Sequence[int], secs: Sequence[float], wave: int) -> float:
    """κ of a device, from calls of up to 4·P blocks of one micro-kernel (paper, Figure 13).

    ``t = c₀ + t_wave · (κ·⌈n/P⌉ + (1 − κ)·n/P)`` by non-negative least squares on relative errors.

    Parameters
    ----------
    blocks : sequence of int
        n, of each call.
    secs : sequence of float
        Seconds of each.
    wave : int
        P.

    Raises
    ------
    CandidateError
        There are too few points, or all fill their last waves alike, so that nothing can be told.
    """
    n, t = np.asarray(blocks, dtype=np.float64), np.asarray(secs, dtype=np.float64)
    if len(n) < _MIN_SWEEP or len(n) != len(t) or not np.all((n >= 1) & np.isfinite(t) & (t > 0)):
        raise CandidateError(f"κ: fewer than {_MIN_SWEEP} usable points in the sweep of the device")
    whole, part = np.ceil(n / wave), n / wave
    if np.ptp(whole / part) < 1e-9:
        raise CandidateError("κ: every point of the sweep fills its last wave alike")
    terms = np.column_stack([np.ones_like(t), whole, part])
    (_, by_whole, by_part), _ = nnls(terms / t[:, None], np.ones_like(t))
    if by_whole + by_part <= 0:
        raise CandidateError("κ: the seconds of the sweep do not grow with its blocks")
    return float(by_whole / (by_whole + by_part))
