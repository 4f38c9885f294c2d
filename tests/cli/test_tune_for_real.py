"""``dietcode tune`` from end to end: MetaSchedule, measuring, selecting, building, running."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from child_processes import gone
from small_libraries import ROOT, SAFE_ERROR, built, error, library_bytes, spec_data

import dietcode
from dietcode.errors import LibraryError
from dietcode.runtime.manifest import read_manifest, write_folder

# The trials end a run, not the seconds, however busy the machine: a test here wants a trial of MetaSchedule.
SPEC = spec_data(
    "tiny",
    shape_vars={"T": {"min": 1, "max": 4}},
    dims={"m": "4*T", "n": 32, "k": 24},
    budget={"trials": 8, "seconds": 400},
)


def command(cache: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start ``python -m dietcode`` with a cache of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dietcode", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"DIETCODE_CACHE": str(cache), "PYTHONFAULTHANDLER": "1"},
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str], timeout_secs: float = 270.0) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=timeout_secs)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler says where it hangs
        out, err = process.communicate(timeout=5.0)
        pytest.fail(f"no end after {timeout_secs} s: {err[-4000:]}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


def tuned(cache: Path, *arguments: object) -> tuple[dict[str, Any], str, float]:
    """Facts, progress and seconds of a run that must succeed."""
    started = time.monotonic()
    status, out, err = finished(command(cache, "tune", *arguments, "--json"))
    assert status == 0, err
    facts: dict[str, Any] = json.loads(out)
    return facts, err, time.monotonic() - started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Spec, cache and the library of one real tuning run."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "spec.json").write_text(json.dumps(SPEC))
    facts, progress, secs = tuned(folder / "cache", folder / "spec.json", "-o", folder / "lib")
    (folder / "facts.json").write_text(json.dumps(facts | {"wall_secs": secs}))
    (folder / "progress.txt").write_text(progress)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_a_tuned_library_is_right_for_every_shape(place: Path) -> None:
    library = dietcode.load(place / "lib")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 24), dtype=np.float32)
    packed = library.pack(W=w)
    for t in range(1, 5):
        x = rng.standard_normal((4 * t, 24), dtype=np.float32)
        assert error(library(X=x, W=packed), x.astype(np.float64) @ w.T.astype(np.float64)) <= SAFE_ERROR


@pytest.mark.long
def test_what_a_run_says_and_reports(place: Path) -> None:
    facts = json.loads((place / "facts.json").read_text())
    assert facts["folder"] == str(place / "lib") and facts["measured"] >= 1 and facts["micro_kernels"]
    progress = (place / "progress.txt").read_text()
    for stage in ("seed", "measure", "select", "build", "verify"):
        assert re.search(rf"^{stage}\b", progress, re.MULTILINE), progress
    report = dietcode.load(place / "lib").report
    assert report["seed"]["trials"] >= 1 and report["num_instances"] == 4
    assert all(row["predicted_gflops"] > 0 for row in report["instances"])
    assert not {"measured_gflops", "vendor"} & set(report["instances"][0]), "no benchmark figure in it"
    total = report["space"]["measured"] + len(report["space"]["failed"])
    assert total + report["seed"]["trials"] <= SPEC["budget"]["trials"] + 1


@pytest.mark.long
def test_inspect_shows_the_run(place: Path) -> None:
    status, out, err = finished(command(place / "cache", "inspect", place / "lib"))
    assert status == 0 and err == "" and "trials of MetaSchedule" in out and "Dispatch table" in out


@pytest.mark.long
def test_a_second_run_measures_nothing_and_gives_the_same_bytes(place: Path) -> None:
    facts, progress, secs = tuned(place / "cache", place / "spec.json", "-o", place / "again")
    first = json.loads((place / "facts.json").read_text())
    assert facts["measured"] == 0 and secs < first["wall_secs"], (facts, secs, first)
    assert "from the records" in progress
    assert_same(place / "lib", place / "again")


def assert_same(one: Path, other: Path) -> None:
    for name in ("library.so", "manifest.json", "dispatch.json", "report.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.long
def test_exported_records_build_the_same_library_elsewhere(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl.zst"
    status, out, err = finished(
        command(place / "cache", "records", "export", file, "--spec", place / "spec.json")
    )
    assert status == 0 and err == "" and "micro-kernels measured on" in out
    facts, progress, _ = tuned(
        tmp_path / "empty-cache", place / "spec.json", "-o", tmp_path / "lib", "--records", file
    )
    assert facts["measured"] == 0 and "MetaSchedule on" not in progress
    assert_same(place / "lib", tmp_path / "lib")
    status, out, err = finished(command(tmp_path / "other-cache", "records", "import", file))
    assert status == 0 and not out.startswith(f"{file}: 0 ") and err == ""
    status, out, _ = finished(command(tmp_path / "other-cache", "records", "import", file))
    assert status == 0 and out.startswith(f"{file}: 0 micro-kernels added")


@pytest.mark.long
def test_records_of_another_workload_are_refused(place: Path, tmp_path: Path) -> None:
    (file,) = (place / "cache" / "records").rglob("*.jsonl")
    (tmp_path / "other.json").write_text(json.dumps(SPEC | {"dims": {"m": "4*T", "n": 32, "k": 25}}))
    status, out, err = finished(
        command(
            tmp_path / "cache", "tune", tmp_path / "other.json", "-o", tmp_path / "lib", "--records", file
        )
    )
    assert status in {1, 2} and out == "" and err.count("\n") == 1 and "workload" in err, err
    assert not (tmp_path / "lib").exists()


def interrupted_at(process: subprocess.Popen[str], stage: str) -> tuple[int, str, list[psutil.Process]]:
    """Send SIGINT to the program alone once `stage` has ended; its status, last line and children then."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith(stage):
            break
    time.sleep(0.5)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    status, out, rest = finished(process, 30.0)
    assert time.monotonic() - sent < 20
    assert out == "", out
    return status, rest, children


@pytest.mark.thorough
@pytest.mark.parametrize("stage", ["seed", pytest.param("calibrate", marks=pytest.mark.long)])
def test_an_interrupted_run_ends_at_once_and_goes_on_later(tmp_path: Path, stage: str) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC | {"name": "interrupted"}))
    cache = tmp_path / "cache"
    status, rest, children = interrupted_at(command(cache, "tune", spec, "-o", tmp_path / "lib"), stage)
    assert status == 130, (status, rest)
    last = [line for line in rest.splitlines() if not re.match(r"^(calibrate|seed|measure)\b", line)]
    assert len(last) == 1 and last[0].startswith("dietcode: interrupted"), rest
    assert gone(children), children
    assert [p.name for p in tmp_path.iterdir() if p.name not in {"spec.json", "cache"}] == []
    if stage == "calibrate":  # while micro-kernels are measured
        facts, _, _ = tuned(cache, spec, "-o", tmp_path / "lib")
        assert facts["measured"] >= 1
        assert read_manifest(tmp_path / "lib")["name"] == "interrupted"


def test_a_full_disk_leaves_nothing_half_written(mount_disk: Callable[[str], Path | None]) -> None:
    full_disk = mount_disk("32k")
    if full_disk is None:
        return
    with pytest.raises(LibraryError, match="No space left on device") as caught:
        write_folder(full_disk / "lib", library_bytes("dense"))
    assert "\n" not in str(caught.value) and str(full_disk / "lib") in str(caught.value)
    assert list(full_disk.iterdir()) == []


@pytest.mark.long
def test_tuning_where_the_last_file_does_not_fit(place: Path, tmp_path: Path) -> None:
    """The code fits into 1 MiB, the report of 4000 instances does not."""
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC | {"shape_vars": {"T": {"min": 1, "max": 4000}}}))
    process = command(place / "cache", "tune", spec, "-o", tmp_path / "out" / "lib", "--trials", "2")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    status, out, err = finished(process)
    assert status == 1 and out == ""
    assert "Traceback" not in err and err.splitlines()[-1].startswith("dietcode: "), err
    assert "File too large" in err
    assert not any(path.name != "spec.json" and path.is_file() for path in tmp_path.rglob("*"))


def test_a_file_size_limit_is_a_full_disk_without_root(tmp_path: Path) -> None:
    """The same failure where nothing can be mounted."""
    source = built("dense")
    script = """
import resource, signal, sys
from pathlib import Path
from dietcode.errors import LibraryError
from dietcode.runtime.manifest import write_folder
source = Path(sys.argv[1])
files = {str(p.relative_to(source)): p.read_bytes() for p in source.rglob("*") if p.is_file()}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    write_folder(Path(sys.argv[2]) / "lib", files)
except LibraryError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "cannot be written: File too large" in done.stdout
    assert list(tmp_path.iterdir()) == []
