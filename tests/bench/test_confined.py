"""The bench in a process of its own: its limits hold, and what it has measured stands however it ends."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from quiet_machine import nothing_disturbs
from small_libraries import SAFE_ERROR, built

from dietcode.bench import confined
from dietcode.bench.compare import bench, coarse_first
from dietcode.bench.confined import HaltedError, confined_bench, vendor_of


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may run beside these, and take the processor from a process that starts."""
    monkeypatch.setattr(confined, "_START_SECS", 200.0)


@pytest.mark.thorough
def test_records_of_a_confined_bench() -> None:
    found = list(confined_bench(built("rows"), "numpy", 2, 8.0, num_instances=3))
    assert sorted(record["shape_vars"]["M"] for record in found) == [1, 36, 70] or len(found) == 3
    for record in found:
        assert set(record["vendors"]) == {"numpy"} and record["vendor_gflops"] > 0
        assert record["measured_gflops"] > 0 and record["max_rel_error"] <= SAFE_ERROR


def a_torch(folder: Path, code: str) -> Path:
    """A module of that name, for processes that have the folder on their path; its import runs `code`."""
    folder.mkdir()
    (folder / "torch.py").write_text(code)
    return folder


def with_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def test_what_a_confined_bench_may_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import json, os, resource, socket
try:
    socket.socket()
    network = "open"
except PermissionError:
    network = "refused"
facts = {
    "network": network,
    "memory": resource.getrlimit(resource.RLIMIT_AS)[0],
    "file": resource.getrlimit(resource.RLIMIT_FSIZE)[0],
    "token": os.environ.get("DIETCODE_TOKEN"),
    "threads": os.environ.get("OPENBLAS_NUM_THREADS"),
}
raise RuntimeError(json.dumps(facts))
"""
    with_path(monkeypatch, a_torch(tmp_path / "modules", code))
    monkeypatch.setenv("DIETCODE_TOKEN", "secret")
    with pytest.raises(HaltedError, match="RuntimeError: ") as raised:
        list(confined_bench(built("rows"), "torch", 2, 2.0, num_instances=1))
    assert json.loads(str(raised.value).removeprefix("RuntimeError: ")) == {
        "network": "refused",
        "memory": 16 << 30,
        "file": 1 << 30,
        "token": None,
        "threads": "2",
    }


def test_a_torch_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_path(monkeypatch, a_torch(tmp_path / "modules", "raise ImportError"))
    heard: list[str] = []
    found = list(confined_bench(built("rows"), "torch", 2, 2.0, num_instances=1, on_alone=heard.append))
    (reason,) = heard
    assert re.match(r"(--vs )?torch needs torch: pip install ", reason) and found[0]["vendor"] is None


def test_a_bench_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_path(monkeypatch, a_torch(tmp_path / "modules", "import time; time.sleep(600)"))
    monkeypatch.setattr(confined, "_START_SECS", 1.0)
    begun = time.monotonic()
    with pytest.raises(HaltedError, match="longer than 2 s"):
        list(confined_bench(built("rows"), "torch", 2, 0.5))
    assert time.monotonic() - begun < 20


def test_a_bench_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_path(monkeypatch, a_torch(tmp_path / "modules", "import os; os.abort()"))
    with pytest.raises(HaltedError, match="status -6"):
        list(confined_bench(built("rows"), "torch", 2, 1.0))


@pytest.mark.long
def test_a_folder_that_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(HaltedError, match="is this a library folder"):
        list(confined_bench(tmp_path, "numpy", 2, 1.0))


@pytest.mark.long
def test_a_bench_that_is_closed_leaves_no_process() -> None:
    import psutil

    found = confined_bench(built("rows"), "numpy", 2, 30.0)
    next(found)
    (child,) = [p for p in psutil.Process().children() if "dietcode.bench.confined" in p.cmdline()]
    found.close()
    assert not child.is_running()


def test_with_little_time_fewer_instances_are_measured_and_they_lie_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing_disturbs(monkeypatch)  # what is disturbed would come last
    found: list[int] = []
    secs = 0.25
    while not found:  # a busy machine comes to none so soon
        secs *= 2
        found = [r["shape_vars"]["M"] for r in bench(built("rows"), [], until=time.monotonic() + secs)]
    assert 1 <= len(found) < 16 and found[0] == 1
    assert list(bench(built("rows"), [], until=time.monotonic() - 1.0)) == []
    everything: list[Any] = list(bench(built("rows"), [], num_instances=3, until=time.monotonic() + 60.0))
    assert len(everything) == 3


@pytest.mark.parametrize("total", [0, 1, 2, 3, 16, 33])
def test_coarse_first_is_each_index_once(total: int) -> None:
    order = coarse_first(total)
    assert sorted(order) == list(range(total))
    for count in range(2, total + 1):
        first = sorted(order[:count])
        gaps = [b - a for a, b in itertools.pairwise(first)]
        assert max(gaps) <= 2 * (total - 1) / (count - 1) + 1


def test_which_vendor_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vendor_of("numpy") == "numpy" and vendor_of("torch") == "torch"
    monkeypatch.setattr(confined, "has_torch", lambda: False)
    assert vendor_of("auto") == "numpy"
    monkeypatch.setattr(confined, "has_torch", lambda: True)
    assert vendor_of("auto") == "torch"


@pytest.mark.parametrize("line", ["[1]", "3", "[" * 60000, '"error"'])
def test_lines_that_are_no_records(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = built("rows")
    code = f"""
import os
for descriptor in range(3, 30):
    try:
        os.write(descriptor, b'''{line}''' + b"\\n")
    except OSError:
        pass
os._exit(0)
"""
    with_path(monkeypatch, a_torch(tmp_path / "modules", code))
    with contextlib.suppress(HaltedError):
        assert list(confined_bench(folder, "torch", 2, 2.0, num_instances=1)) == []
