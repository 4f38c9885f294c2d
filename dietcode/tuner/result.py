"""What a tuning run makes, and writing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietcode.runtime.manifest import CODE, write_folder
from dietcode.tuner.events import Event, OnEvent, silent


@dataclass(frozen=True)
class TuneResult:
    """A library and its report.

    Attributes
    ----------
    files : mapping of str to bytes
        The library's files by relative path.
    report : dict
        Its report.
    device : dict
        Who measured; the device of the records.
    secs : float
        Wall time of this run from when it held the device.
    measured : int
        Micro-kernels measured by this run; the rest came from the records.
    """

    files: Mapping[str, bytes]
    report: dict[str, Any]
    device: dict[str, Any]
    secs: float
    measured: int


def write_library(result: TuneResult, folder: Path, on_event: OnEvent = silent) -> None:
    """Write the folder, completely or not at all.

    Raises
    ------
    LibraryError
        It cannot be written.
    """
    write_folder(folder, result.files)
    on_event(Event("build", f"{folder}: {len(result.files[CODE])} bytes of code", 1, 1))
