"""Which micro-kernels an attention has. Imports no compiler."""

from __future__ import annotations

from dietcode.search_space.cpu.attention.micro_kernel import AttentionKernel
from dietcode.search_space.cpu.limits import Limits


def num_tasks(micro_kernel: AttentionKernel, limits: Limits) -> int:
    """Return the tasks that a call is cut into."""
    return 1 if micro_kernel.serial else limits.num_cores
