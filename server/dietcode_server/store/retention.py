"""What the database need not keep: old jobs, what nothing refers to, and who is not there any more.

Libraries are never deleted, nor the jobs that made them. Everything goes in small transactions, so that a
sweep of a large database holds nobody up; one that is ended in the middle is gone on with by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, exists, func, select, update
from sqlalchemy.orm import Session

from dietcode.errors import NotFoundError
from dietcode.workload.text import clip, counted
from dietcode_server.store import runners, shares, slots
from dietcode_server.store.database import Database
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import (
    Blob,
    BlobChunk,
    EventRow,
    JobRow,
    LibraryFile,
    LibraryRow,
    ModelPartRow,
    TuningRecord,
    Workload,
)

_BATCH = 200  # rows of the leading table in one transaction
_LINES = 5_000
_MAX_NAMED = 4  # workloads or devices, in a message
_AGE = timedelta(hours=1)  # content may be there before the library that refers to it, a spec before its job


@dataclass(frozen=True)
class Policy:
    """How long things are kept.

    Attributes
    ----------
    jobs_days : float
        Ended jobs that published nothing, after their end; 0: forever.
    records_days : float
        Measurements of workloads that no job and no library refers to, after the last of them; 0: forever.
        A spec or a graph without measurements goes with the last job about it.
    jobs_at_most : int
        Of such jobs the last that ended are kept, whatever their age; 0: all.
    """

    jobs_days: float = 0.0
    records_days: float = 0.0
    jobs_at_most: int = 0


@dataclass(frozen=True)
class Swept:
    """How many rows went."""

    jobs: int = 0
    records: int = 0
    workloads: int = 0
    blobs: int = 0

    def __str__(self) -> str:
        return ", ".join(counted(number, name.removesuffix("s")) for name, number in asdict(self).items())

    def __bool__(self) -> bool:
        return any(asdict(self).values())


def sweep(database: Database, policy: Policy, now: datetime | None = None) -> Swept:
    """Delete what may go.

    Raises
    ------
    StoreError
        The database cannot be written; what went before stays gone.
    """
    now = now or utc_now()
    num_jobs = num_records = 0
    if policy.jobs_days > 0:
        before = now - timedelta(days=policy.jobs_days)
        num_jobs = _in_batches(database, lambda session: _sweep_jobs(session, before))
    if policy.jobs_at_most > 0:
        with database.read() as session:
            last = session.scalar(
                _published_nothing(JobRow.finished_at).offset(policy.jobs_at_most - 1).limit(1)
            )
        if last is not None:
            num_jobs += _in_batches(database, lambda session: _sweep_jobs(session, last))
    if policy.records_days > 0:
        before = now - timedelta(days=policy.records_days)
        num_records = _in_batches(database, lambda session: _sweep_records(session, before))
    num_workloads = _in_batches(database, lambda session: _sweep_workloads(session, now - _AGE))
    with database.write() as session:
        slots.forget_stale(session)
        runners.forget_stale(session)
    num_blobs = _in_batches(database, lambda session: _sweep_blobs(session, now - _AGE))
    return Swept(num_jobs, num_records, num_workloads, num_blobs)


def forget_records(database: Database, workload: str, device: str | None = None) -> int:
    """Delete what was measured of a workload, or imported; libraries stay. Return how many lines.

    Parameters
    ----------
    workload : str
        Its digest.
    device : str, optional
        The id of the one device whose records go.

    Raises
    ------
    NotFoundError
        Nothing was measured of this workload, or on this device: what there is, is named.
    StoreError
        The database cannot be written; what went before stays gone.
    """
    _check_measured(database, workload, device)
    lines = select(TuningRecord.id).where(TuningRecord.workload == workload)
    if device is not None:
        lines = lines.where(TuningRecord.device_id == device)

    def step(session: Session) -> int:
        ids = session.scalars(lines.limit(_LINES)).all()
        session.execute(delete(TuningRecord).where(TuningRecord.id.in_(ids)))
        return len(ids)

    return _in_batches(database, step)


def _check_measured(database: Database, workload: str, device: str | None) -> None:
    """Refuse a workload without measurements, and a device that has none of it."""
    own = TuningRecord.workload == workload
    with database.read() as session:
        devices = session.scalars(select(TuningRecord.device_id).where(own).distinct()).all()
        if device in devices or (device is None and devices):
            return
        if devices:
            raise NotFoundError(f"device {clip(device)}: no measurements of that workload; {_named(devices)}")
        measured = exists().where(TuningRecord.workload == Workload.digest)
        digests = session.scalars(select(Workload.digest).where(measured).limit(_MAX_NAMED + 1)).all()
        of_jobs = select(JobRow.workload, JobRow.name).where(JobRow.workload.in_(digests))
        names = {row.workload: row.name for row in session.execute(of_jobs)}
    found = [f"{digest} ({names[digest]})" if digest in names else digest for digest in digests]
    raise NotFoundError(f"workload {clip(workload)}: no measurements of it; {_named(found)}")


def _named(found: Sequence[str]) -> str:
    """Return in words of what there are measurements."""
    more = ", …" if len(found) > _MAX_NAMED else ""
    return f"there are of {', '.join(found[:_MAX_NAMED])}{more}" if found else "there are none at all"


def _in_batches(database: Database, step: Callable[[Session], int]) -> int:
    total = 0
    while True:
        with database.write() as session:
            gone = step(session)
        if not gone:
            return total
        total += gone


def _locked(session: Session, query: Select[Any]) -> Sequence[Any]:
    """The next rows that nobody else holds; they stay locked until the transaction ends."""
    return session.scalars(query.limit(_BATCH).with_for_update(skip_locked=True)).all()


def _sweep_jobs(session: Session, before: datetime) -> int:
    """Jobs that ended long ago and made no library, their events, and the names of them beside records."""
    query = _published_nothing(JobRow.id).where(JobRow.finished_at < before).order_by(None)
    ids = _locked(session, query.order_by(JobRow.finished_at))
    if ids:
        shares.leave_out(session, ids)
        session.execute(update(TuningRecord).where(TuningRecord.job_id.in_(ids)).values(job_id=None))
        session.execute(delete(EventRow).where(EventRow.job_id.in_(ids)))
        session.execute(delete(ModelPartRow).where(ModelPartRow.job_id.in_(ids)))
        session.execute(delete(JobRow).where(JobRow.id.in_(ids)))
    return len(ids)


def _published_nothing(column: Any) -> Select[Any]:
    """Ended jobs that made no library, the last first."""
    query = select(column).where(JobRow.library_id.is_(None), JobRow.finished_at.is_not(None))
    return query.order_by(JobRow.finished_at.desc(), JobRow.id)


def _unused() -> ColumnElement[bool]:
    """That no job and no library is about a workload."""
    by_job = exists().where(JobRow.workload == Workload.digest)
    return ~by_job & ~exists().where(LibraryRow.workload == Workload.digest)


def _sweep_records(session: Session, before: datetime) -> int:
    """Lines of one workload that nothing is about, the last of them old."""
    latest = (
        select(func.max(TuningRecord.created_at))
        .where(TuningRecord.workload == Workload.digest)
        .scalar_subquery()
    )
    workload = session.scalar(select(Workload.digest).where(_unused(), latest < before).limit(1))
    if workload is None:
        return 0
    lines = select(TuningRecord.id).where(TuningRecord.workload == workload).limit(_LINES)
    ids = session.scalars(lines).all()
    session.execute(delete(TuningRecord).where(TuningRecord.id.in_(ids)))
    return len(ids)


def _sweep_workloads(session: Session, before: datetime) -> int:
    """Specs and graphs that nothing is about, records included."""
    measured = exists().where(TuningRecord.workload == Workload.digest)
    query = select(Workload.digest).where(_unused(), ~measured, Workload.created_at < before)
    digests = _locked(session, query)
    if digests:
        session.execute(delete(Workload).where(Workload.digest.in_(digests)))
    return len(digests)


def _sweep_blobs(session: Session, before: datetime) -> int:
    """Content that no library lists.

    The rows are locked first and looked at again afterwards: a library that was published in between, which
    had locked them too (see `blobs.add`), keeps them.
    """
    listed = exists().where(LibraryFile.digest == Blob.digest)
    unused = ~listed & ~exists().where(LibraryRow.manifest_digest == Blob.digest)
    digests = _locked(session, select(Blob.digest).where(unused, Blob.created_at < before))
    if not digests:
        return 0
    still = session.scalars(select(Blob.digest).where(Blob.digest.in_(digests), unused)).all()
    session.execute(delete(BlobChunk).where(BlobChunk.digest.in_(still)))
    session.execute(delete(Blob).where(Blob.digest.in_(still)))
    return len(still)
