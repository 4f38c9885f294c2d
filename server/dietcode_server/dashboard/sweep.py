"""The sweep of a calibration as a small chart: measured rates, and the curve of the fitted κ."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dietcode_server.store.devices import Calibration

WIDTH, HEIGHT = 320, 150  # of the drawing, in its own units
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 8, 8, 26
_NUM_LINES = 3


@dataclass(frozen=True)
class Sweep:
    """Positions in a drawing of `WIDTH` by `HEIGHT`.

    Attributes
    ----------
    dots : tuple of (x, y, tiles, GFLOP/s)
        What was measured.
    curve : str
        Points of a polyline: f_spatial by κ, at the throughput of full waves.
    levels : tuple of (y, GFLOP/s)
        Lines across the drawing.
    ticks : tuple of (x, tiles)
        Full waves, where the cores are all busy to the end.
    """

    dots: tuple[tuple[float, float, int, float], ...]
    curve: str
    levels: tuple[tuple[float, float], ...]
    ticks: tuple[tuple[float, int], ...]
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    floor: int = HEIGHT - _BOTTOM


def draw_sweep(calibration: Calibration, num_cores: int) -> Sweep | None:
    """Draw it; None where there is nothing to draw.

    Parameters
    ----------
    num_cores : int
        P, the execution slots.
    """
    counts, rates = calibration.num_tiles, calibration.tile_gflops
    if len(counts) < 2 or len(counts) != len(rates) or not 0 < max(rates) < math.inf or num_cores < 1:
        return None
    step = _step(max(rates))
    highest = step * math.ceil(1.02 * max(rates) / step)

    def x(tiles: float) -> float:
        share = (tiles - counts[0]) / (counts[-1] - counts[0])
        return round(_LEFT + 8 + share * (WIDTH - _LEFT - _RIGHT - 16), 1)

    def y(rate: float) -> float:
        return round(HEIGHT - _BOTTOM - rate / highest * (HEIGHT - _TOP - _BOTTOM), 1)

    full = [rate for n, rate in zip(counts, rates, strict=True) if n % num_cores == 0] or list(rates)
    fitted = [(n, max(full) * _f_spatial(n, num_cores, calibration.kappa)) for n in counts]
    every = max(1, len(counts) // (8 * num_cores)) * num_cores
    return Sweep(
        dots=tuple((x(n), y(rate), n, rate) for n, rate in zip(counts, rates, strict=True)),
        curve=" ".join(f"{x(n)},{y(rate)}" for n, rate in fitted),
        levels=tuple((y(level), level) for level in (step * i for i in range(int(highest / step) + 1))),
        ticks=tuple((x(n), n) for n in counts if n % every == 0),
    )


def _f_spatial(num_tiles: int, num_cores: int, kappa: float) -> float:
    """Equations 4 and 5 of the paper, as a ratio of time; see docs/method.md."""
    padded = math.ceil(num_tiles / num_cores) * num_cores / num_tiles
    return 1.0 / (kappa * padded + 1.0 - kappa)


def _step(highest: float) -> float:
    """A round distance between lines, so that there are a few of them."""
    rough = highest / _NUM_LINES
    power = 10.0 ** math.floor(math.log10(rough))
    return float(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))
