"""Children that are forked: they end with their server, and it with who started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from child_processes import gone, is_child

from dietcode.lean import without_torch
from dietcode.measure import fork_server
from dietcode.measure.process_pool import CalledProcess, FailedCallError, ProcessPool

_PARENT = """
import os, time
from dietcode.measure.process_pool import CalledProcess
child = CalledProcess(os.getpid, ())
child.send(os.getpid)
print(child.recv(), flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module", autouse=True)
def lean() -> Iterator[None]:
    """Servers without PyTorch, as those of `LocalChildren`; one for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", without_torch(os.environ)["PYTHONPATH"])
        yield


@pytest.fixture
def child() -> Iterator[CalledProcess]:
    made = CalledProcess(os.getpid, ())
    yield made
    made.kill()


def called(child: CalledProcess, function: object, *arguments: object) -> object:
    child.send(function, arguments)  # type: ignore[arg-type]
    return child.recv(30.0)


def test_variables_and_folder_are_those_of_the_caller(
    child: CalledProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path))  # no reason for a server of its own
    before = called(child, os.getppid)
    other = CalledProcess(os.getpid, ())
    assert called(other, os.getenv, "DIETCODE_CACHE") == str(tmp_path)
    assert called(other, os.getcwd) == str(Path.cwd())
    assert called(other, os.getppid) == before
    other.kill()


@pytest.mark.thorough
def test_children_outlive_a_change_of_variables(
    child: CalledProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = called(child, os.getppid)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    other = CalledProcess(os.getpid, ())
    assert called(other, os.getppid) != first
    assert called(child, os.getppid) == first
    other.kill()


def test_errors_are_one_line_and_a_lost_process_is_started_again(child: CalledProcess) -> None:
    with pytest.raises(FailedCallError, match=r"^FileNotFoundError: \[Errno 2\]"):
        called(child, os.stat, "/nothing/here")
    first = called(child, os.getpid)
    with pytest.raises(ChildProcessError):
        called(child, os._exit, 3)
    second = called(child, os.getpid)
    with pytest.raises(TimeoutError):
        child.send(time.sleep, (60,))
        child.recv(0.2)
    assert len({first, second, called(child, os.getpid)}) == 3


@pytest.mark.thorough
def test_where_the_server_is_lost_another_one_starts(child: CalledProcess) -> None:
    server = psutil.Process(called(child, os.getppid))  # type: ignore[arg-type]
    server.kill()
    server.wait(60.0)
    with pytest.raises(ChildProcessError):
        called(child, os.getpid)
    assert called(child, os.getppid) != server.pid


def test_without_fork_servers_children_are_processes_of_their_own(
    child: CalledProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server.sys, "platform", "darwin")
    assert called(child, os.getppid) == os.getpid()


def test_all_end_with_a_process_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    server = child.parent()
    assert is_child(child) and server is not None and server.ppid() == parent.pid
    parent.kill()
    assert gone([child, server])
    parent.wait()
    parent.stdout.close()


def test_a_pool_that_is_closed_ends_what_has_begun() -> None:
    pool = ProcessPool(1, 30.0, os.getpid, ())
    process = psutil.Process(pool.submit(os.getpid).result())
    running, waiting = pool.submit(time.sleep, 60), pool.submit(os.getpid)
    while not running.running():  # one that has not begun is cancelled instead
        time.sleep(0.001)
    pool.close()
    with pytest.raises(ChildProcessError):
        running.result(10.0)
    process.wait(60.0)  # its server lets it go
    assert waiting.cancelled()


def test_a_copy_of_the_process_leaves_the_server_to_it() -> None:
    code = """
import os
from dietcode.measure.fork_server import ForkServer
server = ForkServer()
if os.fork() == 0:
    del server
    os._exit(0)
os.wait()
print(server.has_ended())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("False\n", "")
