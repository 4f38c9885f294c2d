"""Real child processes: whatever happens in one costs one result."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dietcode.lean import without_torch
from dietcode.measure.child_calls import describe
from dietcode.measure.child_process import ChildProcess
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.local import LocalChildren
from dietcode.measure.requests import BuildRequest, BuildResult


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Children inherit what `LocalChildren` sets; those that a test starts itself begin as lean."""
    before = dict(os.environ)
    os.environ.update(without_torch(before))
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildProcess]:
    made = ChildProcess(CpuWorker(2).start, (str(tmp_path_factory.mktemp("child")), True), None)
    yield made
    made.close()


def pid(request: Any) -> Any:
    import os

    return os.getpid()


def double(request: Any) -> Any:
    return 2 * request


def test_a_result_comes_back(runner: ChildProcess) -> None:
    assert runner.run(by_value(double), 21, 20.0, str) == 42


def test_the_process_stays(runner: ChildProcess) -> None:
    first = runner.run(by_value(pid), None, 20.0, str)
    assert first == runner.run(by_value(pid), None, 20.0, str)
    assert first != os.getpid()


def raises(request: Any) -> Any:
    raise ValueError("first line\nthe number of rows is wrong")


def segfault(request: Any) -> Any:
    import ctypes

    ctypes.string_at(0)


def killed(request: Any) -> Any:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGILL)


def hangs_in_python(request: Any) -> Any:
    import time

    time.sleep(1000)


def hangs_natively(request: Any) -> Any:
    import ctypes

    ctypes.CDLL(None).pause()


def hangs_with_the_gil(request: Any) -> Any:
    import ctypes

    ctypes.PyDLL(None).sleep(1000)


def takes_all_memory(request: Any) -> Any:
    return {"bytes": len(bytearray(40 << 30))}


def by_value(function: Any) -> Any:
    """The same function as one that the child need not import."""
    import types

    return types.FunctionType(function.__code__, {"__builtins__": __builtins__}, "travels")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (raises, "the number of rows is wrong"),
        (segfault, "ChildProcessError"),
        (killed, "ChildProcessError"),
        (hangs_in_python, "no answer within 1 s; the process was ended"),
        (hangs_natively, "no answer within 1 s; the process was ended"),
        (hangs_with_the_gil, "no answer within 1 s; the process was ended"),
        (takes_all_memory, "MemoryError"),
    ],
)
def test_what_goes_wrong_comes_back_as_text(function: Any, text: str, runner: ChildProcess) -> None:
    first = runner.run(by_value(pid), None, 30.0, str)
    assert isinstance(first, int)
    started = time.monotonic()
    outcome = runner.run(by_value(function), None, 1.0, str)
    assert time.monotonic() - started < 15
    assert isinstance(outcome, str)
    assert text in outcome
    assert "\n" not in outcome
    second = runner.run(by_value(pid), None, 30.0, str)
    assert isinstance(second, int) and second != first, "what failed ends its process"
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_builds_come_back_in_order_and_failures_as_text(tmp_path: Path) -> None:
    class Misbehaves(CpuWorker):  # in here, so that it goes there by value
        def build(self, request: BuildRequest) -> BuildResult:
            import ctypes
            import time
            from pathlib import Path

            if request.recipe == "crash":
                ctypes.string_at(0)
            if request.recipe == "hang":
                time.sleep(1000)
            if request.recipe == "raise":
                raise RuntimeError("cannot be lowered")
            Path(request.path).write_text(request.recipe)
            return BuildResult(request.path, 0, 0.0)

    children = LocalChildren(Misbehaves(1), 1, build_timeout_secs=5.0, measures=False)
    try:
        asked = ["a", "crash", "b", "raise", "hang", "c"]
        results = list(children.build([BuildRequest(str(tmp_path / name), name) for name in asked]))
    finally:
        children.close()
    built = [result.path and Path(result.path).read_text() for result in results]
    assert built == ["a", None, "b", None, None, "c"]
    assert "ChildProcessError" in str(results[1].error)
    assert "cannot be lowered" in str(results[3].error)
    assert "longer than 5 s, and its process was ended" in str(results[4].error)


def test_what_nobody_waits_for_is_not_built(tmp_path: Path) -> None:
    class Slow(CpuWorker):  # in here, so that it goes there by value
        def build(self, request: BuildRequest) -> BuildResult:
            import time
            from pathlib import Path

            Path(request.path).touch()
            time.sleep(0.5)
            return BuildResult(request.path, 0, 0.5)

    children = LocalChildren(Slow(1), 1, measures=False)
    paths = [tmp_path / name for name in "abcd"]
    try:
        for result in children.build([BuildRequest(str(path), None) for path in paths]):
            assert result.path == str(paths[0])
            break
        (last,) = children.build([BuildRequest(str(tmp_path / "last"), None)])
        left = [path.name.partition("-")[2] for path in children._handover.folder.iterdir()]
    finally:
        children.close()
    assert last.error is None
    assert "c" not in left and "d" not in left


def test_the_children_have_one_pool_of_all_cores() -> None:
    def environment(request: Any) -> dict[str, str]:
        import os

        return dict(os.environ)

    children = LocalChildren(CpuWorker(2), 1)
    try:
        found: Any = children._runner.run(environment, None, 20.0, str)
    finally:
        children.close()
    assert found["TVM_NUM_THREADS"] == "2"
    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert not Path(found["TMPDIR"]).exists()


def test_describe_is_one_short_line() -> None:
    assert describe(ValueError("a\n  b  \n\n")) == "ValueError: b"
    assert describe(ValueError()) == "ValueError"
    assert len(describe(ValueError("x" * 1000))) == 300
