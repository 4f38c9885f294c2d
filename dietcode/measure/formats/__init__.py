"""What is particular to one kind of device in records; lines and their reader are the same for all kinds.

``base`` (what a kind provides), ``cpu``, ``cuda``. A kind is what ``target.kind`` says in the header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.measure.formats.base import RecordFormat
from dietcode.measure.formats.cpu import CPU
from dietcode.measure.formats.cuda import CUDA

__all__ = ["FORMATS", "RecordFormat", "format_of", "format_of_target"]

FORMATS: dict[str, RecordFormat] = {known.kind: known for known in (CPU, CUDA)}


def format_of_target(target: Mapping[str, Any]) -> RecordFormat:
    """Return the format of records for a target, by its kind; that of CPUs where it names none."""
    return FORMATS.get(str(target.get("kind", CPU.kind)), CPU)


def format_of(device: Mapping[str, Any]) -> RecordFormat:
    """Return the format of records by the device in their header.

    Raises
    ------
    KeyError, TypeError, ValueError
        It is not a device.
    """
    target = device.get("target")
    return format_of_target(target if isinstance(target, Mapping) else {})
