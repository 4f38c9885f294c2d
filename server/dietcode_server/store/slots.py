"""Where is measured, and by whom: one job at a time in each slot, by a lease as that of its job.

A slot is a name: the host's of the local engine, a node's or a device's of others. Its row is there while a
job holds it; the supervisor that reserves a job takes it with the job, and the job's worker takes it over.
Who finds one that has run out may take it: its earlier holder has ended itself by then, or does so before it
measures on (see `dietcode_server.engine.holding`).

Every function that changes something is meant for a session of `Database.write`. Where a transaction locks a
job and a slot, the job comes first.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from dietcode.protocol import JobState
from dietcode_server.store.clock import clock
from dietcode_server.store.locks import replace_where
from dietcode_server.store.tables import JobRow, SlotRow


def take(
    session: Session,
    slot: str,
    runner: str,
    job_id: str,
    lease_secs: float,
    *,
    reserved_too: bool = False,
    now: datetime | None = None,
) -> bool:
    """Take a slot that is free, or whose lease has run out; whether it is `runner`'s now.

    Parameters
    ----------
    runner : str
        The process that measures: ``host/pid/start time``.
    lease_secs : float
        It holds the slot for so long, in seconds, from now and from each `renew`.
    reserved_too : bool
        Also one that a supervisor only reserved: who measures first has it.
    """
    now = now or clock(session)
    free = or_(SlotRow.leased_until <= now, SlotRow.runner == runner)
    if reserved_too:
        reserved = select(JobRow.id).where(
            JobRow.id == SlotRow.job_id,
            JobRow.state == JobState.QUEUED.value,
            JobRow.runner == SlotRow.runner,
        )
        free = or_(free, reserved.correlate(SlotRow).exists())
    return replace_where(
        session,
        SlotRow,
        free,
        name=slot,
        runner=runner,
        job_id=job_id,
        taken_at=now,
        leased_until=now + timedelta(seconds=lease_secs),
    )


def renew(
    session: Session, slot: str, runner: str, lease_secs: float, *, now: datetime | None = None
) -> bool:
    """Hold a slot for longer; return False where it has run out, or is another's.

    Parameters
    ----------
    runner : str
        Who holds it.
    lease_secs : float
        For how long from now.
    now : datetime or None
        By default the database's time.
    """
    now = now or clock(session)
    held = session.execute(
        update(SlotRow)
        .where(SlotRow.name == slot, SlotRow.runner == runner, SlotRow.leased_until > now)
        .values(leased_until=now + timedelta(seconds=lease_secs))
        .execution_options(synchronize_session=False)
        .returning(SlotRow.name)
    )
    return held.first() is not None


def free(session: Session, runner: str, job_id: str | None = None) -> None:
    """Give back all that a runner holds: it measures no more, or its process is known to have ended.

    Parameters
    ----------
    job_id : str, optional
        Only what it holds for this job.
    """
    held = delete(SlotRow).where(SlotRow.runner == runner)
    if job_id is not None:
        held = held.where(SlotRow.job_id == job_id)
    session.execute(held.execution_options(synchronize_session=False))


def holder(session: Session, slot: str, *, now: datetime | None = None) -> SlotRow | None:
    """The row of a slot that somebody holds, by a lease that has not run out."""
    taken = SlotRow.name == slot, SlotRow.leased_until > (now or clock(session))
    return session.scalar(select(SlotRow).where(*taken))


def holders(session: Session, *, now: datetime | None = None) -> dict[str, str]:
    """The job that measures in each slot that is taken, by the slot's name."""
    query = select(SlotRow.name, SlotRow.job_id).where(SlotRow.leased_until > (now or clock(session)))
    return dict(session.execute(query.order_by(SlotRow.name)).all())


def forget_stale(session: Session, *, now: datetime | None = None) -> int:
    """Delete rows whose lease has run out; how many."""
    gone = delete(SlotRow).where(SlotRow.leased_until <= (now or clock(session))).returning(SlotRow.name)
    return len(session.execute(gone.execution_options(synchronize_session=False)).all())
