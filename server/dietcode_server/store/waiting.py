"""Jobs that nobody can measure now: taken up as soon as somebody can, set aside where nobody can any more."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from dietcode.protocol import JobState
from dietcode.workload.parse import spec_from_data
from dietcode_server.store import runners
from dietcode_server.store.clock import clock
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.subjects import job_identity, remember_device
from dietcode_server.store.tables import Device, JobRow
from dietcode_server.store.transitions import enter, locked


def waiting(session: Session, *, but: Collection[str] = (), limit: int = 20) -> list[JobRow]:
    """Jobs that wait for a runner, the oldest first, without those whose ids are in `but`."""
    query = select(JobRow.id).where(JobRow.state == JobState.WAITING_FOR_RUNNER.value)
    ids = list(session.scalars(query.order_by(JobRow.created_at, JobRow.id)))
    wanted = [job_id for job_id in ids if job_id not in but][:limit]
    return list(session.scalars(select(JobRow).where(JobRow.id.in_(wanted)).order_by(JobRow.created_at)))


def fits(row: JobRow, target: dict[str, Any]) -> bool:
    """Whether a machine on which a job's target is `target` may take it up.

    A job that has a device keeps its target: nothing is measured for another than was asked for.
    """
    return row.device_id is None or row.target == target


def take_up(
    session: Session,
    job_id: str,
    target: dict[str, Any],
    device: tuple[str, str, dict[str, Any]],
    *,
    now: datetime | None = None,
) -> bool:
    """Queue a job that waited for a runner, for the device of one that is here now; whether it still waited.

    Parameters
    ----------
    target, device
        What its spec's target stands for there.

    Raises
    ------
    NotFoundError
        There is no such job.
    """
    row, now = locked(session, job_id), now or clock(session)
    if row.state != JobState.WAITING_FOR_RUNNER.value or not fits(row, target):
        return False
    remember_device(session, *device, now)
    row.digest = job_identity(spec_from_data(row.spec), target, row.measure)
    row.target, row.device_id = target, device[0]
    enter(session, row, JobState.QUEUED, now, "a runner for it is here")
    return True


def set_aside(session: Session, patience_secs: float, *, now: datetime | None = None) -> list[str]:
    """Have jobs wait that are queued for devices that no live runner announces; their ids.

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
    asked = select(Device).where(Device.id.in_(select(JobRow.device_id).where(*queued)))
    there = runners.devices(session, now=now)
    gone = [row.id for row in session.scalars(asked) if not any(serves(one, row) for one in there)]
    if not gone:
        return []
    query = select(JobRow).where(*queued, JobRow.device_id.in_(gone))
    query = query.with_for_update(skip_locked=True, key_share=True).execution_options(populate_existing=True)
    rows = list(session.scalars(query))
    for row in rows:
        enter(session, row, JobState.WAITING_FOR_RUNNER, now)
    return [row.id for row in rows]


def serves(there: AnnouncedDevice, wanted: Device) -> bool:
    """Whether a device is an announced one, or a part of it: the same processor, with enough cores and all
    features.
    """
    host, target = there.host, wanted.target
    return there.id == wanted.id or (
        there.name == wanted.name
        and target.get("num_cores", 0) <= host.get("num_cores", 0)
        and set(target.get("features", ())) <= set(host.get("features", ()))
    )
