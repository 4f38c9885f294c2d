"""What a kind of device provides for its records."""

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
    """One kind of device in records; functions that refuse raise one of `dietcode.measure.checks.WRONG`.

    Attributes
    ----------
    kind : str
        As the target in the header has it.
    word : str
        Noun for such a device, for messages.
    micro_kernel : callable
        Makes a micro-kernel of plain data, which may hold more; the inverse of its ``to_json``.
    calibration : callable
        Returns what is kept of a calibration line; refuses any other.
    check_device : callable
        Refuses the header of any other device; by default it is checked where it is used.
    whole_measurement : callable
        Returns a line about a micro-kernel with every field, also of one that an earlier version wrote, and
        `facts` as `Measurement` has them; refuses what is wrong for this kind alone.
    header_facts : tuple of str
        Fields of a device in the header beside id, name and target; earlier versions wrote fewer.
    is_imported : bool
        Whether a server takes such records from elsewhere; those of other kinds its own runners measure.
    """

    kind: str
    word: str
    micro_kernel: Callable[[Body], AnyMicroKernel]
    calibration: Callable[[Body], dict[str, Any]]
    check_device: Callable[[Body], None] = lambda device: None
    whole_measurement: Callable[[Body], dict[str, Any]] = _without_facts
    header_facts: tuple[str, ...] = ()
    is_imported: bool = False
