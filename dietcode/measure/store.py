"""Where records are kept between runs, and how they travel."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from dietcode.errors import RecordsError
from dietcode.measure.checks import WRONG, reason
from dietcode.measure.records import Records, check_belongs, read_records, write_records
from dietcode.runtime.cache import cache_dir
from dietcode.target.cpu import device_record, resolve_target
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip

MAX_MEASUREMENTS = 2_500  # of other workloads, to learn from


def records_path(folder: Path, workload: str, device_id: str) -> Path:
    """File of a workload's records on a device, under the cache folder."""
    name = hashlib.sha256(workload.encode()).hexdigest()[:24]
    return folder / "records" / device_id / f"{name}.jsonl"


class RecordsFile:
    """A records file that grows by a line at a time."""

    def __init__(self, path: Path, records: Records) -> None:
        self.path = path
        self.records = records
        if path.is_file() and path.stat().st_size:
            known = read_records(path)
            check_belongs(known, records.workload, str(records.device["id"]), path)
            self.records = known
            if _is_torn(path):
                write_records(path, known)
        else:
            make_parent(path)
            write_records(path, records)

    def append(self, line: dict[str, Any]) -> None:
        """Write one line and take it in.

        Raises
        ------
        RecordsError
            It is no tuning record, or cannot be written.
        """
        try:
            text = json.dumps(line, sort_keys=True)
            self.records.apply(line)
        except WRONG as error:
            raise RecordsError(f"{clip(line)} is no tuning record: {reason(error)}") from error
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(text + "\n")
                stream.flush()
        except OSError as error:
            raise RecordsError(f"{self.path}: cannot be written: {error.strerror or error}") from error

    def clear(self) -> None:
        """Forget everything, to measure it again."""
        self.records = Records(self.records.workload, self.records.device)
        write_records(self.path, self.records)


class FileKeeper:
    """Keeps records under the cache folder: a file for each workload and device."""

    def open(self, workload: str, device: Mapping[str, Any]) -> RecordsFile:
        """The records of a workload on a device; empty where nothing is known.

        Raises
        ------
        RecordsError
            What is there cannot be read, or nothing can be written there.
        """
        path = records_path(cache_dir(), workload, str(device["id"]))
        return RecordsFile(path, Records(workload, dict(device)))

    def others(self, workload: str, device: Mapping[str, Any]) -> list[Records]:
        """What is known of other workloads on a device, the oldest first; damaged files left out.

        The files that grew last are read, until they hold `MAX_MEASUREMENTS` together.
        """
        own = records_path(cache_dir(), workload, str(device["id"]))
        found: list[Records] = []
        for path in _newest_first(own.parent):
            if sum(len(known.measurements) for known in found) >= MAX_MEASUREMENTS:
                break
            with contextlib.suppress(RecordsError):
                if path != own:
                    found.append(read_records(path))
        return found[::-1]

    def work_dir(self, workload: str, device: Mapping[str, Any]) -> Path:
        """Where MetaSchedule keeps its database of them."""
        return records_path(cache_dir(), workload, str(device["id"])).with_suffix(".metaschedule")


def export_file(spec: Spec, file: Path) -> Records:
    """Write what is known of a workload on this device.

    Raises
    ------
    RecordsError
        Nothing was measured yet, or the file cannot be written.
    """
    check_name(file)
    device = device_record(resolve_target(spec.target))
    path = records_path(cache_dir(), workload_digest(spec), str(device["id"]))
    if not path.exists():
        raise RecordsError(
            f"`dietcode tune` has measured nothing of {spec.name} on this device yet (a server keeps its "
            "records in its own database); run it first"
        )
    known = read_records(path)
    write_records(file, known)
    return known


def import_file(file: Path) -> tuple[Records, int]:
    """Add a file's measurements to what is known of their workload and device; what is known stays.

    Returns
    -------
    Records, int
        All that is known now, and how many micro-kernels were new.
    """
    given = read_records(file)
    device_id = str(given.device.get("id", ""))
    if not device_id.isalnum():
        raise RecordsError(f"{file}: its header names no device")
    path = records_path(cache_dir(), given.workload, device_id)
    make_parent(path)
    with FileLock(path.with_suffix(".lock")):
        known = read_records(path) if path.exists() else Records(given.workload, given.device)
        added = 0
        for kernel, measurement in given.measurements.items():
            if kernel not in known.measurements:
                known.measurements[kernel] = measurement
                added += 1
        known.calibration = known.calibration or given.calibration
        known.seed = known.seed or given.seed
        known.problem = known.problem or given.problem
        known.rounds = known.rounds or given.rounds
        known.fixed_bytes = given.fixed_bytes if known.fixed_bytes is None else known.fixed_bytes
        write_records(path, known)
    return known, added


def make_parent(path: Path) -> None:
    """Make the folder of `path`.

    Raises
    ------
    RecordsError
        It cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordsError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_name(file: Path) -> None:
    """Refuse a name that `read_records` would not know how to read.

    Raises
    ------
    RecordsError
        It ends in neither ``.jsonl`` nor ``.jsonl.zst``.
    """
    if not file.name.endswith((".jsonl", ".jsonl.zst")):
        raise RecordsError(f"{file}: allowed are names that end in .jsonl or .jsonl.zst")


def _is_torn(path: Path) -> bool:
    """Whether the last line was not written whole."""
    try:
        with path.open("rb") as stream:
            stream.seek(-1, io.SEEK_END)
            return stream.read(1) != b"\n"
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror or error}") from error


def _newest_first(folder: Path) -> list[Path]:
    """Records files by the time of their last line, then by name; those that vanish meanwhile left out."""
    found = []
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime_ns, path.name, path))
    return [path for *_, path in sorted(found, reverse=True)]
