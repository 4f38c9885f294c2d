"""Figures within docs/measured.md, and what README and method tell of them: each is that of its record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
from needs import of_extra

pytest.importorskip("matplotlib", reason=of_extra("bench"))
pytest.importorskip("torch", reason=of_extra("bench"))

from told import DOCS, EARLIER, EPYC, SHARED, XEON, ZEN3, Row, geomean, record, told

from benchmarks import headline, headline_tables, over_range, per_shape, readings
from benchmarks.facts import RESULTS


def test_the_page_tells_speeds_of_its_records() -> None:
    text, rows = told("docs/measured.md"), headline.found(RESULTS / headline.README_DEVICE, "cpu")
    of = {row["workload"]: row for row in rows}
    at = {name: {tuple(one["shape_vars"].values()): one for one in over_range.calm(of[name])} for name in of}

    def ratio(name: str, size: int) -> str:
        return f"{headline_tables.over_vendor(at[name][(size,)]):.2f}"

    many = [headline_tables.over_vendor(one) for (size,), one in at["bert-dense"].items() if size >= 25]
    for page in (text, told("README.md")):
        assert f"bert-dense {'is ' if page is text else ''}{ratio('bert-dense', 1)} × at T = 1" in page
        assert f"{min(many):.2f} to {max(many):.2f} × from T = 25 on" in page
        said = f"{ratio('dense-rows', 1)} × at one row"
        assert said in page and f"{ratio('dense-rows', 2048)} × at 2048" in page
    off = sorted(int(headline_tables.call_by_call(row)[2].rstrip("%")) for row in rows)
    assert f"predictions are off by {off[0]} to {off[-1]}%" in text
    bursts = [headline_tables.off_in_bursts(row) for row in rows]
    for page in (text, told("README.md"), told("docs/method.md")):
        assert f"{100 * min(bursts):.0f} to {max(bursts):.0%}" in page
    assert f"call by call, each after one of PyTorch's, by {off[0]} to {off[-1]}%" in told("docs/method.md")
    left_out = {name: len(of[name]["instances"]) - len(at[name]) for name in of}
    assert {name: number for name, number in left_out.items() if number} == {"two-dims": 2}
    assert "Two of 15 shapes of two-dims were disturbed" in text and len(of["two-dims"]["instances"]) == 15
    shared = [
        over_range.geomean(row, headline_tables.over_vendor)
        for row in headline.found(RESULTS / SHARED, "cpu")
    ]
    assert [f"{one:.2f}" for one in shared[:2]] == ["0.91"] * 2 and "(0.91 × both" in text


def test_the_page_tells_what_metaschedule_reaches_for_three_shapes() -> None:
    text, rows = told("docs/measured.md"), record(EPYC, "per-shape-curve-bert-dense")["rows"]

    def listed(ratios: Iterable[float]) -> str:
        *others, last = (f"{ratio:.2f}" for ratio in ratios)
        return f"{', '.join(others)} and {last} ×"

    of = {
        trials: listed(row["ratio"] for row in rows if row["trials"] == trials) for trials in (16, 128, 512)
    }
    assert (
        f"at T = 1, 24 and 128 of bert-dense, the library is {of[16]} of 16 trials for that shape, "
        f"{of[128]} of 128 and {of[512]} of 512"
    ) in text
    parts = per_shape.flat_parts(rows)
    assert all(part["is_flat"] for part in parts) and not any(row["disturbed"] for row in rows)
    assert f"by its median it is {listed(part['ratio'] for part in parts)} of MetaSchedule's best" in text
    secs = [row["tuning_secs"] for row in rows]
    assert f"The 512 trials took {min(secs):.0f} to {max(secs):.0f} s for each shape" in text


def test_the_page_tells_what_several_micro_kernels_earn() -> None:
    names = ("dense-rows", "two-dims", "bert-bmm-qk", "bert-bmm-pv")
    found = [record(EPYC, f"single-{name}") for name in names]
    *others, last = (f"{headline_tables.over_single(one):.3f}" for one in found)
    text, by_prediction = told("docs/measured.md"), [one["over_single_predicted"] for one in found]
    said = f"timed in turns with it they are {', '.join(others)} and {last} × ({', '.join(names[:-1])} and"
    assert said in text
    same = found[:2]  # at most of whose shapes the library runs the best single one
    most, least = max(one["most"] for one in same), min(one["least"] for one in same)
    assert f"both read {least:.2f} to {most:.2f} × of each other" in text
    qk, pv = found[2:]
    late = [
        row["gflops"]["library"] / row["gflops"][pv["best_single"]]
        for row in pv["instances"]
        if row["shape_vars"]["T"] >= 111 and not row["disturbed"]
    ]
    assert (
        f"the library of bert-bmm-qk has {qk['least']:.2f} × of it at T = {qk['least_at']['T']}, that of "
        f"bert-bmm-pv {min(late):.2f} to {max(late):.2f} × from T = 111 on"
    ) in text
    for one in (qk, pv):
        chosen = {row["micro_kernel"] for row in record(EPYC, f"cpu-{one['workload']}")["instances"]}
        assert one["best_single"] not in chosen
    assert f"by prediction {min(by_prediction):.3f} to {max(by_prediction):.3f} ×" in text


def test_the_page_tells_what_several_micro_kernels_earn_at_few_rows() -> None:
    text, evidence = told("docs/measured.md"), DOCS / "evidence" / EPYC
    dense = json.loads((evidence / "figure-12.json").read_text())["data"]["workloads"][0]
    [rates] = [row["gflops"] for row in dense["instances"] if row["shape_vars"] == {"T": 1}]
    single = [i for i, point in enumerate(dense["points"]) if point["num_kernels"] == 1]
    best = max(single, key=lambda i: dense["points"][i]["gflops_geomean"])
    assert f"the single one of bert-dense has {rates[best] / rates[-1]:.2f} × of their throughput" in text
    figure = told(f"docs/evidence/{EPYC}/models.md")
    rows = re.findall(
        r"\| (?:projection|expand|contract) \| [15] \| \| 1\.00 \|[^|]*\|[^|]*\| ([\d.]+) \|", figure
    )
    ratios = sorted(map(float, rows))
    assert len(ratios) == 6 and f"take {ratios[0]} to {ratios[-1]} times as long" in text


def test_the_page_tells_speeds_of_the_h100() -> None:
    text, evidence = told("docs/measured.md"), DOCS / "evidence" / "nvidia-h100-80gb-hbm3"

    def data(name: str) -> Row:
        found: Row = json.loads((evidence / f"{name}.json").read_text())["data"]
        return found

    half, single = data("series-bert-dense-fp16"), data("figure-15-18")
    products, convolution = data("series-bert-bmm-qk-fp16"), data("series-resnet50-conv3x3-nhwc-fp16")
    blocks = [data("series-swiglu-fp16"), data("series-attention-12x64-fp16")]
    slower = [
        f"{one['headline']['num_slower']} of {len(one['instances'])}" for one in (half, single, products)
    ]
    assert (
        f"at {slower[0]} T of the first, {slower[1]} of the second and {slower[2]} of batched products"
        in text
    )
    of_batches = f"{convolution['headline']['num_slower']} of {len(convolution['instances'])} batches"
    assert f"at {of_batches} of the convolution, and at every shape of blocks" in text
    assert all(one["headline"]["num_slower"] == len(one["instances"]) for one in blocks)
    ratios = {
        row["shape_vars"]["T"]: row["measured_gflops"] / max(filter(None, row["others"].values()))
        for row in products["instances"]
    }
    high = [ratio for length, ratio in ratios.items() if 67 <= length <= 95]
    rest = [ratio for length, ratio in ratios.items() if not 67 <= length <= 95]
    assert len(high) == 8 and len(rest) == 24
    assert (
        f"({geomean(high):.2f} × over the eight that were timed, {geomean(rest):.2f} × over the other 24)"
        in text
    )
    triton = [sum("triton" in row["others"] for row in one["instances"]) for one in (half, single)]
    assert f"with Triton at {triton[0]} (float16) and {triton[1]} (float32) of 32 shapes" in text
    means = [one["headline"]["mean_ratio"] for one in (half, single, products, convolution, *blocks)]
    for mean in means:
        assert f"{mean:.2f} ×" in text


def test_the_page_tells_where_calls_in_turns_are_slower_than_pytorchs() -> None:
    text, said = told("docs/measured.md"), []
    for name in ("bert-bmm-qk", "bert-bmm-pv"):
        row = record(EPYC, f"cpu-{name}")
        roof, mean = row["summary"]["of_roof"], over_range.geomean(row, lambda one: one["of_roof"])
        assert f"{mean:.0%} ({name}, {roof['worst']:.0%} at T = 1)" in text
        assert roof["worst_at"] == {"T": 1}
    for name in ("resnet50-conv3x3", "bert-dense-hidden", "bert-dense", "dense-rows", "bert-bmm-qk"):
        calm = [one for one in record(EPYC, f"cpu-{name}")["instances"] if not one.get("disturbed")]
        rows = [one["in_company"] for one in calm]
        slower = sum(one["measured_gflops"] < one["vendor_gflops"] for one in rows)
        said.append(f"{slower} of {len(rows)}")
    assert f"at {said[0]} shapes of the convolution, {said[1]} of bert-dense-hidden, {said[2]} of" in text
    assert f"{said[3]} of dense-rows and {said[4]} of bert-bmm-qk" in text


def test_the_page_tells_what_metaschedule_reaches_for_one_shape() -> None:
    text, rows = told("docs/measured.md"), record(SHARED, "per-shape-curve-bert-dense")["rows"]
    ratios = {row["trials"]: f"{row['ratio']:.2f}" for row in rows}
    own = [row["dietcode_gflops"] for row in rows]
    assert f"the library is {ratios[16]} × of 16 trials" in text
    assert f"{ratios[128]}, {ratios[256]} and {ratios[512]} × of 128, 256 and 512" in text
    assert f"was read at {min(own):.0f} to {max(own):.0f} GFLOP/s" in text
    [flat] = per_shape.flat_parts(rows)
    assert flat["is_flat"] and f"by its median it is {flat['ratio']:.2f} × of MetaSchedule's best" in text
    [part] = headline_tables.level_parts(rows)
    secs = re.findall(r"(\d+) trials reach its median, (\d+) s", headline_tables.level(part))
    assert [f"There {number} trials of that shape took {value} s" in text for number, value in secs] == [True]
    assert f"took {record(SHARED, 'cpu-bert-dense')['tuning']['secs']:.0f} s" in text
    several = record(EARLIER, "per-shape-bert-dense")["summary"]
    assert (
        f"{several['metaschedule_secs']:.0f} s together, the library of one run is "
        f"{several['ratio_geomean']:.2f} × as fast in geometric mean, {several['ratio_worst']:.2f} × at worst"
    ) in text


@pytest.mark.parametrize(("device", "wanted"), [(XEON, "seven"), (ZEN3, "three")])
def test_what_metaschedule_took_and_brought(device: str, wanted: str) -> None:
    rows = record(device, "sources")["rows"]
    assert len(rows) == {"seven": 7, "three": 3}[wanted]
    shares = [row["metaschedule_secs"] / row["tuning_secs"] for row in rows]
    brought = [row["sources"]["metaschedule"] for row in rows if "metaschedule" in row["sources"]]
    kept = [one["gain"] for one in brought if one["num_chosen"]]
    text = told("docs/measured.md")
    assert f"{100 * min(shares):.0f} to {max(shares):.0%}" in text
    assert (
        len(kept) == 1 and f"worth {kept[0]:.2%}" in text and f"worth {kept[0]:.2%}" in told("docs/method.md")
    )
    assert max(one["gain"] for one in brought) <= 0.0008, "docs/method.md: at most 0.08 %"


def test_the_page_tells_that_no_part_is_told_apart_on_a_zen_3() -> None:
    found = record(ZEN3, "ablation-bert-dense")
    summary, runs = found["summary"], found["runs"]
    scores = {name: f"{one['score_median']:.3f}" for name, one in summary.items()}
    full = summary["full"]
    assert (
        f"full {scores['full']} ({full['score_least']:.3f} to {full['score_most']:.3f}), no mutation "
        f"{scores['no-mutation']}, no learning {scores['no-learning']}, five runs each"
    ) in told("docs/measured.md")
    tried = [run["measured"] for run in runs if run["stop"] == "seconds"]
    (space,) = {run["measured"] for run in runs if run["variant"] == "no-mutation"}
    assert (
        f"the 60 s ended {len(tried)} of {len(runs)} runs, after {min(tried)} to {max(tried)} micro-kernels "
        f"(without mutation there were {space} in all)"
    ) in told("docs/measured.md")
    assert len(runs) == 5 * len(summary) and not any(run["metaschedule_trials"] for run in runs)
    told_of = f"always ({scores['always-metaschedule']}) have no trial of it on record"
    disturbed = sum(bool(row["disturbed"]) for row in found["instances"])
    assert told_of in told("docs/measured.md")
    assert f"{disturbed} of {len(found['instances'])} shapes were disturbed" in told("docs/measured.md")
    assert max(one["score_least"] for one in summary.values()) < min(
        one["score_most"] for one in summary.values()
    ), "their ranges overlap"


def test_the_page_tells_what_parts_of_the_search_earn() -> None:
    text, found = told("docs/measured.md"), record(XEON, "ablation-two-dims")
    full, without = (found["summary"][name] for name in ("full", "no-metaschedule"))
    scores = [
        f"{one['score_median']:.3f} ({one['score_least']:.3f} to {one['score_most']:.3f})"
        for one in (full, without)
    ]
    assert f"a score of {scores[0]} with it, {scores[1]} without" in text
    assert f"With {found['trials']} trials allowed" in text and {r["stop"] for r in found["runs"]} == {
        "stalled"
    }
    for device in (EARLIER, SHARED):
        summary = record(device, "ablation-bert-dense")["summary"]
        gain = summary["full"]["score_median"] / summary["no-mutation"]["score_median"] - 1
        assert 0.015 < gain < 0.035, "mutation 2 to 3 %"
        for part in ("no-learning", "no-metaschedule"):
            low, high = (summary[part][f"score_{kind}"] for kind in ("least", "most"))
            assert low <= summary["full"]["score_median"] <= high, "no more than seeds differ by"
    found_best = headline.found(RESULTS / EARLIER, "oracle")
    shares = [over_range.geomean(row, lambda one: one["ratio"]) for row in found_best]
    assert f"The choice has {100 * min(shares):.1f} to {max(shares):.1%} of the throughput" in text
    assert f"{min(row['ratio_worst'] for row in found_best):.0%} at the worst shape (six workloads" in text
    assert len(found_best) == 6 and sum("dirty" in row["commit"] for row in found_best) == 2


def test_the_page_tells_the_service_of_its_records() -> None:
    text, load = told("docs/measured.md"), record(EARLIER, "service-load")
    metadata, asked = load["metadata"], load["asked"]
    assert (
        f"with {asked['num_pulls']} clients that pull 10 MB each and {asked['submissions']:.0f} submissions"
        in text
    )
    assert (
        f"in {metadata['p50_ms']:.0f} ms (median) and {metadata['p99_ms']:.0f} ms (99th percentile)" in text
    )
    assert f"holds {load['server_rss_bytes']['peak'] / 1e6:.0f} MB" in text and load["errors"] == 0
    cancelled = record(EARLIER, "service-cancel")
    assert f"within {cancelled['worst_state_secs']:.1f} s" in text
    overhead = record(EARLIER, "service-costs")["overhead"]
    assert f"adds {overhead['added_secs']:.1f} s to a job" in text and len(overhead["warm_secs"]["tune"]) == 7


def test_the_page_tells_how_far_fits_are_off_on_a_zen_3() -> None:
    names = ("dense-1531-419", "two-dims", "bmm-48-80", "bert-bmm-qk", "bert-bmm-pv")
    found = [readings.judged(record(ZEN3, f"readings-{name}")) for name in names]
    means, text = [f"{one['gap_mean']:.1%}" for one in found], told("docs/measured.md")
    assert re.findall(r"([\d.]+%) \(", text[text.index("fits of four or five micro-kernels") :])[:5] == means
    *worst, last = (f"{one['gap_worst']:.0%}".rstrip("%") for one in found)
    assert f"in the mean, and by {', '.join(worst)} and {last}% at worst" in text
    assert {one["num_micro_kernels"] for one in found} == {4, 5}
    secs = {name: 1e6 * one["worst_secs"] for name, one in zip(names, found, strict=True)}
    assert (
        f"calls of {secs['two-dims']:.1f}, {secs['bmm-48-80']:.1f} and {secs['bert-bmm-pv']:.1f} µs "
        f"(two-dims, bmm-48-80, bert-bmm-pv), of {secs['bert-bmm-qk']:.0f} µs (bert-bmm-qk) and "
        f"{secs['dense-1531-419']:.0f} µs (dense-1531-419)"
    ) in told("docs/method.md")


def test_the_page_tells_how_far_predictions_are_off_on_a_zen_3() -> None:
    near = ("dense-rows", "bert-bmm-qk", "bert-bmm-pv", "two-dims")
    far = ("bert-dense", "bert-dense-hidden", "resnet50-conv3x3")
    rows, text = {name: record(ZEN3, f"prediction-{name}") for name in near + far}, told("docs/measured.md")

    def of(names: tuple[str, ...], key: str, digits: int) -> str:
        *others, last = (f"{rows[name][key] * 100:.{digits}f}" for name in names)
        return f"{', '.join(others)} and {last}%"

    def listed(names: tuple[str, ...]) -> str:
        return f"{', '.join(names[:-1])} and {names[-1]}"

    assert (
        f"{listed(near)} are off by {of(near, 'gap_mean', 1)} in the mean and by {of(near, 'gap_worst', 0)} "
        f"at worst; {listed(far)} by {of(far, 'gap_mean', 1)} in the mean "
        f"and by {of(far, 'gap_worst', 0)} at worst"
    ) in text
    *left, last = (f"{headline_tables.gap_to_median(rows[name]) * 100:.1f}" for name in near + far)
    assert f"the seven are off by {', '.join(left)} and {last}% in the mean" in text
    assert (
        all(row["bias"] > 0 for row in rows.values())
        and "in the median all seven were predicted too high" in text
    )
    assert len({row["commit"] for row in rows.values()}) == 1
    conv = rows.pop("resnet50-conv3x3")
    kept = f"{conv['num_instances']} of {conv['num_instances'] + conv['num_disturbed']} shapes"
    slower = f"{conv['slower_than_at_calibration']:.2f} × slower than at its calibration"
    assert f"the readings agreed at {kept}, on a machine {slower}" in text
    assert not any(row["num_disturbed"] for row in rows.values())


def test_pages_tell_of_the_figures_on_a_zen_3() -> None:
    folder, text = DOCS / "evidence" / ZEN3, told("docs/measured.md")
    found = [
        json.loads((folder / f"figure-{name}.json").read_text())["data"] for name in ("15-18", "16", "17-19")
    ]
    gaps = [f"{one['prediction']['gap_mean'] * 100:.1f}%" for one in found]
    assert (
        f"bert-dense was off by {gaps[0]}, bert-dense-hidden by {gaps[1]} and the convolution by {gaps[2]}"
    ) in text
    without = [row for row in found[0]["instances"] if row["shape_vars"] != {"T": 4}]
    rest = geomean(row["dietcode_gflops"] / max(row["vendors"].values()) for row in without)
    assert f"the first is {rest:.2f} × without T = 4" in text and len(without) == 3
    vendor = [f"{one['summary']['of_vendor']:.2f}" for one in found]
    assert f"Figures 15 to 19 on the Zen 3 ({vendor[0]}, {vendor[1]} and {vendor[2]} × of PyTorch" in text
    method, keys = told("docs/method.md"), ("slower_than_at_calibration", "gap_mean_unscaled")
    slower, bare = (found[0]["prediction"][key] for key in keys)
    assert (
        f"{slower:.2f} × slower than at its calibration, was off by {gaps[0]}, and by {bare * 100:.0f}% "
        "without scaling"
    ) in method
    slower, bare = (found[2]["prediction"][key] for key in keys)
    assert (
        f"read at {slower:.2f} × the time of its calibration, was off by {gaps[2]}, and by {bare:.1%} without"
    ) in method


def test_the_readme_tells_no_figure_that_the_page_and_its_table_have_not() -> None:
    section = told("README.md").split("## Measured")[1]
    table, points = section.split("<!-- end of benchmarks.headline -->")
    known = re.findall(r"[\d.]*\d", table + told("docs/measured.md"))
    figures = re.findall(r"[\d.]*\d", points.split("[What was measured]")[0])
    assert len(figures) > 30 and not set(figures) - set(known)
