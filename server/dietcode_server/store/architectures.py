"""Targets that name an architecture, not one machine: who has such a device, and whose records serve.

A job for a GPU names an architecture alone. It is measured by a runner that announces such a GPU; or it is
built, by any runner with CUDA's compiler, from records of one: those that were imported, and those of a job
that came to its end. Such a job needs no device, and has none until it has published.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from dietcode.protocol import JobState
from dietcode.target.kinds import KINDS, kind_of_target
from dietcode_server.store import runners
from dietcode_server.store.device_headers import DeviceIdentity
from dietcode_server.store.tables import IS_CALIBRATION, DeviceRow, JobRow, TuningRecord

_KINDS = [kind.name for kind in KINDS.values() if kind.names_architecture]
JOB_NAMES_ONE: ColumnElement[bool] = func.coalesce(JobRow.target["kind"].as_string(), "").in_(_KINDS)
_DEVICE_HAS_ONE: ColumnElement[bool] = DeviceRow.target["kind"].as_string().in_(_KINDS)
_MAX_DEVICES = 100  # devices that are looked at, of those that measured a workload


def names_one(target: Mapping[str, Any]) -> bool:
    """Return whether a target, of a job or of a device, names an architecture."""
    return kind_of_target(target).names_architecture


def fits(device: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Return whether what a device measures is for the architecture that a job's target names."""
    kind = kind_of_target(target)
    return kind.names_architecture and kind is kind_of_target(device) and kind.fits(device, target)


def measured_on(
    session: Session, workload: str, target: Mapping[str, Any], *, whole: bool = True
) -> DeviceRow | None:
    """The device from whose records a workload can be built for an architecture: the last that measured.

    Parameters
    ----------
    whole : bool
        Records that were imported, or that a job measured which published; else of any.
    """
    of_pair = TuningRecord.workload == workload, TuningRecord.device_id == DeviceRow.id
    measured = select(TuningRecord.id).where(*of_pair).exists()
    query = select(DeviceRow).where(_DEVICE_HAS_ONE, measured).order_by(DeviceRow.id).limit(_MAX_DEVICES)
    fitting = [device for device in session.scalars(query) if fits(device.target, target)]
    found = [(_last(session, workload, device.id, whole), device) for device in fitting]
    known = [(last, device) for last, device in found if last is not None]
    return max(known, key=lambda one: one[0])[1] if known else None


def _last(session: Session, workload: str, device: str, whole: bool) -> int | None:
    """Return the last line about a micro-kernel that runs; None without one, or without a calibration."""
    of_pair = [TuningRecord.workload == workload, TuningRecord.device_id == device]
    of_pair += [is_whole()] if whole else []
    calibrated = select(TuningRecord.id).where(*of_pair, IS_CALIBRATION).limit(1)
    if session.scalar(calibrated) is None:
        return None
    works = TuningRecord.kind == "micro_kernel", TuningRecord.error.is_(None)
    return session.scalar(select(func.max(TuningRecord.id)).where(*of_pair, *works))


def is_whole() -> ColumnElement[bool]:
    """That a line was imported, or that its job came to its end: no more is to come with it."""
    ended = select(JobRow.id).where(
        JobRow.id == TuningRecord.job_id, JobRow.state == JobState.SUCCEEDED.value
    )
    return or_(TuningRecord.job_id.is_(None), ended.exists())


def can_be_built(
    session: Session, workload: str, target: Mapping[str, Any], *, force: bool, measure: bool
) -> bool:
    """Return whether a job can be built from known records: from any, for one that measures nothing.

    Parameters
    ----------
    workload : str
        Its digest.
    target : mapping
        Of the job.
    force, measure : bool
        As of the job.
    """
    return not force and measured_on(session, workload, target, whole=measure) is not None


def find_device(
    session: Session,
    workload: str,
    target: Mapping[str, Any],
    *,
    force: bool,
    measure: bool,
    now: datetime | None = None,
) -> tuple[DeviceIdentity | None, bool]:
    """Return what a job for an architecture measures on, and whether a live runner can do it now.

    Parameters
    ----------
    target : mapping
        Of the job.
    force, measure : bool
        As of the job.

    Returns
    -------
    (id, name, target) or None, bool
        No device where it is built from records, or waits.
    """
    if can_be_built(session, workload, target, force=force, measure=measure):
        return None, runners.build_for_gpus(session, now=now)
    there = runners.devices(session, now=now) if measure else []
    found = next((one for one in there if target.items() <= one.target.items()), None)
    return (None, False) if found is None else (found.row, True)


def standing(session: Session, workload: str, target: Mapping[str, Any]) -> str:
    """Say whether a device measured a workload: what is built for it is experimental where none did."""
    found = measured_on(session, workload, target, whole=False)
    if found is None:
        return f"experimental: no record from {_device_of(target)} yet"
    return f"measured on {found.name}"


def waits_for(
    session: Session, workload: str, target: Mapping[str, Any], *, force: bool, measure: bool
) -> str:
    """Return what a job for an architecture waits for, and what to start or to import.

    Parameters
    ----------
    workload : str
        Its digest.
    target : mapping
        Of the job.
    force, measure : bool
        As of the job.
    """
    device = _device_of(target)
    if can_be_built(session, workload, target, force=force, measure=measure):
        return (
            f"no runner can build for {target.get('arch')}; "
            "run `dietcode worker` on a machine with the extra cuda, which needs no GPU"
        )
    imported = "import records measured on one (`dietcode records import FILE --server URL`)"
    if not measure:
        return f"nothing is known of this workload on {device}; {imported}"
    start = f"no runner has {device}; run `dietcode worker` on a machine with one"
    return start if force else f"{start}, or {imported}"


def _device_of(target: Mapping[str, Any]) -> str:
    return f"{kind_of_target(target).noun} of {target.get('arch')}"
