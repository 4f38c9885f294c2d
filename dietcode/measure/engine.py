"""Where candidates are built and timed: this machine, a Ray cluster, or a device behind TVM's RPC tracker.

An `Engine` resolves a spec's target to the device that measures, and opens children there, one job at a time.
`dietcode.measure.engine_spec.EngineSpec` names one; `open_engine` makes it.
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

OnWait = Callable[[str], None]
"""Called with one line where a device is waited for."""

_REACH_SECS = 5.0


@dataclass(frozen=True)
class Device:
    """What a spec's target resolves to on an engine.

    Attributes
    ----------
    target : Target
    record : dict
        Who measures: ``name``, ``target`` and a stable ``id``.
    worker : Worker
        What runs in children there.
    refusal : str or None
        Why nothing can be measured for the target there, if so.
    host : Host or None
        Its machine; None where it is unknown.
    slot : str
        The engine's name of what one job at a time holds to measure on it.
    """

    target: Target
    record: dict[str, Any] = field(hash=False)
    worker: Worker
    refusal: str | None = None
    host: Host | None = None
    slot: str = ""


class Engine(Protocol):
    """Builds and times candidates somewhere; one job at a time on a device."""

    def devices(self, on_error: Callable[[str], None]) -> list[Device]:
        """Return the devices that are known without a spec, each with all cores of its machine.

        Parameters
        ----------
        on_error : callable
            Called with one line for those that are there and cannot be used.
        """

    def resolve(self, spec: TargetSpec) -> Device:
        """Return the device that a target resolves to here.

        Raises
        ------
        TargetError
            It is unknown, cannot be built for, or fits several devices.
        """

    def children(self, device: Device, on_wait: OnWait) -> AbstractContextManager[Children]:
        """Open children that measure on a device, alone on it while they are open; waits until it is free.

        Parameters
        ----------
        on_wait : callable
            Called with what is waited for, if anything is.

        Raises
        ------
        TuningError
            The device is gone.
        """

    def close(self) -> None:
        """Release everything."""


def check_reachable(what: str, address: str) -> None:
    """Refuse an address where nothing listens, before a library waits for it by rules of its own.

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
