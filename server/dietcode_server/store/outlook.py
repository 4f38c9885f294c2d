"""What awaits a spec that is not submitted yet: what is known, what is before it, which job it would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from dietcode.protocol import JobState
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec
from dietcode_server.store import architectures, jobs
from dietcode_server.store.subjects import job_identity
from dietcode_server.store.tables import DeviceRow, JobRow, TuningRecord

_BEFORE = (JobState.QUEUED.value, JobState.RUNNING.value)


@dataclass(frozen=True)
class Outlook:
    """What a submission would meet now.

    Attributes
    ----------
    num_known : int
        Micro-kernels of the workload that were measured on the device.
    num_before : int
        Jobs that wait for the device, or work on it.
    job : JobRow or None
        The one that is there for the same content.
    built_from : DeviceRow or None
        The GPU from whose records it would be built: nothing would be measured.
    """

    num_known: int
    num_before: int
    job: JobRow | None
    built_from: DeviceRow | None = None


def outlook(
    session: Session,
    *,
    spec: Spec,
    target: dict[str, Any],
    device_id: str | None,
    measure: bool,
    owner: str,
    force: bool = False,
) -> Outlook:
    """Look ahead; changes nothing.

    Parameters
    ----------
    target : dict
        The resolved target.
    device_id : str or None
        What it would measure on, where that is known.
    """
    job = jobs.find(session, job_identity(spec, target, measure), owner)
    gpu = None
    if architectures.names_one(target) and not force:
        gpu = architectures.measured_on(session, workload_digest(spec), target, whole=measure)
    device_id = device_id if gpu is None else gpu.id
    if device_id is None:
        return Outlook(0, 0, job)
    known = select(func.count(TuningRecord.micro_kernel.distinct())).where(
        TuningRecord.workload == workload_digest(spec),
        TuningRecord.device_id == device_id,
        TuningRecord.error.is_(None),
    )
    before = (
        select(func.count())
        .select_from(JobRow)
        .where(JobRow.state.in_(_BEFORE), JobRow.device_id == device_id)
    )
    return Outlook(session.scalar(known) or 0, session.scalar(before) or 0, job, gpu)
