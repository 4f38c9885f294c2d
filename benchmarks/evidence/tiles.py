"""Figures 9, 10 and 13: grids that leave cores idle, edges, and throughput against the size of a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.axes import Way, prepare
from benchmarks.evidence.figure import Figure, whiskers
from benchmarks.evidence.shop import Row, Shop
from benchmarks.facts import calm, middle_half
from dietcode.measure.turns import FEWEST_ROUNDS, interleave
from dietcode.measure.tvm_threads import set_num_threads
from dietcode.runtime.cpu import available_cores
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.space import hardware_seeds
from dietcode.search_space.problem import extents_of, problem_from_spec
from dietcode.target.cpu import CpuTarget, resolve_target
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec, TargetSpec

_REDUCTION = 4096
_PAPER_T = 60  # of Figures 6 and 10


def column_of_tiles(columns: int) -> Spec:
    """A dense layer as wide as one tile, so that its grid is as long as its rows."""
    return spec_from_data(
        {
            "name": "column-of-tiles",
            "op": {"einsum": "mk,nk->mn"},
            "tensors": {
                "X": {"dims": "mk", "dtype": "float32"},
                "W": {"dims": "nk", "dtype": "float32", "constant": True},
            },
            "output": {"name": "Y", "dtype": "float32"},
            "shape_vars": {"M": {"min": 1, "max": 4096}},
            "dims": {"m": "M", "n": columns, "k": _REDUCTION},
        }
    )


def _here() -> tuple[CpuTarget, MicroKernel]:
    """This machine, and the tile that fills its register file."""
    target = resolve_target(TargetSpec(kind="llvm"))
    seed = hardware_seeds(Limits.of(target))[0]
    return target, MicroKernel(seed.rows, seed.columns)


def timed(
    spec: Spec, binding: dict[str, int], kernels: dict[str, MicroKernel], rounds: int
) -> dict[str, tuple[float, list[float]]]:
    """GFLOP/s of micro-kernels at one instance, on all cores, timed in turns, and of the middle half.

    Raises
    ------
    SystemExit
        Something else ran, also when it was measured again.
    """
    set_num_threads(available_cores())
    problem, extents = problem_from_spec(spec), extents_of(spec, binding)
    calls: dict[str, Callable[[], Any]] = {
        name: prepare(Way(kernel), problem, extents, binding) for name, kernel in kernels.items()
    }
    flops = float(problem.flops(extents))
    found = interleave(calls, rounds)
    if rounds >= FEWEST_ROUNDS:  # fewer are a try of this code, not figures
        calm([{"disturbed": found.disturbed}], f"{spec.name} at {binding}")
    return {
        name: (flops / secs / 1e9, middle_half(flops, found.quartiles[name])) for name, secs in found.items()
    }


def grids(shop: Shop) -> Row:
    """Too few tiles, then a last wave that is not full: before and after the tiles change their rows."""
    target, tile = _here()
    cores, third = target.num_cores, tile.rows // 3
    cases = {}
    if cores > 1:
        few = max(1, cores // 2)  # tiles, of `rows`; half as tall they are twice as many
        half = tile.rows // 2
        cases["too few tiles"] = (few * 2 * half, 2 * half, half)
        cases["partial last wave"] = (6 * third * cores // 2, 2 * third, 3 * third)
    spec, rows = column_of_tiles(tile.columns), []
    for name, (num_rows, before, after) in cases.items():
        kernels = {
            "before": MicroKernel(before, tile.columns),
            "after": MicroKernel(after, tile.columns),
        }
        found = timed(spec, {"M": num_rows}, kernels, shop.scale.rounds)
        rates = {name: rate for name, (rate, _) in found.items()}
        rows.append(
            {
                "case": name,
                "rows": num_rows,
                "cores": cores,
                "tile_rows": [before, after],
                "num_tiles": [-(-num_rows // before), -(-num_rows // after)],
                "gflops": [rates["before"], rates["after"]],
                "gflops_between": [found["before"][1], found["after"][1]],
                "gain": rates["after"] / rates["before"],
            }
        )
    facts = {"columns": tile.columns, "reduction": _REDUCTION, "cases": rows}
    return facts | {"disturbed": None}  # or nothing would be written


def draw_grids(axes: Any, data: Row) -> None:
    """Two bars a case."""
    (axis,) = axes
    places = np.arange(len(data["cases"]))
    for i, name in enumerate(("before", "after")):
        rates = [case["gflops"][i] for case in data["cases"]]
        between = [case["gflops_between"][i] for case in data["cases"] if "gflops_between" in case]
        reach = whiskers(rates, between or None)
        bars = axis.bar(places + (i - 0.5) * 0.4, rates, 0.38, label=name, yerr=reach, capsize=3)
        axis.bar_label(
            bars,
            [f"{c['num_tiles'][i]} tiles of {c['tile_rows'][i]} rows" for c in data["cases"]],
            fontsize=8,
        )
    axis.set_xticks(places, [case["case"] for case in data["cases"]])
    axis.set_ylabel("GFLOP/s")
    axis.legend(fontsize=8)


def table_grids(data: Row) -> list[list[str]]:
    """A row a case."""
    lines = [["case", "cores", "tiles before", "after", "GFLOP/s before", "after", "gain"]]
    for case in data["cases"]:
        tiles = [f"{n} of {r} rows" for n, r in zip(case["num_tiles"], case["tile_rows"], strict=True)]
        rates = [f"{rate:.0f}" for rate in case["gflops"]]
        lines.append([case["case"], str(case["cores"]), *tiles, *rates, f"{case['gain']:.2f} ×"])
    return lines


GRIDS = Figure(
    name="figure-9",
    title="Figure 9: grids that leave cores idle",
    paper="Drawn, not measured: tiles made half as large reach all SMs, tiles made 1.25 × as large empty "
    "a partial last wave.",
    uses=lambda _: [],
    measure=grids,
    draw=draw_grids,
    table=table_grids,
    ours=lambda data: "; ".join(
        f"{case['case']}: {case['gain']:.2f} × from {case['num_tiles'][0]} to {case['num_tiles'][1]} "
        f"tiles on "
        f"{case['cores']} cores" for case in data["cases"]
    ) + ("." if data["cases"] else "One core: no grid leaves one idle."),
    why="Cores are in the place of SMs, two of them in that of forty, so that what a grid can leave idle "
    "is up to half; "
    "tiles of other heights also differ in speed by themselves.",
)  # fmt: skip


def edges(shop: Shop) -> Row:
    """The four ways with tiles that reach past an edge, of one micro-kernel at the paper's instance."""
    _, tile = _here()
    spec = shop.spec(shop.scale.dense)
    (variable,) = spec.variables
    value = min(_PAPER_T, spec.shape_vars[variable].max)
    names = {"baseline": "checked", "global": "global", "partition": "partition", "local": "local"}
    kernels = {name: MicroKernel(tile.rows, tile.columns, tails) for name, tails in names.items()}
    found = timed(spec, {variable: value}, kernels, shop.scale.rounds)
    whole = extents_of(spec, {variable: value})["m"] % tile.rows == 0
    return {
        "workload": spec.name,
        "instance": {variable: value},
        "tile": [tile.rows, tile.columns],
        "divides": whole,
        "gflops": {name: rate for name, (rate, _) in found.items()},
        "gflops_between": {name: between for name, (_, between) in found.items()},
        "disturbed": None,  # or nothing would be written
    }


def draw_edges(axes: Any, data: Row) -> None:
    """A bar each."""
    (axis,) = axes
    rates, between = list(data["gflops"].values()), data.get("gflops_between")
    reach = whiskers(rates, None if between is None else list(between.values()))
    bars = axis.bar(list(data["gflops"]), rates, 0.6, yerr=reach, capsize=3)
    axis.bar_label(bars, fmt="%.0f", fontsize=8)
    axis.set_ylabel("GFLOP/s")


def table_edges(data: Row) -> list[list[str]]:
    """A row each."""
    most = max(data["gflops"].values())
    lines = [["way", "GFLOP/s", "of the best"]]
    return lines + [[name, f"{rate:.0f}", f"{rate / most:.2f}"] for name, rate in data["gflops"].items()]


def ours_edges(data: Row) -> str:
    """All four in a line."""
    rates = data["gflops"]
    return (
        f"Tile {data['tile'][0]}x{data['tile'][1]} at T = {next(iter(data['instance'].values()))}: local "
        f"padding is "
        f"{rates['local'] / rates['baseline']:.1f} × of checks left in, "
        f"{rates['local'] / rates['global']:.2f} × of "
        f"global padding and {rates['local'] / rates['partition']:.2f} × of partitioning."
    )


EDGES = Figure(
    name="figure-10",
    title="Figure 10: out-of-boundary checks",
    paper="Tesla T4, 128x128 at T = 60: local padding is the fastest; checks left in cost as much as 17 ×.",
    uses=lambda scale: [scale.dense],
    measure=edges,
    draw=draw_edges,
    table=table_edges,
    ours=ours_edges,
    why="Partitioning computes nothing beyond the edge and has no checks in its body, and on a CPU the "
    "second body costs "
    "only its bytes, where a GPU's threads of one kernel would diverge. Where whiskers overlap, ways are not "
    "told apart.",
)  # fmt: skip


def sweep(shop: Shop) -> Row:
    """The calibration of the dense layer's run: κ, and what it was fitted on."""
    library = shop.library(shop.spec(shop.scale.dense))
    calibration = library.report["calibration"]
    cores = library.report["target"]["num_cores"]
    tiles = np.asarray(calibration["num_tiles"], float)
    rates = np.asarray(calibration["tile_gflops"], float)
    kappa = float(calibration["kappa"])
    shape = 1.0 / (kappa * (np.ceil(tiles / cores) * cores / tiles) + 1.0 - kappa)
    full = float(np.exp(np.mean(np.log(rates / shape))))  # the one factor that the curve leaves open
    fitted = full * shape
    return {
        "cores": cores,
        "kappa": kappa,
        "num_tiles": tiles.astype(int).tolist(),
        "gflops": rates.tolist(),
        "fitted_gflops": fitted.tolist(),
        "mean_error": float(np.mean(np.abs(fitted / rates - 1.0))),
        "disturbed": library.disturbed,
    }


def draw_sweep(axes: Any, data: Row) -> None:
    """Measured points and the curve."""
    (axis,) = axes
    axis.plot(data["num_tiles"], data["gflops"], "o", label="measured")
    axis.plot(data["num_tiles"], data["fitted_gflops"], "--", label=f"fitted, κ = {data['kappa']:.2f}")
    axis.set_xlabel("tiles")
    axis.set_ylabel("GFLOP/s")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)


def table_sweep(data: Row) -> list[list[str]]:
    """A row a size."""
    lines = [["tiles", "measured, GFLOP/s", "fitted"]]
    rows = zip(data["num_tiles"], data["gflops"], data["fitted_gflops"], strict=True)
    return lines + [[str(tiles), f"{rate:.0f}", f"{fitted:.0f}"] for tiles, rate, fitted in rows]


SWEEP = Figure(
    name="figure-13",
    title="Figure 13: throughput against the size of the grid",
    paper="Tesla T4, 128x128: peaks at every full wave of 40 SMs, k ≈ 0.5, the fitted curve almost over "
    "the measured one.",
    uses=lambda scale: [scale.dense],
    measure=sweep,
    draw=draw_sweep,
    table=table_sweep,
    ours=lambda data: f"κ = {data['kappa']:.2f} on {data['cores']} cores, the curve "
    f"{data['mean_error']:.1%} off on average at the points that κ was fitted to.",
    why="A wave of tiles waits for its slowest core, so that κ is near 1, where an SM runs several blocks "
    "at once and "
    "a partial wave is over sooner.",
)  # fmt: skip
