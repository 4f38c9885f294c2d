"""Seeds of a search space, and helpers that runs of MetaSchedule share on every device.

Imports no compiler: `skip_foreign_intrinsics` has to run before.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import types
from dataclasses import dataclass

from dietcode.cpu_time import ending
from dietcode.errors import TuningError

_HOST = "arm_cpu" if platform.machine() in {"aarch64", "arm64"} else "x86"


class NoTrialError(TuningError):
    """MetaSchedule finished no trial within its share of the budget."""


@dataclass(frozen=True)
class Seed:
    """A tile T0 that the space grows around.

    Attributes
    ----------
    rows, columns : int
        T0 in elements, as the source gave it, viable on the machine or not.
    source : str
        ``metaschedule``, ``hardware``, or ``earlier``: MetaSchedule's for another workload of the device.
    """

    rows: int
    columns: int
    source: str


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a worker with all processes that it started, and wait for those that are this process's now."""
    with ending():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(ChildProcessError):  # there are no more
            while True:
                os.waitpid(-process.pid, 0)


def end_workers_alone() -> None:
    """Keep TVM from looking for what its workers have started: a confined process sees no others.

    That is ended with the group of the process that runs MetaSchedule.
    """
    from tvm.support import popen_pool

    popen_pool.kill_child_processes = lambda pid: None


def skip_foreign_intrinsics(own: str | None = _HOST) -> None:
    """Keep TVM from parsing the tensor intrinsics of GPUs and other processors, which it does for any task.

    That takes 12 to 18 seconds in this process and again in each builder of each round, more than the
    trials themselves; no CPU schedule looks them up.

    Parameters
    ----------
    own : str, optional
        The family that is kept; None for none.
    """
    for name in {"cuda", "rocm", "hexagon", "riscv_cpu", "arm_cpu", "x86"} - {own}:
        path = f"tvm.s_tir.tensor_intrin.{name}"
        sys.modules.setdefault(path, types.ModuleType(path))
