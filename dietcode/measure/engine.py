"""Where candidates are built and timed: this machine, a Ray cluster, or a device behind TVM's RPC tracker.

An `Engine` says what a spec's target stands for on the device that measures, and opens children there, one
job at a time. `dietcode.measure.engine_spec.EngineSpec` names one; `open_engine` makes it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from dietcode.errors import TuningError
from dietcode.measure.children import Children, Worker
from dietcode.measure.engine_spec import split_address
from dietcode.target.base import Target
from dietcode.target.cpu import Host
from dietcode.workload.target_spec import TargetSpec

Say = Callable[[str], None]

_REACH_SECS = 5.0


@dataclass(frozen=True)
class Device:
    """What a spec's target stands for on an engine.

    Attributes
    ----------
    target : Target
    record : dict
        Who measures: ``name``, ``target`` and a stable ``id``.
    worker : Worker
        What runs in children there.
    refusal : str or None
        Why nothing can be measured for the target there.
    host : Host or None
        Its machine, where that is known.
    place : str
        The engine's own name of such devices.
    """

    target: Target
    record: dict[str, Any] = field(hash=False)
    worker: Worker
    refusal: str | None = None
    host: Host | None = None
    place: str = ""


class Engine(Protocol):
    """Builds and times candidates somewhere; one job at a time on a device."""

    def devices(self) -> list[Device]:
        """Those that can be told without a spec, each with all cores of its machine."""

    def resolve(self, spec: TargetSpec) -> Device:
        """What a target stands for here.

        Raises
        ------
        TargetError
            It is unknown, cannot be built for, or fits several devices.
        """

    def children(self, device: Device, say: Say) -> AbstractContextManager[Children]:
        """Children that measure on a device, alone on it while they are open; waits until it is free.

        Parameters
        ----------
        say : callable
            Told what is waited for.

        Raises
        ------
        TuningError
            There is no such device any more.
        """

    def close(self) -> None:
        """Let go of everything."""


def check_reachable(what: str, address: str) -> None:
    """See whether anything listens there, before a library waits for it by rules of its own.

    Raises
    ------
    TuningError
        Nothing answers within five seconds.
    """
    try:
        socket.create_connection(split_address(what, address), timeout=_REACH_SECS).close()
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise TuningError(f"{what} at {address} cannot be reached: {why.lower()}; is it running?") from error
