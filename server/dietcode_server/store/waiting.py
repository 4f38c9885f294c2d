"""Jobs that nobody can measure now: taken up as soon as somebody can, set aside where nobody can any more."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, not_, or_, select
from sqlalchemy.orm import Session

from dietcode.protocol import JobState
from dietcode_server.store import architectures, runners
from dietcode_server.store.clock import clock
from dietcode_server.store.device_headers import DeviceIdentity
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.subjects import asked_of, job_identity, remember_device
from dietcode_server.store.tables import DeviceRow, JobRow, TuningRecord
from dietcode_server.store.transitions import enter, locked


def waiting(session: Session, *, but: Collection[str] = (), limit: int = 20) -> list[JobRow]:
    """Jobs that wait for a runner that measures, the oldest first, without those whose ids are in `but`."""
    measures = or_(
        JobRow.measure, not_(architectures.JOB_NAMES_ONE)
    )  # else no runner brings what it waits for
    query = select(JobRow.id).where(JobRow.state == JobState.WAITING_FOR_RUNNER.value, measures)
    ids = list(session.scalars(query.order_by(JobRow.created_at, JobRow.id)))
    wanted = [job_id for job_id in ids if job_id not in but][:limit]
    return list(session.scalars(select(JobRow).where(JobRow.id.in_(wanted)).order_by(JobRow.created_at)))


def waiting_for_records(session: Session, *, limit: int = 20) -> list[str]:
    """Jobs for GPUs that wait though they can be built from records by now, the oldest first; their ids."""
    measured = select(TuningRecord.id).where(TuningRecord.workload == JobRow.workload).exists()
    query = select(JobRow.id, JobRow.workload, JobRow.target, JobRow.measure).where(
        JobRow.state == JobState.WAITING_FOR_RUNNER.value,
        architectures.JOB_NAMES_ONE,
        JobRow.force.is_(False),
        measured,
    )
    known: dict[tuple[Any, ...], bool] = {}
    found = []
    for job_id, workload, target, measure in session.execute(query.order_by(JobRow.created_at, JobRow.id)):
        key = workload, target.get("arch"), measure
        if key not in known:
            known[key] = architectures.can_be_built(session, workload, target, force=False, measure=measure)
        if known[key]:
            found.append(job_id)
    return found[:limit]


def take_up_built(session: Session, *, now: datetime | None = None) -> list[str]:
    """Queue the jobs of `waiting_for_records`, where a runner is there that can build them; their ids."""
    found = waiting_for_records(session)
    if not found or not runners.build_for_gpus(session, now=now):
        return []
    return [job_id for job_id in found if take_up(session, job_id, None, None, now=now)]


def fits(row: JobRow, target: dict[str, Any]) -> bool:
    """Return whether a machine on which a job's target is `target` may take it up.

    A job that has a device keeps its target: nothing is measured for another than was asked for.
    """
    return row.device_id is None or row.target == target


def take_up(
    session: Session,
    job_id: str,
    target: dict[str, Any] | None,
    device: DeviceIdentity | None,
    *,
    now: datetime | None = None,
) -> bool:
    """Queue a job that waited for a runner, for the device of one that is here now; whether it still waited.

    Parameters
    ----------
    target, device
        What its spec's target stands for there; neither for one that is built from records.

    Raises
    ------
    NotFoundError
        There is no such job.
    """
    row, now = locked(session, job_id), now or clock(session)
    target = target or row.target
    if row.state != JobState.WAITING_FOR_RUNNER.value or not fits(row, target):
        return False
    if device is not None:
        remember_device(session, *device, now)
    row.digest = job_identity(asked_of(row), target, row.measure)
    row.target, row.device_id = target, None if device is None else device[0]
    why = "a runner for it is here" if device is not None else "records of a GPU are here"
    enter(session, row, JobState.QUEUED, now, why)
    return True


def set_aside(session: Session, patience_secs: float, *, now: datetime | None = None) -> list[str]:
    """Have jobs wait that are queued for devices that no live runner announces, or that none can build; their
    ids.

    Parameters
    ----------
    patience_secs : float
        Only those that have been queued for so long: runners may just begin. Nor those that are reserved.
    """
    now = now or clock(session)
    before = now - timedelta(seconds=patience_secs)
    queued = (
        JobRow.state == JobState.QUEUED.value,
        JobRow.updated_at < before,
        or_(JobRow.not_before.is_(None), JobRow.not_before < before),
        or_(JobRow.leased_until.is_(None), JobRow.leased_until <= now),
    )
    asked = select(DeviceRow).where(DeviceRow.id.in_(select(JobRow.device_id).where(*queued)))
    there = runners.devices(session, now=now)
    gone = [row.id for row in session.scalars(asked) if not any(serves(one, row) for one in there)]
    of_nobody: list[ColumnElement[bool]] = [JobRow.device_id.in_(gone)] if gone else []
    if not runners.build_for_gpus(session, now=now):
        of_nobody.append(and_(JobRow.device_id.is_(None), architectures.JOB_NAMES_ONE))
    if not of_nobody:
        return []
    query = select(JobRow).where(*queued, or_(*of_nobody))
    query = query.with_for_update(skip_locked=True, key_share=True).execution_options(populate_existing=True)
    rows = list(session.scalars(query))
    for row in rows:
        enter(session, row, JobState.WAITING_FOR_RUNNER, now)
    return [row.id for row in rows]


def serves(there: AnnouncedDevice, wanted: DeviceRow) -> bool:
    """Return whether a device is an announced one, or a part of it.

    A part is the same machine with fewer cores and features; a device without cores has none.
    """
    host, target = {**there.host, "name": there.name}, wanted.target
    machine = target.get("machine", {"name": wanted.name})  # as earlier versions knew one
    return there.id == wanted.id or (
        "num_cores" in target
        and machine == {name: host.get(name) for name in machine}
        and target["num_cores"] <= host.get("num_cores", 0)
        and set(target.get("features", ())) <= set(host.get("features", ()))
    )
