"""Records that come from elsewhere, and go there: those of GPUs in, those of every device out."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from dietcode.errors import ConflictError, NotFoundError, RecordsError, RequestError
from dietcode.measure import checks
from dietcode.measure.checks import WRONG, reason
from dietcode.measure.formats import format_of
from dietcode.measure.records import FORMAT, Records
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip
from dietcode_server.store import architectures, device_headers, waiting
from dietcode_server.store.clock import clock
from dietcode_server.store.records import check_measured, name_of
from dietcode_server.store.subjects import remember_device, remember_workload
from dietcode_server.store.tables import DeviceRow, TuningRecord, Workload

MAX_DEVICES = 100
MAX_KERNELS = 4096  # of a workload on a GPU: all of them are fitted at every instance


@dataclass(frozen=True)
class Imported:
    """What came of an import.

    Attributes
    ----------
    device : DeviceRow
        Who measured.
    num_added, num_known : int
        Micro-kernels that are new, and all that are known of the workload on the device now.
    queued : list of str
        Jobs that waited for such records.
    """

    workload: str
    device: DeviceRow
    num_added: int
    num_known: int
    queued: list[str]


@dataclass(frozen=True)
class MeasuredOn:
    """A device that measured a workload.

    Attributes
    ----------
    num_micro_kernels : int
        Measured without an error.
    last_at : datetime
        When the last line was stored.
    """

    device: DeviceRow
    num_micro_kernels: int
    last_at: datetime


def read_lines(lines: Sequence[Mapping[str, Any]]) -> Records:
    """Records of a GPU from the lines of a file, header first; all are checked.

    Raises
    ------
    RequestError
        A line is malformed, or no device measured them; nothing was stored.
    """
    records: Records | None = None
    for number, line in enumerate(lines, 1):
        try:
            # As a database takes it: no NaN, no half of a character, no NUL.
            if b"\\u0000" in json.dumps(line, ensure_ascii=False, allow_nan=False).encode():
                raise ValueError("a text holds a NUL; allowed: other characters")
            if records is None:
                _check_header(line)
                records = Records(line["workload"], _header(line["device"]))
            else:
                records.apply(line)
                if line.get("kind") == "micro_kernel":
                    name_of(records.format, line)
        except WRONG as error:
            raise RequestError(f"lines.{number - 1}: no record of a GPU: {reason(error)}") from error
    if records is None or not records.measurements:
        raise RequestError("lines: no micro-kernel is among them; allowed: a header, then its records")
    try:
        check_measured(records)
    except RecordsError as error:
        raise RequestError(str(error)) from error
    return records


def _check_header(line: Mapping[str, Any]) -> None:
    if line["format"] != FORMAT:
        raise ValueError(f"format {clip(line['format'])}; this version reads {FORMAT}")
    known = format_of(line["device"])
    if not known.is_imported:
        raise ValueError(
            "the header names no GPU; a CPU is measured by the service's own runners, and files of one are "
            "for `dietcode tune --records`"
        )
    known.check_device(line["device"])
    checks.line(line["workload"], "workload")


def _header(device: Mapping[str, Any]) -> dict[str, Any]:
    return {name: device[name] for name in ("id", "name", "target", *format_of(device).header_facts)}


def import_records(session: Session, records: Records, spec: Spec | None) -> Imported:
    """Add what a GPU measured elsewhere, and queue the jobs that waited for it; what is known stays.

    Parameters
    ----------
    spec : Spec or None
        Of their workload, where the service does not know it.

    Raises
    ------
    NotFoundError
        The workload is not known, and no spec is given.
    RequestError
        The spec is of another workload.
    ConflictError
        A device of this id is known, and is another one; or too many micro-kernels would be known.
    """
    now = clock(session)
    device = _remember(session, records, spec, now)
    known = Records(records.workload, records.device)
    for line in _lines(session, records.workload, device.id, whole=True):
        with contextlib.suppress(*WRONG):
            known.apply(line)
    new = Records(records.workload, records.device)
    new.calibration = records.calibration if known.calibration is None else None
    new.measurements = known.new_in(records)
    num_known = len(known.measurements | new.measurements)
    if num_known > MAX_KERNELS:
        raise ConflictError(f"{num_known} micro-kernels of one workload on one GPU; allowed: {MAX_KERNELS}")
    for line in itertools.islice(new.lines(), 1, None):
        of_kernel = line["kind"] == "micro_kernel"
        session.add(
            TuningRecord(
                workload=records.workload,
                device_id=device.id,
                kind=line["kind"],
                micro_kernel=name_of(records.format, line) if of_kernel else None,
                num_readings=1 if of_kernel else None,
                error=line["error"] if of_kernel else None,
                line=line,
                created_at=now,
            )
        )
    session.flush()
    queued = waiting.take_up_built(session, now=now)
    return Imported(records.workload, device, len(new.measurements), num_known, queued)


def _remember(session: Session, records: Records, spec: Spec | None, now: datetime) -> DeviceRow:
    """Enter workload and device where they are new."""
    if spec is not None and workload_digest(spec) != records.workload:
        raise RequestError(
            f"spec: its workload is {workload_digest(spec)}; the records are of {clip(records.workload, 80)}"
        )
    if spec is not None:
        remember_workload(session, records.workload, spec.to_json(), now)
    else:
        _check_known(session, records.workload)
    device_id, name, target = device_headers.device_row(records.device)
    remember_device(session, device_id, name, target, now)
    device = session.get_one(
        DeviceRow, device_id, with_for_update={"key_share": True}
    )  # one import at a time
    if (device.name, device.target) != (name, target):
        raise ConflictError(
            f"device.id: given {device_id} for {clip(name)}; that is {clip(device.name)} here, another device"
        )
    return device


def _check_known(session: Session, workload: str) -> None:
    if session.get(Workload, workload.replace("\0", "?")) is None:
        raise NotFoundError(
            f"workload {clip(workload, 80)}: not known here; submit it, or give its spec beside its records "
            "(--spec SPEC)"
        )


def measured_on(session: Session, workload: str) -> list[MeasuredOn]:
    """Devices that measured a workload, the latest first.

    Raises
    ------
    NotFoundError
        There is no such workload.
    """
    _check_known(session, workload)
    works = TuningRecord.kind == "micro_kernel", TuningRecord.error.is_(None)
    query = (
        select(DeviceRow, func.count(TuningRecord.micro_kernel.distinct()), func.max(TuningRecord.created_at))
        .join(TuningRecord, TuningRecord.device_id == DeviceRow.id)
        .where(TuningRecord.workload == workload.replace("\0", "?"), *works)
        .group_by(DeviceRow.id)
        .order_by(func.max(TuningRecord.id).desc())
        .limit(MAX_DEVICES)
    )
    return [MeasuredOn(device, count, at) for device, count, at in session.execute(query)]


def export_records(session: Session, workload: str, device_id: str) -> list[dict[str, Any]]:
    """Return all that is known of a workload on a device, as the lines of a file, header first.

    Raises
    ------
    NotFoundError
        Nothing is.
    """
    device = session.get(DeviceRow, device_id.replace("\0", "?"))
    lines = [] if device is None else _lines(session, workload, device.id)
    if device is None or not lines:
        raise NotFoundError(
            f"records of {clip(workload, 80)} on {clip(device_id)}: none; leave out the device to list those "
            "that measured it"
        )
    return [{"format": FORMAT, "workload": workload, "device": device_headers.header_of(device)}, *lines]


def _lines(session: Session, workload: str, device_id: str, *, whole: bool = False) -> list[dict[str, Any]]:
    """Lines of a pair in the order in which they became known; a later one takes the place of an earlier.

    Parameters
    ----------
    whole : bool
        As of `architectures.measured_on`.
    """
    of_pair = TuningRecord.workload == workload.replace("\0", "?"), TuningRecord.device_id == device_id
    query = select(TuningRecord.line).where(*of_pair).order_by(TuningRecord.id)
    return list(session.scalars(query.where(architectures.is_whole()) if whole else query))
