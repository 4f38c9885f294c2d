"""Plots and the page of a device, from what was measured on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence.figure import Figure
from benchmarks.evidence.versions import code, is_of_today
from benchmarks.facts import device_name, says_disturbed

_INTRODUCTION = """Figures and tables of the evaluation in the DietCode paper (MLSys 2022), with this
system on this device: what the paper found, what is measured here, and why they differ. Raw data with
device, commit, date and versions is beside each plot. Whiskers, where a plot has them, are the middle half of
the readings behind a rate; libraries are of one tuning each. Made by `make evidence`."""
_INDEX = """Pages of the devices where something was measured. *Evidence* has figures and tables of the
evaluation in the DietCode paper (MLSys 2022), as far as they were measured there: what the paper found, what
is measured here, and why they differ; `make evidence` makes it. *Workloads* has speeds beside PyTorch and
MetaSchedule, predictions, what parts of the search earn, and calls in the company of other work
(`python -m benchmarks.headline`), *Recursions* what the Cortex paper measured
(`python -m benchmarks.recursion_page`), *Whole models* what the Nimble paper measured
(`python -m benchmarks.model_page`). Figures of [blocks](../blocks.md#measured),
[models](../models.md#measured) and [programs](../programs.md#measured) are on their own pages. Records are in
`benchmarks/results`, in a folder of each device; each page says of which commits, which of these had
uncommitted changes, and whether another generator made the kernels than today's; of row blocks that is not
noted."""
_DEVICES = """What is not there was not measured. The paper's own device is a GPU, a Tesla T4, which nothing
here was measured on."""

UNWATCHED = "Whether something disturbed the readings is not in the record."
EARLIER = "by earlier code than today's: {}"


def _unmeasured(folder: Path) -> str:
    """What a page says of a figure that it lacks."""
    if (folder / "workloads.md").exists():
        return (
            "Not measured by `make evidence` on this device; what else was measured of its workloads is on "
            "[their page](workloads.md)."
        )
    return "Not measured on this device."


def write_pages(folder: Path, figures: Sequence[Figure]) -> None:
    """Draw every figure that has data, and write ``index.md``."""
    parts = []
    facts = None
    for figure in figures:
        path = folder / f"{figure.name}.json"
        if not path.exists():
            parts.append(f"## {figure.title}\n\n*Paper.* {figure.paper}\n\n{_unmeasured(folder)}\n")
            continue
        found = json.loads(path.read_text())
        facts = facts or found
        draw(figure, found["data"], folder / f"{figure.name}.svg")
        parts.append(section(figure, found))
    head = (
        ""
        if facts is None
        else f"# Evidence: {_device(facts)}\n\n{_INTRODUCTION}{unknown_processor(facts)}\n"
    )
    (folder / "index.md").write_text("\n".join([head, *parts]))


def is_of_gpu(found: dict[str, Any]) -> bool:
    """Whether a figure's data was measured on a GPU."""
    return "num_sms" in found


def _device(facts: dict[str, Any]) -> str:
    synthetic = " (synthetic: no device measured this)" if facts.get("synthetic") else ""
    if is_of_gpu(facts):
        return f"{facts['device']}, {facts['num_sms']} SMs{synthetic}"
    return device_name(facts) + synthetic


def unknown_processor(facts: dict[str, Any]) -> str:
    """A sentence where the name of a device stands for several."""
    known = is_of_gpu(facts) or facts.get("processor")
    return (
        ""
        if known
        else " The processor's family and model were not noted, so that another of this name may differ."
    )


def to_be_known(found: dict[str, Any]) -> str:
    """Return sentences on a record that is no commit's, not of today's generator, or of an unknown device."""
    dirty = str(found["commit"]).endswith("-dirty")
    earlier = not is_of_today(found["commit"])
    return (
        " Ours are of a tree with uncommitted changes." * dirty
        + " The generator of kernels was another one than today's." * earlier
        + unknown_processor(found)
    )


def write_index(output: Path) -> None:
    """The page that lists the devices."""
    listed = "\n".join(
        f"- [{page.read_text().partition(chr(10))[0].removeprefix('# ')}]({page.relative_to(output)})"
        for name in ("index.md", "workloads.md", "recursion.md", "models.md")
        for page in sorted(output.glob(f"*/{name}"))
    )
    text = f"# Evidence\n\n{_INDEX}\n\n{_DEVICES}\n\n{listed}\n"
    (output / "index.md").write_text(text)


def section(figure: Figure, found: dict[str, Any]) -> str:
    """One figure as Markdown."""
    heads, *rows = figure.table(found["data"])
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [
            f"## {figure.title}",
            "",
            f"*Paper.* {figure.paper}",
            "",
            f"*Here.* {figure.ours(found['data'])}",
            "",
            f"*Why they differ.* {figure.why}",
            "",
            f"![{figure.title}, as the table below has it]({figure.name}.svg)",
            "",
            *lines,
            "",
            f"[Raw data]({figure.name}.json), commit {found['commit'] or 'not known'}, "
            f"{found['date'] or 'day not known'}{age(found)}.{_watched(found)}",
            "",
        ]
    )


def age(found: dict[str, Any]) -> str:
    """What follows a commit whose code is not today's; nothing where it is."""
    today = code("cuda_" if is_of_gpu(found) else "")
    others = [what for what, value in today.items() if found["measured_with"].get(what) != value]
    return f", {EARLIER.format(' and '.join(others))}" if others else ""


def _watched(found: dict[str, Any]) -> str:
    """A sentence where data does not say of any reading whether something disturbed it."""
    return "" if says_disturbed(found) else f" {UNWATCHED}"


def draw(figure: Figure, data: dict[str, Any], path: Path) -> None:
    """One figure as SVG; the same data gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({"svg.hashsalt": figure.name, "svg.fonttype": "none", "font.size": 9}):
        canvas = Canvas(figsize=(7.0 if figure.num_axes == 1 else 9.0, 3.6), layout="constrained")
        figure.draw([canvas.add_subplot(1, figure.num_axes, i + 1) for i in range(figure.num_axes)], data)
        for axis in canvas.axes:
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(axis="y", alpha=0.3)
        canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
