"""The tables of every device: speeds beside others', predictions, what parts of the search earn.

    python -m benchmarks.headline

Made from ``benchmarks/results/<device>/`` alone, of ``cpu-*.json``, ``prediction-*.json``,
``ablation-*.json``, ``single-*.json``, ``oracle-*.json``, ``per-shape-*.json``, ``sources.json`` and
``company.json``. Writes ``docs/evidence/<device>/workloads.md``, and a short table of one device between
two marks in the README. Rows from a tree with uncommitted changes are marked, as are those of another
generator than today's, those whose shapes the record does not call held out, and those of which it does not
say whether something disturbed them. What was drawn for a prediction and never measured is named.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.cpu import WORKLOADS
from benchmarks.evidence.__main__ import OUTPUT
from benchmarks.evidence.pages import unknown_processor, write_index
from benchmarks.evidence.versions import note_generators
from benchmarks.facts import RESULTS, ROOT, between_marks, device_name
from benchmarks.headline_tables import (
    Row,
    ablation,
    commit,
    company_table,
    curve,
    gap_table,
    oracle_table,
    per_shape,
    shape_table,
    short_table,
    single_table,
    source_table,
    speed_table,
)
from benchmarks.over_range import HOW

README = ROOT / "README.md"
README_DEVICE = "amd-epyc-family-25-model-17-2-cores"
_KINDS = ("cpu", "prediction", "single", "oracle", "ablation", "per-shape", "per-shape-curve")
_SINGLE = ("sources", "company")  # of which a device has one file
_RANK = {name: rank for rank, name in enumerate(WORKLOADS)}


def main() -> None:
    """Write the pages and the README's table."""
    note_generators()
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
        path
        for path in RESULTS.iterdir()
        if any(one_of(path, name) for name in _SINGLE) or any(found(path, kind) for kind in _KINDS)
    )


def one_of(folder: Path, name: str) -> list[Row]:
    """The result of `benchmarks.sources` or `benchmarks.company`, if there is one."""
    path = folder / f"{name}.json"
    return [json.loads(path.read_text())] if path.exists() else []


def found(folder: Path, kind: str) -> list[Row]:
    """Results of one kind, by workload, in the order in which they are measured."""
    paths = [path for path in folder.glob(f"{kind}-*.json") if kind_of(path) == kind]
    rows = [json.loads(path.read_text()) for path in paths]
    rows = [row for row in rows if kind != "prediction" or "gap_mean" in row]
    return sorted(rows, key=lambda row: (_RANK.get(row["workload"], len(_RANK)), row["workload"]))


def kind_of(path: Path) -> str | None:
    """The kind of a result, which its file's name begins with; None of others."""
    kinds = [kind for kind in _KINDS if path.name.startswith(f"{kind}-")]
    return max(kinds, key=len, default=None)


def only_drawn(folder: Path) -> list[Row]:
    """Held-out shapes with their predictions, at which nothing was measured so far."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("prediction-*.json"))]
    return [row for row in rows if "gap_mean" not in row]


def page(folder: Path) -> str:
    """The tables of one device."""
    speeds, gaps, singles, oracles, ablations, alone, curves = (found(folder, kind) for kind in _KINDS)
    sources, company = one_of(folder, "sources"), one_of(folder, "company")
    (first, *_) = [*speeds, *gaps, *sources, *singles, *ablations, *curves, *company]
    parts = [
        f"# Workloads: {device_name(first)}",
        "Written by `python -m benchmarks.headline` from `benchmarks/results`. No row is from another device "
        f"than this one.{unknown_processor(first)}",
    ]
    if speeds:
        parts += [
            "## Beside PyTorch",
            "Float32, against the fastest path of PyTorch at each shape, in turns of about 10 ms, each after "
            f"warm calls of its own; geometric mean, and the worst shape. {HOW} Of batched products PyTorch "
            "has `bmm` alone: attention as `scaled_dot_product_attention` computes it, of which they are "
            "parts, is not compared here. The peak is what the cores gave beside the shapes, in "
            "multiply-adds: where it differs much, somebody else had a share of the machine. "
            "Predictions are of the same call again and again, with the cores to itself, and some of the "
            "shapes are those that tuning measured. *Call by call* each call of the library follows one of "
            "that path of PyTorch, which leaves nothing in the caches, and threads that spin: the library's "
            "speed over PyTorch's there, and how far predictions are off there.",
            speed_table(speeds),
            "At each shape that was measured:",
            shape_table(speeds),
        ]
    if gaps:
        parts += [
            "## Predictions",
            "Predicted over measured throughput, at shapes that were drawn before they were measured, and "
            "that no fit has seen where no mark says otherwise; the repeat floor is what no prediction can "
            "beat. Readings are scaled by the reference kernel, which is read beside them and was read in "
            "tuning. The gap to the median is what is "
            "left after one factor for all shapes is taken out: the machine's speed between tuning and "
            "measuring, as far as the reference kernel does not show it, is such a factor; a term of the "
            "cost model that is wrong for some shapes is not.",
            gap_table(gaps),
        ]
    if drawn := only_drawn(folder):
        named = ", ".join(f"{row['workload']} ({len(row['instances'])} shapes)" for row in drawn)
        parts.append(f"Drawn, predicted and not measured: {named}.")
    if oracles:
        parts += [
            "## How near the choice is to the best that was measured",
            "The chosen micro-kernel beside the fastest of all that tuning measured, at each shape, in "
            "turns: its share of the throughput, in geometric mean over the range, as above, and at worst.",
            oracle_table(oracles),
        ]
    if singles:
        parts += [
            "## What several micro-kernels earn",
            "The library over the micro-kernel that is best for all of its shapes, both measured, in turns; "
            "of the few that are predicted best, the one that was fastest. In geometric mean over the range, "
            "as above, and where most and least. The prediction is of a free choice among all that were "
            "measured.",
            single_table(singles),
        ]
    if sources:
        parts += ["## Where micro-kernels came from", source_table(sources[0]["rows"])]
    if ablations:
        parts += ["## What parts of the search earn", *map(ablation, ablations)]
    if alone or curves:
        parts.append("## Beside MetaSchedule for one shape at a time")
        parts += [*map(per_shape, alone), *map(curve, curves)]
    if company:
        parts += ["## Calls in the company of other work", company_table(company[0])]
    marked = [
        *(row for one in [*company, *sources] for row in one["rows"]),
        *speeds,
        *gaps,
        *oracles,
        *singles,
        *ablations,
        *alone,
        *curves,
    ]
    return "\n\n".join([*parts, *notes(marked)]) + "\n"


def notes(rows: list[Row]) -> list[str]:
    """What the marks mean, where there are any."""
    texts, marked = [], [commit(row) for row in rows]
    if any("†" in text for text in marked):
        texts.append("† From a tree with uncommitted changes.")
    if any("held_out" in row and row["held_out"] is None for row in rows):
        texts.append("‡ The record does not say whether tuning measured these shapes.")
    if any(row.get("held_out") == "left out of the fit" for row in rows):
        texts.append(
            "‖ Tuning measured these shapes, all that there are: each is predicted by a fit without it."
        )
    if any("§" in text for text in marked):
        texts.append(
            "§ By an earlier generator of kernels than today's, or at a commit that is not known here."
        )
    if any("¶" in text for text in marked):
        texts.append("¶ The record does not say whether something disturbed what was read.")
    return texts


def with_table(text: str) -> str:
    """The README with today's table between its marks.

    Raises
    ------
    SystemExit
        It has no marks.
    """
    folder = RESULTS / README_DEVICE
    speeds, gaps = found(folder, "cpu"), found(folder, "prediction")
    parts = [short_table(speeds, gaps), *notes([*speeds, *gaps])]
    return between_marks(text, "benchmarks.headline", parts, README)


if __name__ == "__main__":
    main()
