"""GPUs: their devices, who has one, and whose records a library can be built from.

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

from dietcode.measure.formats import format_of_target
from dietcode.protocol import JobState
from dietcode.target.cuda import ARCHS, CudaTarget
from dietcode_server.store import runners
from dietcode_server.store.runners import DeviceRow
from dietcode_server.store.tables import IS_CALIBRATION, Device, JobRow, TuningRecord

IS_FOR_GPU: ColumnElement[bool] = JobRow.target["kind"].as_string() == "cuda"
_IS_GPU: ColumnElement[bool] = Device.target["kind"].as_string() == "cuda"
_SYNTHETIC = "synthetic"
_MAX_GPUS = 100  # devices that are looked at, of those that measured a workload


def is_gpu(target: Mapping[str, Any]) -> bool:
    """Whether a target, of a job or of a device, is a GPU's."""
    return target.get("kind") == "cuda"


def device_row(device: Mapping[str, Any]) -> DeviceRow:
    """Id, name and target of a device by the header of its records: its row has all that the header says."""
    facts = {name: device[name] for name in _kept_facts(device["target"])}
    return str(device["id"]), str(device["name"]), {**device["target"], **facts}


def header_of(row: Device) -> dict[str, Any]:
    """The device of a header of records; the inverse of `device_row`."""
    kept = _kept_facts(row.target)
    target = {name: value for name, value in row.target.items() if name not in kept}
    facts = {name: row.target[name] for name in kept}
    # Synthetic ones are never stored.
    facts |= {name: False for name in format_of_target(target).header_facts if name == _SYNTHETIC}
    return {"id": row.id, "name": row.name, "target": target, **facts}


def _kept_facts(target: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in format_of_target(target).header_facts if name != _SYNTHETIC)


def fits(device: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Whether what a GPU measures is for the architecture that a job's target names."""
    archs = device.get("arch"), target.get("arch")
    if not is_gpu(device) or not is_gpu(target) or not all(arch in ARCHS for arch in archs):
        return False
    measured, asked = (CudaTarget(str(arch)).number for arch in archs)
    return measured == asked


def measured_on(
    session: Session, workload: str, target: Mapping[str, Any], *, whole: bool = True
) -> Device | None:
    """The GPU from whose records a workload can be built for an architecture: the one that measured last.

    Parameters
    ----------
    whole : bool
        Records that were imported, or that a job measured which published; else of any.
    """
    of_pair = TuningRecord.workload == workload, TuningRecord.device_id == Device.id
    measured = select(TuningRecord.id).where(*of_pair).exists()
    gpus = session.scalars(select(Device).where(_IS_GPU, measured).order_by(Device.id).limit(_MAX_GPUS))
    found = [(_last(session, workload, gpu.id, whole), gpu) for gpu in gpus if fits(gpu.target, target)]
    known = [(last, gpu) for last, gpu in found if last is not None]
    return max(known, key=lambda one: one[0])[1] if known else None


def _last(session: Session, workload: str, device: str, whole: bool) -> int | None:
    """The last line about a micro-kernel that runs; None where there is none, or no calibration beside."""
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
    """Whether the records are there that a job is built from: any, for one that measures nothing."""
    return not force and measured_on(session, workload, target, whole=measure) is not None


def place(
    session: Session,
    workload: str,
    target: Mapping[str, Any],
    *,
    force: bool,
    measure: bool,
    now: datetime | None = None,
) -> tuple[DeviceRow | None, bool]:
    """What a job for a GPU measures on, and whether a runner is there that can do it now.

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
    mine = (one for one in there if is_gpu(one.target) and one.target.get("arch") == target.get("arch"))
    found = next(mine, None)
    return (None, False) if found is None else (found.row, True)


def standing(session: Session, workload: str, target: Mapping[str, Any]) -> str:
    """Whether a GPU measured a workload: what is built for it is experimental where none did."""
    found = measured_on(session, workload, target, whole=False)
    if found is None:
        return f"experimental: no record from a GPU of {target.get('arch')} yet"
    return f"measured on {found.name}"


def waits_for(
    session: Session, workload: str, target: Mapping[str, Any], *, force: bool, measure: bool
) -> str:
    """What a job for a GPU waits for, and what to start or to import."""
    arch = target.get("arch")
    if can_be_built(session, workload, target, force=force, measure=measure):
        return (
            f"no runner can build for {arch}; run `dietcode worker` on a machine with the extra cuda, which "
            "needs no GPU"
        )
    imported = "import records measured on one (`dietcode records import FILE --server URL`)"
    if not measure:
        return f"nothing is known of this workload on a GPU of {arch}; {imported}"
    start = f"no runner has a GPU of {arch}; run `dietcode worker` on a machine with one"
    return start if force else f"{start}, or {imported}"
