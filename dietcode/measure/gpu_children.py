"""The process that measures on a GPU, seen from the one that tunes: replaced after every failure."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any, Protocol

from dietcode.lean import children_without_torch
from dietcode.measure import gpu_worker
from dietcode.measure.engine import Say
from dietcode.measure.gpu import Gpu
from dietcode.measure.local import measuring_slot
from dietcode.measure.runner import Runner

_L2_BYTES = 64 << 20  # as the GPU benchmark has it, for all GPUs alike


class GpuChildren(Protocol):
    """Runs a function of `dietcode.measure.gpu_worker` where the GPU is."""

    def run(self, function: str, request: dict[str, Any], timeout_secs: float) -> dict[str, Any] | str:
        """One call; a text instead of a result is an error."""


class LocalGpu:
    """`GpuChildren` of a GPU in this machine.

    A kernel that crashes, hangs or writes where it must not takes its context with it, and what it left in
    memory nobody knows: after an error the process is ended, and the next call starts another.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._open = contextlib.ExitStack()
        self._open.enter_context(children_without_torch())
        temporary = self._open.enter_context(tempfile.TemporaryDirectory(prefix="dietcode-gpu-"))
        self._runner = Runner(gpu_worker.start_child, (temporary,), None)
        self._open.callback(self._runner.close)

    def run(self, function: str, request: dict[str, Any], timeout_secs: float) -> dict[str, Any] | str:
        """As `GpuChildren.run` has it."""
        known = {"index": self._gpu.index, "l2_bytes": max(_L2_BYTES, self._gpu.l2_bytes)}
        given: dict[str, Any] | str = self._runner.run(
            getattr(gpu_worker, function), request | known, timeout_secs, str
        )
        return given

    def close(self) -> None:
        """End the process."""
        self._open.close()


@contextlib.contextmanager
def gpu_children(gpu: Gpu, say: Say) -> Iterator[GpuChildren]:
    """Alone on a GPU of this machine while it is open; waits for another tuning run that works on it.

    Parameters
    ----------
    say : callable
        Told what is waited for.
    """
    with measuring_slot(say, f"measure-gpu-{''.join(c for c in gpu.place if c.isalnum())}"):
        children = LocalGpu(gpu)
        try:
            yield children
        finally:
            children.close()
