"""What jobs, records and libraries are about: workloads and devices, each entered once; identity of jobs."""

from __future__ import annotations

import contextlib
import hashlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from dietcode.errors import DietCodeError
from dietcode.graph.model_request import ModelOrder, ModelRequest, order_from_data
from dietcode.protocol import JobState
from dietcode.workload.identity import job_digest, workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec
from dietcode_server.store.device_headers import target_of
from dietcode_server.store.locks import insert_new
from dietcode_server.store.tables import MODEL, SPEC, DeviceRow, JobRow, TuningRecord, Workload


def utc_now() -> datetime:
    """The time, aware, in UTC."""
    return datetime.now(UTC)


def remember_workload(session: Session, digest: str, spec: dict[str, Any], now: datetime) -> None:
    """Enter a workload that is not known yet.

    Parameters
    ----------
    digest : str
        Of the spec's workload.
    spec : dict
    now : datetime
    """
    held = {"read": True, "key_share": True}  # a sweep that deletes it is waited for, a later one leaves it
    if session.get(Workload, digest, with_for_update=held) is None:
        insert_new(session, Workload, digest=digest, spec=spec, created_at=now)


def remember_device(
    session: Session, device_id: str, name: str, target: dict[str, Any], now: datetime
) -> None:
    """Enter a device that is not known yet; what it was known as in an earlier version becomes it.

    Parameters
    ----------
    device_id, name, target
        As of `dietcode_server.store.runners.DeviceIdentity`.
    now : datetime
    """
    if session.get(DeviceRow, device_id) is None:
        insert_new(session, DeviceRow, id=device_id, name=name, target=target, created_at=now)
    if "formerly" in target and session.get(DeviceRow, target["formerly"]) is not None:
        _rename(session, target["formerly"], device_id, target_of(target))


def _rename(session: Session, formerly: str, device_id: str, target: dict[str, Any]) -> None:
    """Give all that belongs to a device to another id, as soon as no job runs there.

    Jobs that have not succeeded are for its target from now on.
    """
    former = session.get(DeviceRow, formerly, with_for_update=True, populate_existing=True)
    own = JobRow.device_id == formerly
    is_busy = select(JobRow.id).where(own, JobRow.state == JobState.RUNNING.value).limit(1)
    if former is None or session.scalar(is_busy) is not None:
        return
    for row in session.scalars(select(JobRow).where(own, JobRow.state != JobState.SUCCEEDED.value)):
        row.target = target
        with contextlib.suppress(DietCodeError):  # its spec is of an earlier version
            row.digest = job_identity(asked_of(row), target, row.measure)
    session.execute(update(JobRow).where(own).values(device_id=device_id))
    records = update(TuningRecord).where(TuningRecord.device_id == former.id)
    session.execute(records.values(device_id=device_id))
    session.delete(former)


def kind_of(asked: Spec | ModelRequest) -> str:
    """Return the kind of a job about this."""
    return SPEC if isinstance(asked, Spec) else MODEL


def order_of(asked: Spec | ModelRequest) -> Spec | ModelOrder:
    """Return what a job keeps of what was asked for: of a model all but its graph."""
    return asked if isinstance(asked, Spec) else asked.order


def workload_of(asked: Spec | ModelRequest) -> tuple[str, dict[str, Any]]:
    """Return the digest of a workload, and what is kept of it: the spec, or the model as data."""
    if isinstance(asked, Spec):
        return workload_digest(asked), asked.to_json()
    return asked.order.workload, asked.content.to_json()


def asked_of(row: JobRow) -> Spec | ModelOrder:
    """Return what a job was asked for.

    Raises
    ------
    SpecError, ModelError
        This version does not read it.
    """
    return order_from_data(row.spec) if row.kind == MODEL else spec_from_data(row.spec)


def job_identity(asked: Spec | ModelOrder, target: dict[str, Any], measure: bool) -> str:
    """The digest of a job: what was asked for with the resolved target, and whether it measures."""
    digest = job_digest(asked, target) if isinstance(asked, Spec) else asked.digest(target)
    if measure:
        return digest
    return f"sha256:{hashlib.sha256(f'{digest} measures nothing'.encode()).hexdigest()}"
