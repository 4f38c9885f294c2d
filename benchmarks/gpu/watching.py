"""Children that work on a GPU: what takes them with it, or does not come back, costs itself alone."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from typing import Any

LOST = 75  # a child's status: the GPU's context is of no more use, and the last line says why
BEGIN_SECS = 90.0  # without a word of a child that begins
HANG_SECS = 20.0  # of one that is at a kernel: less than the share of a workload, so that it is on record


def end_if_lost(torch: Any) -> None:
    """End this process where a kernel took the GPU's context with it: nothing runs in that any more."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        os._exit(LOST)  # what Python and PyTorch tidy up at their end would fail


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
