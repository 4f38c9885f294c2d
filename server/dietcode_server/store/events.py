"""What happened to jobs: numbered events, and counts that go with a measurement."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from dietcode_server.store.tables import EventRow, JobRow


def count_measured(session: Session, job_id: str) -> None:
    """Count one more micro-kernel that a job has measured, in the transaction that stores it."""
    session.execute(
        update(JobRow)
        .where(JobRow.id == job_id)
        .values(measured=JobRow.measured + 1)
        .execution_options(synchronize_session=False)
    )


def events_after(session: Session, job_id: str, seq: int, limit: int = 500) -> list[EventRow]:
    """Return a job's events in order.

    Parameters
    ----------
    job_id : str
    seq : int
        Those with larger numbers only.
    limit : int
        Most events.
    """
    query = select(EventRow).where(EventRow.job_id == job_id.replace("\0", "?"), EventRow.seq > seq)
    return list(session.scalars(query.order_by(EventRow.seq).limit(limit)))


def add_event(session: Session, row: JobRow, now: datetime, **columns: Any) -> None:
    """Number an event and store it; the lock on the job's row keeps the numbers without gaps."""
    row.num_events += 1
    row.updated_at = now
    session.add(EventRow(job_id=row.id, seq=row.num_events, at=now, **columns))
    session.flush()
