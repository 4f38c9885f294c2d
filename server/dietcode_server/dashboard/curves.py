"""The two curves of a result: performance against size (Figure 12), and the fit of f_spatial (Figure 13)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode_server.dashboard.reports import FloatArray, Report

_SAME_LOSS = 1e-12


@dataclass(frozen=True)
class TradeOffPoint:
    """A set of micro-kernels that was considered.

    Attributes
    ----------
    num_bytes : int
        Of the library, without tables and dispatch.
    loss_mean, loss_worst : float
        Fractions given up against each instance's best micro-kernel.
    is_best : bool
        No smaller set loses less.
    is_chosen : bool
    micro_kernels : tuple of str
    objective : dict
        Fields of the spec's objective under which selection arrives here, or at what is as good.
    """

    num_kernels: int
    num_bytes: int
    loss_mean: float
    loss_worst: float
    is_best: bool
    is_chosen: bool
    micro_kernels: tuple[str, ...]
    objective: dict[str, Any]


def trade_off(report: Report) -> list[TradeOffPoint]:
    """Return all sets that selection weighed, by size; empty where the report does not say."""
    selection, points, least = report.facts.get("selection", {}), [], math.inf
    chosen = set(selection.get("micro_kernels", ()))
    given = report.workload.get("objective") or {}
    for row in selection.get("curve", ()):
        is_best = row["loss_mean"] < least - _SAME_LOSS
        least = min(least, row["loss_mean"])
        names = tuple(report.names[index] for index in row["chosen"])
        points.append(
            TradeOffPoint(
                num_kernels=row["num_kernels"],
                num_bytes=row["num_bytes"],
                loss_mean=row["loss_mean"],
                loss_worst=row["loss_worst"],
                is_best=is_best,
                is_chosen=set(names) == chosen,
                micro_kernels=names,
                objective=_objective(row, given),
            )
        )
    if points and not any(point.is_chosen for point in points):
        points.append(_chosen(report))
    return sorted(points, key=lambda point: point.num_bytes)


def _chosen(report: Report) -> TradeOffPoint:
    """Return the chosen set, if the curve lacks it: under ``max_loss`` it need not be one of the best."""
    selection = report.facts["selection"]
    return TradeOffPoint(
        num_kernels=len(selection["micro_kernels"]),
        num_bytes=(report.facts.get("fixed_bytes") or 0) + selection["kernel_bytes"],
        loss_mean=selection["loss_mean"],
        loss_worst=selection["loss_worst"],
        is_best=False,
        is_chosen=True,
        micro_kernels=tuple(selection["micro_kernels"]),
        objective={},
    )


def _objective(row: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The fewest bytes that lose no more than this point; caps would be one bound too many."""
    worst = given.get("max_loss")
    return {
        "binary_size": min(_above(row["loss_mean"]), 1 - 1e-6),
        "max_loss": None if worst is None else max(worst, min(1.0, _above(row["loss_worst"]))),
        "max_kernels": None,
        "max_bytes": None,
    }


def _above(fraction: float) -> float:
    """Round up to six decimals."""
    return math.ceil(fraction * 1e6) / 1e6


@dataclass(frozen=True, eq=False)
class Fit:
    """The sweep of a device, and what κ makes of it; every array is float64 [num_points].

    Rates are fractions of that of full waves without their launch.

    Attributes
    ----------
    kappa : float
    slots : int
        P.
    num_tiles : n.
    measured : n tiles over their time.
    f_spatial : ``1 / (κ·x + 1 − κ)``, x = pad(n, P) / n.
    with_launch : the same with the launch time, which the fit has beside it.
    full_gflops : float or None
        What 1 stands for; None where the sweep is in seconds.
    """

    kappa: float
    slots: int
    num_tiles: FloatArray
    measured: FloatArray
    f_spatial: FloatArray
    with_launch: FloatArray
    full_gflops: float | None

    @property
    def rows(self) -> list[tuple[float, ...]]:
        """A row for each number of tiles: it, measured, f_spatial, with launch."""
        columns = self.num_tiles, self.measured, self.f_spatial, self.with_launch
        return list(zip(*(column.tolist() for column in columns), strict=True))


def fit_of(report: Report) -> Fit | None:
    """Figure 13 of a report's device; None where it holds no sweep."""
    facts = report.facts.get("calibration") or {}
    kappa = facts.get("kappa")
    if kappa is not None and facts.get("tile_gflops") and report.slots:
        tiles = np.asarray(facts["num_tiles"], dtype=np.float64)
        return _fit(kappa, report.slots, tiles, tiles / np.asarray(facts["tile_gflops"]), True)
    if kappa is not None and facts.get("secs") and facts.get("wave_blocks"):
        blocks = np.asarray(facts["num_blocks"], dtype=np.float64)
        return _fit(kappa, facts["wave_blocks"], blocks, np.asarray(facts["secs"]), False)
    return None


def _fit(kappa: float, slots: int, tiles: FloatArray, times: FloatArray, in_gflops: bool) -> Fit | None:
    """``t(n) = launch + w·((1 − κ)·n + κ·pad(n, P))``: κ is given, launch and w are least squares of
    relative errors, neither below 0.
    """
    if len(tiles) < 2 or len(tiles) != len(times) or not (times > 0).all():
        return None
    work = (1.0 - kappa) * tiles + kappa * np.ceil(tiles / slots) * slots
    terms = np.column_stack([1.0 / times, work / times])
    launch, tile = np.linalg.lstsq(terms, np.ones_like(times), rcond=None)[0]
    if launch < 0 or tile <= 0:
        launch, tile = 0.0, float((work / times).sum() / ((work / times) ** 2).sum())
    return Fit(
        kappa=float(kappa),
        slots=int(slots),
        num_tiles=tiles,
        measured=tiles / times * tile,
        f_spatial=tiles / work,
        with_launch=tiles / (launch + tile * work) * tile,
        full_gflops=float(1.0 / tile) if in_gflops else None,
    )
