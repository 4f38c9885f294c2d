"""What a confined process cannot do; each in a process of its own, as there is no way back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dietcode.confinement import kept_environment

SECCOMP = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
HEAD = """
import json, os, resource, socket, subprocess, sys, tempfile, threading
from dietcode.confinement import confine
found = {}
"""
TAIL = """
print(json.dumps(found))
"""


def confined(code: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code + TAIL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@SECCOMP
def test_no_thread_and_no_child_reaches_a_network() -> None:
    found = confined(
        """
def attempt(family):
    try:
        socket.socket(family).close()
        return "got one"
    except PermissionError:
        return "refused"

found["before"] = attempt(socket.AF_INET)
found["done"] = confine()
families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK)
found["families"] = [attempt(family) for family in families]
thread = threading.Thread(target=lambda: found.update(thread=attempt(socket.AF_INET)))
thread.start(); thread.join()
child = "import socket\\ntry: socket.socket()\\nexcept PermissionError: print('refused')"
found["child"] = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip()
a, b = socket.socketpair(); a.send(b"x"); found["pair"] = b.recv(1).decode()
"""
    )
    assert (found["before"], found["done"], found["pair"]) == ("got one", True, "x")
    assert {*found["families"], found["thread"], found["child"]} == {"refused"}


@SECCOMP
def test_the_driver_of_a_gpu_may_listen_and_nothing_connects() -> None:
    found = confined(
        """
def attempt(family, kind=socket.SOCK_STREAM):
    try:
        with socket.socket(family, kind) as made:
            made.bind(chr(0) + f"dietcode-{os.getpid()}-{kind}")
            made.listen()
        return "listens"
    except PermissionError:
        return "refused"

server = socket.socket(socket.AF_UNIX); server.bind(chr(0) + f"dietcode-{os.getpid()}"); server.listen()
found["done"] = confine(drives_gpu=True)
kinds = (socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW)
found["local"] = [attempt(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC) for kind in kinds]
found["network"] = [attempt(family) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)]
try:
    socket.socket(socket.AF_UNIX).connect(server.getsockname())
except PermissionError:
    found["connected"] = "refused"
a, b = socket.socketpair(); a.send(b"x"); found["pair"] = b.recv(1).decode()
"""
    )
    assert found["done"]
    assert found["local"] == ["listens", "listens", "refused", "refused"]
    assert {*found["network"], found["connected"]} == {"refused"}
    assert found["pair"] == "x"


def test_files_memory_and_core_dumps_are_bounded(tmp_path: Path) -> None:
    found = confined(
        """
confine(max_bytes=4 << 30, temporary=os.environ["TMPDIR"])
for name in ("AS", "FSIZE", "CORE"):
    found[name] = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
try:
    bytearray(5 << 30)
except MemoryError:
    found["memory"] = "refused"
with tempfile.NamedTemporaryFile() as file:
    found["temporary"] = os.path.dirname(file.name)
    try:
        os.posix_fallocate(file.fileno(), 0, 2 << 30)
    except OSError as error:
        found["file"] = error.strerror
""",
        TMPDIR=str(tmp_path),
    )
    assert (found["AS"], found["CORE"]) == ([4 << 30, 4 << 30], [0, 0])
    assert found["FSIZE"] == [1 << 30, 1 << 30]
    assert (found["memory"], found["file"]) == ("refused", "File too large")
    assert found["temporary"] == str(tmp_path)


def test_secrets_of_the_environment_are_gone() -> None:
    found = confined("confine()\nfound['names'] = sorted(os.environ)", DIETCODE_TOKEN="t", AWS_SECRET="s")
    assert "PATH" in found["names"]
    assert not {"DIETCODE_TOKEN", "AWS_SECRET"} & set(found["names"])
    assert kept_environment({"DIETCODE_TOKEN": "t", "PATH": "/bin", "TVM_NUM_THREADS": "2"}) == {
        "PATH": "/bin",
        "TVM_NUM_THREADS": "2",
    }


@SECCOMP
def test_children_that_build_and_measure_are_confined() -> None:
    from dietcode.measure.cpu_worker import CpuWorker
    from dietcode.measure.local import LocalChildren

    def attempt() -> list[str]:
        import os
        import resource
        import socket

        try:
            socket.socket().close()
        except PermissionError:
            return ["refused", os.environ["TMPDIR"], str(resource.getrlimit(resource.RLIMIT_CORE)[0])]
        return ["got one"]

    children = LocalChildren(CpuWorker(1))
    try:
        children._runner.started.wait(60)
        children._runner.process.send(attempt)
        measuring = children._runner.process.recv()
        building = children._builders.submit(attempt).result(60)
        assert Path(measuring[1]).is_dir()
    finally:
        children.close()
    assert measuring == building == ["refused", measuring[1], "0"]
    assert not Path(measuring[1]).exists()
