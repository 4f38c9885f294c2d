"""What was and can be measured on: devices, what is known of them, and who announces them now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, true
from sqlalchemy.orm import Session

from dietcode_server.store import runners
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.tables import IS_CALIBRATION, DeviceRow, RunnerRow, TuningRecord, Workload
from dietcode_server.store.waiting import serves

MAX_DEVICES = 100
MAX_WORKLOADS = 20  # of one device
MAX_COUNTED = 10_000  # records of one workload on one device
_MAX_SEEN = 5_000  # workloads that are looked for on the devices


@dataclass(frozen=True)
class WorkloadRecords:
    """What a device measured of one workload.

    Attributes
    ----------
    name : str
        Of the spec that it was first entered with; other jobs may call it otherwise.
    num_records : int
        Lines; at most `MAX_COUNTED`, which then stands for as many or more.
    last_at : datetime
        When the last of them was made.
    """

    workload: str
    name: str
    num_records: int
    last_at: datetime


@dataclass(frozen=True)
class Calibration:
    """How a CPU's cores and its reference kernel did, last time that it was asked.

    Attributes
    ----------
    kappa : float
        From the sweep: how much a wave's slots wait for the slowest; see docs/method.md.
    num_tiles : tuple of int
        Tiles of the sweep.
    tile_gflops : tuple of float
        GFLOP/s of all of them together, at each of `num_tiles`.
    reference_secs : float
        One call of the reference kernel.
    """

    kappa: float
    num_tiles: tuple[int, ...]
    tile_gflops: tuple[float, ...]
    reference_secs: float
    workload: str
    at: datetime


@dataclass(frozen=True)
class DeviceFacts:
    """A device.

    Attributes
    ----------
    created_at : datetime
        When the service first heard of it.
    workloads : tuple of WorkloadRecords
        At most `MAX_WORKLOADS`, the last measured first.
    num_workloads : int
        How many there are, of the first `_MAX_SEEN` by digest.
    calibration : Calibration or None
        None before the first job, and of a GPU, whose sweep belongs to a workload: its result shows it.
    runners : tuple of RunnerRow
        Those that are there now and can measure it, as the whole machine or a part of it.
    """

    id: str
    name: str
    target: dict[str, Any]
    created_at: datetime
    workloads: tuple[WorkloadRecords, ...]
    num_workloads: int
    calibration: Calibration | None
    runners: tuple[RunnerRow, ...]


def list_devices(session: Session, *, now: datetime | None = None) -> list[DeviceFacts]:
    """At most `MAX_DEVICES`: those that somebody announces first, then the others, the newest first."""
    there = [
        (row, [AnnouncedDevice(**data) for data in row.devices]) for row in runners.live(session, now=now)
    ]
    named = sorted({one.id for _, announced in there for one in announced})[:MAX_DEVICES]
    newest = select(DeviceRow).order_by(DeviceRow.created_at.desc(), DeviceRow.id).limit(MAX_DEVICES)
    known = select(DeviceRow).where(DeviceRow.id.in_(named))
    rows = {row.id: row for query in (known, newest) for row in session.scalars(query)}.values()
    found = [
        (row, [runner for runner, announced in there if any(serves(one, row) for one in announced)])
        for row in rows
    ]
    found = sorted(found, key=lambda one: not one[1])[:MAX_DEVICES]
    pairs = _latest(session, [row.id for row, _ in found])
    return [_facts(session, row, announced_by, pairs.get(row.id, [])) for row, announced_by in found]


def _facts(
    session: Session, row: DeviceRow, announced_by: list[RunnerRow], pairs: list[tuple[int, str]]
) -> DeviceFacts:
    return DeviceFacts(
        id=row.id,
        name=row.name,
        target=row.target,
        created_at=row.created_at,
        workloads=_workloads(session, row.id, pairs[:MAX_WORKLOADS]),
        num_workloads=len(pairs),
        calibration=calibration_of(session, row.id),
        runners=tuple(announced_by),
    )


def _latest(session: Session, devices: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """By device the workloads measured on it, each with the id of its last line, the latest first.

    The index is asked for each pair: however many lines it has, that is one step.
    """
    seen = select(Workload.digest).order_by(Workload.digest).limit(_MAX_SEEN).subquery()
    of_pair = TuningRecord.workload == seen.c.digest, TuningRecord.device_id == DeviceRow.id
    last = select(func.max(TuningRecord.id)).where(*of_pair).correlate(seen, DeviceRow).scalar_subquery()
    query = select(DeviceRow.id, last, seen.c.digest).join(seen, true()).where(DeviceRow.id.in_(devices))
    found: dict[str, list[tuple[int, str]]] = {}
    for device, line, workload in session.execute(query):
        if line is not None:
            found.setdefault(device, []).append((line, workload))
    return {device: sorted(pairs, reverse=True) for device, pairs in found.items()}


def _workloads(
    session: Session, device: str, pairs: Sequence[tuple[int, str]]
) -> tuple[WorkloadRecords, ...]:
    of_workloads = Workload.digest.in_([workload for _, workload in pairs])
    names = session.execute(select(Workload.digest, Workload.spec["name"].as_string()).where(of_workloads))
    name_of: dict[str, str | None] = dict(names.all())
    of_lines = TuningRecord.id.in_([line for line, _ in pairs])
    times = session.execute(select(TuningRecord.id, TuningRecord.created_at).where(of_lines))
    last_at: dict[int, datetime] = dict(times.all())
    return tuple(
        WorkloadRecords(
            workload, name_of.get(workload) or "", _count(session, device, workload), last_at[line]
        )
        for line, workload in pairs
    )


def _count(session: Session, device: str, workload: str) -> int:
    same = TuningRecord.workload == workload, TuningRecord.device_id == device
    some = select(TuningRecord.id).where(*same).limit(MAX_COUNTED).subquery()
    return int(session.execute(select(func.count()).select_from(some)).scalar_one())


def calibration_of(session: Session, device: str) -> Calibration | None:
    """A CPU's latest calibration; None where it has none."""
    query = (
        select(TuningRecord.workload, TuningRecord.line, TuningRecord.created_at)
        .where(TuningRecord.device_id == device, IS_CALIBRATION)
        .order_by(TuningRecord.id.desc())
        .limit(1)
    )
    found = session.execute(query).one_or_none()
    if found is None:
        return None
    workload, line, at = found
    if "kappa" not in line:
        return None
    return Calibration(
        kappa=float(line["kappa"]),
        num_tiles=tuple(int(number) for number in line["num_tiles"]),
        tile_gflops=tuple(float(rate) for rate in line["tile_gflops"]),
        reference_secs=float(line["reference_secs"]),
        workload=workload,
        at=at,
    )
