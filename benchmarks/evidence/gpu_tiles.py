"""Figures 9, 10 and 13 of a GPU: waves of blocks, edges, and throughput against the size of a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.evidence.gpu import Device, Measured
from benchmarks.evidence.shop import Row
from dietcode.cost_model.cuda.model import count
from dietcode.cost_model.cuda.waves import fit_sweep
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import extents_of
from dietcode.search_space.tails import TAILS

_PAPER_T = 60  # of Figures 6 and 10
_MAX_ROWS = 16
_SEEDS = ("hardware", "metaschedule")


def waves(device: Device, names: list[str]) -> Row | None:
    """At each measured point: the largest seed, and what is fastest there."""
    found = [_waves(device.workloads[name]) for name in names]
    return {"workloads": [one for one in found if one["points"]]} if any(f["points"] for f in found) else None


def _waves(measured: Measured) -> Row:
    wave_of = {model.micro_kernel: model.wave for model in measured.fitted.models}
    rates = {tile: measured.gflops(measured.records.measurements[tile]) for tile in wave_of}
    seeds = [
        tile
        for tile in wave_of
        if measured.records.measurements[tile].provenance in _SEEDS and tile.tails == TAILS[0]
    ]
    largest = max(seeds, key=lambda tile: (tile.rows * tile.columns, tile.order), default=None)
    rows = []
    for key in sorted(rates[largest], key=_flops(measured)) if largest is not None else []:
        assert largest is not None
        best = max((tile for tile in rates if key in rates[tile]), key=lambda tile: rates[tile][key])
        rows.append(
            {
                "extents": measured.shown(key),
                "before": _of_tile(measured, largest, wave_of[largest], key, rates[largest][key]),
                "after": _of_tile(measured, best, wave_of[best], key, rates[best][key]),
                "gain": rates[best][key] / rates[largest][key],
            }
        )
    return {"workload": measured.name, "points": rows}


def _of_tile(measured: Measured, tile: CudaMicroKernel, wave: int, key: Any, rate: float) -> Row:
    blocks = float(count(measured.problem, tile, wave, _arrays(dict(key))).blocks[0])
    return {"tile": tile.name, "blocks": int(blocks), "waves": blocks / wave, "gflops": rate}


def _arrays(point: dict[str, int]) -> dict[str, Any]:
    return {letter: np.asarray([extent], dtype=np.int64) for letter, extent in point.items()}


def _flops(measured: Measured) -> Any:
    return lambda key: measured.problem.flops(dict(key))


def draw_waves(axes: Any, data: Row) -> None:
    """Bars of both at the points of the first workload."""
    (axis,), found = axes, data["workloads"][0]
    places = np.arange(len(found["points"]))
    for shift, which, name in ((-0.2, "before", "largest tile"), (0.2, "after", "fastest tile")):
        bars = axis.bar(places + shift, [p[which]["gflops"] for p in found["points"]], 0.38, label=name)
        axis.bar_label(bars, [f"{p[which]['waves']:.2f}" for p in found["points"]], fontsize=7)
    axis.set_xticks(places, [extents_label(p["extents"]) for p in found["points"]], fontsize=7)
    axis.set_ylabel("GFLOP/s; above, waves")
    axis.set_title(found["workload"], fontsize=9)
    axis.legend(fontsize=8)


def extents_label(extents: dict[str, int]) -> str:
    """``m=16 n=2304``."""
    return " ".join(f"{letter}={extent}" for letter, extent in extents.items())


def table_waves(data: Row) -> list[list[str]]:
    """A row a point."""
    lines = [["workload", "instance", "largest tile", "blocks", "waves", "GFLOP/s"]]
    lines[0] += ["fastest tile", "blocks", "waves", "GFLOP/s", "gain"]
    for found in data["workloads"]:
        for point in found["points"]:
            cells = [found["workload"], extents_label(point["extents"])]
            for which in ("before", "after"):
                side = point[which]
                cells += [side["tile"], str(side["blocks"]), f"{side['waves']:.2f}", f"{side['gflops']:.0f}"]
            lines.append([*cells, f"{point['gain']:.2f} ×"])
    return lines


def ours_waves(data: Row) -> str:
    """The largest gain of each workload among those of tiles with more blocks than the largest one has."""
    parts = []
    for found in data["workloads"]:
        points = [p for p in found["points"] if p["after"]["blocks"] > p["before"]["blocks"]]
        if not points:
            parts.append(f"{found['workload']}: the fastest has more blocks nowhere")
            continue
        point = max(points, key=lambda p: p["gain"])
        blocks = f"{point['before']['blocks']} blocks to {point['after']['blocks']}"
        parts.append(
            f"{found['workload']}: at most {point['gain']:.2f} ×, from {blocks} at "
            f"{extents_label(point['extents'])}"
        )
    told = (
        "They differ in more than in their blocks: in what multiplies, in stages, or in parts of a split "
        "reduction; what idle SMs alone cost was not measured."
    )
    return "; ".join(parts) + f". {told}"


def paddings(device: Device, names: list[str]) -> Row | None:
    """Each seed under every treatment of tails, at the ragged point nearest to the paper's."""
    rows = [row for name in names for row in _paddings(device.workloads[name])]
    return {"seeds": rows} if rows else None


def _paddings(measured: Measured) -> list[Row]:
    known, rows = measured.records.measurements, []
    for tile, measurement in known.items():
        if measurement.provenance not in _SEEDS or tile.tails != TAILS[0]:
            continue
        others = {tails: replace(tile, tails=tails) for tails in TAILS if tails in _tails_of(tile)}
        rates = {tails: measured.gflops(known[t]) for tails, t in others.items() if t in known}
        shared = set.intersection(*(set(of) for of in rates.values())) if len(rates) > 1 else set()
        key = _ragged(measured, tile, sorted(shared))
        if key is not None:
            rates_there = {tails: of[key] for tails, of in rates.items()}
            facts = {"workload": measured.name, "tile": tile.name, "extents": measured.shown(key)}
            rows.append(facts | {"gflops": rates_there})
    return rows


def _tails_of(tile: CudaMicroKernel) -> tuple[str, ...]:
    """Treatments that its unit knows."""
    allowed: tuple[str, ...] = getattr(tile, "allowed_tails", TAILS)
    return allowed


def _ragged(measured: Measured, tile: CudaMicroKernel, keys: list[Any]) -> Any:
    """Of the points that tiles reach past the edge of, the nearest to the paper's T; None for none."""
    spec, wanted = measured.spec, None
    if len(spec.variables) == 1:
        name = spec.variables[0]
        wanted = measured.problem.flops(extents_of(spec, {name: min(_PAPER_T, spec.shape_vars[name].max)}))
    past = [key for key in keys if count(measured.problem, tile, 1, _arrays(dict(key))).f_pad[0] < 1.0]
    flops = _flops(measured)
    if wanted is None:
        return max(past, key=flops, default=None)
    return min(past, key=lambda key: abs(np.log(flops(key) / wanted)), default=None)


def draw_paddings(axes: Any, data: Row) -> None:
    """Bars of the first seeds."""
    (axis,), rows = axes, data["seeds"][:4]
    names = [tails for tails in TAILS if any(tails in row["gflops"] for row in rows)]
    places, width = np.arange(len(rows)), 0.8 / len(names)
    for i, tails in enumerate(names):
        rates = [row["gflops"].get(tails, 0.0) for row in rows]
        axis.bar(places + (i - (len(names) - 1) / 2) * width, rates, width * 0.95, label=tails)
    labels = [f"{row['tile']}\n{row['workload']}, {extents_label(row['extents'])}" for row in rows]
    axis.set_xticks(places, labels, fontsize=6)
    axis.set_ylabel("GFLOP/s")
    axis.legend(fontsize=8)


def table_paddings(data: Row) -> list[list[str]]:
    """A row a seed and treatment."""
    lines = [["workload", "instance", "seed", "way", "GFLOP/s", "of the best"]]
    for row in data["seeds"]:
        most, first = max(row["gflops"].values()), [row["workload"], extents_label(row["extents"])]
        for tails, rate in row["gflops"].items():
            lines.append([*first, row["tile"], tails, f"{rate:.0f}", f"{rate / most:.2f}"])
    return lines


def ours_paddings(data: Row) -> str:
    """Local padding over each other way, over all seeds that were measured both ways."""
    parts = []
    for tails in TAILS:
        ratios = [
            row["gflops"]["local"] / row["gflops"][tails]
            for row in data["seeds"]
            if tails != "local" and {"local", tails} <= row["gflops"].keys()
        ]
        if ratios:
            seeds = f"{len(ratios)} {'seed' if len(ratios) == 1 else 'seeds'}"
            slower = sum(ratio < 1 for ratio in ratios)
            parts.append(f"{min(ratios):.2f} to {max(ratios):.2f} × of {tails} ({seeds}, slower at {slower})")
    return (
        f"Local padding is {', '.join(parts)}." if parts else "Local padding was not measured beside others."
    )


def sweep(device: Device, names: list[str]) -> Row | None:
    """The calibration of the device: blocks a second over the blocks of a grid, and the fitted curve."""
    known = [device.workloads[name].records.calibration for name in names]
    calibration = next((one for one in known if one is not None), None)
    if calibration is None:
        return None
    blocks, secs = (np.asarray(calibration[key], float) for key in ("num_blocks", "secs"))
    wave = int(calibration["wave_blocks"])
    kappa = fit_sweep(calibration).spread.kappa
    stretched = kappa * np.ceil(blocks / wave) + (1.0 - kappa) * blocks / wave
    terms = np.column_stack([np.ones_like(stretched), stretched]) / secs[:, None]
    fitted = terms @ np.linalg.lstsq(terms, np.ones_like(secs), rcond=None)[0] * secs
    return {
        "micro_kernel": calibration["micro_kernel"],
        "wave_blocks": wave,
        "num_sms": device.num_sms,
        "kappa": kappa,
        "num_blocks": blocks.astype(int).tolist(),
        "blocks_per_us": (blocks / secs / 1e6).tolist(),
        "fitted_blocks_per_us": (blocks / fitted / 1e6).tolist(),
        "mean_error": float(np.mean(np.abs(fitted / secs - 1.0))),
    }


def draw_sweep(axes: Any, data: Row) -> None:
    """Measured points, the curve, and where waves are full."""
    (axis,) = axes
    axis.plot(data["num_blocks"], data["blocks_per_us"], "o", label="measured")
    label = f"fitted, κ = {data['kappa']:.2f}"
    axis.plot(data["num_blocks"], data["fitted_blocks_per_us"], "--", label=label)
    for full in range(data["wave_blocks"], max(data["num_blocks"]) + 1, data["wave_blocks"]):
        axis.axvline(full, color="gray", linewidth=0.5)
    axis.set_xlabel(f"blocks of {data['micro_kernel']}; a line at each full wave")
    axis.set_ylabel("blocks in a microsecond")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)


def table_sweep(data: Row) -> list[list[str]]:
    """A row a size, of some sizes; the raw data has all."""
    lines = [["blocks", "waves", "measured, blocks in 1 µs", "fitted"]]
    rows = list(zip(data["num_blocks"], data["blocks_per_us"], data["fitted_blocks_per_us"], strict=True))
    for n, rate, fitted in rows[:: max(1, len(rows) // _MAX_ROWS)]:
        lines.append([str(n), f"{n / data['wave_blocks']:.2f}", f"{rate:.2f}", f"{fitted:.2f}"])
    return lines


def ours_sweep(data: Row) -> str:
    """κ and how well it fits."""
    return (
        f"κ = {data['kappa']:.2f} on {data['num_sms']} SMs with waves of {data['wave_blocks']} blocks of "
        f"{data['micro_kernel']}; the curve is {data['mean_error']:.1%} off on average at the points that it "
        "is fitted to."
    )
