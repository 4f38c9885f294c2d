"""A disturbed reading becomes no figure; pages are as the commands write them, and name commands that run."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from needs import of_extra

pytest.importorskip("matplotlib", reason=of_extra("bench"))
pytest.importorskip("torch", reason=of_extra("bench"))

from benchmarks import (
    ablation,
    block_prediction,
    engines,
    facts,
    headline,
    headline_tables,
    model_page,
    oracle,
    overhead,
    prediction,
    program_page,
    recursion_page,
    scaling_tables,
    second_job,
    stand,
)
from benchmarks.evidence import choice, series
from benchmarks.evidence.__main__ import OUTPUT
from benchmarks.facts import RESULTS
from benchmarks.stand import Stand
from dietcode.measure.disturbance import Machine
from dietcode.measure.turns import Timings

WHY = "a reference kernel took 2.0 times as long as usual"
SHAPES = ({"T": 1}, {"T": 5}, {"T": 9})


class SlowMachine(Machine):
    """One whose reference takes twice its usual time, always."""

    def __init__(self, slowdown: float = 2.0) -> None:
        super().__init__(1)
        self.factor, self.rested = slowdown, 0

    def rest(self, secs: float) -> None:
        self.rested += 1

    def slowdown(self) -> float:
        return self.factor

    def others_secs(self) -> float | None:
        return None


class FakeStand:
    """Libraries that take `secs` by their name; what is read at T = 5 is disturbed.

    Parameters
    ----------
    secs : dict of str to float
    spoilt : float
        What the disturbed reading of the first path is multiplied by.
    """

    def __init__(self, secs: dict[str, float], spoilt: float = 50.0) -> None:
        self.secs, self.spoilt = secs, spoilt
        self.spec = SimpleNamespace(name="dense")

    def __call__(self, folder: Path) -> FakeStand:
        return self

    def __enter__(self) -> FakeStand:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def instances(self, wanted: int) -> list[dict[str, Any]]:
        return [{"shape_vars": shape, "micro_kernel": "a", "flops": 1e9} for shape in SHAPES]

    def read(self, path: str | None, binding: dict[str, int]) -> float:
        return self.secs[str(path)]

    def in_turns(self, paths: dict[str, str], binding: dict[str, int], rounds: int) -> Timings:
        found = Timings({name: self.secs[path] for name, path in paths.items()})
        if binding == SHAPES[1]:
            found[next(iter(found))] *= self.spoilt
            found.disturbed = WHY
        return found


@pytest.mark.parametrize("rounds", [2, 3])
def test_libraries_in_turns_are_read_again_and_marked(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    machine, order = SlowMachine(), []
    monkeypatch.setattr(stand, "machine_of", lambda *_, **__: machine)
    own = Stand.__new__(Stand)
    monkeypatch.setattr(own, "target", SimpleNamespace(num_cores=1), raising=False)

    def read(path: str | None, binding: dict[str, int]) -> float:
        order.append(path)
        return 2.0 if path else 1.0

    monkeypatch.setattr(own, "read", read)
    found = own.in_turns({"library": None, "other": "other.so"}, {"T": 5}, rounds)
    assert found == {"library": 1.0, "other": 2.0} and found.disturbed == WHY
    assert machine.rested == (2 if rounds == 3 else 0), "of two rounds nothing can be told"
    assert order == [None, "other.so"] * rounds * (machine.rested + 1)
    machine.factor = 1.0
    assert own.in_turns({"library": None}, {"T": 5}, rounds).disturbed is None


@pytest.mark.parametrize("slower", [1.1, 1.4])
def test_a_prediction_is_compared_with_readings_that_agree(slower: float) -> None:
    """The reference kernel waits for no memory: it is as fast as ever while that is taken."""
    secs = np.array([1.0, slower, slower, slower, np.nan, slower])
    drifted = prediction._judged({"flops": 1e9}, secs, np.nan_to_num(secs, nan=1.0))
    assert drifted["disturbed"] is None and drifted["measured"] == pytest.approx(1.0), (
        "it shows, and is scaled"
    )
    row = prediction._judged({"flops": 1e9}, secs, np.ones(6))
    if slower < 1.25:
        assert row["measured"] == pytest.approx(1 / slower) and row["disturbed"] is None
    else:
        assert row == {"flops": 1e9, "disturbed": "its median is known to 14% only"}


def test_scores_of_searches_are_of_calm_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[dict[str, Any]] = [{"folder": Path("a")}, {"folder": Path("b")}]
    monkeypatch.setattr(ablation, "Stand", FakeStand({"a/library.so": 1.0, "b/library.so": 2.0}))
    rows = ablation.judge(runs, 3, 3)
    assert [row["disturbed"] for row in rows] == [None, WHY, None]
    assert [run["score_mean"] for run in runs] == [1.0, 0.5] and runs[0]["score_worst"] == 1.0


def test_a_second_job_is_compared_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_job, "Stand", FakeStand({"s/library.so": 1.0, "a/library.so": 2.0}))
    rows = second_job.compare({"second": Path("s"), "alone": Path("a")}, 3, 3)
    assert [(row["ratio"], row["disturbed"]) for row in rows] == [(2.0, None), (0.04, WHY), (2.0, None)]


def test_the_best_of_an_oracle_is_marked() -> None:
    some: Any = FakeStand({"a.so": 2.0, "b.so": 1.0, "c.so": 9.0})
    paths = {name: f"{name}.so" for name in "abc"}
    first, second, _ = (oracle.compare(some, paths, row, 1, 3) for row in some.instances(3))
    assert (first["oracle"], first["ratio"], first["disturbed"]) == ("b", 0.5, None)
    assert second["disturbed"] == WHY


def test_what_a_call_costs_is_not_told_beside_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for disturbed in (None, WHY):
        timings = Timings({"call": 2e-6})
        timings.disturbed = disturbed
        monkeypatch.setattr(overhead, "interleave", lambda *_, found=timings: found)
        if disturbed is None:
            assert overhead.in_turns({"call": lambda: None}) == {"call": pytest.approx(2.0)}
    with pytest.raises(SystemExit, match="no figure is written"):
        overhead.in_turns({"call": lambda: None})
    assert WHY in capsys.readouterr().out


def test_builds_of_more_machines_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowMachine()
    monkeypatch.setattr(engines, "machine_of", lambda *_, **__: machine)
    monkeypatch.setattr(engines, "candidates", lambda _: (None, None, [SimpleNamespace(name="a")]))
    monkeypatch.setattr(engines, "resolve_target", lambda _: None)
    measuring = SimpleNamespace(build_request=lambda kernels, name: name)
    monkeypatch.setattr(engines, "MeasuringCpu", lambda *_: measuring)
    children: Any = SimpleNamespace(build=lambda requests: [SimpleNamespace(error=None) for _ in requests])
    spec: Any = SimpleNamespace(variables=(), target=None)
    assert WHY in engines.throughput(children, spec, 1)["disturbed"] and machine.rested == 2


def test_the_page_has_no_speed_of_disturbed_builds(tmp_path: Path) -> None:
    found = json.loads((RESULTS / "engines.json").read_text())
    path = tmp_path / "engines.json"
    found["ray"][1]["disturbed"] = WHY
    path.write_text(json.dumps(found))
    table = scaling_tables._fan_out(path)
    assert "| 2, of one core each | disturbed |  |" in table and "| 1, of one core each | 3.51 |" in table
    assert "| 4, which shared 2 cores |" in table
    found["job"]["disturbed"] = WHY
    path.write_text(json.dumps(found))
    assert scaling_tables._fan_out(path) == f"Disturbed when it was measured ({WHY}): no figures.\n"


def test_readings_of_blocks_that_were_disturbed_are_not_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(block_prediction, "BUILD", tmp_path)
    (tmp_path / "softmax.readings.json").write_text(json.dumps({"kernels": [{"disturbed": WHY}]}))
    assert block_prediction.report("softmax") is None


def test_a_disturbed_recursion_is_in_no_further_table(tmp_path: Path) -> None:
    name = "intel-xeon-processor-family-6-model-167-2-cores"
    found = json.loads((RESULTS / name / "recursion.json").read_text())
    trees = [row for row in found["rows"] if (row["model"], row["hidden"]) == ("tree-fc", 256)]
    trees[0]["disturbed"] = WHY
    (tmp_path / "recursion.json").write_text(json.dumps(found | {"rows": trees}))
    page = recursion_page.page(tmp_path)
    tables = {part.split("\n")[0]: part.count("| TreeFC | 256 |") for part in page.split("\n## ")}
    assert tables["Beside PyTorch and DyNet"] == 3 + 2, "of the second table, beside PyTorch with tables"
    assert tables["Over DyNet, beside Table 5 of the paper"] == 1 and page.count("disturbed |") == 1


def test_a_disturbed_program_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = program_page.times_of()
    rows = {(row["program"], row["batch"]): row for row in found["rows"] if row["hidden"] == 256}
    rows["tree_lstm", 8]["disturbed"], rows["tree_lstm", 64]["disturbed"] = WHY, None
    calm_ms = f"{rows['tree_lstm', 64]['dietcode_ms']:.3g}"
    monkeypatch.setattr(program_page, "times_of", lambda: found)
    page = program_page.with_table(program_page.PAGE.read_text())
    assert "| tree_lstm | 256 | 8 | disturbed |  |" in page
    assert f"| tree_lstm | 256 | 64 | {calm_ms} |" in page
    assert "| TreeLSTM | 256 | 8 | 4.31, 1.48 | 2.9 | not measured |  |" in program_page.evidence()


MODEL_ROW = {
    "best": "onnxruntime",
    "ratio": 1.25,
    "first_secs": 0.003,
    "alone_secs": 0.002,
    "kernel_secs": 0.0018,
    "host_secs": 0.0002,
    "memory": {
        **{"values": 40, "storages": 6, "bytes_apart": 8 << 20, "bytes": 2 << 20, "bytes_static": 2 << 20},
        **{"secs_apart": 5e-6, "secs_apart_touched": 1e-4, "secs_first": 1e-6, "secs_first_touched": 2e-5},
    },
}


def test_the_page_of_models_has_the_papers_tables(tmp_path: Path) -> None:
    secs = {"dietcode": 0.002, "onnxruntime": 0.0025, "dietcode-static": 0.0019}
    rows = [
        MODEL_ROW | {"size": [1, 100], "secs": secs, "disturbed": None},
        MODEL_ROW | {"size": [1, 7], "secs": secs, "disturbed": WHY},
    ]
    record = {
        **{"device": "CPU", "processor": {"family": 1}, "cores": 2, "commit": "abc", "date": "2026-11-27"},
        **{"versions": {"torch": "2.13.0"}, "geometric_mean": 1.25, "worst": 1.25},
        "missing": {"openvino": "no module"},
    }
    (tmp_path / "model-bert-full.json").write_text(json.dumps(record | {"rows": rows}))
    dispatched = {
        **{"layer": "expand", "tokens": 128, "disturbed": None},
        "secs": {"static": 1e-3, "at most 8": 1.1e-3, "at most 1": 1.3e-3},
        "num_kernels": {"static": 1, "at most 8": 3, "at most 1": 1},
    }
    (tmp_path / "dispatch.json").write_text(
        json.dumps(record | {"trials": 8, "seconds": 5.0, "rows": [dispatched]})
    )
    page = model_page.page(tmp_path)
    assert "| 1×100 | 2 | 2.5 | 1.25 | 1.5 |" in page and "| 1×7 | disturbed |" in page
    assert "ours 20, ONNX Runtime 25" in page, "microseconds a token"
    assert "| bert-full | 1×100 | 1.9 | 2 | 2 | 1.8 | 0.2 | 10.0% | 0.95 |" in page
    assert "| bert-full | 1×100 | 40 | 6 | 85% | 8.00 | 2.00 | 2.00 | 5.0 | 100.0 | 1.0 | 20.0 |" in page
    assert "| bert-full | 1×7 | 40 | 6 | 85% | 8.00 | 2.00 | 2.00 |  |  |  |  |" in page
    assert "| expand | 128 | 1.00 | 1.10 | 1.30 | 3, 1 |" in page
    assert "OpenVINO: no module" in page and "Table 1" not in page, "no LSTM was measured"


def test_pages_are_what_the_commands_write() -> None:
    assert program_page.EVIDENCE.read_text() == program_page.evidence(), "python -m benchmarks.program_page"
    text = program_page.PAGE.read_text()
    assert program_page.with_table(text) == text, "python -m benchmarks.program_page"
    text = recursion_page.PAGE.read_text()
    assert recursion_page.with_summary(text) == text, "python -m benchmarks.recursion_page"
    for record in RESULTS.glob("*/recursion.json"):
        written = (OUTPUT / record.parent.name / "recursion.md").read_text()
        assert written == recursion_page.page(record.parent), "python -m benchmarks.recursion_page"
    text = model_page.PAGE.read_text()
    assert model_page.with_summary(text) == text, "python -m benchmarks.model_page"
    for folder in model_page.folders():
        written = model_page.page_path(folder).read_text()
        assert written == model_page.page(folder), "python -m benchmarks.model_page"


@pytest.mark.parametrize(
    "device",
    [
        RESULTS / "amd-epyc-2-cores",
        RESULTS / "intel-xeon-processor-family-6-model-167-2-cores",
        RESULTS / "amd-epyc-family-25-model-17-2-cores",
    ],
)
def test_the_page_of_blocks_has_the_figures_of_the_records(device: Path) -> None:
    """Each row of a record that has a bar stands in docs/blocks.md: mean, worst, where, share of a copy."""
    page = (OUTPUT.parent / "blocks.md").read_text()
    for name, row in json.loads((device / "blocks.json").read_text())["rows"].items():
        ratio, bar = row["ratio"], row["bar"]
        if bar is None:
            continue
        where = ", ".join(f"{key}={value}" for key, value in ratio["worst_at"].items())
        share = f", {row['copy']['worst']:.0%}".replace("%", " % of a copy") if "copy" in row else ""
        asked = f"| {bar['geomean']:.2f} / {bar['worst']:.2f} "
        told = f"{asked}| {ratio['geomean']:.2f} | {ratio['worst']:.2f} at {where}{share}"
        assert told in page, name


def test_table_1_counts_the_shapes_whose_tuning_alone_nothing_disturbed() -> None:
    folder = OUTPUT / "amd-epyc-family-25-model-1-2-cores"
    table = json.loads((folder / "table-1.json").read_text())["data"]
    for row, name in zip(table["workloads"], ("15-18", "16", "17-19"), strict=True):
        data = json.loads((folder / f"figure-{name}.json").read_text())["data"]
        calm = [one["tuning_secs"] for one in data["instances"] if not one["tuning_disturbed"]]
        assert row["secs_alone_mean"] == pytest.approx(sum(calm) / len(calm))
        assert row["num_timed_alone"] == len(calm)
    assert "(3 shapes measured)" in series.table_complexity(table)[3][4]


@pytest.mark.parametrize("slowdown", [1.0, 2.0])
def test_what_is_done_once_says_whether_others_ran(monkeypatch: pytest.MonkeyPatch, slowdown: float) -> None:
    machine = SlowMachine(slowdown)
    monkeypatch.setattr(facts, "machine_of", lambda *_, **__: machine)
    done = []
    value, secs, disturbed = facts.done_once(lambda: done.append(1) or "tuned")
    assert (value, len(done), disturbed) == ("tuned", 1, WHY if slowdown > 1 else None) and secs >= 0
    assert machine.rested == 0


def test_figures_of_the_paper_have_no_disturbed_rows() -> None:
    folder = OUTPUT / "intel-xeon-processor-2-cores"
    dense, table = (
        json.loads((folder / f"{n}.json").read_text())["data"] for n in ("figure-15-18", "table-1")
    )
    dense["instances"][0]["disturbed"] = WHY
    assert series.table(dense)[1][1:] == ["disturbed"] * 7 and "T = 1 in turns" not in series.ours(dense)
    assert "99 s for 128 instances" in series.ours(dense)
    dense["secs_disturbed"] = table["workloads"][0]["secs_disturbed"] = WHY
    assert "the seconds of tuning were disturbed" in series.ours(dense)
    assert series.table_complexity(table)[1][4:7] == ["disturbed"] * 3
    assert "bert-dense 66.7" not in series.ours_complexity(table) and "resnet50" in series.ours_complexity(
        table
    )
    dense["secs_disturbed"], dense["instances"][1]["tuning_disturbed"] = None, WHY
    assert "one alone (without that of T = 11, which something disturbed)" in series.ours(dense)
    path, *_ = sorted(OUTPUT.glob("*/section-5.3.json"))
    pruning = json.loads(path.read_text())["data"]
    pruning["runs"][1]["disturbed"] = WHY
    assert choice.table_pruning(pruning)[2] == ["1", *["disturbed"] * 6]


def test_seconds_of_a_tuning_beside_others_are_not_told() -> None:
    device = RESULTS / "intel-xeon-processor-family-6-model-167-2-cores"
    (row,) = (row for row in headline.found(device, "cpu") if row["workload"] == "two-dims")
    assert "| 62 s (cold) | 10 |" in headline_tables.speed_table([row])
    row["tuning"]["disturbed"] = WHY
    assert "| disturbed | 10 |" in headline_tables.speed_table([row])


def test_commands_that_pages_name_can_be_run() -> None:
    """A figure that names the command which makes it; of packages, their ``__main__``."""
    root = OUTPUT.parent.parent
    pages = [root / "README.md", root / "CHANGELOG.md", *OUTPUT.parent.rglob("*.md")]
    found = {name for page in pages for name in re.findall(r"-m (benchmarks(?:\.\w+)+)", page.read_text())}
    assert {"benchmarks.recursion_ablation", "benchmarks.cpu", "benchmarks.evidence"} <= found
    for name in sorted(found):
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        module = f"{name}.__main__" if spec.submodule_search_locations else name
        assert callable(importlib.import_module(module).main), name
