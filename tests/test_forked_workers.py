"""Processes of pytest-xdist are copies of one that has imported the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked_workers import heed_interrupts

HERE = Path(__file__).parent
_CONFTEST = """
import os
import pytest
from forked_workers import fork_workers

imported_by = os.getpid()

def pytest_xdist_setupnodes(config, specs):
    fork_workers(config, specs)
"""
_TESTS = """
import os
from pathlib import Path
import pytest

IMPORTED_BY = os.getpid()

@pytest.mark.parametrize("turn", range(4))
def test_here(turn):
    Path(f"{turn}.pids").write_text(f"{IMPORTED_BY} {os.getppid()} {os.getpid()}")

def test_dies():
    if not Path("died").exists():
        Path("died").touch()
        os._exit(3)

def test_fails():
    assert len("four") == 5
"""


def test_what_tests_start_heeds_interrupts_under_nohup() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        heed_interrupts()
        code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    finally:
        signal.signal(signal.SIGINT, before)
    assert said == "True\n"


@pytest.mark.thorough
def test_they_import_once_and_die_alone(tmp_path: Path) -> None:
    """One that crashes is replaced, asserts are explained, and nothing is left at the end."""
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_some.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120.0
    )
    assert "crashed while running 'test_some.py::test_dies'" in ran.stdout, ran.stdout + ran.stderr
    assert "AssertionError: assert 4 == 5" in ran.stdout
    assert "2 failed, 4 passed" in ran.stdout
    said = [path.read_text().split() for path in tmp_path.glob("*.pids")]
    assert len(said) == 4
    assert len({imported for imported, _, _ in said}) == 1
    assert all(imported == parent != own for imported, parent, own in said)
    for one in {int(pid) for pids in said for pid in pids}:
        assert not Path(f"/proc/{one}").exists()
