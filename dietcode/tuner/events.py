"""Events of a tuning run, and what is called with each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

STAGES = ("calibrate", "seed", "measure", "select", "build", "verify")


@dataclass(frozen=True)
class Event:
    """Progress of one stage.

    Attributes
    ----------
    stage : str
        One of `STAGES`; a server adds ``compare`` and ``publish``.
    message : str
        One line for a person.
    done, total : int
        Progress within the stage; a total of 0 means unknown.
    best_gflops : float or None
        Best throughput so far, in GFLOP/s.
    secs_left : float or None
        Estimated seconds until the end of the stage.
    data : dict
        Facts of a decision; ``gflops`` of a micro-kernel that was measured; ``not_run`` holds why a stage
        was skipped.
    """

    stage: str
    message: str
    done: int = 0
    total: int = 0
    best_gflops: float | None = None
    secs_left: float | None = None
    data: dict[str, Any] = field(default_factory=dict)


def not_run(stage: str, why: str, message: str = "not run here") -> Event:
    """Return the event of a stage that is skipped, with the reason."""
    return Event(stage, f"{message}: {why}", data={"not_run": why})


OnEvent = Callable[[Event], None]


def silent(event: Event) -> None:
    """Do nothing with it."""
