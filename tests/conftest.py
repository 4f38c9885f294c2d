"""What all tests share: a cache folder of their own, and the golden texts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from skip_summary import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]
_numbers = count()
GOLDEN = Path(__file__).parent / "golden"
# Whose tests tune for real: one after the other, beside the others.
_ONE_BY_ONE = (
    "cli/test_tune_for_real.py",
    "client/test_client_real_server.py",
    "docs/test_tutorial.py",
    "engines/",
    "server/engine/test_kills.py",
    "server/engine/test_service_for_real.py",
)
# The second calls what the first has compiled.
_KINDS = ("search_space/test_guard_pages.py", "search_space/test_kinds.py")
# Groups that take longest begin first, so that no process is left with one of them at the end.
_LONG = (
    "one by one",
    "dashboard",
    "kinds",
    "deploy/test_containers.py",
    "server/engine/test_workers.py",
    "deploy/test_ray_containers.py",
    "server/engine/test_storm.py",
    "tuner/test_memory.py",
)
# What tests/deploy/containers.py says where it can make none.
_NOT_INSTALLED = ("needs root, for mounts", "needs the right to make namespaces", "needs Linux namespaces")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is generated to tests/golden/")


@pytest.hookimpl(tryfirst=True)  # xdist's own reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests to `make test-long`; begin with the groups that take longest.

    Each file stays in one process, with what it compiled; the dashboard's files share a server.
    """

    if not os.environ.get("DIETCODE_TEST_LONG"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]

    def group(item: pytest.Item) -> str:
        name = item.path.relative_to(Path(__file__).parent).as_posix()
        if name.startswith(_ONE_BY_ONE):
            return "one by one"
        if name in _KINDS:
            return "kinds"
        return "dashboard" if name.startswith("dashboard/") else name

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    ranks = {name: rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: ranks.get(group(item), len(_LONG)))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With DIETCODE_NO_SKIPS, as in CI, a skipped test fails the run: what it needs was to be installed.

    But for rights and a kernel, which nobody can install.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    lacking = [report for report in skipped if not any(why in str(report.longrepr) for why in _NOT_INSTALLED)]
    if os.environ.get("DIETCODE_NO_SKIPS") and exitstatus == 0 and lacking:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def own_places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for those of `own_cache`: pytest looks through all of its own for each that it makes."""
    return tmp_path_factory.mktemp("own")


@pytest.fixture(autouse=True)
def own_cache(own_places: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache, or the keys that the user trusts; no server compares.

    Comparing takes ten seconds a job: tests of it ask for it.
    """
    place = own_places / str(next(_numbers))
    folder, trust = place / "cache", place / "trust"
    folder.mkdir(parents=True)
    trust.mkdir()
    monkeypatch.setenv("DIETCODE_CACHE", str(folder))
    monkeypatch.setenv("DIETCODE_TRUST", str(trust))
    monkeypatch.setenv("DIETCODE_SERVE_COMPARE", "none")
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with ``tests/golden/NAME.txt``."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; is it meant? --update-golden"

    return compare


@pytest.fixture
def inside(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what `dietcode` does, but in this process: importing the compiler takes seconds."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dietcode", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", [*sys.path])  # commands that tune leave PyTorch out
        capsys.readouterr()
        from dietcode.cli import main

        status: Any = 0
        try:
            main()
        except SystemExit as stop:
            status = stop.code or 0
        return subprocess.CompletedProcess([], status, *capsys.readouterr())

    return call


@pytest.fixture
def mount_disk(tmp_path: Path) -> Iterator[Callable[[str], Path | None]]:
    """Return a function that mounts a file system of some size; it gives None where none can be mounted.

    The tests that set a limit on file sizes instead hold there too.
    """
    mounted: list[Path] = []

    def mount(size: str) -> Path | None:
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
