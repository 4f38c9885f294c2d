"""Where records are kept between runs, and how they travel."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from dietcode.errors import RecordsError
from dietcode.measure.records import Records, RecordsFile, make_parent, read_records, write_records
from dietcode.runtime.cache import cache_dir
from dietcode.target.cpu import device_record, resolve_target
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec


def records_path(folder: Path, workload: str, device_id: str) -> Path:
    """File of a workload's records on a device, under the cache folder."""
    name = hashlib.sha256(workload.encode()).hexdigest()[:24]
    return folder / "records" / device_id / f"{name}.jsonl"


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
        """What is known of other workloads on a device, the oldest first; damaged files left out."""
        own = records_path(cache_dir(), workload, str(device["id"]))
        found = []
        for path in sorted(own.parent.glob("*.jsonl"), key=lambda p: (p.stat().st_mtime, p.name)):
            with contextlib.suppress(RecordsError):
                if path != own:
                    found.append(read_records(path))
        return found

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


def check_name(file: Path) -> None:
    """Refuse a name that `read_records` would not know how to read.

    Raises
    ------
    RecordsError
        It ends in neither ``.jsonl`` nor ``.jsonl.zst``.
    """
    if not file.name.endswith((".jsonl", ".jsonl.zst")):
        raise RecordsError(f"{file}: allowed are names that end in .jsonl or .jsonl.zst")
