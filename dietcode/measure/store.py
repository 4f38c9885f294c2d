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

from dietcode.errors import RecordsError, TargetError
from dietcode.measure.checks import WRONG, reason
from dietcode.measure.device_kinds import device_kind_of
from dietcode.measure.records import Records, check_belongs, read_records, write_records
from dietcode.runtime.cache import cache_dir
from dietcode.target.kinds import KINDS
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip

MAX_MEASUREMENTS = 2_500  # of other workloads, to learn from


def records_path(folder: Path, workload: str, device_id: str) -> Path:
    """File of a workload's records on a device, under the cache folder."""
    return folder / "records" / device_id / _file_name(workload)


def _file_name(workload: str) -> str:
    return f"{hashlib.sha256(workload.encode()).hexdigest()[:24]}.jsonl"


def device_folder(device: Mapping[str, Any]) -> Path:
    """Return the folder of a device's records, with those that an earlier version kept under another id."""
    root = cache_dir() / "records"
    own, former = root / str(device["id"]), root / str(device.get("formerly"))
    if not former.is_dir():
        return own
    make_parent(own / "formerly.lock")
    with FileLock(own / "formerly.lock"):
        for path in sorted(former.glob("*")):
            with contextlib.suppress(RecordsError, OSError):  # what is damaged stays where it is
                if path.suffix == ".jsonl":
                    import_file(path, device)
                if path.is_file():
                    path.unlink()
                elif not (own / path.name).exists():
                    path.rename(own / path.name)  # MetaSchedule's
        with contextlib.suppress(OSError):
            former.rmdir()
    return own


class RecordsFile:
    """A records file that grows by a line at a time.

    Parameters
    ----------
    records : Records
        What a file that is not there yet begins with.
    """

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
        return RecordsFile(device_folder(device) / _file_name(workload), Records(workload, dict(device)))

    def others(self, workload: str, device: Mapping[str, Any]) -> list[Records]:
        """What is known of other workloads on a device, the oldest first; damaged files left out.

        The files that grew last are read, until they hold `MAX_MEASUREMENTS` together.
        """
        folder, own = device_folder(device), _file_name(workload)
        found: list[Records] = []
        for path in _newest_first(folder):
            if sum(len(known.measurements) for known in found) >= MAX_MEASUREMENTS:
                break
            with contextlib.suppress(RecordsError):
                if path.name != own:
                    found.append(read_records(path))
        return found[::-1]

    def work_dir(self, workload: str, device: Mapping[str, Any]) -> Path:
        """Where MetaSchedule keeps its database of them."""
        return (device_folder(device) / _file_name(workload)).with_suffix(".metaschedule")


def export_file(spec: Spec, file: Path, device_id: str | None = None) -> Records:
    """Write what is known of a workload on a device.

    Parameters
    ----------
    device_id : str, optional
        By default this machine's device for the spec's target, or the only GPU that has records here.

    Raises
    ------
    RecordsError
        Nothing was measured yet, or on several devices, or the file cannot be written.
    """
    check_name(file)
    path = _known_path(spec, device_id)
    if not path.exists():
        raise RecordsError(
            f"`dietcode tune` has measured nothing of {spec.name} on this device yet (a server keeps its "
            "records in its own database); run it first"
        )
    known = read_records(path)
    write_records(file, known)
    return known


def _known_path(spec: Spec, device_id: str | None) -> Path:
    """Return where the records of a workload are; by default those of this machine's device."""
    workload = workload_digest(spec)
    device_id = device_id or _default_device(spec, workload)
    if not device_id.isalnum():
        raise RecordsError(
            f"--device {clip(device_id)}; allowed: the id of a device, as `dietcode targets` says it"
        )
    return records_path(cache_dir(), workload, device_id)


def _default_device(spec: Spec, workload: str) -> str:
    """Return the id of this machine's device for a spec, or of the only one whose records are here."""
    kind = device_kind_of(spec.target)
    try:
        return device_folder(kind.own(spec.target).record).name
    except TargetError:
        if not KINDS[kind.kind].names_architecture:
            raise
    target = kind.target(spec.target).to_json()
    known = {}
    for path in (cache_dir() / "records").glob(f"*/{_file_name(workload)}"):
        with contextlib.suppress(RecordsError):
            device = read_records(path).device
            if KINDS[kind.kind].fits(device["target"], target):
                known[str(device["id"])] = str(device["name"])
    if len(known) > 1:
        names = ", ".join(f"{name} ({key})" for key, name in sorted(known.items()))
        raise RecordsError(f"{spec.name} was measured on several devices: {names}; say which by --device")
    return next(iter(known), "none")


def is_measured(device_id: str) -> bool:
    """Whether any micro-kernel that a device measured is kept here."""
    for path in (cache_dir() / "records" / device_id).glob("*.jsonl"):
        with contextlib.suppress(RecordsError):
            if any(m.usable for m in read_records(path).measurements.values()):
                return True
    return False


def import_file(file: Path, device: Mapping[str, Any] | None = None) -> tuple[Records, int]:
    """Add a file's measurements to what is known of their workload and device; what is known stays.

    Parameters
    ----------
    device : mapping, optional
        That of the header by default.

    Returns
    -------
    Records, int
        All that is known now, and how many micro-kernels were new.

    Raises
    ------
    RecordsError
        It is no records file, or that of another device of the same id.
    """
    given = read_records(file)
    given.device = given.device if device is None else dict(device)
    device_id = str(given.device.get("id", ""))
    if not device_id.isalnum():
        raise RecordsError(f"{file}: its header names no device")
    path = records_path(cache_dir(), given.workload, device_id)
    make_parent(path)
    with FileLock(path.with_suffix(".lock")):
        known = read_records(path) if path.exists() else Records(given.workload, given.device)
        if known.format is not given.format:
            raise RecordsError(f"{file}: {path} is of another kind of device by the same id")
        if known.is_synthetic != given.is_synthetic:
            raise RecordsError(f"{file}: one of it and {path} is synthetic; allowed: both or none")
        added = _add(known, given)
        write_records(path, known)
    return known, added


def _add(known: Records, given: Records) -> int:
    """Take in what is new; how many micro-kernels that are."""
    new = known.new_in(given)
    known.measurements.update(new)
    for name in ("calibration", "seed", "problem", "rounds"):
        setattr(known, name, getattr(known, name) or getattr(given, name))
    known.fixed_bytes = given.fixed_bytes if known.fixed_bytes is None else known.fixed_bytes
    return len(new)


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
