"""What all tests share: a cache folder of their own, groups for pytest-xdist, and the golden texts."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import compile_cache
import pytest
from forked_workers import find_modules_again, fork_workers, heed_interrupts
from hypothesis import settings
from skip_summary import say_skips
from threadpoolctl import threadpool_limits

from dietcode.lean import import_less_of_tvm

# Servers with tokens run jobs also where no kernel confines them; the tests of that unset it.
os.environ.setdefault("DIETCODE_SERVE_UNCONFINED_JOBS", "1")
# Threads of TVM that have done their part look for more for a tenth of a second; others here have some.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
import_less_of_tvm()  # as every command does; it takes TVM longer than all the rest of it
os.fsync = lambda _: (
    None
)  # in this process: what a power cut would lose is not tested, and a disk takes its time
gc.disable()  # until all is collected, and stays: looking through it took each process five seconds

_numbers = count()
HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
DURATIONS = HERE / "durations.txt"
# Files that stay in one process, one after the other; any other file is a group of its own.
_GROUPS = {
    "one by one": (  # these tune for real, and would wait for each other
        "cli/test_tune_for_real.py",
        "docs/test_tutorial.py",
        "server/engine/test_kills.py",
        "server/engine/test_service_for_real.py",
    ),
    "engines": ("engines/",),  # these count the seconds of what they measure
    "browser": ("dashboard/test_browser", "dashboard/test_no_browser.py"),  # share a server that has tuned
    "docs": ("docs/test_complete.py", "docs/test_pages.py"),  # share the built pages
    "kinds": (  # run the same code
        "search_space/test_guard_pages.py",
        "search_space/test_kinds.py",
        "search_space/test_row_blocks.py",
    ),
}
_LONG = bool(os.environ.get("DIETCODE_TEST_LONG"))
_BRIEF = bool(os.environ.get("DIETCODE_TEST_BRIEF"))  # as `make test` has it; without it, `make test-full`

settings.register_profile("brief", max_examples=10, deadline=None)
settings.register_profile("short", max_examples=30, deadline=None)
settings.register_profile("long", max_examples=100, deadline=None)
settings.load_profile("long" if _LONG else "brief" if _BRIEF else "short")
_MANY = 4
# Reasons that nobody can install away: rights, a kernel, a processor.
_NOT_INSTALLED = (
    "this CPU ",
    "needs root, for mounts",
    "needs the right to make namespaces",
    "needs Linux namespaces",
    "this kernel or container has no Landlock",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is generated to tests/golden/")
    parser.addoption("--update-durations", action="store_true", help=f"write {DURATIONS.name}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    fork_workers(config, specs)


def pytest_sessionstart(session: pytest.Session) -> None:
    heed_interrupts()
    find_modules_again()
    if not hasattr(session.config, "workerinput"):
        compile_cache.forget_old()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage again, but none among what was imported and what the tests are.

    And seldom: PyTorch's graphs, which tests make by the thousand, were looked through 2000 times in twenty
    seconds, which took four of them.
    """
    threadpool_limits(1, "blas")  # NumPy's threads wait awake, too, and products here are small
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 50, 1000)


@cache
def _group(path: Path) -> str:
    name = path.relative_to(HERE).as_posix()
    return next((group for group, begins in _GROUPS.items() if name.startswith(begins)), name)


def _recorded() -> dict[str, float]:
    """Seconds of each group, by `DURATIONS`; a file that is not in it is new, and short."""
    found: dict[str, float] = defaultdict(float)
    for line in DURATIONS.read_text(encoding="utf-8").splitlines():
        secs, name = line.split()
        found[_group(HERE / name)] += float(secs)
    return found


def _sample(items: list[pytest.Item]) -> None:
    """Of a test marked ``sampled(keep=N)`` leave all but N evenly spread cases to `make test-long`.

    Of these, and of a test that has `_MANY` cases without the marker, `make test` runs a third.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("long"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        marker = found[0].get_closest_marker("sampled")
        keep = min(marker.kwargs["keep"], len(found)) if marker else len(found)
        if _BRIEF and (marker or len(found) >= _MANY):
            keep = -(-keep // 3)
        kept = {(2 * number + 1) * len(found) // (2 * keep) for number in range(keep)}
        for position, item in enumerate(found):
            if position not in kept:
                item.add_marker(pytest.mark.long)


def _is_left(item: pytest.Item) -> bool:
    """Whether a longer run has it."""
    return bool(item.get_closest_marker("long") or (_BRIEF and item.get_closest_marker("thorough")))


@pytest.hookimpl(tryfirst=True)  # xdist's own reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests to longer runs; begin with the groups that take longest.

    Else one process would be left with one of them at the end, and the others with nothing.
    """
    if not _LONG:
        _sample(items)
        left = [item for item in items if _is_left(item)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not _is_left(item)]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item.path)))
    secs = _recorded()
    items.sort(key=lambda item: (-secs[_group(item.path)], item.path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was skipped; write the seconds of each file that takes a second, where that is asked for."""
    say_skips(terminalreporter)
    if not config.getoption("--update-durations"):
        return
    secs: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                secs[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration
    longest = sorted(secs.items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [f"{seconds:7.1f} {name}\n" for name, seconds in longest if seconds >= 1.0]
    DURATIONS.write_text("".join(lines), encoding="utf-8")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With DIETCODE_NO_SKIPS, as in CI, a skipped test fails the run: what it needs was to be installed.

    But for rights, a kernel and a processor, which nobody can install.
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
