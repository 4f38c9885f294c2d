"""The tables of `benchmarks.headline`, each from results of one kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.evidence.versions import is_of_today
from benchmarks.facts import ROOT, says_disturbed
from benchmarks.markdown import table
from benchmarks.over_range import calm, geomean, mean
from benchmarks.per_shape import flat_parts
from dietcode.measure.disturbance import undisturbed_of

Row = dict[str, Any]


def short_table(rows: list[Row], gaps: list[Row]) -> str:
    """A row a workload of what the README tells: speeds over PyTorch, predictions, and what tuning took."""
    heads = "workload|in bursts|worst|call by call|worst there|predictions off|tuning|micro-kernels"
    told = {gap["workload"]: gap for gap in gaps}
    lines = []
    for row in rows:
        lines.append(
            [
                described(row["workload"]),
                f"{geomean(row, over_vendor):.2f} ×",
                f"{row['summary']['ratio']['worst']:.2f} ×",
                *call_by_call(row)[:2],
                _off(told[row["workload"]], row) if row["workload"] in told else "not measured",
                tuning_secs(row),
                str(row["num_micro_kernels"]),
                commit(row),
            ]
        )
    return markdown([*heads.split("|"), "commit"], lines)


def _off(gap: Row, row: Row) -> str:
    """Mean and worst gap, with marks, and with the commit where that is another than the row's."""
    marks = {None: " ‡", "left out of the fit": " ‖"}.get(gap["held_out"], "")
    other = "" if commit(gap) == commit(row) else f" ({commit(gap)})"
    return f"{gap['gap_mean']:.1%}, {gap['gap_worst']:.0%} at worst{marks}{other}"


def speed_table(rows: list[Row]) -> str:
    """A row a workload."""
    heads = "workload|tuning|micro-kernels|library|in bursts|worst|of the roofline"
    heads += "|peak beside, GFLOP/s|predictions off, in bursts|call by call|worst there|predictions off there"
    heads += "|commit"
    lines = []
    for row in rows:
        summary = row["summary"]
        lines.append(
            [
                described(row["workload"]),
                tuning_secs(row),
                str(row["num_micro_kernels"]),
                f"{row['library_bytes'] / 1000:.0f} kB",
                f"{geomean(row, over_vendor):.2f} ×",
                f"{summary['ratio']['worst']:.2f} × ({at(summary['ratio']['worst_at'])})",
                f"{geomean(row, lambda one: one['of_roof']):.0%}",
                f"{summary['peak_gflops'][0]:.0f} to {summary['peak_gflops'][-1]:.0f}",
                f"{off_in_bursts(row):.0%}",
                *call_by_call(row),
                commit(row),
            ]
        )
    return markdown(heads.split("|"), lines)


def shape_table(rows: list[Row]) -> str:
    """The library over PyTorch at each shape that was measured, in bursts and call by call."""
    lines = []
    for row in rows:
        shapes = calm(row)
        told = [f"{at(one['shape_vars'])}: {over_vendor(one):.2f}" for one in shapes]
        if all(one.get("in_company") for one in shapes):
            told = [f"{text} / {over_company(one):.2f}" for text, one in zip(told, shapes, strict=True)]
        lines.append([row["workload"], ", ".join(told)])
    return markdown(["workload", "in bursts / call by call, ×"], lines)


def over_vendor(one: Row) -> float:
    """The library's rate at a shape over that of PyTorch's fastest path, in bursts."""
    return float(one["measured_gflops"] / max(one["vendors"].values()))


def over_company(one: Row) -> float:
    """The same where each call follows one of the other."""
    return float(one["in_company"]["measured_gflops"] / one["in_company"]["vendor_gflops"])


def tuning_secs(row: Row) -> str:
    """Seconds of a row's tuning, where that is noted and nothing disturbed it."""
    tuning = row["tuning"]
    if tuning["secs"] is None:
        return "not noted"
    return "disturbed" if tuning.get("disturbed") else f"{tuning['secs']:.0f} s{' (cold)' * tuning['cold']}"


def gap_table(rows: list[Row]) -> str:
    """A row a workload."""
    heads = (
        "workload|shapes|mean gap|not scaled|worst|median, with its sign|mean gap to the median|repeat floor"
    )
    return markdown(
        [*heads.split("|"), "commit"],
        [
            [
                row["workload"] + " ‡" * (row["held_out"] is None),
                _counted(row),
                f"{row['gap_mean']:.1%}",
                f"{row['gap_mean_unscaled']:.1%}" if "gap_mean_unscaled" in row else "",
                f"{row['gap_worst']:.0%} ({at(row['worst_at'])})",
                f"{row['bias']:+.1%}",
                f"{gap_to_median(row):.1%}" if row["num_instances"] > 1 else "",
                f"{row['repeat_floor']:.1%}",
                commit(row),
            ]
            for row in rows
        ],
    )


def _counted(row: Row) -> str:
    """How many shapes the gaps are of, and of how many drawn; ‖ where tuning measured them."""
    disturbed = row.get("num_disturbed", 0)
    of_all = f" of {row['num_instances'] + disturbed}" if disturbed else ""
    return f"{row['num_instances']}{of_all}" + " ‖" * (row["held_out"] == "left out of the fit")


def oracle_table(rows: list[Row]) -> str:
    """A row a workload."""
    heads = "workload|measured micro-kernels|chosen|of the best|worst|shapes|commit"
    lines = []
    for row in rows:
        shapes = calm(row)
        worst = min(shapes, key=lambda one: float(one["ratio"]))
        lines.append(
            [
                *(str(row[key]) for key in ("workload", "num_micro_kernels", "num_chosen")),
                f"{geomean(row, lambda one: one['ratio']):.1%}",
                f"{row['ratio_worst']:.0%} ({at(worst['shape_vars'])})",
                str(len(shapes)),
                commit(row),
            ]
        )
    return markdown(heads.split("|"), lines)


def single_table(rows: list[Row]) -> str:
    """A row a workload."""
    heads = "workload|micro-kernels|best single one|gain, predicted|gain, measured|most|least|shapes|commit"
    lines = [
        [
            row["workload"],
            str(row["num_chosen"]),
            row["best_single"],
            f"{row['over_single_predicted']:.3f} ×",
            f"{over_single(row):.3f} ×",
            *(f"{row[kind]:.2f} × ({at(row[kind + '_at'])})" for kind in ("most", "least")),
            str(row["num_timed"]),
            commit(row),
        ]
        for row in rows
    ]
    return markdown(heads.split("|"), lines)


def over_single(row: Row) -> float:
    """Geometric mean of the library over its best single micro-kernel, over the range of the workload."""
    return geomean(row, lambda one: one["gflops"]["library"] / one["gflops"][row["best_single"]])


def source_table(rows: list[Row]) -> str:
    """What MetaSchedule took of each tuning and brought, and what the other sources did."""
    heads = "workload|tuning|of it MetaSchedule|chosen|of its micro-kernels|gain by them|gains of the others"
    heads += "|free choice over the best single, predicted|read at"
    lines = []
    for row in rows:
        sources = dict(row["sources"])
        own = sources.pop("metaschedule", {"num_chosen": 0, "gain": 0.0})
        secs = [f"{row[name]:.0f} s" for name in ("tuning_secs", "metaschedule_secs")]
        lines.append(
            [
                str(row["workload"]),
                *(["disturbed"] * 2 if row.get("disturbed") else secs),
                str(row["num_chosen"]),
                str(own["num_chosen"]),
                f"{round(own['gain'], 4) + 0.0:.2%}",
                ", ".join(f"{name} {round(one['gain'], 4) + 0.0:.2%}" for name, one in sources.items()),
                f"{row['over_single']:.3f} ×",
                commit(row),
            ]
        )
    text = (
        "A gain is what a free choice without a source's micro-kernels would lose of the predicted "
        "throughput. A tile that several sources have is of the first that brought it, what grows from it of "
        "the one that grew it. One tuning each, from empty records; predictions by the cost model of the "
        "commit at which its report was read."
    )
    if not any("seed_reason" in row for row in rows):
        text += (
            " MetaSchedule ran in all of them: the rule by which it runs only where the first round is not "
            "well served is younger."
        )
    return text + "\n\n" + markdown(heads.split("|"), lines)


def ablation(row: Row) -> str:
    """What the libraries of whole searches reach, each part of the search left out in turn."""
    heads = (
        "search|runs|score, median|least|most|micro-kernels measured|MetaSchedule's trials|seconds|ended by"
    )
    runs = {name: [run for run in row["runs"] if run["variant"] == name] for name in row["summary"]}
    lines = [
        [
            name,
            str(len(runs[name])),
            *(f"{facts[f'score_{kind}']:.3f}" for kind in ("median", "least", "most")),
            f"{facts['measured_median']:.0f}",
            _trials_of(runs[name]),
            f"{facts['secs_median']:.0f}",
            counted(run.get("stop", "not noted") for run in runs[name]),
        ]
        for name, facts in row["summary"].items()
    ]
    text = (
        f"{row['workload']}, {row['secs']:.0f} s and {row['trials']} trials a search at most, each from "
        "empty records with a seed of its own; what ended them is in the last column, and trials count "
        "MetaSchedule's. All libraries are timed in turns; a score is the geometric mean, over the shapes, "
        "of throughput over the best of all runs there. Least and most are of the runs, too few for an "
        f"interval. Commit {commit(row)}."
    )
    if not any("metaschedule_trials" in run for run in row["runs"]):
        text += (
            " MetaSchedule ran in every search but those without it: the rule by which it runs only where "
            "the first round is not well served is younger."
        )
    text += disturbed_note(row.get("instances", []))
    if all(run.get("stop") != "seconds" for run in row["runs"]):
        text += (
            " No search was ended by its seconds, which are no part of the comparison: others may have run."
        )
    return text + "\n\n" + markdown(heads.split("|"), lines)


def _trials_of(runs: list[Row]) -> str:
    """How many trials of MetaSchedule the runs had, the fewest and the most where they differ."""
    noted = [run["metaschedule_trials"] for run in runs if "metaschedule_trials" in run]
    if len(noted) < len(runs):
        return "not noted"
    return " to ".join(map(str, sorted({min(noted), max(noted)})))


def counted(names: Iterable[str]) -> str:
    """``stalled 3, seconds 1``."""
    return ", ".join(f"{name} {number}" for name, number in Counter(names).most_common())


def per_shape(row: Row) -> str:
    """One budget of MetaSchedule for each of some shapes."""
    summary = row["summary"]
    measured = [one for one in row["instances"] if "ratio" in one]
    timed = undisturbed_of(measured, lambda one: one.get("disturbed"))
    shapes = ", ".join(f"{at(one['shape_vars'])}: {one['ratio']:.2f} ×" for one in timed)
    trials = sorted({one["trials"] for one in timed})
    secs = summary["metaschedule_secs"]
    return (
        f"{row['workload']}, {' to '.join(map(str, trials))} trials a shape"
        f"{'' if secs is None else f', {secs:.0f} s in all'}, weights packed there too: the library "
        f"{summary['ratio_geomean']:.2f} × as fast in geometric mean, {summary['ratio_worst']:.2f} × at "
        f"worst ({shapes}). Whether more trials would change that is not measured here. Commit {commit(row)}."
    )


def curve(row: Row) -> str:
    """What each budget of MetaSchedule for one shape reaches, and whether twice the trials still help."""
    heads = "shape|trials for this shape|MetaSchedule, GFLOP/s|the library, GFLOP/s|library over MetaSchedule"
    lines = []
    for one in row["rows"]:
        rates = ["not measured", "", ""]
        if one.get("disturbed"):
            rates[0] = "disturbed"
        elif "ratio" in one:
            rates = [f"{one[name]:.0f}" for name in ("metaschedule_gflops", "dietcode_gflops")]
            rates.append(f"{one['ratio']:.2f} ×")
        lines.append([at(one["shape_vars"]), str(one["trials"]), *rates])
    ends = [
        f"{at(shape['shape_vars'])}: {'flat' if shape['is_flat'] else 'still rising, or not known,'} at "
        f"{shape['trials']} trials, the library by its median {shape['ratio']:.2f} × of its best"
        for shape in flat_parts(row["rows"])
    ]
    text = (
        f"{row['workload']}: the fastest of the first trials of one search for one shape, weights packed "
        f"there too. Flat is where twice the trials bring the best so far less than 2 %. {'; '.join(ends)}. "
        f"{' '.join(map(level, level_parts(row['rows'])))} Commit {commit(row)}."
    )
    return text + "\n\n" + markdown(heads.split("|"), lines)


def level_parts(rows: list[Row]) -> list[list[Row]]:
    """The undisturbed readings of each shape, in the order of their trials."""
    by_shape: dict[str, list[Row]] = {}
    for one in rows:
        if "ratio" in one and not one.get("disturbed"):
            by_shape.setdefault(at(one["shape_vars"]), []).append(one)
    return list(by_shape.values())


def level(rows: list[Row]) -> str:
    """How far the readings of one library are apart, and where MetaSchedule reaches their median.

    Seconds are those of all trials, shared out evenly.
    """
    own = [one["dietcode_gflops"] for one in rows]
    said = f"{at(rows[0]['shape_vars'])}: the same library was read at {min(own):.0f} to {max(own):.0f} "
    said += "GFLOP/s beside these budgets, so that ratios as far apart are not told apart; "
    reached = next((one for one in rows if one["metaschedule_gflops"] >= float(np.median(own))), None)
    if reached is None:
        return said + f"{rows[-1]['trials']} trials do not reach its median."
    said += f"{reached['trials']} trials reach its median"
    if reached.get("tuning_secs") is None:
        return said + "."
    secs = reached["tuning_secs"] * reached["trials"] / rows[-1]["trials"]
    return said + f", {secs:.0f} s of this shape's tuning, if all trials take alike."


def company_table(found: Row) -> str:
    """What calls keep of their speed beside others, with the bars, and those that are missed."""
    heads = "situation|S|alone, GFLOP/s|here|figures, and what is asked of them|commit"
    lines, bars = [], [bar for row in found["rows"] if not row.get("disturbed") for bar in row["bars"]]
    for row in found["rows"]:
        rates = [f"{row[name]:.0f}" if name in row else "" for name in ("alone", "gflops")]
        told = [
            f"{bar['figure']} {bar['value']:.2f} {bar['bar']}{'' if bar['is_met'] else ' ✗'}"
            for bar in row["bars"]
        ]
        if not told and "of_alone" in row:
            told = [f"of_alone {row['of_alone']:.2f}"]
        if row.get("disturbed"):
            rates, told = ["", ""], ["disturbed"]
        lines.append([row["situation"], str(row["size"]), *rates, ", ".join(told), commit(row)])
    missed = sum(not bar["is_met"] for bar in bars)
    text = (
        "Y[S, 1531] = X[S, 419] · W[1531, 419]ᵀ alone, in turns with the same operator of PyTorch or of "
        "NumPy, by four callers, beside a process that computes, and after pauses; `calls` are microseconds "
        "of a tiny one (`python -m benchmarks.company` says what each is). Rates are medians of "
        f"{found['rounds']} rounds, and so are figures: each the median of the rounds' own ratios, not the "
        "ratio of the medians. Where *alone* is the situation, the first rate is that of the same code on "
        "TVM's threads. One run of each row, at the commit beside it, all of one library. "
        f"{missed} of {len(bars)} bars are missed (✗)."
    )
    return text + "\n\n" + markdown(heads.split("|"), lines)


def off_in_bursts(row: Row) -> float:
    """Mean of how far the predictions of a result are from what was measured in bursts between PyTorch's."""
    return mean(row, lambda one: abs(one["predicted_gflops"] / one["measured_gflops"] - 1))


def call_by_call(row: Row) -> tuple[str, str, str]:
    """The library over PyTorch where each call follows one of the other, the worst shape, and predictions."""
    if not all(one.get("in_company") for one in calm(row)):
        return "", "", ""
    off = mean(row, lambda one: abs(one["predicted_gflops"] / one["in_company"]["measured_gflops"] - 1))
    worst = min(map(over_company, calm(row)))
    return f"{geomean(row, over_company):.2f} ×", f"{worst:.2f} ×", f"{off:.0%}"


def gap_to_median(row: Row) -> float:
    """Mean gap of the predictions of a result after their median, one factor for all shapes, is taken out."""
    ratios = np.asarray([one["predicted"] / one["measured"] for one in calm(row)])
    return float(np.abs(ratios / np.median(ratios) - 1.0).mean())


def disturbed_note(rows: list[Row]) -> str:
    """How many instances are left out of a figure, where there are any."""
    disturbed = sum(bool(row.get("disturbed")) for row in rows)
    return f" {disturbed} of {len(rows)} shapes were disturbed, and are left out." if disturbed else ""


def described(workload: str) -> str:
    """A workload's name and the formula, or remark, that ends its spec's first line."""
    path = ROOT / "examples" / f"{workload}.yaml"
    first = path.read_text().splitlines()[0].lstrip("# ") if path.is_file() else ""
    return f"{workload}: {first.rpartition(': ')[2]}" if first else workload


def commit(row: Row) -> str:
    """The commit of a result, its day where that is noted, and what is to be known of them."""
    text = str(row["commit"] or "not known")
    day = f", {row['date']}" if row.get("date") else ""
    marks = [
        *["†"] * text.endswith("-dirty"),
        *["§"] * (not is_of_today(row["commit"])),
        *["¶"] * (not says_disturbed(row)),
    ]
    return " ".join([text.removesuffix("-dirty") + day, *marks])


def at(binding: Row) -> str:
    """``T = 5``."""
    return ", ".join(f"{name} = {value}" for name, value in binding.items())


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A table, without a line break at its end."""
    return table(heads, rows).rstrip()
