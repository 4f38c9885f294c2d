"""What a library is made of, for any kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dietcode.dispatcher.rule import Rule
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.task import Task


@dataclass(frozen=True)
class Parts:
    """Chosen micro-kernels and a dispatch rule.

    Attributes
    ----------
    target : CpuTarget or CudaTarget
        Target of the task, as it was measured.
    micro_kernels : tuple
        One for each category.
    rule : Rule
        Total over the declared ranges.
    table, report : dict
        For people.
    archs : tuple of str
        Further architectures to hold machine code for, where the kind of device has several.
    """

    task: Task
    target: Any
    micro_kernels: tuple[AnyMicroKernel, ...]
    rule: Rule
    table: dict[str, Any]
    report: dict[str, Any]
    archs: tuple[str, ...] = ()
