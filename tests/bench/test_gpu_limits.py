"""What bounds the GPU's one command: its time, what may be taken along, and compilers of others that fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from needs import needs_emulated_driver, needs_nvrtc, of_extra

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
sys.path.extend([str(GPU), str(ROOT / "tests" / "search_space"), str(ROOT / "tests" / "library")])
# The command itself, with its bounds of ten minutes scaled down.
SCALED = """
import sys, sequence
sequence._LEAST_SECS, sequence._LATE_SECS, sequence._CHOOSE_SECS = 2.0, {late}, 30.0
steps = sequence.steps
def scaled(*arguments):
    found = steps(*arguments)
    code = "import sys, compare; compare.BASELINE_SECS = {baseline}; compare.main()"
    return found | {{"compare": ["-c", code, *found["compare"][1:]]}}
sequence.steps = scaled
sequence.main()
"""


@pytest.fixture(scope="module")
def borrowed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Packs of two plain products, one with MetaSchedule's kernels, and the environment of their machine."""
    pytest.importorskip("torch", reason=of_extra("bench"))
    from emulated_driver import driver_folder, load_driver
    from emulated_gpu import emulate
    from packed import Pack
    from test_gpu_alone import emulate_alone
    from test_gpu_run import DENSE, SPECS, TILES, spec_of

    from benchmarks.gpu.pack import pack_alone, write_pack
    from dietcode.target.cuda import CudaTarget

    load_driver()
    folder, target = tmp_path_factory.mktemp("limits"), CudaTarget("sm_90a")
    plain = spec_of("plain", DENSE | {"op": {"einsum": "mk,nk->mn"}})
    for spec in (plain, SPECS["two"]):
        place = folder / spec.name / "pack"
        assert list(write_pack(place, spec, target, [(tile, "hardware") for tile in TILES[:2]])) == []
        pack = Pack(place)
        for candidate in pack.facts["candidates"]:
            emulate(pack.file(f"{candidate['file']}.cubin"), pack.file(f"{candidate['file']}.cu").decode())
    pack_alone(folder / "plain" / "pack", plain, target, 2, 2)
    emulate_alone(folder / "plain" / "pack")
    return folder, os.environ | {
        "PYTHONPATH": str(Path(__file__).parent / "borrowed"),
        "LD_LIBRARY_PATH": f"{driver_folder()}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "OMP_NUM_THREADS": "1",
    }


def command(
    folder: Path, results: Path, secs: float, *, late: float = 60.0, baseline: float = 60.0, most: str = ""
) -> list[str]:
    code = SCALED.format(late=late, baseline=baseline)
    options = ["--folder", str(folder), "--results", str(results), "--secs", str(secs)]
    options += ["--kept", str(results / "kept"), "--archive", str(results / "out.tar.gz")]
    return [sys.executable, "-c", code, "run", *(most.split() or ("plain", "two")), *options]


def compared(results: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / name / "compared.json").read_text())
    return found


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@needs_nvrtc
@needs_emulated_driver
@pytest.mark.parametrize("compiler", ["triton", "torch.compile"])
def test_others_compilers_and_metaschedule_are_compared_by_the_one_command(
    compiler: str, borrowed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Apart: the interpreter in the place of Triton has not all that tracing asks Triton for."""
    folder, environment = borrowed
    given = command(folder, tmp_path / "out", 3000, most="plain")
    own = {
        "triton": {"PYTHONPATH": f"{environment['PYTHONPATH']}:{Path(__file__).parent / 'interpreted'}"},
        "torch.compile": {"BORROWED_COMPILER": "traces"},
    }[compiler]
    done = subprocess.run(given, env=environment | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = compared(tmp_path / "out", "plain")
    assert found["complete"] and found["running"] is None
    assert set(found["missing"]) == ({"triton"} if compiler == "torch.compile" else set())
    rates = [{name for name, rate in row["others"].items() if rate} for row in found["instances"]]
    assert all({"cublas", compiler} <= row for row in rates)
    alone = [index for index, row in enumerate(rates) if "metaschedule-alone" in row]
    assert len(alone) == 2 and found["instances"][alone[-1]]["index"] == 23  # the largest is one of them
    assert set(found["metaschedule-alone"]["trials"].values()) == {2}
    worst = max(max(row["others_max_rel_error"].values()) for row in found["instances"])
    assert worst < 1e-5
    with tarfile.open(tmp_path / "out" / "out.tar.gz") as archive:
        names = set(archive.getnames())
    assert {"plain/compared.json", "plain/records.jsonl", "plain/alone.jsonl"} <= names
    assert not any(name.startswith("plain/chosen") for name in names)  # nothing goes on from it


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@needs_nvrtc
@needs_emulated_driver
@pytest.mark.parametrize("compiler", ["raises", "hangs"])
def test_a_compiler_that_fails_costs_its_rows_alone(
    compiler: str, borrowed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = borrowed
    given = command(folder, tmp_path / "out", 3000, baseline=20.0, most="two")
    done = subprocess.run(
        given, env=environment | {"BORROWED_COMPILER": compiler}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = compared(tmp_path / "out", "two")
    assert found["complete"]
    assert all(row["others"]["cublas"] for row in found["instances"])
    failed = [row["failed"]["torch.compile"] for row in found["instances"] if "failed" in row]
    if compiler == "raises":
        assert set(failed) == {"no C compiler is found"} and len(failed) == len(found["instances"])
    else:
        assert failed == ["took too long"]  # once: it is not asked again
        assert found["missing"]["torch.compile"].startswith("took longer than 20 s at {'T': 12")


@needs_nvrtc
@needs_emulated_driver
@pytest.mark.long
@pytest.mark.parametrize("hanging", ["compare", "measure"])
def test_the_command_ends_in_time_whatever_is_running(
    hanging: str, borrowed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """A compiler, or a kernel, that does not come back within the whole run: what was known is there."""
    folder, environment = borrowed
    results, secs = tmp_path / "out", 90.0
    if hanging == "compare":  # with its choice at hand
        from sequence import steps

        (results / "plain").mkdir(parents=True)
        ahead = steps(
            folder / "plain" / "pack", results / "plain", {"measure": 3000, "alone": 1, "compare": 1}
        )
        for name in ("measure", "choose"):
            subprocess.run([sys.executable, *ahead[name]], env=environment, check=True, capture_output=True)
    names_of = {"compare": "plain", "measure": "plain two"}
    hangs = {"compare": {"BORROWED_COMPILER": "hangs"}, "measure": {"BORROWED_LAUNCHES": "3"}}[hanging]
    started = time.monotonic()
    done = subprocess.run(
        command(folder, results, secs, late=1.0, baseline=3000.0, most=names_of[hanging]),
        env=environment | hangs,
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - started < secs + 20.0
    assert done.returncode == 1 and f"failed: plain ({hanging if hanging == 'compare' else ''}" in done.stderr
    said = [line.split(":")[0] for line in done.stdout.splitlines() if re.search(r": \d+ s$", line)]
    assert said[0] == "plain"  # what was named first comes first
    for path in results.glob("*/*.jsonl"):
        assert all(json.loads(line) for line in path.read_text().split("\n")[:-1])
    with tarfile.open(results / "out.tar.gz") as archive:
        names = archive.getnames()
    if hanging == "measure":
        assert "plain: nothing is compared yet" in done.stdout and not any("compared" in n for n in names)
        return
    assert "plain/compared.json" in names and "plain/chosen" in names
    found = compared(results, "plain")
    assert not found["complete"] and found["running"] == {"baseline": "torch.compile", "index": 23}
    assert found["instances"] and all(row["others"]["cublas"] for row in found["instances"])
    assert "; ended in torch.compile, at instance 23" in done.stdout


def test_packs_that_are_too_many_are_left_out_the_least_telling_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sequence import WORKLOADS, leave_out, tree_bytes

    names = list(WORKLOADS)
    for name, size in zip(names, (30, 20, 40, 5), strict=False):
        (tmp_path / "gpu" / name / "pack").mkdir(parents=True)
        (tmp_path / "gpu" / name / "pack" / "kernels.zip").write_bytes(bytes(size << 20))
    moved = leave_out(tmp_path / "gpu", 60 << 20)
    assert moved == [
        f"{names[2]} (does not fit: 40.0 MiB; moved to {tmp_path / 'gpu-left-out' / names[2] / 'pack'})"
    ]
    assert (tmp_path / "gpu-left-out" / names[2] / "pack" / "kernels.zip").is_file()
    kept = sorted(path.parent.name for path in (tmp_path / "gpu").glob("*/pack"))
    assert kept == sorted([names[0], names[1], names[3]])
    assert "3 packs, 55.0 of 60.0 MiB beside the tree" in capsys.readouterr().out
    assert leave_out(tmp_path / "gpu", 60 << 20) == []
    assert tree_bytes() > 1 << 20


@pytest.mark.parametrize(
    ("properties", "version", "nvcc", "fatal", "note"),
    [
        (("NVIDIA H100 80GB HBM3", 132, (9, 0)), 13000, None, None, None),
        (("NVIDIA H200", 132, (9, 0)), 13010, "/usr/bin/nvcc", None, None),
        (("NVIDIA H100", 132, (9, 0)), 12040, None, "for CUDA 12.4, packed code for CUDA 13.0, and", None),
        (("NVIDIA H100", 132, (9, 0)), 12040, "/usr/bin/nvcc", None, "/usr/bin/nvcc compiles each workload"),
        (("NVIDIA A100", 108, (8, 0)), 13000, None, "of sm_80; packs are for sm_90a: pack again with", None),
        (("NVIDIA H100 MIG 1g.10gb", 16, (9, 0)), 13000, None, None, "16 multiprocessors: a part of a GPU"),
    ],
)
def test_what_a_machine_lacks_is_said_at_once(
    properties: Any,
    version: int,
    nvcc: str | None,
    fatal: str | None,
    note: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import first_contact

    name, num_sms, (major, minor) = properties
    facts = SimpleNamespace(name=name, multi_processor_count=num_sms, major=major, minor=minor)
    cuda = SimpleNamespace(get_device_properties=lambda _: facts, mem_get_info=lambda: (70 << 30, 80 << 30))
    monkeypatch.setattr(first_contact, "driver_version", lambda: version)
    monkeypatch.setattr(first_contact, "_queried", lambda query: [])
    monkeypatch.setattr(first_contact.shutil, "which", lambda one: nvcc if one == "nvcc" else f"/bin/{one}")
    monkeypatch.setattr(first_contact.importlib.util, "find_spec", lambda one: object())
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "pack.json").write_text(json.dumps({"arch": "sm_90a", "commit": "a"}))
    torch = SimpleNamespace(cuda=cuda)
    if fatal is None:
        first_contact.check(torch, [tmp_path / "pack"], tmp_path / "results")
    else:
        with pytest.raises(SystemExit, match=fatal) as ended:
            first_contact.check(torch, [tmp_path / "pack"], tmp_path / "results")
        assert "\n" not in str(ended.value)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == (note is not None) and (note or "") in "".join(said)


def test_missing_programs_and_places_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import first_contact

    facts = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132, major=9, minor=0)
    cuda = SimpleNamespace(get_device_properties=lambda _: facts, mem_get_info=lambda: (1 << 30, 80 << 30))
    monkeypatch.setattr(first_contact, "driver_version", lambda: 13000)
    monkeypatch.setattr(first_contact, "_queried", lambda query: ["1, 400"] if "apps" in query else [])
    monkeypatch.setattr(first_contact.shutil, "which", lambda one: None)
    monkeypatch.setattr(first_contact.importlib.util, "find_spec", lambda one: None)
    (tmp_path / "results").write_text("a file")
    fatal, notes = first_contact.problems(SimpleNamespace(cuda=cuda), [], tmp_path / "results")
    assert [line.split(":")[0] for line in fatal] == [
        "NumPy is not installed for this Python",
        str(tmp_path / "results"),
    ]
    for expected in (
        "Triton is not installed",
        "no C compiler",
        "1.0 GiB of the GPU's memory",
        "1 other proc",
    ):
        assert any(expected in line for line in notes), expected
    own: dict[str, str] = {"TRITON_CACHE_DIR": "/mine"}
    first_contact.use_caches(own, tmp_path)
    assert own == {"TRITON_CACHE_DIR": "/mine", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torchinductor")}


def test_results_of_another_gpu_or_commit_are_set_aside(tmp_path: Path) -> None:
    from first_contact import set_aside

    results, pack = tmp_path / "dense", tmp_path / "pack"
    pack.mkdir()
    (pack / "pack.json").write_text(json.dumps({"commit": "a"}))
    assert set_aside(results, pack, "H100") is None
    for device, commit, stays in (("H100", "a", True), ("H200", "a", False), ("H100", "b", False)):
        results.mkdir(exist_ok=True)
        header = {"device": {"name": device}, "made": {"commit": commit}}
        (results / "records.jsonl").write_text(json.dumps(header) + "\n")
        said = set_aside(results, pack, "H100")
        assert (said is None) == stays == results.exists()
        assert stays or f"results of {device}, commit {commit}, are not gone on with" in str(said)
    assert sorted(path.name for path in tmp_path.glob("dense*")) == ["dense.aside1", "dense.aside2"]
