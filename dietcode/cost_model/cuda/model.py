"""The cost model of GPUs (paper, section 5.3): f_local from full waves, f_spatial with κ, f_pad.

    Cost_M(W) = f_local(M) · f_spatial(W/M) · f_pad(W, M)              FLOP/s, equation 3

P = SMs × resident blocks is the wave: the blocks that run at a time. A wave takes the longer, the more steps
of the reduction each block does, so that f_local is a function of their number, fitted for each
micro-kernel on its measured waves (non-negative least squares on relative errors):

    t_wave = α + β·num_steps                      seconds; steps are padded to whole tiles of k
    t      = c₀ + t_wave · w + γ·elements         w = n/P · (κ·x + σ·y + 1 − κ − σ), n blocks

x = pad(n, P) / n stands for whole waves, y = pad(n, S) / n for whole blocks on each of S multiprocessors.

c₀ is the launch, shared by all shapes of a micro-kernel; γ is there only where a call launches functions
beside the block function: they read and write `elements` numbers, to add the parts of a split reduction, or
to copy operands and output with global padding. f_spatial = 1 / (κ·x + 1 − κ) is equations 4 and 5 inverted:
the paper's are ratios of time, and everything here is throughput.

No number comes from a data sheet: without measurements there is no model, and no prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.cost_model.model import Factors, FloatArray
from dietcode.cost_model.regression import fit_terms, measured
from dietcode.errors import CandidateError, TuningError
from dietcode.search_space.cuda.forms import call_shape
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem, IntArray
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget

_MIN_SWEEP = 4
_BLOCK_FLOPS = 2 * 128 * 128 * 256  # of the sweep, for records of an earlier version


def wave_blocks(target: CudaTarget, num_sms: int, micro_kernel: CudaMicroKernel, facts: KernelFacts) -> int:
    """Return P, the blocks of one wave: multiprocessors times the blocks that are resident on each.

    Parameters
    ----------
    target : CudaTarget
        Its architecture.
    num_sms : int
        Of the device that measured.
    micro_kernel : CudaMicroKernel
    facts : KernelFacts
        Registers and shared memory, from the cubin.

    Raises
    ------
    CandidateError
        Not even one block fits.
    """
    resident = target.sm.resident_blocks(micro_kernel.threads, facts.registers, facts.shared_bytes)
    if not resident:
        needs = f"{micro_kernel.threads} threads of {facts.registers} registers, {facts.shared_bytes} bytes"
        problem = f"{needs} shared: no multiprocessor of {target.arch} holds that"
        raise CandidateError(f"{micro_kernel.name}: {problem}")
    return num_sms * resident


@dataclass(frozen=True)
class Spread:
    """The spread of a call's blocks over a device: κ of f_spatial, in two parts.

    Blocks run in waves of P, and each multiprocessor takes whole blocks: a grid of one block a multiprocessor
    takes longer than one of half a block, though neither fills a wave.

    Attributes
    ----------
    kappa : float
        Share of a call's time that grows with whole waves, pad(n, P) / P.
    sm_share : float
        Share that grows with the blocks of the most loaded multiprocessor, pad(n, S) / P.
    num_sms : int
        S; without effect where `sm_share` is 0.
    """

    kappa: float
    sm_share: float = 0.0
    num_sms: int = 1

    def waves(self, blocks: FloatArray, waves: FloatArray, imbalance: FloatArray) -> FloatArray:
        """Return w, the full waves that take as long, [num_instances]."""
        by_sm = np.ceil(blocks / self.num_sms) * self.num_sms / blocks
        rest = 1.0 - self.kappa - self.sm_share
        return waves * (self.kappa * imbalance + self.sm_share * by_sm + rest)

    def to_json(self) -> dict[str, float]:
        """Return plain data for the report."""
        return {"kappa": self.kappa, "sm_share": self.sm_share}


@dataclass(frozen=True)
class SweepFit:
    """The result of the sweep of a device.

    Attributes
    ----------
    flops_per_sec : float
        Rate of full waves.
    launch_secs : float
        Seconds of a call without work.
    """

    spread: Spread
    flops_per_sec: float
    launch_secs: float


@dataclass(frozen=True)
class CudaCounts:
    """Counts of a micro-kernel at many instances; every array is float64 [num_instances].

    Attributes
    ----------
    flops, padded_flops : FLOPs of the instance, and of all tiles, reduction included.
    blocks : n, the blocks of all parts of the reduction.
    imbalance : x = pad(n, P) / n.
    waves : n / P.
    num_steps : steps of the reduction that a block does, in whole tiles.
    elements : elements that other functions than the block function read and write.
    """

    flops: FloatArray
    padded_flops: FloatArray
    blocks: FloatArray
    imbalance: FloatArray
    waves: FloatArray
    num_steps: FloatArray
    elements: FloatArray

    @property
    def f_pad(self) -> FloatArray:
        """FLOPs(W) / FLOPs(pad(W, M)), at most 1."""
        return self.flops / self.padded_flops

    def stretched(self, spread: Spread) -> FloatArray:
        """Return w: waves, taken as they are spread."""
        return spread.waves(self.blocks, self.waves, self.imbalance)


def count(
    problem: AnyProblem, micro_kernel: CudaMicroKernel, wave: int, extents: Mapping[str, IntArray]
) -> CudaCounts:
    """Count for all instances at once.

    Parameters
    ----------
    wave : int
        P, see `wave_blocks`.
    extents : mapping of str to int64 array [num_instances]
        Extent of every index.
    """
    given = dict(extents)
    shape = next(iter(given.values())).shape
    demand = call_shape(problem, micro_kernel, given).demand

    def each(value: Any) -> FloatArray:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), shape)

    blocks = each(demand.blocks)
    waves = blocks / wave
    return CudaCounts(
        flops=each(problem.flops(given)),
        padded_flops=each(demand.padded_flops),
        blocks=blocks,
        imbalance=np.ceil(waves) * wave / blocks,
        waves=waves,
        num_steps=each(demand.num_steps),
        elements=each(demand.elements),
    )


@dataclass(frozen=True)
class CudaLocalModel:
    """The fitted f_local of one micro-kernel on one device.

    Attributes
    ----------
    wave : int
        P.
    coefficients : float64 array [num_terms]
        c₀, α, β, and γ where other functions are launched too.
    fit_error : float
        Median relative error on the measured points.
    """

    micro_kernel: CudaMicroKernel
    wave: int
    coefficients: FloatArray
    fit_error: float

    def predict(self, problem: AnyProblem, spread: Spread, extents: Mapping[str, IntArray]) -> Factors:
        """Return the three factors and their product for every instance."""
        counts = count(problem, self.micro_kernel, self.wave, extents)
        launch, alpha, beta, *gamma = self.coefficients
        wave_secs = np.maximum(alpha + beta * counts.num_steps, 1e-12)
        f_local = counts.padded_flops / (counts.waves * wave_secs)
        f_spatial = counts.waves / counts.stretched(spread)
        secs = launch + counts.flops / (f_local * f_spatial * counts.f_pad)
        secs = secs + (gamma[0] * counts.elements if gamma else 0.0)
        return Factors(f_local, f_spatial, counts.f_pad, counts.flops / secs, counts.imbalance, counts.waves)

    def to_json(self) -> dict[str, float]:
        """Return plain data for the report."""
        names = ("launch_secs", "secs_per_wave", "secs_per_wave_step", "secs_per_copied_element")
        facts = dict(zip(names, (float(c) for c in self.coefficients), strict=False))
        return facts | {"wave_blocks": self.wave, "median_fit_error": self.fit_error}


def fit_local(
    problem: AnyProblem,
    micro_kernel: CudaMicroKernel,
    wave: int,
    spread: Spread,
    points: Sequence[Mapping[str, int]],
    secs: Sequence[float],
) -> CudaLocalModel:
    """Fit the coefficients of one micro-kernel on its measured calls.

    Parameters
    ----------
    wave : int
        P, see `wave_blocks`.
    spread : Spread
        Of the device.
    points, secs
        As `measured` takes them.

    Raises
    ------
    CandidateError
        There is no usable measurement.
    """
    extents, times = measured(problem, micro_kernel, points, secs)
    counts = count(problem, micro_kernel, wave, extents)
    stretched = counts.stretched(spread)
    terms = [np.ones_like(times), stretched, stretched * counts.num_steps]
    if counts.elements.any():
        terms.append(counts.elements)
    coefficients, error = fit_terms(np.column_stack(terms), times)
    return CudaLocalModel(micro_kernel, wave, coefficients, error)


def fit_sweep(calibration: Mapping[str, Any], num_sms: int | None = None) -> SweepFit:
    """Fit how a device spreads blocks to calls of up to 4·P blocks of one micro-kernel (paper, Figure 13).

    ``t = c₀ + t_wave · (κ·⌈n/P⌉ + σ·⌈n/S⌉·S/P + (1 − κ − σ)·n/P)`` by non-negative least squares on relative
    errors.

    Parameters
    ----------
    calibration : mapping
        As records have it: ``num_blocks`` and ``secs`` of each call, and ``wave_blocks``, P.
    num_sms : int, optional
        S; without it σ is 0, and κ that of the paper.

    Raises
    ------
    TuningError
        There are too few points, or all fill their last waves alike, so that κ cannot be fitted.
    """
    from scipy.optimize import nnls  # half a second

    wave = calibration["wave_blocks"]
    n = np.asarray(calibration["num_blocks"], dtype=np.float64)
    t = np.asarray(calibration["secs"], dtype=np.float64)
    if len(n) < _MIN_SWEEP or len(n) != len(t) or not np.all((n >= 1) & np.isfinite(t) & (t > 0)):
        raise TuningError(f"κ: fewer than {_MIN_SWEEP} usable points in the sweep of the device")
    whole, part = np.ceil(n / wave), n / wave
    if np.ptp(whole / part) < 1e-9:
        raise TuningError("κ: every point of the sweep fills its last wave alike")
    terms = [np.ones_like(t), whole, part]
    if num_sms is not None and num_sms < wave:
        terms.append(np.ceil(n / num_sms) * num_sms / wave)
    (launch, by_whole, by_part, *by_sm), _ = nnls(np.column_stack(terms) / t[:, None], np.ones_like(t))
    wave_secs = by_whole + by_part + sum(by_sm)
    if wave_secs <= 0:
        raise TuningError("κ: the seconds of the sweep do not grow with its blocks")
    spread = Spread(float(by_whole / wave_secs), float(sum(by_sm) / wave_secs), num_sms or 1)
    block_flops = float(calibration.get("block_flops", _BLOCK_FLOPS))
    return SweepFit(spread, float(wave * block_flops / wave_secs), float(launch))
