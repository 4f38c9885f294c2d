"""Rows as the models that travel to clients."""

from __future__ import annotations

from sqlalchemy.orm import Session

from dietcode.protocol import (
    FileFacts,
    Job,
    JobEvent,
    JobState,
    LibraryInfo,
    LibraryRef,
    Progress,
    Runner,
    RunnerDevice,
)
from dietcode_server.store import blobs
from dietcode_server.store.owners import owner_of
from dietcode_server.store.tables import Device, EventRow, JobRow, LibraryRow, RunnerRow
from dietcode_server.store.transitions import waits_for


def to_wire(session: Session, row: JobRow, *, with_spec: bool = True) -> Job:
    """A job, with the name of its device and its library; without its spec in a list of many."""
    device = None if row.device_id is None else session.get_one(Device, row.device_id)
    library = None if row.library_id is None else session.get_one(LibraryRow, row.library_id)
    return Job(
        id=row.id,
        name=row.name,
        owner=row.owner,
        state=JobState(row.state),
        workload=row.workload,
        device_id=row.device_id,
        device=None if device is None else device.name,
        target=row.target,
        spec=row.spec if with_spec else None,
        force=row.force,
        measure=row.measure,
        attempt=row.attempt,
        measured=row.measured,
        cancel_requested=row.cancel_requested,
        priority=row.priority,
        deadline_at=row.deadline_at,
        progress=_progress(row.progress),
        error=row.error,
        waits_for=waits_for(row.target) if row.state == JobState.WAITING_FOR_RUNNER.value else None,
        library=None if library is None else LibraryRef(name=library.name, version=library.version),
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        updated_at=row.updated_at,
    )


def event_to_wire(row: EventRow) -> JobEvent:
    """An event; its `id` is its number within the job."""
    return JobEvent.model_validate(
        {
            "id": row.seq,
            "job": row.job_id,
            "at": row.at,
            "kind": row.kind,
            "state": row.state,
            "progress": row.progress,
            "message": row.message,
            "data": row.data,
        }
    )


def library_to_wire(session: Session, row: LibraryRow) -> LibraryInfo:
    """A published version, with digest and size of its manifest."""
    manifest: FileFacts = blobs.facts(session, row.manifest_digest)
    return LibraryInfo(
        name=row.name,
        version=row.version,
        owner=owner_of(session, row.name),
        job=row.job_id,
        workload=row.workload,
        device=row.device,
        target=row.target,
        num_micro_kernels=row.num_micro_kernels,
        size_bytes=row.size_bytes,
        manifest=manifest,
        created_at=row.created_at,
        yanked_at=row.yanked_at,
    )


def runner_to_wire(row: RunnerRow) -> Runner:
    """An announcement."""
    return Runner(
        name=row.name,
        host=row.process.rsplit("/", 2)[0],
        engine=row.engine,
        version=row.version,
        devices=[RunnerDevice.model_validate(data) for data in row.devices],
        job=row.job_id,
        started_at=row.started_at,
        seen_at=row.seen_at,
    )


def _progress(data: dict[str, object] | None) -> Progress | None:
    return None if data is None else Progress.model_validate(data)
