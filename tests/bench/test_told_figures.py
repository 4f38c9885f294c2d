"""Figures within sentences and tables that people wrote: each is that of the record it stands on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from needs import of_extra

pytest.importorskip("matplotlib", reason=of_extra("bench"))
pytest.importorskip("torch", reason=of_extra("bench"))

from told import DOCS, EARLIER, EPYC, OLD_EPYC, XEON, Row, geomean, record, told

from benchmarks import recursion_page
from benchmarks.facts import RESULTS, ROOT


def test_the_method_tells_the_gain_of_each_axis() -> None:
    rows, text = record(EARLIER, "axes")["rows"], (DOCS / "method.md").read_text()
    lines = [line for line in text.splitlines() if re.fullmatch(r"\|.*\d \|.*\d\.\d\d × \|", line)]
    written = [(line.split("|")[2].strip(), line.split("|")[4].strip()) for line in lines]
    assert [(row["workload"], f"{row['gain']:.2f} ×") for row in rows] == written


def test_models_have_the_figures_of_their_records() -> None:
    page = (DOCS / "models.md").read_text()
    kinds = {
        "model-llama-small": "Llama-like",
        "model-lstm-full": "LSTM",
        "model-resnet-small": "ResNet-like",
    }
    for name, begin in kinds.items():
        [row] = [line for line in page.splitlines() if line.startswith(f"| {begin}") and line[-3].isdigit()]
        ratios = sorted(one["ratio"] for one in record(OLD_EPYC, name)["rows"])
        assert sorted(map(float, row.split("|")[3].split(","))) == pytest.approx(ratios, abs=0.0051), name
    calls = record(OLD_EPYC, "model-llama-small")["rows"]
    host = [one["host_secs"] / one["secs"]["dietcode"] for one in calls]
    assert f"the host takes {100 * min(host):.0f} to {max(host):.0%} of a call" in told("docs/models.md")
    bert = [f"{one['ratio']:.2f}" for one in record(OLD_EPYC, "model-bert-full")["rows"]]
    [said] = re.findall(r"weaker baseline than that of the table: ([\d., and]+) ×", told("docs/models.md"))
    assert sorted(re.findall(r"\d\.\d\d", said)) == sorted(bert)


def test_programs_have_the_figures_of_their_records() -> None:
    text, rows = told("docs/programs.md"), record(EPYC, "programs")["rows"]
    assert not any(row["disturbed"] for row in rows)
    of = {(row["program"], row["hidden"], row["batch"]): row for row in rows}
    eager = {key: row["eager_ms"] / row["dietcode_ms"] for key, row in of.items() if key[2] == 64}
    slow = [eager.pop(key) for key in (("early_exit", 256, 64), ("early_exit", 512, 64), ("mv_rnn", 128, 64))]
    first, second, third = (f"{one:.1f}" for one in slow)
    assert f"at 64: {min(eager.values()):.1f} × and more, but {first} and {second} × for early exit" in text
    assert f"{third} × for the MV-RNN of 128" in text
    trees = [of["tree_lstm", 256, batch] for batch in (8, 64)]
    beside = [row["dietcode_ms"] / row["recursion_ms"] for row in trees]
    assert f"Trees take {beside[0]:.2f} (8) and {beside[1]:.2f} (64) × the time of the recursion" in text


def over_torch(row: Row) -> float:
    """Seconds of PyTorch's fastest form over ours, that with tables of words among them."""
    ours = row["secs"]["dietcode"]
    return min(secs / ours for name, secs in row["secs"].items() if name.startswith("by level"))


def test_recursions_have_the_figures_of_the_xeons_record() -> None:
    text, rows = told("docs/recursion.md"), record(XEON, "recursion")["rows"]
    for hidden, said in (
        (256, "{} × over DyNet and {} × over PyTorch, with tables too, in geometric mean"),
        (512, "of 512 {} and {}"),
    ):
        some = [
            row
            for row in rows
            if row["hidden"] == hidden and row["model"] in {"tree-fc", "tree-lstm", "tree-gru"}
        ]
        by = [[over(row) for row in some] for over in (recursion_page.over_dynet, over_torch)]
        assert said.format(*(f"{geomean(one):.1f}" for one in by)) + ", at worst" in text
        assert f"at worst {min(by[0]):.1f} and {min(by[1]):.1f}" in text
    steps = [row for row in rows if row["model"] == "lstm"]
    ratios = [f"{over_torch(row):.2f}" for row in steps]
    assert f"over `torch.nn.LSTM`: {ratios[0]}, {ratios[1]} and {ratios[2]} at batch 1, 10 and 64" in text


@pytest.mark.parametrize(
    "page", sorted({ROOT / "README.md", *DOCS.rglob("*.md")}), ids=lambda path: path.stem
)
def test_a_page_that_leans_on_a_changed_tree_says_so(page: Path) -> None:
    """Whoever names a record, or a commit, of a tree with uncommitted changes names that, too."""
    text = page.read_text()
    named = set(re.findall(r"benchmarks/results/([\w/-]+\.json)", text))
    dirty = {name for name in named if '-dirty"' in (RESULTS / name).read_text()}
    marked = "uncommitted changes" in text or "-dirty" in text
    assert marked or not dirty, f"{page.name} shows {', '.join(sorted(dirty))}"
    assert "uncommitted changes" in text or not re.search(r"\b[0-9a-f]{7,8}-dirty", text), page.name
