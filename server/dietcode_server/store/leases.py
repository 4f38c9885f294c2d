"""Who works on a job, and for how long: a worker holds it by a lease, which its heartbeats prolong.

A lease ends at a time of the database's clock. Who holds one that has run out has lost the job, also when it
wakes up again later: nothing that it writes from then on is taken. Whoever sees that first puts the job back
into the queue, after a delay that grows, until its attempts are used up: then it is interrupted.

A queued job may have a lease too: it is reserved by a supervisor that starts a worker for it, so that others
begin with the next one. It is queued to everybody else, and offered again where that lease runs out; a worker
that was started for it claims it all the same, if it is the first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session, defer

from dietcode.protocol import FINAL_STATES, JobState
from dietcode.workload.text import one_line
from dietcode_server.store import shares, slots
from dietcode_server.store.clock import clock
from dietcode_server.store.database import StoreError
from dietcode_server.store.tables import JobRow
from dietcode_server.store.transitions import enter, lock, locked, plain

LEASE_SECS = 15.0
MAX_ATTEMPTS = 3
RETRY_SECS = 5.0
_MAX_RETRY_SECS = 300.0
_MAX_ERROR_CHARS = 1000
_HANDED_BACK = frozenset({JobState.QUEUED, JobState.WAITING_FOR_RUNNER})
_AFTER_RUNNING = FINAL_STATES | _HANDED_BACK | {JobState.INTERRUPTED}
_BEFORE_RUNNING = [state.value for state in (JobState.QUEUED, JobState.WAITING_FOR_RUNNER)]


class LeaseLostError(StoreError):
    """A worker's lease has run out, or its job is another's: nothing was written."""


def next_queued(
    session: Session, *, not_for: Sequence[str] = (), builds: bool = True, now: datetime | None = None
) -> JobRow | None:
    """The job that begins next, without its spec: of those that may begin now, as `shares.order` has it.

    Parameters
    ----------
    not_for : sequence of str
        Devices that are not here.
    builds : bool
        Whether jobs that need no device are for this one.
    """
    conditions = _may_begin(now or clock(session), builds)
    if not_for:
        conditions += (or_(JobRow.device_id.is_(None), JobRow.device_id.not_in(not_for)),)
    firsts = JobRow.id.in_(shares.first_of_each(conditions))
    query = select(JobRow).options(defer(JobRow.spec)).where(firsts)
    return session.scalar(query.order_by(*shares.order()).limit(1))


def reserve(
    session: Session,
    supervisor: str,
    lease_secs: float,
    *,
    of: Collection[str] | None = None,
    builds: bool = True,
    now: datetime | None = None,
) -> str | None:
    """Reserve the job that begins next, until a worker that is being started for it claims it.

    Of several that reserve at once, each gets another job: none waits for the others. The job stays queued,
    and no event is left.

    Parameters
    ----------
    supervisor : str
        The process that starts the worker: ``host/pid/start time``.
    lease_secs : float
        For so long, in seconds, nobody else begins with it.
    of : collection of str, optional
        Only jobs for these devices, and those for none.
    builds : bool
        False: none of those for none, which are built for a GPU from records.

    Returns
    -------
    str or None
        Its id; None where no job may begin, or others were faster.
    """
    now = now or clock(session)
    conditions = _may_begin(now, builds)
    if of is not None:
        conditions += (or_(JobRow.device_id.is_(None), JobRow.device_id.in_(of)),)
    firsts = select(JobRow.id).where(JobRow.id.in_(shares.first_of_each(conditions)))
    first = session.scalar(firsts.order_by(*shares.order()).limit(1))
    # Where another reserves it at this moment, the next of all that wait.
    for among in () if first is None else ((JobRow.id == first, *conditions), conditions):
        free = select(JobRow.id).where(*among).order_by(*shares.order()).limit(1)
        free = free.with_for_update(skip_locked=True, key_share=True)
        reserved: str | None = session.execute(
            update(JobRow)
            .where(JobRow.id == free.scalar_subquery())
            .values(runner=supervisor, leased_until=now + timedelta(seconds=lease_secs))
            .execution_options(synchronize_session=False)
            .returning(JobRow.id)
        ).scalar_one_or_none()
        if reserved is not None:
            shares.serve(session, reserved, now)
            return reserved
    return None


def release(session: Session, job_id: str, supervisor: str) -> None:
    """Give back a job that a supervisor reserved, and the slot with it: no worker will claim it.

    Nothing happens where a worker has claimed it, or another has reserved it.
    """
    session.execute(
        update(JobRow)
        .where(JobRow.id == plain(job_id), JobRow.state == JobState.QUEUED.value)
        .where(JobRow.runner == supervisor)
        .values(runner=None, leased_until=None)
        .execution_options(synchronize_session=False)
    )
    slots.free(session, supervisor, job_id)


def _may_begin(now: datetime, builds: bool) -> tuple[ColumnElement[bool], ...]:
    """Of queued jobs those that wait for no next attempt, and that nobody has reserved."""
    needs_device = () if builds else (JobRow.device_id.is_not(None),)
    return (
        *needs_device,
        JobRow.state == JobState.QUEUED.value,
        or_(JobRow.not_before.is_(None), JobRow.not_before <= now),
        or_(JobRow.leased_until.is_(None), JobRow.leased_until <= now),
    )


def running(session: Session, *, on: str | None = None, now: datetime | None = None) -> list[JobRow]:
    """Jobs that a runner holds, oldest first, without their specs.

    Parameters
    ----------
    on : str, optional
        A host: only those of runners there, and those whose lease has run out.
    """
    query = select(JobRow).options(defer(JobRow.spec)).where(JobRow.state == JobState.RUNNING.value)
    if on is not None:
        expired = or_(JobRow.leased_until.is_(None), JobRow.leased_until <= (now or clock(session)))
        query = query.where(or_(JobRow.runner.startswith(f"{on}/", autoescape=True), expired))
    return list(session.scalars(query.order_by(JobRow.created_at, JobRow.id)))


def claim(
    session: Session,
    job_id: str,
    runner: str,
    *,
    lease_secs: float = LEASE_SECS,
    now: datetime | None = None,
) -> bool:
    """Take a queued job; False if it is not queued any more. Of several that try, one gets it.

    Parameters
    ----------
    runner : str
        The process that will work on it: ``host/pid/start time``.
    lease_secs : float
        It holds the job for so long, in seconds, from now and from each heartbeat.
    """
    now = now or clock(session)
    taken = session.execute(
        update(JobRow)
        .where(JobRow.id == plain(job_id), JobRow.state == JobState.QUEUED.value)
        .values(
            state=JobState.RUNNING.value,
            runner=runner,
            heartbeat_at=now,
            leased_until=now + timedelta(seconds=lease_secs),
            not_before=None,
            attempt=JobRow.attempt + 1,
        )
        .execution_options(synchronize_session=False)
        .returning(JobRow.id)
    ).scalar_one_or_none()
    if taken is None:
        return False
    row = locked(session, job_id)
    row.started_at, row.progress = row.started_at or now, None  # what an earlier attempt did last is past
    enter(session, row, JobState.RUNNING, now)
    shares.serve(session, row.id, now)
    return True


def heartbeat(
    session: Session,
    job_id: str,
    runner: str,
    *,
    lease_secs: float = LEASE_SECS,
    now: datetime | None = None,
) -> bool:
    """Prolong a runner's lease; return whether it is to go on.

    Parameters
    ----------
    runner : str
        Who says that it is alive.
    lease_secs : float
        How long the lease lasts from now.
    now : datetime or None
        By default the database's time.

    Returns
    -------
    bool
        It still holds the job, and nobody asked to cancel it.
    """
    row = session.scalar(lock(job_id))
    now = now or clock(session)
    if row is None or not holds(row, runner, now):
        return False
    row.heartbeat_at, row.leased_until = now, now + timedelta(seconds=lease_secs)
    session.flush()
    return not row.cancel_requested


def holds(row: JobRow, runner: str, now: datetime) -> bool:
    """Return whether a runner has a job, by a lease that has not run out."""
    return row.state == JobState.RUNNING.value and row.runner == runner and not is_expired(row, now)


def is_expired(row: JobRow, now: datetime) -> bool:
    """Return whether a running job's lease has run out."""
    return row.leased_until is None or row.leased_until <= now


def require(session: Session, job_id: str, runner: str, *, now: datetime | None = None) -> JobRow:
    """Lock and return the job of a runner that is about to write for it.

    Parameters
    ----------
    runner : str
        Who must hold the job.
    now : datetime or None
        By default the database's time.

    Raises
    ------
    LeaseLostError
        The job is not its own any more.
    NotFoundError
        There is no such job.
    """
    row = locked(session, job_id)
    if not holds(row, runner, now or clock(session)):
        raise LeaseLostError(
            f"job {row.id}: the lease of {one_line(runner, 100)} has run out, or the job was given to "
            "another worker; this one ends"
        )
    return row


def finish(
    session: Session,
    job_id: str,
    state: JobState,
    *,
    error: str | None = None,
    library_id: int | None = None,
    runner: str | None = None,
    ended: bool = False,
    now: datetime | None = None,
) -> bool:
    """End the run of a job: `state` is a final one, interrupted, or queued or waiting (handed back).

    A job that somebody asked to cancel does not go back into the queue, nor wait to be resumed: it is
    cancelled.

    Parameters
    ----------
    error : str or None
        One line; the job's error, and the message of the event.
    runner : str or None
        Only if this runner holds the job; it measures no more.
    ended : bool
        The runner's process is known to have ended, so that its lease does not count.

    Returns
    -------
    bool
        Whether it applied: False if the job is not running, or another runner holds it.

    Raises
    ------
    NotFoundError
        There is no such job.
    """
    if state not in _AFTER_RUNNING:
        raise ValueError(f"a run cannot end in {state}")
    row, now = locked(session, job_id), now or clock(session)
    if row.state != JobState.RUNNING.value or runner not in (None, row.runner):
        return False
    if runner is not None and not ended and is_expired(row, now):
        return False
    if runner is not None:
        slots.free(session, runner)
    if row.cancel_requested and state not in FINAL_STATES:
        state, error = JobState.CANCELLED, None
    error = None if error is None else one_line(error, _MAX_ERROR_CHARS)
    row.error = None if state in _HANDED_BACK else error
    row.library_id = row.library_id if library_id is None else library_id
    enter(session, row, state, now, error or "")
    return True


def lost(
    session: Session,
    job_id: str,
    runner: str,
    how: str,
    *,
    max_attempts: int = MAX_ATTEMPTS,
    retry_secs: float = RETRY_SECS,
    now: datetime | None = None,
) -> bool:
    """A worker is gone, or its lease has run out: queue its job again, or give it up; whether it had the job.

    Parameters
    ----------
    how : str
        What happened to the worker, as "its worker was killed by signal 9".
    max_attempts : int
        After so many lost workers, since the job was submitted or resumed, it is interrupted.
    retry_secs : float
        The job waits for so long after the first, twice as long after the second, and so on, in seconds.
    """
    row, now = locked(session, job_id), now or clock(session)
    if row.state != JobState.RUNNING.value or row.runner != runner:
        return False
    row.num_lost += 1
    if is_overdue(row, now) and not row.cancel_requested:
        return finish(session, job_id, JobState.FAILED, error=_too_late(row, "while it ran"), now=now)
    if row.num_lost >= max_attempts:
        error = f"{how}; `dietcode resume {row.id}` goes on"
        return finish(session, job_id, JobState.INTERRUPTED, error=error, now=now)
    delay_secs = min(retry_secs * 2.0 ** (row.num_lost - 1), _MAX_RETRY_SECS)
    row.not_before = now + timedelta(seconds=delay_secs)
    again = f"{how}; attempt {row.num_lost + 1} of {max_attempts} begins in {delay_secs:.3g} s"
    return finish(session, job_id, JobState.QUEUED, error=again, now=now)


def is_overdue(row: JobRow, now: datetime) -> bool:
    """Return whether a job's deadline has passed."""
    return row.deadline_at is not None and row.deadline_at <= now


def has_overdue(session: Session, now: datetime) -> bool:
    """Return whether jobs wait whose deadline has passed."""
    query = select(JobRow.id).where(JobRow.state.in_(_BEFORE_RUNNING), JobRow.deadline_at <= now)
    return session.scalar(query.limit(1)) is not None


def fail_overdue(session: Session, *, now: datetime | None = None) -> list[str]:
    """Fail the jobs that wait though their deadline has passed, but for those another server has in hand."""
    now = now or clock(session)
    query = (
        select(JobRow)
        .where(JobRow.state.in_(_BEFORE_RUNNING), JobRow.deadline_at <= now)
        .with_for_update(skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    rows = list(session.scalars(query))
    for row in rows:
        row.error = _too_late(row, "before it began")
        enter(session, row, JobState.FAILED, now, row.error)
    return [row.id for row in rows]


def _too_late(row: JobRow, when: str) -> str:
    at = "" if row.deadline_at is None else f" {row.deadline_at.isoformat(sep=' ', timespec='seconds')}"
    return f"its deadline{at} passed {when}; `dietcode resume {row.id}` goes on without one"
