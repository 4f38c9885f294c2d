"""The GPU's page of the evidence, from made-up records that say so; where pages are kept they are refused."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from needs import of_extra

pytest.importorskip("matplotlib", reason=of_extra("bench"))

from benchmarks.evidence import __main__ as command
from benchmarks.evidence.gpu import UNKNOWN, read_device
from benchmarks.evidence.gpu_pages import gpu_figures, render
from benchmarks.evidence.shop import Scale
from benchmarks.evidence.versions import ROOT, generator_at
from benchmarks.facts import slug
from dietcode.cost_model.cuda.model import count
from dietcode.errors import RecordsError
from dietcode.measure.records import Measurement, Records, write_records
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import extents_of, problem_from_spec
from dietcode.target.cubin import KernelFacts
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import load_spec

SPEC = load_spec(ROOT / "examples" / "bert-dense.yaml")
LARGE = CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2)
SMALL = CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2)
RATES = {
    LARGE: (4e11, "hardware"),
    replace(LARGE, tails="checked"): (1e11, "hardware"),
    replace(LARGE, tails="partition"): (3.2e11, "hardware"),
    SMALL: (3e11, "metaschedule"),
    CudaMicroKernel(64, 128, 8, 8, 16, 2, 2, stages=2): (3.5e11, "neighbour"),
}
NAME, NUM_SMS, RESIDENT, KAPPA = "Made-up GPU (TM)", 132, 2, 0.5


def wave_secs(blocks: float, secs_each: float) -> float:
    """Of a made-up device whose last wave counts by κ."""
    waves = blocks / (NUM_SMS * RESIDENT)
    return 3e-6 + secs_each * (KAPPA * np.ceil(waves) + (1 - KAPPA) * waves)


def made_records() -> Records:
    device = {
        "id": "0" * 16,
        "name": NAME,
        "num_sms": NUM_SMS,
        "target": {"kind": "cuda", "arch": "sm_90a"},
        "synthetic": True,
    }
    records, problem = Records(workload_digest(SPEC), device), device_problem(problem_from_spec(SPEC))
    blocks = list(range(18, 4 * NUM_SMS * RESIDENT, 18))
    secs = [wave_secs(n, 1e-5) for n in blocks]
    records.calibration = {"micro_kernel": LARGE.name, "wave_blocks": NUM_SMS * RESIDENT}
    records.calibration |= {"num_blocks": blocks, "secs": secs}
    for tile, (rate, source) in RATES.items():
        points = [extents_of(SPEC, {"T": value}) for value in (1, 7, 49, 128)]
        secs = []
        for point in points:
            n = count(problem, tile, 1, {k: np.asarray([v]) for k, v in point.items()}).blocks[0]
            secs.append(float(wave_secs(n, 2 * tile.rows * tile.columns * point["k"] / rate)))
        facts = KernelFacts(120, tile.shared_bytes, 0, 20000)
        records.measurements[tile] = Measurement(tile, source, tuple(points), tuple(secs), facts=facts)
    return records


def compared() -> dict[str, Any]:
    rows = [
        {
            "shape_vars": {"T": value},
            "micro_kernel": SMALL.name,
            "predicted_gflops": 900.0 + value,
            "measured_gflops": 1000.0 + value,
            "others": {"cublas": 500.0, "torch.compile": None if value == 7 else 800.0},
        }
        for value in (1, 7, 90)
    ]
    return {
        "workload": SPEC.name,
        "device": NAME,
        "standing": "synthetic: no device measured this",
        "kappa": KAPPA,
        "instances": rows,
        "summary": {"geometric_mean": 1.5, "worst": 1.25, "mean_prediction_gap": 0.09},
        "versions": {"torch": "0"},
    }


CALLS = {
    "device": NAME,
    "date": "2026-01-02",
    "commit": None,
    "library": SPEC.name,
    "target_microseconds": 5.0,
    "shapes": [
        {
            "shape_vars": {"T": value},
            "category": 0,
            "host_microseconds": {"into_out": 4.0 + value, "new_output": 6.0 + value},
            "failed_checks": {} if value == 1 else {"can_be_captured": "another result"},
        }
        for value in (1, 2)
    ],
}


def write_all(folder: Path, **header: Any) -> Path:
    folder.mkdir()
    path = folder / "records.jsonl"
    write_records(path, made_records())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0] |= header
    for line in lines[2:]:
        line["wall_secs"] = 1.5
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "compared.json").write_text(json.dumps(compared()))
    (folder / "library.calls").write_text(json.dumps(CALLS))
    return folder


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    return write_all(folder / "made-up", made={"commit": None, "date": "2026-01-02"})


@pytest.fixture(scope="module")
def place(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (records / "why.yaml").write_text("figure-13: Because somebody looked.\n")
    return render(records, tmp_path_factory.mktemp("evidence"), allow_synthetic=True)


def data_of(place: Path, figure: str) -> Any:
    return json.loads((place / f"{figure}.json").read_text())["data"]


def test_every_figure_of_the_paper_has_its_place(place: Path, records: Path) -> None:
    assert place.name == "made-up-gpu"
    page = (place / "index.md").read_text()
    assert page.startswith("# Evidence: Made-up GPU (TM), 132 SMs (synthetic: no device measured this)\n")
    measured = []
    for figure in gpu_figures(read_device(records)):
        assert f"## {figure.title}\n\n*Paper.* {figure.paper}\n" in page
        path = place / f"{figure.name}.json"
        if path.exists():
            found = json.loads(path.read_text())
            assert found["device"] == NAME and found["synthetic"] is True and found["date"] == "2026-01-02"
            ElementTree.parse(place / f"{figure.name}.svg")
            assert figure.ours(found["data"]) in page
            heads, *rows = figure.table(found["data"])
            assert rows and all(len(row) == len(heads) for row in rows)
            measured.append(figure.name)
    named = ["table-1", "figure-9", "figure-10", "figure-12", "figure-13", "figure-15-18", "calls"]
    assert measured == named
    assert page.count("Not measured on this device.") == 3  # pruning, hidden sizes, the convolution
    assert page.count("Because somebody looked.") == 1
    assert page.count("Nobody has examined yet") == len(named) - 1


def test_figures_hold_what_was_measured(place: Path) -> None:
    table = data_of(place, "table-1")["workloads"][0]
    assert (table["num_instances"], table["num_measured"], table["wall_secs"]) == (128, 5, 7.5)
    assert table["kept_bytes"] == 20000 * table["num_kept"]
    seeds = data_of(place, "figure-10")["seeds"]
    assert [row["tile"] for row in seeds] == [LARGE.name]  # nothing else has two ways
    assert seeds[0]["extents"]["m"] == 49 * 16  # the nearest ragged one to the paper's T = 60
    rates = seeds[0]["gflops"]
    assert rates["local"] > rates["partition"] > rates["checked"]
    sweep = data_of(place, "figure-13")
    assert sweep["kappa"] == pytest.approx(KAPPA, abs=1e-3)
    assert sweep["mean_error"] < 1e-6
    assert sweep["fitted_blocks_per_us"] == pytest.approx(sweep["blocks_per_us"])
    waves = data_of(place, "figure-9")["workloads"][0]["points"]
    assert [point["extents"]["m"] for point in waves] == [16, 112, 784, 2048]
    assert waves[0]["before"]["blocks"] == 18
    assert waves[0]["before"]["waves"] == pytest.approx(18 / 264)
    assert all(point["gain"] >= 1.0 for point in waves)
    assert waves[0]["gain"] > 1.5  # 18 blocks of the large tile leave most of the GPU idle
    points = data_of(place, "figure-12")["workloads"][0]["points"]
    assert points[0]["num_kernels"] == 1
    assert points[-1]["loss_mean"] <= points[0]["loss_mean"]
    series = data_of(place, "figure-15-18")
    rows = zip(series["instances"], compared()["instances"], (True, True, False), strict=True)
    assert all(row == before | {"anchor": is_anchor} for row, before, is_anchor in rows)


def test_a_headline_is_against_the_fastest_and_of_what_was_held_out(place: Path) -> None:
    found = data_of(place, "figure-15-18")["headline"]
    ratios = [1001 / 800, 1007 / 500, 1090 / 800]
    assert found["mean_ratio"] == pytest.approx(np.prod(ratios) ** (1 / 3))
    assert found["worst_ratio"] == pytest.approx(min(ratios))
    assert found["against"] == {"cublas": 3, "torch.compile": 2}
    assert found["num_held_out"] == 1
    assert found["mean_gap"] == found["worst_gap"] == pytest.approx(1 - 990 / 1090)
    told = (place / "index.md").read_text()
    assert "× of the fastest of cublas, torch.compile (2 of 3) at each shape" in told
    assert "predictions where tuning had not measured (1 of these shapes) are 9.2% off on average" in told


def test_what_calls_cost_is_told_with_checks_that_failed(place: Path) -> None:
    told = (place / "index.md").read_text()
    assert (
        "6.0 µs into `out=` and 8.0 µs with a new output, where 5 µs was aimed at; checks that failed: 1"
        in told
    )
    assert f"| {SPEC.name}, T = 2 | 6.0 | 8.0 | can_be_captured |" in told


def test_calls_of_another_device_are_refused(records: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(records, folder)
    (folder / "library.calls").write_text(json.dumps(CALLS | {"device": "Another"}))
    with pytest.raises(RecordsError, match="calls on 'Another' and records of 'Made-up GPU"):
        read_device(folder)


def test_a_rate_that_is_missing_is_told(place: Path) -> None:
    page = (place / "index.md").read_text()
    assert "| T = 7 | 1007 | 907 (fitted: an anchor) | 64x64-t8x4-k16-v2x1-s2 | 500 | not measured |" in page


def test_the_same_records_give_the_same_page(records: Path, place: Path) -> None:
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert render(records, place.parent, allow_synthetic=True) == place
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_synthetic_records_are_refused(records: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="synthetic: no device measured them"):
        render(records, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_them_too(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["evidence", "--pages", "-o", str(tmp_path), "--records", str(records.parent)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert command.main() == 1
    assert "no figure is drawn from them" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["index.md"]


def test_what_no_known_generator_made_is_stale(place: Path) -> None:
    lines = command.stale(place.parent, Scale())
    assert len(lines) == 7
    assert all(f"generator was {UNKNOWN}, is" in line for line in lines)
    assert generator_at(None, "cuda_") is None
    assert generator_at("HEAD+", "cuda_") is None
    assert generator_at("0" * 40, "cuda_") is None


def test_the_generator_of_a_commit_is_known() -> None:
    if generator_at("HEAD", "") is None:
        pytest.skip("this checkout has no history")
    assert generator_at("HEAD", "") != generator_at("HEAD", "cuda_")


def write_other_device(folder: Path) -> None:
    (folder / "compared.json").write_text(json.dumps(compared() | {"device": "another"}))


def write_other_workload(folder: Path) -> None:
    path = folder / "records.jsonl"
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(
        json.dumps(json.loads(header) | {"workload": "sha256:" + "0" * 64}) + "\n" + "".join(rest)
    )


def write_lonely(folder: Path) -> None:
    (folder / "compared.json").write_text(json.dumps(compared() | {"workload": "two-dims"}))


def write_nonsense(folder: Path) -> None:
    (folder / "compared.json").write_text('{"workload": 1}')


def remove_records(folder: Path) -> None:
    (folder / "records.jsonl").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (write_other_device, "of 'another'; the records beside it are of 'Made-up GPU"),
        (write_other_workload, "no workload of examples/ any more"),
        (write_lonely, "a comparison of 'two-dims' without its records"),
        (write_nonsense, "no comparison of benchmarks/gpu/compare.py: lacks device"),
        (remove_records, "no records"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    folder = write_all(tmp_path / "other")
    change(folder)
    with pytest.raises(RecordsError, match=message) as refused:
        read_device(folder)
    assert "\n" not in str(refused.value)


def test_names_of_devices_are_folders() -> None:
    assert slug("NVIDIA H200") == "nvidia-h200"
    assert slug("Intel(R) Xeon(R) Processor 2 cores") == "intel-xeon-processor-2-cores"
