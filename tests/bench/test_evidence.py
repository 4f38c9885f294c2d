"""The code behind `make evidence`, on small workloads; and that its committed results are of today's code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from needs import of_extra
from quiet_machine import nothing_disturbs

pytest.importorskip("matplotlib", reason=of_extra("bench"))
pytest.importorskip("torch", reason=of_extra("bench"))

from benchmarks import prediction
from benchmarks.evidence.__main__ import FIGURES, OUTPUT, measure, stale
from benchmarks.evidence.choice import frontier, ours_votes
from benchmarks.evidence.figure import Figure, whiskers
from benchmarks.evidence.pages import EARLIER, draw, write_pages
from benchmarks.evidence.series import DENSE as DENSE_LAYER
from benchmarks.evidence.series import bytes_in_one_file
from benchmarks.evidence.shop import Row, Scale, Shop
from benchmarks.evidence.tiles import EDGES, GRIDS
from benchmarks.evidence.versions import code, generator
from benchmarks.facts import middle_half
from dietcode.measure.turns import Timings
from dietcode.tuner.search import Search

DENSE = """
name: small-dense
op: {einsum: "mk,nk->mn"}
tensors:
  X: {dims: mk, dtype: float32}
  W: {dims: nk, dtype: float32, constant: true}
output: {name: Y, dtype: float32}
shape_vars:
  T: {min: 1, max: 4}
dims: {m: 16*T, n: 96, k: 64}
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory) -> Scale:
    """Everything at its smallest."""
    path = tmp_path_factory.mktemp("specs") / "dense.yaml"
    path.write_text(DENSE)
    return Scale(
        *[str(path)] * 4,
        num_alone=1,
        trials=2,
        max_secs=60.0,
        budget={"trials": 4, "seconds": 60.0},
        rounds=2,
        num_instances=2,
        num_points=1,
        num_runs=1,
        search=Search(metaschedule=False),
    )


@pytest.fixture(scope="module")
def results(scale, tmp_path_factory) -> Path:
    """Figures, measured, drawn and told."""
    folder = tmp_path_factory.mktemp("evidence") / "here"
    with pytest.MonkeyPatch.context() as patch:
        nothing_disturbs(patch)
        for limit in ("_MOST_SLOWER", "_ENOUGH", "_MOST"):
            patch.setattr(prediction, limit, float("inf"))
        measure(FIGURES, Shop(tmp_path_factory.mktemp("shop"), scale), folder)
    write_pages(folder, FIGURES)
    return folder


@pytest.mark.long
@pytest.mark.timeout(600)
def test_figures_are_measured_drawn_and_told(results):
    page = (results / "index.md").read_text()
    for figure in FIGURES:
        found = json.loads((results / f"{figure.name}.json").read_text())
        assert {"device", "cores", "commit", "date", "versions", "measured_with", "data"} <= set(found)
        ElementTree.parse(results / f"{figure.name}.svg")
        assert f"## {figure.title}" in page and figure.paper in page
        assert figure.ours(found["data"]) in page
        heads, *rows = figure.table(found["data"])
        assert rows and all(len(row) == len(heads) for row in rows)
    assert "Not measured" not in page


@pytest.mark.long
def test_the_page_of_the_same_data_is_the_same(results):
    before = {path.name: path.read_bytes() for path in results.iterdir()}
    write_pages(results, FIGURES)
    assert {path.name: path.read_bytes() for path in results.iterdir()} == before


@pytest.mark.long
def test_a_figure_without_data_says_so(results, tmp_path):
    (tmp_path / "figure-10.json").write_bytes((results / "figure-10.json").read_bytes())
    write_pages(tmp_path, FIGURES)
    assert (tmp_path / "index.md").read_text().count("Not measured on this device.") == len(FIGURES) - 1
    assert not (tmp_path / "figure-13.svg").exists()


@pytest.mark.long
def test_ratios_come_from_what_was_measured(results):
    data = json.loads((results / "figure-15-18.json").read_text())["data"]
    for row in data["instances"]:
        assert row["ratio"] == pytest.approx(row["dietcode_gflops"] / row["metaschedule_gflops"])
        assert row["trials"] >= 1 and row["tuning_secs"] > 0 and row["vendors"]
    edges = json.loads((results / "figure-10.json").read_text())["data"]
    assert set(edges["gflops"]) == {"baseline", "global", "partition", "local"}
    pruning = json.loads((results / "section-5.3.json").read_text())["data"]
    assert all((run["left_out_secs"] > 0) == (run["pruned"] > 0) for run in pruning["runs"])


def test_a_frontier_has_no_point_that_another_beats():
    greedy = {"num_votes": None, "trimmed": False}
    points = [(10, 0.3), (20, 0.4), (30, 0.1), (40, 0.1), (50, 0.0)]
    curve = [
        {**{"num_bytes": size, "loss_mean": loss, "num_kernels": size // 20 + 1, "chosen": [size]}, **greedy}
        for size, loss in points
    ]
    assert [p["num_bytes"] for p in frontier(curve, 8)] == [10, 30, 50]
    assert [p["num_bytes"] for p in frontier(curve, 2)] == [10, 50]
    curve = [point | {"num_kernels": size // 40 + 1} for point, (size, _) in zip(curve, points, strict=True)]
    assert [p["num_bytes"] for p in frontier(curve, 2)] == [10, 30, 50]  # the best of one kernel
    voted = {"num_bytes": 45, "loss_mean": 0.2, "num_kernels": 3, "chosen": [1, 2, 3], "trimmed": False}
    curve += [voted | {"num_votes": 2}, voted | {"num_votes": 9}, voted | {"num_votes": 3, "trimmed": True}]
    found = frontier(curve, 2)
    assert [(p["num_bytes"], p["num_votes"]) for p in found] == [
        (10, None), (30, None), (45, 2), (50, None)
    ]  # fmt: skip


def test_bytes_of_one_file_count_what_every_library_has_once():
    fixed, kernels = 27_000, [4_000, 5_000, 6_000]
    alone, together = [fixed + kernel for kernel in kernels], fixed + sum(kernels)
    assert bytes_in_one_file(alone, together, 128) == fixed + 128 * 5_000
    assert bytes_in_one_file(alone, None, 128) is None and bytes_in_one_file(alone[:1], 31_000, 4) is None


def _drawn(figure: Figure, data: Row, folder: Path) -> str:
    draw(figure, data, folder / "plot.svg")
    return (folder / "plot.svg").read_text()


def _between(row: Row) -> Row | list[list[float]]:
    """Made-up quartiles of a row's rates, in the form in which it has these."""
    rates = row["gflops"] if "gflops" in row else ["metaschedule", "dietcode", *row["vendors"]]
    some = [90.0, 400.0]
    return dict.fromkeys(rates, some) if "case" not in row else [some for _ in rates]


def test_plots_show_how_far_readings_go_where_the_record_has_it(tmp_path):
    folder = OUTPUT / "intel-xeon-processor-2-cores"
    for figure, part in ((GRIDS, "cases"), (EDGES, None), (DENSE_LAYER, "instances")):
        data = json.loads((folder / f"{figure.name}.json").read_text())["data"]
        rows = [data] if part is None else data[part]
        for row in rows:
            row.pop("gflops_between", None)
        before = _drawn(figure, data, tmp_path)
        for row in rows:
            row["gflops_between"] = _between(row)
        assert _drawn(figure, data, tmp_path).count("LineCollection") > before.count("LineCollection")


def test_whiskers_go_from_a_rate_to_its_quartiles():
    assert whiskers([10.0], None) is None
    found = whiskers([10.0, 20.0], [[9.0, 12.0], [18.0, 19.0]])
    assert found.tolist() == [[1.0, 2.0], [2.0, 0.0]], "a median above the quartile, by rounding, has none"
    timings = Timings.of({"a": [4.0, 1.0, 2.0, 3.0, 9.0]})
    assert timings == {"a": 3.0} and timings.quartiles == {"a": (2.0, 4.0)} and timings.spread == 3.0
    assert middle_half(8e9, timings.quartiles["a"]) == [2.0, 4.0]


def test_the_gain_over_a_single_one_has_an_interval_over_shapes():
    points = [
        {"num_kernels": n, "gflops_geomean": rate, "num_votes": n}
        for n, rate in ((1, 80.0), (1, 100.0), (3, 121.0))
    ]
    found = {"workload": "wide", "num_free_choice": 3, "points": points}
    said = ours_votes({"workloads": [found]})
    assert (
        "the 3 of the last row 1.21 × as fast as the best single one (measured, one library of each)" in said
    )
    rows = [{"gflops": [80.0, 100.0, 100.0 * gain], "disturbed": None} for gain in (1.1, 1.1, 1.1, 1.331)]
    rows.append({"gflops": [1.0, 1.0, 900.0], "disturbed": "something else"})
    said = ours_votes({"workloads": [found | {"instances": rows}]})
    pattern = r"4 shapes of 5, the others disturbed, 95 % interval of their mean ([\d.]+) to ([\d.]+)\)"
    low, high = map(float, re.findall(pattern, said)[0])
    assert 1.1 <= low < 1.155 < high <= 1.33


@pytest.mark.long
def test_stale_results_are_found(results, scale, tmp_path):
    assert stale(results.parent, scale) == []
    path = tmp_path / "here" / "figure-10.json"
    path.parent.mkdir()
    found = json.loads((results / "figure-10.json").read_text())
    found["measured_with"]["generator"] = "of another day"
    path.write_text(json.dumps(found))
    assert stale(tmp_path, scale) == [f"here/figure-10.json: generator was of another day, is {generator()}"]


def test_committed_results_are_of_todays_code_or_say_that_they_are_not():
    """A device that is not there is not measured again: its page says that the figures are of earlier code.

    Write the pages again with ``python -m benchmarks.evidence --pages``; on the device, `make evidence`.
    """
    for line in stale(OUTPUT, Scale()):
        path, _, what = line.partition(": ")
        part = what.partition(" was ")[0]
        assert part in code(), line
        rows = (OUTPUT / path).with_name("index.md").read_text().splitlines()
        [source] = [row for row in rows if row.startswith(f"[Raw data]({Path(path).name})")]
        assert part in source.partition(EARLIER.partition("{")[0])[2], line
