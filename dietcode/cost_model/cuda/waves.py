"""The cost model of GPUs (paper, section 5.3): f_local from full waves, f_spatial with κ, f_pad.

    Cost_M(W) = f_local(M) · f_spatial(W/M) · f_pad(W, M)              FLOP/s, equation 3

P = SMs × resident blocks is the wave: the blocks that run at a time. A wave takes the longer, the more steps
of the reduction each block does, so that f_local is a function of their number, fitted for each
micro-kernel on its measured calls (non-negative least squares on relative errors):

    t = c₀ + (a + a'·num_steps)·W + (b + b'·num_steps)·L + (d + d'·num_steps)·n/S + δ·v + ε·bytes + γ·elements

n blocks on S multiprocessors: W = ⌈n/P⌉ are the waves, L the blocks of the most loaded multiprocessor, n/S
those of the mean one. Steps are padded to whole tiles of k. The three shares of a full wave, in which W = 1
and L = n/S = P/S, are κ, σ and the rest of

    f_spatial = 1 / (κ·x + σ·y + 1 − κ − σ)        x = pad(n, P) / n, y = pad(n, S) / n

which is equations 4 and 5 of the paper, inverted and with a term for whole blocks on each multiprocessor.
The paper has one κ for a device. On an H100 each micro-kernel needs its own: of those whose blocks wait for
memory two on a multiprocessor take little longer than one, of those that keep its units busy twice as long.
With one κ for all, predictions at shapes that were not measured were off by a third and a half there.

A multiprocessor with few of the blocks that it holds waits, and one block more costs it nothing: L counts
as `busy_blocks` at least in a last wave. It is one of a few numbers, tried from the least on; one is taken at
which the points are missed by a fifth less than at the one before.

A micro-kernel has about as many points as terms. What they leave open stays near a fit of three terms, by
the κ and σ that the sweep of the device had.

With a persistent grid P blocks go through n tiles, and n counts these. That its tiles are spread as blocks
are is an assumption: all blocks begin at once there, and the next tile is copied while one is written.

c₀ is the launch, shared by all shapes of a micro-kernel; γ is there only where a call launches functions
beside the block function: they read and write `elements` numbers, to add the parts of a split reduction, or
to copy operands and output with global padding. v are the vectors of a block, its loads and stores of global
memory, times the waves as the sweep has them spread; their number follows from its steps but where alignment
classes differ, and δ is fitted there alone. Bytes are those of all operands and outputs: a tile that hangs
over an edge reads and writes what exists, and batched products of a few rows are as long as that takes. The
paper's factors are ratios of time, and everything here is throughput.

No number comes from a data sheet: without measurements there is no model, and no prediction. This file fits
and predicts from counts, and needs NumPy alone; `model` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dietcode.errors import TuningError
from dietcode.measure.least_squares import FloatArray, fit_terms, nonnegative

_MIN_SWEEP = 4
_LINEAR = 1e-6
_STRENGTH = 0.05  # of the device's spread; from 0.02 to 0.2 held-out calls are predicted alike
_BUSY_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the resident blocks, one block at least
_BETTER = 0.8  # of the mean error of what was taken so far: what fits no better is not told from it
_LEAST_ERROR = 1e-3  # of the mean: smaller ones are not told apart
_IN_WAVES = np.asarray([0.0, 1, 1, 1, 1, 1, 1, 0, 1, 0])  # the coefficients of a law that are of waves
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
    sm_share : float or None
        Share that grows with the blocks of the most loaded multiprocessor, pad(n, S) / P. None where
        the sweep was of blocks that are alone on a multiprocessor, which does not tell it from `kappa`.
    num_sms : int
        S.
    """

    kappa: float
    sm_share: float | None = 0.0
    num_sms: int = 1

    def waves(self, blocks: FloatArray, waves: FloatArray, imbalance: FloatArray) -> FloatArray:
        """Return w, the full waves that take as long, [num_instances]."""
        by_sm, (kappa, share) = np.ceil(blocks / self.num_sms) * self.num_sms / blocks, self.shares
        return waves * (kappa * imbalance + share * by_sm + 1.0 - kappa - share)

    @property
    def shares(self) -> tuple[float, float]:
        """Those of whole waves, and of blocks of the most loaded multiprocessor.

        What the sweep does not tell apart counts as the latter, which others were found to wait for.
        """
        return (0.0, self.kappa) if self.sm_share is None else (self.kappa, self.sm_share)

    def to_json(self) -> dict[str, float | None]:
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
    wave : P.
    num_steps : steps of the reduction that a block does, in whole tiles.
    elements : elements that other functions than the block function read and write.
    vectors : loads and stores of global memory of all blocks.
    num_bytes : of all operands and outputs.
    """

    flops: FloatArray
    padded_flops: FloatArray
    blocks: FloatArray
    imbalance: FloatArray
    waves: FloatArray
    wave: int
    num_steps: FloatArray
    elements: FloatArray
    vectors: FloatArray
    num_bytes: FloatArray

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
        num_bytes: FloatArray,
    ) -> CudaCounts:
        """Count waves of `wave` blocks; the rest is as the attributes have it."""
        waves = blocks / wave
        imbalance = np.ceil(waves) * wave / blocks
        return cls(
            flops, padded_flops, blocks, imbalance, waves, wave, num_steps, elements, vectors, num_bytes
        )

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

    def full_wave(self) -> CudaCounts:
        """Return the counts of one full wave of the same blocks."""
        one, blocks = np.ones_like(self.blocks), np.full_like(self.blocks, self.wave)
        vectors = self.vectors / self.blocks * self.wave
        return replace(self, blocks=blocks, waves=one, imbalance=one, vectors=vectors)

    def stretched(self, spread: Spread) -> FloatArray:
        """Return w: waves, taken as they are spread."""
        return spread.waves(self.blocks, self.waves, self.imbalance)


@dataclass(frozen=True)
class WaveLaw:
    """The fitted seconds of one micro-kernel's calls as its counts have them.

    Attributes
    ----------
    coefficients : float64 array [10]
        Of `NAMES`; those that nothing is to be told from are 0.
    busy_blocks : float
        That keep a multiprocessor busy.
    spread : Spread
        Of the device.
    fit_error : float
        Median relative error on the measured points.
    """

    coefficients: FloatArray
    busy_blocks: float
    spread: Spread
    fit_error: float

    NAMES: ClassVar[tuple[str, ...]] = (
        "launch_secs",
        "secs_per_wave",
        "secs_per_sm_block",
        "secs_per_mean_block",
        "secs_per_wave_step",
        "secs_per_sm_block_step",
        "secs_per_mean_block_step",
        "secs_per_copied_element",
        "secs_per_wave_vector",
        "secs_per_byte",
    )

    @classmethod
    def fit(cls, counts: CudaCounts, spread: Spread, secs: FloatArray) -> WaveLaw:
        """Fit the coefficients on measured calls, one for each count.

        Parameters
        ----------
        spread : Spread
            Of the device, which coefficients that the calls leave open stay near.
        """
        known = _by_spread(counts, spread, secs)
        used = np.asarray([True] * 7 + [bool(counts.elements.any()), counts.has_classes, True])
        best, least = None, np.inf
        for share in _BUSY_SHARES:
            busy = max(1.0, round(share * counts.wave / spread.num_sms))
            terms = _terms(counts, spread, busy)[:, used]
            found, error = fit_terms(terms, secs, known[used], _STRENGTH)
            mean = max(float(np.abs(terms @ found / secs - 1.0).mean()), _LEAST_ERROR)
            if mean < _BETTER * least:
                coefficients = np.zeros(len(cls.NAMES))
                coefficients[used] = found
                best, least = cls(coefficients, busy, spread, error), mean
        assert best is not None
        return best

    def predict(self, counts: CudaCounts) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return f_local, f_spatial and the FLOP/s of a call, each float64 [num_instances]."""
        terms = _terms(counts, self.spread, self.busy_blocks)
        full = _terms(counts.full_wave(), self.spread, self.busy_blocks)
        of_waves = self.coefficients * _IN_WAVES
        work, wave_secs = np.maximum(terms @ of_waves, 1e-12), np.maximum(full @ of_waves, 1e-12)
        f_local = counts.padded_flops / (counts.waves * wave_secs)
        f_spatial = counts.waves * wave_secs / work
        rest = terms @ (self.coefficients * (1.0 - _IN_WAVES))
        return f_local, f_spatial, counts.flops / (work + rest)


def _terms(counts: CudaCounts, spread: Spread, busy_blocks: float) -> FloatArray:
    """Return what the coefficients of a law are of, [num_instances, 10]."""
    resident, full = counts.wave / spread.num_sms, np.floor(counts.waves)
    rest = np.ceil((counts.blocks - full * counts.wave) / spread.num_sms)  # of the last wave
    on_sm = full * resident + np.where(rest > 0, np.maximum(rest, min(busy_blocks, resident)), 0.0)
    spreads = np.stack([np.ceil(counts.waves), on_sm, counts.blocks / spread.num_sms], axis=1)
    vectors = counts.stretched(spread) * counts.vectors / counts.blocks
    of_steps, others = spreads * counts.num_steps[:, None], (counts.elements, vectors, counts.num_bytes)
    return np.column_stack([np.ones_like(on_sm), spreads, of_steps, *others])


def _by_spread(counts: CudaCounts, spread: Spread, secs: FloatArray) -> FloatArray:
    """Return the coefficients of a law with the shares of a device's spread, [10]."""
    stretched, resident = counts.stretched(spread), counts.wave / spread.num_sms
    terms = {0: np.ones_like(secs), 1: stretched, 2: stretched * counts.num_steps}
    terms |= {3: counts.elements} if counts.elements.any() else {}
    terms |= {4: stretched * counts.vectors / counts.blocks} if counts.has_classes else {}
    found = np.zeros(5)
    found[list(terms)] = fit_terms(np.column_stack(list(terms.values())), secs)[0]
    launch, alpha, beta, gamma, delta = found
    by_wave, by_sm = spread.shares
    shares = np.asarray([by_wave, by_sm / resident, (1.0 - by_wave - by_sm) / resident])
    return np.asarray([launch, *(alpha * shares), *(beta * shares), gamma, delta, 0.0])


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
    is_alone = num_sms is not None and num_sms >= wave
    sm_share = None if is_alone else float(sum(by_sm) / wave_secs)
    spread = Spread(float(by_whole / wave_secs), sm_share, num_sms or 1)
    block_flops = float(calibration.get("block_flops", _BLOCK_FLOPS))
    return SweepFit(spread, float(wave * block_flops / wave_secs), float(launch))
