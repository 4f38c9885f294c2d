"""Figures within sentences and tables that people wrote: each is that of the record it stands on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from needs import of_extra

pytest.importorskip("matplotlib", reason=of_extra("bench"))
pytest.importorskip("torch", reason=of_extra("bench"))

from told import DOCS, EARLIER, OLD_EPYC, record, told

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
