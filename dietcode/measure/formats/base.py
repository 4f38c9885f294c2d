"""What a kind of device has to say about its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.candidate import AnyMicroKernel

Body = Mapping[str, Any]


def _without_facts(body: Body) -> dict[str, Any]:
    return {**body, "facts": None}


@dataclass(frozen=True)
class RecordFormat:
    """One kind of device, as records have it. What refuses raises one of `dietcode.measure.checks.WRONG`.

    Attributes
    ----------
    kind : str
        Of the target in the header.
    word : str
        What such a device is, for messages.
    micro_kernel : callable
        A micro-kernel from plain data that may hold more; the inverse of its ``to_json``.
    calibration : callable
        What is kept of a calibration line; refuses one that is none.
    check_device : callable
        Refuses a header that names no such device.
    whole_measurement : callable
        A line about a micro-kernel with every field, from one that an earlier version wrote, and `facts` as
        `Measurement` has them; refuses what the kind alone can tell to be wrong.
    header_facts : tuple of str
        What the header says of a device beside id, name and target.
    is_imported : bool
        Whether a server takes such records from elsewhere; those of other kinds its own runners measure.
    """

    kind: str
    word: str
    micro_kernel: Callable[[Body], AnyMicroKernel]
    calibration: Callable[[Body], dict[str, Any]]
    check_device: Callable[[Body], None]
    whole_measurement: Callable[[Body], dict[str, Any]] = _without_facts
    header_facts: tuple[str, ...] = ()
    is_imported: bool = False
