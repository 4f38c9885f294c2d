"""Whose names are whose, and how many jobs an owner has open."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from dietcode.errors import LibraryError
from dietcode.protocol import JobState
from dietcode_server.store.tables import LOCAL, JobRow, NameRow

OPEN = (JobState.QUEUED, JobState.WAITING_FOR_RUNNER, JobState.RUNNING)


def owner_of(session: Session, name: str) -> str | None:
    """Return who publishes under a name; None where nobody has yet."""
    row = session.get(NameRow, name)
    return None if row is None else row.owner


def check_name(session: Session, name: str, job: JobRow | None) -> None:
    """Check that a job may still publish under its name.

    Raises
    ------
    LibraryError
        It went to somebody else after the job was accepted.
    """
    row = session.get(NameRow, name)
    # A job that is younger than the name was accepted under it: its owner's, or an admin's.
    if job is not None and row is not None and row.owner != job.owner and row.created_at > job.created_at:
        raise LibraryError(f"{name}: {row.owner} has published under this name first; submit under another")


def claim_name(session: Session, name: str, job: JobRow | None, now: datetime) -> None:
    """Give a name that is free to the job's owner, in the transaction that publishes its first version.

    Parameters
    ----------
    name : str
    job : JobRow or None
        The job that publishes.
    now : datetime
    """
    if session.get(NameRow, name) is None:
        session.add(NameRow(name=name, owner=LOCAL if job is None else job.owner, created_at=now))
        session.flush()


def advance(session: Session, name: str) -> None:
    """Note that what a name stands for changes, in the transaction that changes it."""
    session.execute(
        update(NameRow)
        .where(NameRow.name == name)
        .values(sequence=NameRow.sequence + 1)
        .execution_options(synchronize_session=False)
    )


def num_open(session: Session, owner: str) -> int:
    """Jobs of an owner that wait or run."""
    states = [state.value for state in OPEN]
    query = select(func.count()).where(JobRow.owner == owner, JobRow.state.in_(states))
    return session.execute(query).scalar_one()
