"""Rows as the models that travel to clients."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.protocol import (
    ComparedInstance,
    FileFacts,
    Job,
    JobEvent,
    JobState,
    LibraryInfo,
    LibraryRef,
    MeasuredDevice,
    Progress,
    RecordsImported,
    Runner,
    RunnerDevice,
    TokenInfo,
)
from dietcode_server.store import architectures, model_parts, runners
from dietcode_server.store.exchange import Imported, MeasuredOn
from dietcode_server.store.tables import (
    MODEL,
    Blob,
    ComparisonRow,
    DeviceRow,
    DispatchRow,
    EventRow,
    JobRow,
    LibraryRow,
    NameRow,
    RunnerRow,
    TokenRow,
)
from dietcode_server.store.tokens import state_of
from dietcode_server.store.transitions import waits_for

_JOB_KINDS: dict[str, Literal["spec", "model"]] = {"spec": "spec", "model": "model"}
_LIBRARY_KINDS: dict[str, Literal["library", "bundle", "part"]] = {
    "library": "library",
    "bundle": "bundle",
    "part": "part",
}


def to_wire(session: Session, row: JobRow) -> Job:
    """A job with all that is known of it."""
    parts = model_parts.parts_to_wire(session, row.id) if row.kind == MODEL else None
    return jobs_to_wire(session, [row])[0].model_copy(update={"spec": row.spec, "parts": parts})


def jobs_to_wire(session: Session, rows: Sequence[JobRow]) -> list[Job]:
    """Jobs without their specs; the names of devices and libraries are asked for all at once."""
    libraries = _libraries(session, {row.library_id for row in rows if row.library_id is not None})
    devices = _devices(session, {row.device_id for row in rows if row.device_id is not None})
    waits = {row.id for row in rows if row.state == JobState.WAITING_FOR_RUNNER.value}
    silent = runners.without_device(session) if waits else []
    standings = _standings(session, rows)
    return [
        Job(
            id=row.id,
            name=row.name,
            kind=_JOB_KINDS[row.kind],
            owner=row.owner,
            state=JobState(row.state),
            workload=row.workload,
            device_id=row.device_id,
            device=None if row.device_id is None else devices[row.device_id],
            target=row.target,
            spec=None,
            force=row.force,
            measure=row.measure,
            attempt=row.attempt,
            measured=row.measured,
            cancel_requested=row.cancel_requested,
            priority=row.priority,
            deadline_at=row.deadline_at,
            progress=_progress(row.progress),
            error=row.error,
            waits_for=waits_for(
                session, row.workload, row.target, force=row.force, measure=row.measure, silent=silent
            )
            if row.id in waits
            else None,
            standing=standings.get((row.workload, row.target.get("arch"))),
            library=None if row.library_id is None else libraries[row.library_id],
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            updated_at=row.updated_at,
        )
        for row in rows
    ]


def _standings(session: Session, rows: Sequence[JobRow]) -> dict[tuple[str, Any], str]:
    """Of jobs for GPUs, by workload and architecture."""
    targets = {
        (row.workload, row.target.get("arch")): row.target
        for row in rows
        if architectures.names_one(row.target)
    }
    return {key: architectures.standing(session, key[0], target) for key, target in targets.items()}


def _libraries(session: Session, ids: set[int]) -> dict[int, LibraryRef]:
    if not ids:
        return {}
    columns = LibraryRow.id, LibraryRow.name, LibraryRow.version
    found = session.execute(select(*columns).where(LibraryRow.id.in_(ids)))
    return {number: LibraryRef(name=name, version=version) for number, name, version in found}


def _devices(session: Session, ids: set[str]) -> dict[str, str]:
    if not ids:
        return {}
    return dict(session.execute(select(DeviceRow.id, DeviceRow.name).where(DeviceRow.id.in_(ids))).all())


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
    return libraries_to_wire(session, [row])[0]


def libraries_to_wire(session: Session, rows: Sequence[LibraryRow]) -> list[LibraryInfo]:
    """Published versions; owners and sizes are asked for all at once."""
    of_name = NameRow.name.in_({row.name for row in rows})
    owners = dict(session.execute(select(NameRow.name, NameRow.owner).where(of_name)).all())
    of_blob = Blob.digest.in_({row.manifest_digest for row in rows})
    sizes = dict(session.execute(select(Blob.digest, Blob.size_bytes).where(of_blob)).all())
    return [
        LibraryInfo(
            name=row.name,
            version=row.version,
            kind=_LIBRARY_KINDS[row.kind],
            owner=owners.get(row.name),
            job=row.job_id,
            workload=row.workload,
            device=row.device,
            target=row.target,
            num_micro_kernels=row.num_micro_kernels,
            size_bytes=row.size_bytes,
            manifest=FileFacts(sha256=row.manifest_digest, size_bytes=sizes[row.manifest_digest]),
            created_at=row.created_at,
            yanked_at=row.yanked_at,
            standing=f"measured on {row.device}" if architectures.names_one(row.target) else None,
        )
        for row in rows
    ]


def compared_to_wire(row: ComparisonRow, instance: DispatchRow) -> ComparedInstance:
    """Return what was measured of an instance, beside what was predicted of it."""
    return ComparedInstance(
        position=row.position,
        shape_vars=instance.shape_vars,
        category=instance.category,
        predicted_gflops=instance.predicted_gflops,
        measured_gflops=row.measured_gflops,
        vendor=row.vendor,
        vendor_gflops=row.vendor_gflops,
        vendors=row.vendors,
        company_gflops=row.company_gflops,
        vendor_company_gflops=row.vendor_company_gflops,
        max_rel_error=row.max_rel_error,
        spread=row.spread,
        disturbed=row.disturbed,
        peak_gflops=row.peak_gflops,
        roof_gflops=row.roof_gflops,
        measured_at=row.measured_at,
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


def imported_to_wire(done: Imported) -> RecordsImported:
    """Return what came of an import."""
    return RecordsImported(
        workload=done.workload,
        device_id=done.device.id,
        device=done.device.name,
        added=done.num_added,
        known=done.num_known,
        queued=done.queued,
    )


def measured_to_wire(one: MeasuredOn) -> MeasuredDevice:
    """A device that measured a workload."""
    return MeasuredDevice(
        id=one.device.id,
        name=one.device.name,
        target=one.device.target,
        num_micro_kernels=one.num_micro_kernels,
        last_at=one.last_at,
    )


def _progress(data: dict[str, object] | None) -> Progress | None:
    return None if data is None else Progress.model_validate(data)


def token_to_wire(row: TokenRow, now: datetime) -> TokenInfo:
    """Return what is kept of a token."""
    return TokenInfo(
        id=row.id,
        owner=row.owner,
        scopes=row.scopes.split(),
        state=state_of(row, now),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )
