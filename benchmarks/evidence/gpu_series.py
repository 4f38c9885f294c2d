"""Figures 12 and 15 to 19, and Table 1, of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.evidence.choice import frontier
from benchmarks.evidence.gpu import Device, point_key
from benchmarks.evidence.series import label
from benchmarks.evidence.shop import Row
from dietcode.search_space.problem import extents_of

_NUM_POINTS = 8
_UNNAMED = "not known"
_ALONE = "metaschedule-alone"  # as benchmarks/gpu/compare.py has it
_WHOSE_MODEL = (
    "the cost model is that of the checkout that wrote this page, which may be later than the commit of the "
    "measurements, by whose cost model the libraries in the comparisons below were chosen"
)


def votes(device: Device, names: list[str]) -> Row | None:
    """The trade-off of each workload, as the cost model has it from measured waves."""
    found = []
    for name in names:
        measured = device.workloads[name]
        curve = [point.to_json() for point in measured.choice.selection.curve]
        free = np.unique(measured.fitted.throughput.argmax(axis=1))
        kept, points = sorted(measured.choice.selection.chosen), frontier(curve, _NUM_POINTS)
        if all(sorted(point["chosen"]) != kept for point in points):
            points += [point for point in curve if sorted(point["chosen"]) == kept][:1]
            points.sort(key=lambda point: (point["num_bytes"], point["loss_mean"]))
        found.append(
            {
                "workload": name,
                "num_instances": len(measured.instances),
                "num_free_choice": len(free),
                "free_choice_bytes": int(measured.fitted.sizes[free].sum()),
                "points": [
                    {key: point[key] for key in ("num_kernels", "num_votes", "loss_mean", "num_bytes")}
                    | {"kept": sorted(point["chosen"]) == kept}
                    for point in points
                ],
            }
        )
    return {"workloads": found}


def draw_votes(axes: Any, data: Row) -> None:
    """Loss over bytes, a line a workload; at each point, kernels."""
    (axis,) = axes
    for found in data["workloads"]:
        sizes = [point["num_bytes"] / 1024 for point in found["points"]]
        losses = [100 * point["loss_mean"] for point in found["points"]]
        axis.plot(sizes, losses, "o-", label=found["workload"])
        for size, loss, point in zip(sizes, losses, found["points"], strict=True):
            axis.annotate(str(point["num_kernels"]), (size, loss), fontsize=7)
    axis.set_xlabel("machine code of the measured architecture, KiB")
    axis.set_ylabel("predicted loss to free choice, %")
    axis.legend(fontsize=8)


def table_votes(data: Row) -> list[list[str]]:
    """A row a point."""
    lines = [["workload", "kernels", "votes", "predicted loss", "machine code", "kept"]]
    for found in data["workloads"]:
        for point in found["points"]:
            by = "greedy" if point["num_votes"] is None else str(point["num_votes"])
            size = f"{point['num_bytes'] / 1024:.1f} KiB"
            loss = f"{point['loss_mean']:.2%}"
            lines.append(
                [found["workload"], str(point["num_kernels"]), by, loss, size, "yes" if point["kept"] else ""]
            )
    return lines


def ours_votes(data: Row) -> str:
    """Free choice, and the best single one."""
    parts = []
    for found in data["workloads"]:
        single = min((p["loss_mean"] for p in found["points"] if p["num_kernels"] == 1), default=None)
        text = f"{found['workload']}: {found['num_free_choice']} with free choice"
        if single is not None and found["num_free_choice"] > 1:
            text += f", {1 / (1 - single):.2f} × slower with the best single one (predicted)"
        parts.append(text)
    kept = "Kept is the smallest within what the workload's objective allows as mean and as worst loss"
    return f"{'; '.join(parts)}. {kept}. Losses are predicted; {_WHOSE_MODEL}."


def complexity(device: Device, names: list[str]) -> Row | None:
    """What each workload took and gives."""
    rows = []
    for name in names:
        measured = device.workloads[name]
        chosen = list(measured.choice.selection.chosen)
        rows.append(
            {
                "workload": name,
                "num_instances": len(measured.instances),
                "is_sampled": not measured.instances.exhaustive,
                "num_measured": len(measured.records.measurements),
                "num_usable": len(measured.fitted.models),
                "num_kept": len(chosen),
                "wall_secs": measured.wall_secs,
                "kept_bytes": int(measured.fitted.sizes[chosen].sum()),
            }
        )
    return {"workloads": rows}


def draw_complexity(axes: Any, data: Row) -> None:
    """Kernels of one a shape, and of ours."""
    (axis,) = axes
    rows = data["workloads"]
    places = np.arange(len(rows))
    for shift, key, name in (
        (-0.2, "num_instances", "one for each shape"),
        (0.2, "num_kept", "DietCode"),
    ):
        axis.bar_label(axis.bar(places + shift, [row[key] for row in rows], 0.38, label=name), fontsize=8)
    axis.set_yscale("log")
    axis.set_xticks(places, [row["workload"] for row in rows], fontsize=8)
    axis.set_ylabel("kernels")
    axis.legend(fontsize=8)


def table_complexity(data: Row) -> list[list[str]]:
    """A row a workload."""
    lines = [["workload", "shapes", "micro-kernels measured", "usable", "kept", "time of measuring"]]
    lines[0].append("machine code kept")
    for row in data["workloads"]:
        secs = _UNNAMED if row["wall_secs"] is None else f"{row['wall_secs']:.0f} s"
        numbers = [_shapes(row), *(str(row[key]) for key in ("num_measured", "num_usable", "num_kept"))]
        lines.append([row["workload"], *numbers, secs, f"{row['kept_bytes'] / 1024:.1f} KiB"])
    return lines


def _shapes(row: Row) -> str:
    return f"{row['num_instances']}{' sampled' * row['is_sampled']}"


def ours_complexity(data: Row) -> str:
    """Shapes, kernels and seconds in a line."""
    parts = []
    for row in data["workloads"]:
        secs = "" if row["wall_secs"] is None else f", {row['wall_secs']:.0f} s of measuring"
        parts.append(f"{row['workload']}: {row['num_kept']} kernels for {_shapes(row)} shapes{secs}")
    told = (
        f"What is kept is chosen by prediction; {_WHOSE_MODEL}. Usable are those that were timed at all "
        "points and spill no registers. Time of tuning was not measured, and no shape had a tuning run of "
        "its own on this device."
    )
    return "; ".join(parts) + f". {told}"


def series(device: Device, names: list[str]) -> Row | None:
    """One workload's comparison, as it was measured."""
    row = device.compared.get(names[0])
    if row is None or not row["instances"]:
        return None
    others = list(dict.fromkeys(name for one in row["instances"] for name in one["others"]))
    trials = max((row.get(_ALONE) or {"trials": {}})["trials"].values(), default=0)
    known = device.workloads[names[0]].measured_points
    problem, spec = device.workloads[names[0]].problem, device.workloads[names[0]].spec
    instances = []
    for one in row["instances"]:
        extents = extents_of(spec, one["shape_vars"])
        is_anchor = point_key({letter: extents[letter] for letter in problem.extents}) in known
        instances.append(one | {"anchor": is_anchor})
    facts = {"workload": names[0], "others": others, "kappa": row.get("kappa"), "trials": trials}
    facts |= {"instances": instances, "complete": row.get("complete")}
    return facts | {"headline": headline(facts)}


def title_of(name: str, data: Row) -> str:
    """What a baseline is called in tables and plots."""
    if name != _ALONE:
        return name
    return f"TVM MetaSchedule, this shape alone, {data['trials']} trials"


def draw_series(axes: Any, data: Row) -> None:
    """A line each over the instances."""
    (axis,), rows = axes, data["instances"]
    places = np.arange(len(rows))
    for name in data["others"]:
        rates = [row["others"].get(name) or np.nan for row in rows]
        axis.plot(places, rates, ".-", label=title_of(name, data), linewidth=1)
    axis.plot(places, [row["measured_gflops"] for row in rows], "o-", label="DietCode")
    for is_anchor, mark, name in (
        (False, "k_", "predicted, not measured in tuning"),
        (True, "kx", "fitted: an anchor"),
    ):
        some = [i for i, row in enumerate(rows) if row["anchor"] is is_anchor]
        axis.plot(some, [rows[i]["predicted_gflops"] for i in some], mark, markersize=8, label=name)
    shown = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 10)).astype(int))
    axis.set_xticks(shown, [label(rows[i]["shape_vars"]) for i in shown], fontsize=7, rotation=30)
    axis.set_ylabel("GFLOP/s")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)


def table_series(data: Row) -> list[list[str]]:
    """A row an instance."""
    titles = [title_of(name, data) for name in data["others"]]
    lines = [["shape", "DietCode, GFLOP/s", "predicted", "micro-kernel", *titles]]
    for row in data["instances"]:
        rates = [row["others"].get(name) for name in data["others"]]
        predicted = f"{row['predicted_gflops']:.0f}" + " (fitted: an anchor)" * row["anchor"]
        first = [label(row["shape_vars"]), f"{row['measured_gflops']:.0f}", predicted]
        told = ["not measured" if rate is None else f"{rate:.0f}" for rate in rates]
        lines.append([*first, row["micro_kernel"], *told])
    return lines


def headline(row: Row) -> Row:
    """Ratios to the fastest other at each shape, at how many shapes each was timed, gaps of predictions.

    Gaps are of the shapes that were not measured in tuning.
    """
    rows = row["instances"]
    ratios = [one["measured_gflops"] / max(rates) for one in rows if (rates := _rates(one))]
    gaps = [abs(one["predicted_gflops"] / one["measured_gflops"] - 1) for one in rows if not one["anchor"]]
    return {
        "mean_ratio": float(np.exp(np.mean(np.log(ratios)))) if ratios else None,
        "worst_ratio": min(ratios, default=None),
        "num_slower": sum(ratio < 1 for ratio in ratios),
        "against": {n: sum(bool(one["others"].get(n)) for one in rows) for n in row["others"]},
        "num_held_out": len(gaps),
        "mean_gap": float(np.mean(gaps)) if gaps else None,
        "worst_gap": max(gaps, default=None),
    }


def ours_series(data: Row) -> str:
    """Mean and worst, against what, at how many shapes; and the gap of predictions."""
    found, count, parts = data["headline"], len(data["instances"]), []
    if found["mean_ratio"] is not None:
        parts.append(
            f"{found['mean_ratio']:.2f} × of the fastest of {against(data)} at each shape (geometric mean "
            f"over {count} {'shape' if count == 1 else 'shapes'}; worst {found['worst_ratio']:.2f} ×; slower "
            f"at {found['num_slower']})"
        )
    if data["complete"] is False:
        parts.append("time was up before everything was compared")
    if found["num_held_out"]:
        parts.append(
            f"predictions where tuning had not measured ({found['num_held_out']} of these shapes) are "
            f"{found['mean_gap']:.1%} off on average, {found['worst_gap']:.0%} at worst"
        )
    return "; ".join(parts) + "."


def against(data: Row) -> str:
    """What was timed beside ours, and at how many of the shapes, where not at all of them."""
    count = len(data["instances"])
    timed = {name: own for name, own in data["headline"]["against"].items() if own}
    return ", ".join(
        title_of(name, data) + (f" ({own} of {count})" if own < count else "") for name, own in timed.items()
    )


def _rates(row: Row) -> list[float]:
    return [rate for rate in row["others"].values() if rate]


def calls(device: Device, names: list[str]) -> Row | None:
    """What a call of a built library costs its caller, as `benchmarks/gpu/overhead.py` measured it."""
    if not device.calls:
        return None
    made = {key: device.calls[0].get(key) for key in ("commit", "date", "versions")}
    return {"libraries": device.calls, "made": made}


def _call_rows(data: Row) -> list[tuple[str, Row]]:
    return [
        (f"{one['library']}, {label(s['shape_vars'])}", s) for one in data["libraries"] for s in one["shapes"]
    ]


def draw_calls(axes: Any, data: Row) -> None:
    """Two bars a shape, and the target."""
    (axis,), rows = axes, _call_rows(data)
    places = np.arange(len(rows))
    for shift, key, name in ((-0.2, "into_out", "into out="), (0.2, "new_output", "with a new output")):
        found = [shape["host_microseconds"][key] for _, shape in rows]
        axis.bar_label(axis.bar(places + shift, found, 0.38, label=name), fmt="%.1f", fontsize=8)
    axis.axhline(data["libraries"][0]["target_microseconds"], color="k", linewidth=1, label="target")
    axis.set_xticks(places, [name for name, _ in rows], fontsize=8)
    axis.set_ylabel("µs of the caller")
    axis.legend(fontsize=8)


def table_calls(data: Row) -> list[list[str]]:
    """A row a shape."""
    rows = _call_rows(data)
    titles = {
        "into_out": "into out=, µs",
        "new_output": "with a new output, µs",
        "torch_operator": "an operator of PyTorch, µs",
        "torch_empty": "memory from PyTorch, µs",
    }
    known = [key for key in titles if all(key in shape["host_microseconds"] for _, shape in rows)]
    lines = [["library and shape", *(titles[key] for key in known), "checks that failed"]]
    for name, shape in rows:
        secs = [f"{shape['host_microseconds'][key]:.1f}" for key in known]
        lines.append([name, *secs, ", ".join(shape["failed_checks"]) or "none"])
    return lines


def ours_calls(data: Row) -> str:
    """The largest of both, against the target."""
    shapes = [shape for _, shape in _call_rows(data)]
    into, new = (max(s["host_microseconds"][key] for s in shapes) for key in ("into_out", "new_output"))
    failed = sum(len(shape["failed_checks"]) for shape in shapes)
    told = "its checks hold at each shape" if not failed else f"checks that failed: {failed}"
    target = data["libraries"][0]["target_microseconds"]
    return (
        f"{into:.1f} µs into `out=` and {new:.1f} µs with a new output, where {target:g} µs was aimed at; "
        f"{told} (a call waits for nothing, runs on the current stream, can be captured in a CUDA graph, and "
        "is apart from calls of other streams and threads)."
    )
