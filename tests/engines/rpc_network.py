"""A real RPC tracker and server of TVM's on this machine."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable

import psutil
from ray_nodes import free_port, listens, wait_until
from small_libraries import ROOT

from dietcode.lean import without_torch

KEY = "board"


class RpcNetwork:
    """A tracker, and a server that can be killed and started again."""

    def __init__(self) -> None:
        self.port = free_port()
        self.tracker = f"127.0.0.1:{self.port}"
        self._tracker = _start("rpc_tracker", self.port)
        wait_until(lambda: listens(self.port))
        self._server: subprocess.Popen[bytes] | None = None

    def serve(self, is_there: Callable[[], bool], **variables: str) -> None:
        """Start a server, and wait until the tracker knows it."""
        port = free_port()
        self._server = _start("rpc_server", port, "--tracker", self.tracker, "--key", KEY, **variables)
        wait_until(is_there)

    def serve_for_ever(self, is_there: Callable[[], bool]) -> None:
        """The server of examples/, begun anew wherever it ends, as its docstring says."""
        script = shlex.join([sys.executable, str(ROOT / "examples" / "rpc_server.py")])
        given = f"--host 127.0.0.1 --port {free_port()} --tracker {self.tracker} --key {KEY}"
        self._server = _run("sh", "-c", f"until {script} {given}; do sleep 0.1; done")
        wait_until(is_there)

    def pids(self) -> list[int]:
        """Of the processes that were started here."""
        return [one.pid for one in (self._tracker, self._server) if one is not None]

    def kill_server(self) -> None:
        """As a device that loses its power."""
        if self._server is not None:
            _kill(self._server)
        self._server = None

    def close(self) -> None:
        self.kill_server()
        _kill(self._tracker)


def _start(module: str, port: int, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"tvm.exec.{module}", "--host", "127.0.0.1", "--port", str(port)]
    return _run(*command, "--port-end", str(port + 1), *options, **variables)


def _run(*command: str, **variables: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=without_torch(os.environ) | {"TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": "0"} | variables,
        start_new_session=True,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in tree:
        one.kill()
    psutil.wait_procs(tree, timeout=5.0)
    process.wait()
