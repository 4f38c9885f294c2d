"""The tables of every device: speeds beside others', predictions, what parts of the search earn.

    python -m benchmarks.headline

Made from ``benchmarks/results/<device>/`` alone, of ``cpu-*.json``, ``prediction-*.json``,
``ablation-*.json``, ``single-*.json``, ``per-shape-curve-*.json`` and ``sources.json``. Writes
``docs/evidence/<device>/workloads.md``, and the tables of one device between two marks in the README. Rows
from a tree with uncommitted changes are marked, as are those whose shapes the record does not call held out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu import WORKLOADS
from benchmarks.evidence.__main__ import OUTPUT
from benchmarks.evidence.pages import write_index
from benchmarks.facts import RESULTS, ROOT, device_name
from dietcode.measure.disturbance import undisturbed_of

README = ROOT / "README.md"
README_DEVICE = "intel-xeon-processor-family-6-model-167-2-cores"
_BEGIN, _END = "<!-- benchmarks.headline -->", "<!-- end of benchmarks.headline -->"
_RESAMPLES = 2000
_KINDS = ("cpu", "prediction", "single", "ablation", "per-shape-curve")
_RANK = {name: rank for rank, name in enumerate(WORKLOADS)}
Row = dict[str, Any]


def main() -> None:
    """Write the pages and the README's table."""
    for folder in devices():
        path = OUTPUT / folder.name / "workloads.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(folder))
        print(path.relative_to(ROOT))
    write_index(OUTPUT)
    README.write_text(with_table(README.read_text()))


def devices() -> list[Path]:
    """Folders of results in which a workload was measured, not only drawn for it."""
    return sorted(
        path for path in RESULTS.iterdir() if sources_of(path) or any(found(path, kind) for kind in _KINDS)
    )


def sources_of(folder: Path) -> list[Row]:
    """The result of `benchmarks.sources`, if there is one."""
    path = folder / "sources.json"
    return [json.loads(path.read_text())] if path.exists() else []


def found(folder: Path, kind: str) -> list[Row]:
    """Results of one kind, by workload, in the order in which they are measured."""
    rows = [json.loads(path.read_text()) for path in folder.glob(f"{kind}-*.json")]
    rows = [row for row in rows if kind != "prediction" or "gap_mean" in row]  # drawn, but not yet measured
    return sorted(rows, key=lambda row: (_RANK.get(row["workload"], len(_RANK)), row["workload"]))


def page(folder: Path) -> str:
    """The tables of one device."""
    speeds, gaps, singles, ablations, curves = (found(folder, kind) for kind in _KINDS)
    sources = sources_of(folder)
    (first, *_) = [*speeds, *gaps, *sources, *singles, *ablations, *curves]
    parts = [
        f"# Workloads: {device_name(first)}",
        "Written by `python -m benchmarks.headline` from `benchmarks/results`, where each row's commit and "
        "date are. No row is from another device than this one.",
    ]
    if speeds:
        parts += [
            "## Beside PyTorch",
            "Float32, against the fastest path of PyTorch at each shape, in turns; geometric mean over the "
            "shapes, with its 95 % interval over shapes, not over runs of tuning (bootstrap); and the "
            "worst shape. The peak is what the cores gave beside the shapes, in multiply-adds: where it "
            "differs much, somebody else had a share of the machine.",
            speed_table(speeds),
        ]
    if gaps:
        parts += [
            "## Predictions",
            "Predicted over measured throughput, at shapes that no fit has seen, drawn before they were "
            "measured; the repeat floor is what no prediction can beat. The gap to the median is what is "
            "left after one factor for all shapes is taken out: the machine's speed between tuning and "
            "measuring, as far as the reference kernel does not show it, is such a factor; a term of the "
            "cost model that is wrong for some shapes is not.",
            gap_table(gaps),
        ]
    if singles:
        parts += [
            "## What several micro-kernels earn",
            "The library over the micro-kernel that is best for all of its shapes, both measured, in turns; "
            "of the few that are predicted best, the one that was fastest. In geometric mean over the "
            "shapes, and where most and least. The prediction is of a free choice among all that were "
            "measured.",
            single_table(singles),
        ]
    if sources:
        parts += ["## Where micro-kernels came from", source_table(sources[0]["rows"])]
    if ablations:
        parts += ["## What parts of the search earn", *map(ablation, ablations)]
    if curves:
        parts += ["## Beside MetaSchedule for one shape at a time", *map(curve, curves)]
    return "\n\n".join([*parts, *notes([*speeds, *gaps, *singles, *ablations, *curves])]) + "\n"


def source_table(rows: list[Row]) -> str:
    """What MetaSchedule took of each tuning and brought, and what the other sources did."""
    heads = "workload|tuning|of it MetaSchedule|chosen|of its micro-kernels|gain by them|gains of the others"
    heads += "|free choice over the best single, predicted"
    lines = []
    for row in rows:
        sources = dict(row["sources"])
        own = sources.pop("metaschedule", {"num_chosen": 0, "gain": 0.0})
        lines.append(
            [
                str(row["workload"]),
                f"{row['tuning_secs']:.0f} s",
                f"{row['metaschedule_secs']:.0f} s",
                str(row["num_chosen"]),
                str(own["num_chosen"]),
                f"{round(own['gain'], 4) + 0.0:.2%}",
                ", ".join(f"{name} {round(one['gain'], 4) + 0.0:.2%}" for name, one in sources.items()),
                f"{row['over_single']:.3f} ×",
            ]
        )
    text = (
        "A gain is what a free choice without a source's micro-kernels would lose of the predicted "
        "throughput. A tile that several sources have is of the first that brought it, what grows from it of "
        "the one that grew it. One tuning each, from empty records."
    )
    return text + "\n\n" + markdown(heads.split("|"), lines)


def single_table(rows: list[Row]) -> str:
    """A row a workload."""
    heads = "workload|micro-kernels|best single one|gain, predicted|gain, measured|most|least|shapes|commit"
    lines = [
        [
            row["workload"],
            str(row["num_chosen"]),
            row["best_single"],
            f"{row['over_single_predicted']:.3f} ×",
            f"{row['over_single']:.3f} ×",
            *(f"{row[kind]:.2f} × ({at(row[kind + '_at'])})" for kind in ("most", "least")),
            str(row["num_timed"]),
            commit(row),
        ]
        for row in rows
    ]
    return markdown(heads.split("|"), lines)


def ablation(row: Row) -> str:
    """What the libraries of whole searches reach, each part of the search left out in turn."""
    heads = "search|runs|score, median|least|most|micro-kernels measured|seconds"
    runs = [run["variant"] for run in row["runs"]]
    lines = [
        [
            name,
            str(runs.count(name)),
            *(f"{facts[f'score_{kind}']:.3f}" for kind in ("median", "least", "most")),
            f"{facts['measured_median']:.0f}",
            f"{facts['secs_median']:.0f}",
        ]
        for name, facts in row["summary"].items()
    ]
    text = (
        f"{row['workload']}, {row['secs']:.0f} s and at most {row['trials']} trials a search, each from "
        "empty records with a seed of its own. All libraries are timed in turns; a score is the geometric "
        f"mean, over the shapes, of throughput over the best of all runs there. Commit {commit(row)}."
    )
    if all(run.get("stop") != "seconds" for run in row["runs"]):
        text += (
            " No search was ended by its seconds, which are no part of the comparison: others may have run."
        )
    return text + "\n\n" + markdown(heads.split("|"), lines)


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
        f"{shape['trials']} trials, the library {shape['ratio']:.2f} × of its best"
        for shape in row["shapes"]
    ]
    text = (
        f"{row['workload']}: the fastest of the first trials of one search for one shape, weights packed "
        f"there too. Flat is where twice the trials bring less than 2 %. {'; '.join(ends)}. "
        f"Commit {commit(row)}."
    )
    return text + "\n\n" + markdown(heads.split("|"), lines)


def speed_table(rows: list[Row]) -> str:
    """A row a workload."""
    heads = "workload|tuning|micro-kernels|library|geometric mean|interval|worst|of the roofline"
    heads += "|peak beside, GFLOP/s|commit"
    lines = []
    for row in rows:
        summary, tuning = row["summary"], row["tuning"]
        secs = (
            "not noted" if tuning["secs"] is None else f"{tuning['secs']:.0f} s{' (cold)' * tuning['cold']}"
        )
        low, high = interval(row)
        lines.append(
            [
                described(row["workload"]),
                secs,
                str(row["num_micro_kernels"]),
                f"{row['library_bytes'] / 1000:.0f} kB",
                f"{summary['ratio']['geomean']:.2f} ×",
                f"{low:.2f} to {high:.2f}",
                f"{summary['ratio']['worst']:.2f} × ({at(summary['ratio']['worst_at'])})",
                f"{summary['of_roof']['geomean']:.0%}",
                f"{summary['peak_gflops'][0]:.0f} to {summary['peak_gflops'][-1]:.0f}",
                commit(row),
            ]
        )
    return markdown(heads.split("|"), lines)


def gap_table(rows: list[Row]) -> str:
    """A row a workload."""
    heads = "workload|shapes|mean gap|worst|median, with its sign|mean gap to the median|repeat floor|commit"
    return markdown(
        heads.split("|"),
        [
            [
                row["workload"] + " ‡" * (row["held_out"] is None),
                str(row["num_instances"]),
                f"{row['gap_mean']:.1%}",
                f"{row['gap_worst']:.0%} ({at(row['worst_at'])})",
                f"{row['bias']:+.1%}",
                f"{gap_to_median(row):.1%}",
                f"{row['repeat_floor']:.1%}",
                commit(row),
            ]
            for row in rows
        ],
    )


def gap_to_median(row: Row) -> float:
    """Mean gap of the predictions of a result after their median, one factor for all shapes, is taken out."""
    calm = undisturbed_of(row["instances"], lambda one: one.get("disturbed"))
    ratios = np.asarray([one["predicted"] / one["measured"] for one in calm])
    return float(np.abs(ratios / np.median(ratios) - 1.0).mean())


def notes(rows: list[Row]) -> list[str]:
    """What the marks mean, where there are any."""
    texts = []
    if any("dirty" in str(row["commit"]) for row in rows):
        texts.append("† From a tree with uncommitted changes.")
    if any("held_out" in row and row["held_out"] is None for row in rows):
        texts.append("‡ The record does not say whether tuning measured these shapes.")
    return texts


def interval(row: Row) -> tuple[float, float]:
    """Bounds of the geometric mean over shapes, 95 %."""
    calm = undisturbed_of(row["instances"], lambda one: one.get("disturbed"))
    logs = np.log([one["measured_gflops"] / max(one["vendors"].values()) for one in calm])
    means = np.random.default_rng(0).choice(logs, (_RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.exp(np.percentile(means, [2.5, 97.5]))
    return float(low), float(high)


def described(workload: str) -> str:
    """A workload's name and the formula, or remark, that ends its spec's first line."""
    path = ROOT / "examples" / f"{workload}.yaml"
    first = path.read_text().splitlines()[0].lstrip("# ") if path.is_file() else ""
    return f"{workload}: {first.rpartition(': ')[2]}" if first else workload


def commit(row: Row) -> str:
    """The commit of a result."""
    text = str(row["commit"] or "not known")
    return text.removesuffix("-dirty") + " †" * text.endswith("-dirty")


def at(binding: Row) -> str:
    """``T = 5``."""
    return ", ".join(f"{name} = {value}" for name, value in binding.items())


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(text: str) -> str:
    """The README with today's tables between its marks.

    Raises
    ------
    SystemExit
        It has no marks.
    """
    folder = RESULTS / README_DEVICE
    speeds, gaps = found(folder, "cpu"), found(folder, "prediction")
    parts = [speed_table(speeds), "Predictions there:", gap_table(gaps), *notes([*speeds, *gaps])]
    new, count = re.subn(
        f"{_BEGIN}.*?{_END}", lambda _: "\n\n".join([_BEGIN, *parts, _END]), text, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{README}: given {count} pairs of {_BEGIN} and {_END}; allowed: 1")
    return new


if __name__ == "__main__":
    main()
