"""What each owner has of the server: whose turn it is, and how many bytes are kept for whom."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, cast, func, select, text, update
from sqlalchemy.orm import Session

from dietcode_server.store.locks import insert_new
from dietcode_server.store.tables import MODEL, JobRow, LibraryRow, NameRow, OwnerRow, Workload

# The graph of a model is kept beside its job, once for all jobs about it, and counts for each of them.
_GRAPH_BYTES = (
    select(func.length(cast(Workload.spec, Text)))
    .where(Workload.digest == JobRow.workload, JobRow.kind == MODEL)
    .correlate(JobRow)
    .scalar_subquery()
)
_SPEC_BYTES = func.length(cast(JobRow.spec, Text)) + func.coalesce(_GRAPH_BYTES, 0)
_SERVED_AT = select(OwnerRow.served_at).where(OwnerRow.owner == JobRow.owner).scalar_subquery()


def order() -> tuple[Any, ...]:
    """Return how jobs that wait follow each other.

    By priority; of equal ones, the owner's whose last job began longest ago; of one owner, the oldest.
    """
    return JobRow.priority.desc(), _SERVED_AT.asc().nulls_first(), JobRow.created_at, JobRow.id


def first_of_each(conditions: Sequence[ColumnElement[bool]]) -> Select[tuple[str | None]]:
    """Return the ids of the first jobs of all owners; None for an owner who has none.

    Which of them is first of all is found without a look at the others, which may be very many.
    """
    first = (
        select(JobRow.id)
        .where(JobRow.owner == OwnerRow.owner, JobRow.state == text("'queued'"), *conditions)
        .order_by(JobRow.priority.desc(), JobRow.created_at, JobRow.id)
        .limit(1)
        .correlate(OwnerRow)
    )
    return select(first.scalar_subquery()).select_from(OwnerRow)


def serve(session: Session, job_id: str, now: datetime) -> None:
    """Note that it is the job's owner's turn; nobody waits where others of the owner's jobs begin as well."""
    owner = select(JobRow.owner).where(JobRow.id == job_id).scalar_subquery()
    free = select(OwnerRow.owner).where(OwnerRow.owner == owner).with_for_update(skip_locked=True)
    session.execute(
        update(OwnerRow)
        .where(OwnerRow.owner == free.scalar_subquery())
        .values(served_at=now)
        .execution_options(synchronize_session=False)
    )


def add_job(session: Session, row: JobRow) -> None:
    """Count the spec of a job that was just entered, or its graph."""
    insert_new(session, OwnerRow, owner=row.owner)
    _count(session, row.owner, select(_SPEC_BYTES).where(JobRow.id == row.id).scalar_subquery())


def leave_out(session: Session, job_ids: Sequence[str]) -> None:
    """Count the specs of jobs no longer, before these are deleted."""
    query = select(JobRow.owner, func.sum(_SPEC_BYTES)).where(JobRow.id.in_(job_ids)).group_by(JobRow.owner)
    for owner, size in sorted(tuple(found) for found in session.execute(query)):
        _count(session, owner, -int(size))


def bytes_of(session: Session, owner: str) -> int:
    """Return the bytes that are kept for an owner: specs and graphs of jobs, libraries under its names."""
    specs = session.scalar(select(OwnerRow.spec_bytes).where(OwnerRow.owner == owner)) or 0
    published = (
        select(func.sum(LibraryRow.size_bytes))
        .join(NameRow, NameRow.name == LibraryRow.name)
        .where(NameRow.owner == owner)
    )
    return int(specs) + int(session.scalar(published) or 0)


def _count(session: Session, owner: str, more: Any) -> None:
    session.execute(
        update(OwnerRow)
        .where(OwnerRow.owner == owner)
        .values(spec_bytes=OwnerRow.spec_bytes + more)
        .execution_options(synchronize_session=False)
    )
