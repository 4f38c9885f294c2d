"""Children that work on a GPU: what takes them with it, or does not come back, costs itself alone."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lines import drop_torn

LOST = 75  # a child's status: the GPU's context is of no more use, and the last line says why
BEGIN_SECS = 90.0  # without a word of a child that begins
HANG_SECS = 20.0  # of one that is at a kernel: less than the share of a workload, so that it is on record


def end_if_lost(torch: Any) -> None:
    """End this process where a kernel took the GPU's context with it: nothing runs in that any more."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        os._exit(LOST)  # what Python and PyTorch tidy up at their end would fail


def run_until(
    deadline: float, command: list[str], output: Path, failed: Callable[[int], dict[str, Any]], begun: str
) -> None:
    """Run children that go on from each other until one has done all, or time is up.

    Parameters
    ----------
    deadline : float
        As of `time.time`.
    output : Path
        Lines of JSON, which children add to.
    failed : callable
        The line of the number that a child ended at; why is added.
    begun : str
        What the children begin with, for the message where they do not come that far.
    """
    while time.time() < deadline:
        status, number = watch(command)
        if status == 0:
            return
        if number is None:
            raise SystemExit(f"{begun}; see above")
        drop_torn(output)
        if status != LOST:
            why = f"ended with {status}" if status is not None else f"said nothing for {HANG_SECS:g} s"
            with output.open("a") as stream:
                stream.write(
                    json.dumps(failed(number) | {"error": f"the process {why}"}, sort_keys=True) + "\n"
                )


def watch(
    command: list[str], begin_secs: float | None = None, hang_secs: float | None = None
) -> tuple[int | None, int | None]:
    """Run a child; its status, None where it said nothing for too long, and the last number it was at.

    Parameters
    ----------
    begin_secs, hang_secs : float, optional
        `BEGIN_SECS` and `HANG_SECS` by default.
    """
    begin_secs = BEGIN_SECS if begin_secs is None else begin_secs
    hang_secs = HANG_SECS if hang_secs is None else hang_secs
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                said.put(line)
        said.put(None)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    number = None
    try:
        while (line := said.get(timeout=begin_secs if number is None else hang_secs)) is not None:
            number = int(line.split()[1]) if line.startswith("at ") else number
        return child.wait(timeout=begin_secs), number
    except (queue.Empty, subprocess.TimeoutExpired):
        child.kill()
        child.wait()
        return None, number
    finally:
        listener.join(begin_secs)
