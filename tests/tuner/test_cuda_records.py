"""From records of a GPU to a library, without one; the records are made up, and say so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc
from small_runs import make_spec

from dietcode.backends.cuda.backend import SYNTHETIC
from dietcode.errors import RecordsError
from dietcode.measure.records import Measurement, Records, read_records, write_records
from dietcode.runtime.manifest import MANIFEST, read_manifest, write_folder
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import extents_of
from dietcode.target.cubin import KernelFacts
from dietcode.tuner.tune import make_library, tune
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec

pytestmark = pytest.mark.usefixtures("no_driver")

TILES = (
    CudaMicroKernel(16, 64, 4, 4, 16, stages=2, splits=4),
    CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2),
    CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2),
)


def spec_of(arch: str = "sm_90a") -> Spec:
    return spec_from_data(
        {
            "name": "bert-dense",
            "op": {"einsum": "mk,nk->mn", "epilogue": []},
            "tensors": {
                "X": {"dims": "mk", "dtype": "float32"},
                "W": {"dims": "nk", "dtype": "float32", "constant": True},
            },
            "output": {"name": "Y", "dtype": "float32"},
            "accumulate": "float32",
            "shape_vars": {"T": {"min": 1, "max": 128}},
            "dims": {"m": "16*T", "n": 2304, "k": 768},
            "target": {"kind": "cuda", "arch": arch},
        }
    )


def made_records(synthetic: bool = True) -> Records:
    """What a GPU would write whose large tiles are the more efficient ones."""
    target = {"kind": "cuda", "arch": "sm_90a"}
    device = {"id": "0" * 16, "name": "made up", "num_sms": 132, "target": target, "synthetic": synthetic}
    records = Records(workload_digest(spec_of()), device)
    blocks = list(range(18, 4 * 264, 54))
    secs = [3e-6 + 1e-5 * (-(-n // 264) * 0.5 + n / 264 * 0.5) for n in blocks]
    records.calibration = {"wave_blocks": 264, "num_blocks": blocks, "secs": secs}
    for tile, rate in zip(TILES, (2e11, 3e11, 3.6e11), strict=True):
        points = [
            {"m": m, "n": 2304, "k": k} for m, k in ((256, 768), (1024, 768), (2048, 768), (2048, 3072))
        ]
        secs = []
        for point in points:
            blocks = -(-point["m"] // tile.rows) * -(-2304 // tile.columns) * tile.splits
            waves = -(-blocks // 264) * 0.5 + blocks / 264 * 0.5
            secs.append(3e-6 + waves * 2 * tile.rows * tile.columns * point["k"] / tile.splits / rate)
        facts = KernelFacts(120, tile.shared_bytes, 0, 20000)
        records.measurements[tile] = Measurement(tile, "hardware", tuple(points), tuple(secs), facts=facts)
    spilling = CudaMicroKernel(256, 128, 16, 8, 8)
    records.measurements[spilling] = Measurement(
        spilling, "hardware", tuple(points), tuple(secs), facts=KernelFacts(255, spilling.shared_bytes, 64, 1)
    )
    return records


def made(spec: Spec, records: Records, archs: tuple[str, ...]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Files and report of a library for these architectures."""
    result = make_library(spec, known=records, archs=archs, allow_synthetic=True)
    return dict(result.files), result.report


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (0, lambda d: d["device"].pop("synthetic"), "line 1 is no tuning record: synthetic is missing"),
        (0, lambda d: d["device"].update(synthetic="no"), "allowed: true or false"),
        (0, lambda d: d["device"]["target"].update(arch="sm_91"), "no CUDA target"),
        (0, lambda d: d["device"].update(num_sms=0), "num_sms"),
        (0, lambda d: d.update(format="other"), "this version reads"),
        (1, lambda d: d.update(num_blocks=[1]), "times for 1 grids"),
        (2, lambda d: d.update(rows=101), "line 3 is no tuning record"),
        (2, lambda d: d.update(secs=[1.0]), "1 times for 4 points"),
        (2, lambda d: d["secs"].__setitem__(0, -1.0), "secs"),
        (2, lambda d: d["facts"].update(registers="many"), "registers"),
        (2, lambda d: d.update(error="failed"), "error"),
    ],
)
def test_damaged_records_are_refused(
    line: int, change: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    lines = [json.loads(json.dumps(data)) for data in made_records().lines()]
    change(lines[line])
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(data) + "\n" for data in lines))
    with pytest.raises(RecordsError, match=message):
        read_records(path)


def test_what_a_calibration_says_beside_is_not_kept() -> None:
    records = made_records()
    line = {**(records.calibration or {}), "kind": "calibration", "kappa": "0.1", "later": [[]]}
    records.apply(line)
    assert records.calibration == made_records().calibration


def test_records_of_the_other_kind_of_device_are_refused(tmp_path: Path) -> None:
    cpu = {"id": "ab12", "name": "a CPU", "target": {"kind": "llvm"}}
    paths = [tmp_path / "gpu.jsonl", tmp_path / "cpu.jsonl"]
    write_records(paths[0], made_records())
    write_records(paths[1], Records(made_records().workload, cpu))
    with pytest.raises(RecordsError, match=r"measured on a GPU, 'made up'; the target here is a CPU"):
        tune(make_spec(), tmp_path / "library", records=paths[0])
    with pytest.raises(RecordsError, match=r"measured on a CPU, 'a CPU'; the target here is a GPU"):
        tune(spec_of(), tmp_path / "library", records=paths[1])


def test_nothing_is_built_from_synthetic_records(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    write_records(path, made_records())
    with pytest.raises(RecordsError, match=r"synthetic \(made up\): no device measured them"):
        tune(spec_of(), tmp_path / "library", records=path)
    assert not (tmp_path / "library").exists()


def test_records_of_others_are_refused() -> None:
    with pytest.raises(RecordsError, match="measured on sm_90a; the spec asks for sm_80"):
        make_library(spec_of("sm_80"), known=made_records(), allow_synthetic=True)
    others = made_records()
    others.workload = "sha256:" + "0" * 64
    with pytest.raises(RecordsError, match="records of another workload"):
        make_library(spec_of(), known=others, allow_synthetic=True)


@pytest.mark.thorough
@needs_nvrtc
def test_a_library_comes_of_records(tmp_path: Path, inside: Callable[..., Any]) -> None:
    files, report = made(spec_of(), made_records(), ("sm_90a", "sm_80"))
    again, _ = made(spec_of(), made_records(), ("sm_90a", "sm_80"))
    assert files == again
    assert report["standing"] == SYNTHETIC
    assert report["dtypes"] == {"operands": "float32", "accumulate": "float32", "output": "float32"}
    assert report["calibration"]["kappa"] == pytest.approx(0.5)
    (failed,) = report["space"]["failed"]
    assert (failed["micro_kernel"], failed["error"]) == ("256x128-t16x8-k8", "spills 64 bytes a thread")
    served = {row["shape_vars"]["T"]: row["micro_kernel"] for row in report["instances"]}
    assert served[1].endswith("split4")
    assert served[128] != served[1]
    folder = tmp_path / "library"
    write_folder(folder, files)
    manifest = read_manifest(folder)
    assert manifest["requires"]["cuda"] == {"archs": ["sm_90a", "sm_80"], "ptx": "sm_90", "driver": "13.0"}
    assert manifest["alignment_bytes"] == {"X": 16, "W": 16, "Y": 16}
    assert True in manifest["has_workspace"]
    assert manifest["workspace_bytes"] == 4 * 4 * 16 * 128 * 2304
    shown = inside("inspect", folder)
    assert shown.returncode == 0, shown.stderr
    assert "sm_90a" in shown.stdout
    assert SYNTHETIC in shown.stdout
    assert "operands float32, sums float32, output float32" in shown.stdout
    assert MANIFEST in files


@pytest.mark.thorough
@needs_nvrtc
def test_a_library_of_a_convolution_comes_of_records() -> None:
    conv = {
        "name": "conv",
        "op": {"conv2d": {"padding": 1, "groups": 2}},
        "tensors": {
            "X": {"dims": "nhwc", "dtype": "float32"},
            "W": {"dims": "oirs", "dtype": "float32", "constant": True},
        },
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {"B": {"min": 1, "max": 8}},
        "dims": {"n": "B", "h": "7*B", "w": 14, "c": 32, "i": 16, "o": 64, "r": 3, "s": 3},
    }
    spec = spec_from_data(spec_of().to_json() | conv)
    records = made_records()
    records.workload, measured = workload_digest(spec), dict(records.measurements)
    records.measurements.clear()
    points = tuple(extents_of(spec, {"B": batch}) for batch in (1, 3, 8))
    for tile in (TILES[1], replace(TILES[1], tails="global")):
        secs = tuple(1e-5 * point["n"] * point["p"] * (1 + len(tile.tails)) for point in points)
        facts = measured[TILES[1]].facts
        records.measurements[tile] = Measurement(tile, "hardware", points, secs, facts=facts)
    files, report = made(spec, records, ())
    assert {row["micro_kernel"] for row in report["instances"]} == {TILES[1].name}
    manifest = json.loads(files[MANIFEST])
    assert manifest["dims"]["p"] == "7*B"
    assert manifest["inputs"]["W"]["dims"] == "oirs"
    assert manifest["has_workspace"] == [False]
    assert manifest["alignment_bytes"] == {"X": 16, "W": 16, "Y": 16}  # W is packed


@pytest.mark.long
@needs_nvrtc
def test_a_library_is_not_loaded_where_there_is_no_gpu(tmp_path: Path) -> None:
    files, _ = made(spec_of(), made_records(), ("sm_90a",))
    write_folder(tmp_path / "library", files)
    program = "import sys, dietcode; dietcode.load(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "library")],
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1] if done.stderr else ""
    if done.returncode == 0 or "no NVIDIA driver" not in last:
        pytest.skip(f"this machine has a driver: {last}")
    assert last.startswith("dietcode.errors.TargetError")
    assert last.endswith("no NVIDIA driver: libcuda.so.1 is not found; install one")
