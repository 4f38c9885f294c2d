"""Real child processes: whatever happens in one costs one result."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dietcode.measure import local, worker
from dietcode.measure.local import LocalChildren, describe


@pytest.fixture(scope="module")
def children() -> Iterator[LocalChildren]:
    before = dict(os.environ)
    made = LocalChildren(num_builders=1, num_threads=2, build_timeout_secs=2.0)
    yield made
    made.close()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a function in the place of one of the worker's; as a local function it travels by value."""

    def place(name: str, function: Any) -> None:
        monkeypatch.setattr(worker, name, function, raising=False)

    return place


def test_a_result_comes_back(children: LocalChildren, define: Any) -> None:
    define("double", lambda request: {"twice": 2 * request["n"]})
    assert children.run("double", {"n": 21}, 20.0) == {"twice": 42}


def test_the_process_stays(children: LocalChildren, define: Any) -> None:
    define("pid", lambda request: {"pid": __import__("os").getpid()})
    first = children.run("pid", {}, 20.0)
    assert first == children.run("pid", {}, 20.0)
    assert first != {"pid": os.getpid()}


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
def test_what_goes_wrong_comes_back_as_text(
    function: Any, text: str, children: LocalChildren, define: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_GRACE_SECS", 1.0, raising=False)
    define("fails", by_value(function))
    define("works", lambda request: {"pid": __import__("os").getpid()})
    first = children.run("works", {}, 30.0)
    assert isinstance(first, dict)
    started = time.monotonic()
    outcome = children.run("fails", {}, 1.0)
    assert time.monotonic() - started < 15
    assert isinstance(outcome, str)
    assert text in outcome
    assert "\n" not in outcome
    second = children.run("works", {}, 30.0)
    assert isinstance(second, dict)
    if second["pid"] != first["pid"]:
        with pytest.raises(ProcessLookupError):
            os.kill(first["pid"], 0)


def test_builds_come_back_in_order_and_failures_as_text(children: LocalChildren, define: Any) -> None:
    def build(request: Any) -> Any:
        import ctypes
        import time

        if request == "crash":
            ctypes.string_at(0)
        if request == "hang":
            time.sleep(1000)
        if request == "raise":
            raise RuntimeError("cannot be lowered")
        return {"path": request}

    define("build", build)
    outcomes = list(children.map_builds(["a", "crash", "b", "raise", "hang", "c"]))  # type: ignore[list-item]
    assert [outcomes[i] for i in (0, 2, 5)] == [{"path": "a"}, {"path": "b"}, {"path": "c"}]
    assert "ChildProcessError" in str(outcomes[1])
    assert "cannot be lowered" in str(outcomes[3])
    assert outcomes[4] == "the build did not finish in time; its process was ended"


def test_the_children_have_one_pool_of_all_cores(children: LocalChildren, define: Any) -> None:
    define("environment", lambda request: dict(__import__("os").environ))
    environment = children.run("environment", {}, 20.0)
    assert isinstance(environment, dict)
    assert environment["TVM_NUM_THREADS"] == "2"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"


def test_close_ends_the_children(define: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TVM_NUM_THREADS", "TVM_BIND_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    own = LocalChildren(1, 1)
    define("pid", lambda request: {"pid": __import__("os").getpid()})
    outcome = own.run("pid", {}, 20.0)
    own.close()
    assert isinstance(outcome, dict)
    with pytest.raises(ProcessLookupError):
        os.kill(outcome["pid"], 0)


def test_describe_is_one_short_line() -> None:
    assert describe(ValueError("a\n  b  \n\n")) == "ValueError: b"
    assert describe(ValueError()) == "ValueError"
    assert len(describe(ValueError("x" * 1000))) == 300
