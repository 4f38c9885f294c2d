"""What a listener hears while tuning goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

STAGES = ("calibrate", "seed", "measure", "select", "build", "verify")


@dataclass(frozen=True)
class Event:
    """One step.

    Attributes
    ----------
    stage : str
        One of `STAGES`; a server adds compare and publish.
    message : str
        One line for a person.
    done, total : int
        Progress within the stage; a total of 0 means that it is not known.
    best_gflops : float or None
        Best throughput so far, in GFLOP/s.
    secs_left : float or None
        Estimate until the end of the stage.
    data : dict
        Facts of a decision; ``not_run``: why a stage is passed over.
    """

    stage: str
    message: str
    done: int = 0
    total: int = 0
    best_gflops: float | None = None
    secs_left: float | None = None
    data: dict[str, Any] = field(default_factory=dict)


def not_run(stage: str, why: str, message: str = "not run here") -> Event:
    """Return the event of a stage that is passed over, for a reason."""
    return Event(stage, f"{message}: {why}", data={"not_run": why})


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Hear nothing."""
