"""Nodes of a real Ray cluster on this machine, each started as a user starts it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from needs import RAY_AUTH
from small_libraries import ROOT

from dietcode.lean import without_torch

_WAIT_SECS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], bool], secs: float = _WAIT_SECS) -> float:
    """Seconds until something holds; it must within `secs`."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < secs, "it does not happen"
        time.sleep(0.05)
    return time.monotonic() - started


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def environment(folder: Path) -> dict[str, str]:
    """What nodes and drivers of the tests' cluster have in common; no PyTorch, so that they start sooner."""
    return without_torch(os.environ) | {
        **RAY_AUTH,
        "RAY_TMPDIR": str(folder),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # So that a lost machine is noticed in seconds.
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }


class Node:
    """One ``dietcode ray-node`` with all its processes."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / f"node{len(list(folder.glob('node*.log')))}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dietcode", "ray-node", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(folder),
                cwd=ROOT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it has joined; nodes of one machine that start at once get in each other's way."""
        wait_until(lambda: "Ray runtime started" in self.log.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def kill(self) -> None:
        """As a machine that loses its power."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.process.pid)
            tree = [*process.children(recursive=True), process]
            for one in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(tree, timeout=5.0)
        self.process.wait()


def descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(psutil.Process(pid).children(recursive=True))
    return []
