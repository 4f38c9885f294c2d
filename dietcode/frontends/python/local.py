"""Programs compiled and loaded within one process, for tests and measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dietcode.frontends.python.modeling import form_program
from dietcode.programs.module import Program


def load(program: Program, samples: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that runs instances of a program, whose blocks PyTorch computes.

    Parameters
    ----------
    program : Program
    samples : sequence

    Returns
    -------
    callable
        ``(instances) -> results``: of each its result, or the exception that it raised. Its ``formed`` says
        what is recorded.
    """
    formed = form_program(program, samples)
    machine = formed.machine()

    def run(instances: Sequence[Any]) -> list[Any]:
        return formed.run(machine, instances)

    run.formed = formed  # type: ignore[attr-defined]
    return run
