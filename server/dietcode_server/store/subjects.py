"""What jobs, records and libraries are about: workloads and devices, each entered once; identity of jobs."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from typing import Any

from sqlalchemy.orm import Session

from dietcode.workload.identity import job_digest
from dietcode.workload.spec import Spec
from dietcode_server.store.locks import insert_new
from dietcode_server.store.tables import DeviceRow, Workload


def utc_now() -> datetime:
    """The time, aware, in UTC."""
    return datetime.now(timezone.utc)


def remember_workload(session: Session, digest: str, spec: dict[str, Any], now: datetime) -> None:
    """Enter a workload that is not known yet.

    Parameters
    ----------
    digest : str
        Of the spec's workload.
    spec : dict
    now : datetime
    """
    if session.get(Workload, digest) is None:
        insert_new(session, Workload, digest=digest, spec=spec, created_at=now)


def remember_device(
    session: Session, device_id: str, name: str, target: dict[str, Any], now: datetime
) -> None:
    """Enter a device that is not known yet.

    Parameters
    ----------
    device_id, name, target
        As of `dietcode_server.store.runners.DeviceIdentity`.
    now : datetime
    """
    if session.get(DeviceRow, device_id) is None:
        insert_new(session, DeviceRow, id=device_id, name=name, target=target, created_at=now)


def job_identity(spec: Spec, target: dict[str, Any], measure: bool) -> str:
    """The digest of a job: its spec with the resolved target, and whether it measures."""
    digest = job_digest(spec, target)
    if measure:
        return digest
    return f"sha256:{hashlib.sha256(f'{digest} measures nothing'.encode()).hexdigest()}"
