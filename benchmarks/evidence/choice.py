"""Figure 12 and section 5.3: what fewer micro-kernels cost, and what early pruning saves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ablation import empty_cache
from benchmarks.evidence.figure import Figure
from benchmarks.evidence.shop import Row, Shop
from benchmarks.facts import bootstrapped, calm, done_once
from benchmarks.stand import Stand
from dietcode.measure.disturbance import undisturbed_of
from dietcode.measure.turns import FEWEST_ROUNDS
from dietcode.tuner.reselect import with_objective
from dietcode.tuner.tune import make_library, write_library

_MOST_VOTES = 4  # Figure 12 of the paper has points for 1, 2, 3, …


def votes(shop: Shop) -> Row:
    """Libraries along the trade-off of two workloads, built from the same measurements and timed in turns."""
    return {"workloads": [_along(shop, path) for path in dict.fromkeys((shop.scale.dense, shop.scale.wide))]}


def frontier(curve: list[Row], most: int) -> list[Row]:
    """Points to build, from the smallest.

    So many that no other beats in size and loss, the best single one, and the coverings by the first numbers
    of votes.
    """
    best, points = np.inf, []
    for point in sorted(curve, key=lambda p: (p["num_bytes"], p["loss_mean"])):
        if point["loss_mean"] < best - 1e-9:
            best = point["loss_mean"]
            points.append(point)
    picked = set(np.linspace(0, len(points) - 1, min(most, len(points))).round().astype(int).tolist())
    single = [i for i, point in enumerate(points) if point["num_kernels"] == 1]
    found = [points[i] for i in sorted(picked.union(single[-1:]))]
    votes = [p for p in curve if not p["trimmed"] and (p["num_votes"] or np.inf) <= _MOST_VOTES]
    known = {tuple(sorted(point["chosen"])) for point in found}
    found += [point for point in votes if tuple(sorted(point["chosen"])) not in known]
    return sorted(found, key=lambda p: (p["num_bytes"], p["loss_mean"]))


def _along(shop: Shop, path: str) -> Row:
    spec = shop.spec(path)
    library = shop.library(spec)
    report, known = library.report, library.records
    asked = {"binary_size": 0.0, "max_loss": None, "max_kernels": None, "max_bytes": None}
    made: list[tuple[Row, Path, Row]] = []
    for point in frontier(report["selection"]["curve"], shop.scale.num_points):
        # Of these micro-kernels alone all are kept, since bytes count nothing.
        names = {report["micro_kernels"][i]["micro_kernel"] for i in point["chosen"]}
        some = replace(known, measurements={k: m for k, m in known.measurements.items() if k.name in names})
        folder = shop.folder / "votes" / spec.name / "-".join(map(str, sorted(point["chosen"])))
        result = make_library(with_objective(spec, asked), known=some)
        write_library(result, folder)
        made.append((point, folder, result.report))
    with Stand(library.folder) as stand:
        rows = [_timed(shop, stand, row, made) for row in stand.instances(shop.scale.num_instances)]
    kept = calm(rows, spec.name) if shop.scale.rounds >= 3 * FEWEST_ROUNDS else rows
    measured = np.asarray([row["gflops"] for row in kept])  # [num_instances, num_points], as below
    predicted = np.asarray([row["predicted_gflops"] for row in kept])
    return {
        "workload": spec.name,
        "num_instances": report["num_instances"],
        "num_free_choice": report["selection"]["num_free_choice"],
        "num_timed": len(kept),
        "points": [
            {
                "num_kernels": len(made_of["selection"]["micro_kernels"]),
                "num_votes": point["num_votes"],
                "predicted_loss": point["loss_mean"],
                "code_bytes": (folder / "library.so").stat().st_size,
                "gflops_geomean": float(np.exp(np.log(measured[:, i]).mean())),
                "predicted_gflops_geomean": float(np.exp(np.log(predicted[:, i]).mean())),
            }
            for i, (point, folder, made_of) in enumerate(made)
        ],
        "instances": rows,
    }


def _timed(shop: Shop, stand: Stand, row: Row, made: list[tuple[Row, Path, Row]]) -> Row:
    """GFLOP/s of all libraries at an instance, in turns, and predicted; measured again where disturbed."""
    binding, rounds = row["shape_vars"], max(1, shop.scale.rounds // 3)
    paths = {str(folder): f"{folder}/library.so" for _, folder, _ in made}
    secs = stand.in_turns(paths, binding, rounds)
    own = [next(r for r in report["instances"] if r["shape_vars"] == binding) for _, _, report in made]
    return {
        "shape_vars": binding,
        "gflops": [row["flops"] / value / 1e9 for value in secs.values()],
        "predicted_gflops": [float(one["predicted_gflops"]) for one in own],
        "disturbed": secs.disturbed,
    }


def draw_votes(axes: Any, data: Row) -> None:
    """Throughput over bytes."""
    for axis, found in zip(axes, data["workloads"], strict=False):
        sizes = [point["code_bytes"] / 1024 for point in found["points"]]
        axis.plot(sizes, [point["gflops_geomean"] for point in found["points"]], "o-")
        for size, point in zip(sizes, found["points"], strict=True):
            axis.annotate(str(point["num_kernels"]), (size, point["gflops_geomean"]), fontsize=8)
        axis.set_title(f"{found['workload']}; at each point, kernels", fontsize=9)
        axis.set_xlabel("library.so, KiB")
        axis.set_ylabel("GFLOP/s, geometric mean")


def table_votes(data: Row) -> list[list[str]]:
    """A row a point."""
    heads = "workload|kernels|votes|predicted loss, all shapes|library.so"
    lines = [[*heads.split("|"), "GFLOP/s predicted, shapes timed", "measured"]]
    for found in data["workloads"]:
        for point in found["points"]:
            votes = "greedy" if point["num_votes"] is None else str(point["num_votes"])
            size = f"{point['code_bytes'] / 1024:.1f} KiB"
            rate = f"{point['gflops_geomean']:.0f}"
            expected = point.get("predicted_gflops_geomean")  # not in records of before 2026-11-23
            told = "not noted" if expected is None else f"{expected:.0f}"
            loss = f"{point['predicted_loss']:.2%}"
            lines.append([found["workload"], str(point["num_kernels"]), votes, loss, size, told, rate])
    return lines


def ours_votes(data: Row) -> str:
    """One kernel against free choice."""
    parts = []
    for found in data["workloads"]:
        points = found["points"]
        singles = [i for i, point in enumerate(points) if point["num_kernels"] == 1]
        free = f"{found['workload']}: {found['num_free_choice']} with free choice"
        if singles and found["num_free_choice"] > 1:
            best = max(singles, key=lambda i: points[i]["gflops_geomean"])
            single = points[best]["gflops_geomean"]
            last = points[-1]["num_kernels"]
            free += (
                f", the {last} of the last row {points[-1]['gflops_geomean'] / single:.2f} × as fast as the "
                f"best single one (measured, one library of each{_over_shapes(found, best)})"
            )
        parts.append(free)
    known = {point["num_votes"] for found in data["workloads"] for point in found["points"]}
    missing = [str(k) for k in range(2, _MOST_VOTES + 1) if k not in known]
    left = f" Coverings by {', '.join(missing)} votes are not in the record." if missing else ""
    return "; ".join(parts) + f".{left}"


def _over_shapes(found: Row, single: int) -> str:
    """The interval of the mean gain of the last point over another, and its shapes; if it has them."""
    timed = found.get("instances", [])
    kept = undisturbed_of(timed, lambda row: row["disturbed"])
    if not kept:
        return ""
    rates = np.asarray([row["gflops"] for row in kept])
    low, high = bootstrapped(np.log(rates[:, -1] / rates[:, single]))
    left = f" of {len(timed)}, the others disturbed" if len(kept) < len(timed) else ""
    return f"; {len(kept)} shapes{left}, 95 % interval of their mean {low:.2f} to {high:.2f}"


VOTES = Figure(
    name="figure-12",
    title="Figure 12: performance against size",
    paper="Tesla T4, dense over T: 34 kernels with free choice, 1.11 × slower with a single one; fewer "
    "with more votes.",
    uses=lambda scale: [scale.dense, scale.wide],
    measure=votes,
    draw=draw_votes,
    table=table_votes,
    ours=ours_votes,
    why="A CPU's tile is tens of elements where a GPU's block is thousands, and a wave is two tiles, so "
    "that one "
    "tile suits nearly every T of the dense layer; sizes are of the whole file, the rule and the host "
    "code included. The predicted loss is the mean over all shapes, by their weights; fewer are timed, "
    "spread evenly, and both rates are of these, so that the gain predicted for them may be another than the "
    "loss of all: T = 1 is one of a few there, and one of 128 in all.",
    num_axes=2,
)  # fmt: skip


def pruning(shop: Shop) -> Row:
    """Whole searches from nothing with early pruning, and what the same candidates would take without.

    After a search the waves that pruning left out are timed, as the search would have; the seconds of that
    are added. So both have the same candidates, builds and checks, MetaSchedule and all that a process does.
    """
    spec, runs = shop.spec(shop.scale.dense), []
    for state in range(shop.scale.num_runs):
        with empty_cache():
            search = replace(shop.scale.search, random_state=state)
            result, secs, disturbed = done_once(partial(make_library, spec, search=search))
        folder = shop.folder / "pruning" / str(state)
        write_library(result, folder)
        with Stand(folder) as stand:
            left = stand.watched(stand.waves_left_out, repeats=False)
        pruned = len(result.report["space"]["pruned"])
        runs.append(
            {
                **{"random_state": state, "secs": secs, "left_out_secs": left.value},
                "disturbed": disturbed or left.disturbed,
                **{"measured": result.measured, "pruned": pruned},
                "stop": result.report["rounds"][-1]["stop"],
            }
        )
        print(f"{secs:.0f} s, {left.value:.1f} s left out", flush=True)
    kept = calm(runs, spec.name) if len(runs) >= FEWEST_ROUNDS else runs
    return {"workload": spec.name, "runs": runs, "summary": _saved(kept)}


def _saved(runs: list[Row]) -> Row:
    """Share of what was tried that is pruned, and seconds without pruning over those with it: median, all."""
    gains = [(run["secs"] + run["left_out_secs"]) / run["secs"] for run in runs]
    share = sum(run["pruned"] for run in runs) / max(1, sum(run["measured"] for run in runs))
    return {"pruned_share": share, "gain": float(np.median(gains)), "gains": gains}


def draw_pruning(axes: Any, data: Row) -> None:
    """Seconds of each search, and those that pruning left out."""
    (axis,) = axes
    runs = [run for run in data["runs"] if not run.get("disturbed")]
    names = [f"seed {run['random_state']}" for run in runs]
    axis.bar(names, [run["secs"] for run in runs], 0.5, label="the search")
    left = [run.get("left_out_secs", 0.0) for run in runs]
    axis.bar(names, left, 0.5, bottom=[run["secs"] for run in runs], label="waves that pruning left out")
    axis.set_ylabel("seconds")
    axis.legend(fontsize=8)


def table_pruning(data: Row) -> list[list[str]]:
    """A row a run."""
    lines = [
        ["seed", "candidates", "pruned", "seconds with pruning", "the same without", "gain", "stopped by"]
    ]
    for run in data["runs"]:
        if run.get("disturbed"):
            lines.append([str(run["random_state"]), *["disturbed"] * 6])
            continue
        without = run["secs"] + run["left_out_secs"]
        lines.append(
            [
                *(str(run[key]) for key in ("random_state", "measured", "pruned")),
                *(f"{run['secs']:.0f}", f"{without:.0f}", f"{without / run['secs']:.2f} ×"),
                str(run["stop"]),
            ]
        )
    return lines


def ours_pruning(data: Row) -> str:
    """What was saved, over whole searches of the same candidates."""
    found = data["summary"]
    low, high = min(found["gains"]), max(found["gains"])
    return (
        f"{found['pruned_share']:.0%} of what was tried is pruned; without pruning a whole search of the "
        f"same candidates, MetaSchedule's part included, would take {found['gain']:.2f} × as long (median of "
        f"{len(found['gains'])} seeds, {low:.2f} to {high:.2f}): the waves that were left out are timed "
        "after each search, and their seconds added."
    )


PRUNING = Figure(
    name="section-5.3",
    title="Section 5.3: early pruning",
    paper="Tesla T4, dense over T: removes 28 % of the micro-kernels and makes the search 1.39 × more "
    "efficient.",
    uses=lambda scale: [scale.dense],
    measure=pruning,
    draw=draw_pruning,
    table=table_pruning,
    ours=ours_pruning,
    why="What is saved are the waves after the first; a micro-kernel's build, its check against float64, "
    "MetaSchedule and the calibration are paid either way.",
)  # fmt: skip
