"""The cost model of GPUs (paper, section 5.3): f_local from full waves, f_spatial with κ, f_pad.

    Cost_M(W) = f_local(M) · f_spatial(W/M) · f_pad(W, M)              FLOP/s, equation 3

P = SMs × resident blocks is the wave: the blocks that run at a time. A wave takes the longer, the more steps
of the reduction each block does, so that f_local is a function of their number, fitted for each
micro-kernel on its measured waves (non-negative least squares on relative errors):

    t_wave = α + β·num_steps + δ·vectors           seconds; steps are padded to whole tiles of k
    t      = c₀ + t_wave · w + γ·elements         w = n/P · (κ·x + σ·y + 1 − κ − σ), n blocks

With a persistent grid P blocks go through n tiles, and w is the same: the tiles of a block. That its tiles
are spread as a wave's blocks are, with the same κ, is an assumption that nobody measured: all blocks begin
at once there, and the next tile is copied while one is written.

x = pad(n, P) / n stands for whole waves, y = pad(n, S) / n for whole blocks on each of S multiprocessors.

c₀ is the launch, shared by all shapes of a micro-kernel; γ is there only where a call launches functions
beside the block function: they read and write `elements` numbers, to add the parts of a split reduction, or
to copy operands and output with global padding. Vectors are the loads and stores of global memory that a
block does; their number follows from its steps but where alignment classes differ, and δ is fitted there
alone. f_spatial = 1 / (κ·x + 1 − κ) is equations 4 and 5 inverted: the paper's are ratios of time, and
everything here is throughput.

No number comes from a data sheet: without measurements there is no model, and no prediction. This file fits
and predicts from counts, and needs NumPy alone; `model` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.errors import TuningError
from dietcode.measure.least_squares import FloatArray, fit_terms, nonnegative

_MIN_SWEEP = 4
_LINEAR = 1e-6
_BLOCK_FLOPS = 2 * 128 * 128 * 256  # of the sweep, for records of an earlier version


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
    vectors : loads and stores of global memory of all blocks.
    """

    flops: FloatArray
    padded_flops: FloatArray
    blocks: FloatArray
    imbalance: FloatArray
    waves: FloatArray
    num_steps: FloatArray
    elements: FloatArray
    vectors: FloatArray

    @classmethod
    def of(
        cls,
        wave: int,
        flops: FloatArray,
        padded_flops: FloatArray,
        blocks: FloatArray,
        num_steps: FloatArray,
        elements: FloatArray,
        vectors: FloatArray,
    ) -> CudaCounts:
        """Count waves of `wave` blocks; the rest is as the attributes have it."""
        waves = blocks / wave
        imbalance = np.ceil(waves) * wave / blocks
        return cls(flops, padded_flops, blocks, imbalance, waves, num_steps, elements, vectors)

    @property
    def f_pad(self) -> FloatArray:
        """FLOPs(W) / FLOPs(pad(W, M)), at most 1."""
        return self.flops / self.padded_flops

    @property
    def has_classes(self) -> bool:
        """Whether vectors of a block do not follow from its steps: calls are of several alignment classes."""
        of_block = self.vectors / self.blocks
        linear = np.column_stack([np.ones_like(of_block), self.num_steps])
        rest = of_block - linear @ np.linalg.lstsq(linear, of_block, rcond=None)[0]
        return bool(np.abs(rest).max() > _LINEAR * max(1.0, float(of_block.max())))

    def stretched(self, spread: Spread) -> FloatArray:
        """Return w: waves, taken as they are spread."""
        return spread.waves(self.blocks, self.waves, self.imbalance)


@dataclass(frozen=True)
class WaveLaw:
    """The fitted seconds of one micro-kernel's calls as its counts have them.

    Attributes
    ----------
    coefficients : float64 array [5]
        c₀, α, β, γ and δ; the last two 0 where nothing is to be told from.
    fit_error : float
        Median relative error on the measured points.
    """

    coefficients: FloatArray
    fit_error: float

    @classmethod
    def fit(cls, counts: CudaCounts, spread: Spread, secs: FloatArray) -> WaveLaw:
        """Fit the coefficients on measured calls, one for each count."""
        stretched = counts.stretched(spread)
        terms = [np.ones_like(secs), stretched, stretched * counts.num_steps]
        further = {3: counts.elements} if counts.elements.any() else {}
        further |= {4: stretched * counts.vectors / counts.blocks} if counts.has_classes else {}
        found, error = fit_terms(np.column_stack([*terms, *further.values()]), secs)
        coefficients = np.zeros(5)
        coefficients[[0, 1, 2, *further]] = found
        return cls(coefficients, error)

    def predict(self, counts: CudaCounts, spread: Spread) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return f_local, f_spatial and the FLOP/s of a call, each float64 [num_instances]."""
        launch, alpha, beta, gamma, delta = self.coefficients
        wave_secs = alpha + beta * counts.num_steps + delta * counts.vectors / counts.blocks
        f_local = counts.padded_flops / (counts.waves * np.maximum(wave_secs, 1e-12))
        f_spatial = counts.waves / counts.stretched(spread)
        secs = launch + counts.flops / (f_local * f_spatial * counts.f_pad) + gamma * counts.elements
        return f_local, f_spatial, counts.flops / secs


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
    launch, by_whole, by_part, *by_sm = nonnegative(np.column_stack(terms) / t[:, None], np.ones_like(t))
    wave_secs = by_whole + by_part + sum(by_sm)
    if wave_secs <= 0:
        raise TuningError("κ: the seconds of the sweep do not grow with its blocks")
    spread = Spread(float(by_whole / wave_secs), float(sum(by_sm) / wave_secs), num_sms or 1)
    block_flops = float(calibration.get("block_flops", _BLOCK_FLOPS))
    return SweepFit(spread, float(wave * block_flops / wave_secs), float(launch))
