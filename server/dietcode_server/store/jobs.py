"""Jobs and their events. All truth about a job is in its row; each change of state leaves an event.

Every function that changes something is meant for a session of `Database.write` and changes the row and
its events together. Times are aware, in UTC.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session, defer

from dietcode.errors import ConflictError, NotFoundError
from dietcode.protocol import FINAL_STATES, JobState, Progress
from dietcode.workload.identity import job_digest, workload_digest
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip, one_line
from dietcode_server.store.events import add_event
from dietcode_server.store.paging import newest_first
from dietcode_server.store.subjects import remember_device, remember_workload, utc_now
from dietcode_server.store.tables import LOCAL, JobRow

__all__ = [
    "add_progress",
    "claim",
    "finish",
    "get",
    "heartbeat",
    "list_jobs",
    "next_queued",
    "request_cancel",
    "resume",
    "running",
    "submit",
]

_MAX_ERROR_CHARS = 1000
_CANCELLED_AT_ONCE = frozenset({JobState.QUEUED, JobState.WAITING_FOR_RUNNER, JobState.INTERRUPTED})
_RESUMABLE = frozenset({JobState.INTERRUPTED, JobState.FAILED, JobState.CANCELLED})
_GOING_WELL = ("queued", "waiting_for_runner", "running", "succeeded")
_HANDED_BACK = frozenset({JobState.QUEUED, JobState.WAITING_FOR_RUNNER})
_AFTER_RUNNING = FINAL_STATES | _HANDED_BACK | {JobState.INTERRUPTED}


def submit(
    session: Session,
    *,
    spec: Spec,
    target: dict[str, Any],
    device: tuple[str, str, dict[str, Any]] | None,
    runnable: bool,
    force: bool,
    idempotency_key: str | None,
    measure: bool = True,
    owner: str = LOCAL,
    now: datetime | None = None,
) -> tuple[JobRow, bool]:
    """The job of a request, and whether it is new.

    The same request gives the job there is, whatever its state; with `force` it makes another one. A job of
    another owner counts only as long as it goes well: nobody but its owner could resume it.

    Parameters
    ----------
    target : dict
        The resolved target; takes part in the job's identity.
    device : (id, name, target) or None
        What the job measures on, where that is known.
    runnable : bool
        Whether a runner for it is at hand: else the job waits for one.
    idempotency_key : str or None
        The same key with the same request gives the same job, with `force` too.
    measure : bool
        False for a job that selects and builds from what was measured before.

    Raises
    ------
    ConflictError
        The key was used for another request.
    """
    digest = job_digest(spec, target) if measure else _without_measuring(job_digest(spec, target))
    known = _known(session, digest, force, idempotency_key, owner)
    if known is not None:
        return known, False
    now = now or utc_now()
    workload = workload_digest(spec)
    remember_workload(session, workload, spec.to_json(), now)
    if device is not None:
        remember_device(session, *device, now)
    row = JobRow(
        id=secrets.token_hex(8),
        digest=digest,
        idempotency_key=idempotency_key,
        name=spec.name,
        owner=owner,
        workload=workload,
        device_id=None if device is None else device[0],
        spec=spec.to_json(),
        target=target,
        force=force,
        measure=measure,
        state=_ready(runnable),
        attempt=0,
        measured=0,
        cancel_requested=False,
        num_events=0,
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    session.flush()
    _enter(session, row, _ready(runnable), now)
    return row, True


def _without_measuring(digest: str) -> str:
    """Identity of the job that does the same from what was measured before."""
    return f"sha256:{hashlib.sha256(f'{digest} measures nothing'.encode()).hexdigest()}"


def _known(session: Session, digest: str, force: bool, key: str | None, owner: str) -> JobRow | None:
    if key is not None:
        row = session.scalar(select(JobRow).where(JobRow.idempotency_key == key))
        if row is not None:
            if (row.digest, row.force) != (digest, force):
                raise ConflictError(
                    f"Idempotency-Key {clip(key)} was used for another request, job {row.id!r}; "
                    "use a new key for each request"
                )
            return row
    if force:
        return None
    row = session.scalar(
        select(JobRow)
        .where(JobRow.digest == digest, or_(JobRow.owner == owner, JobRow.state.in_(_GOING_WELL)))
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(1)
    )
    if row is not None and key is not None and (row.idempotency_key, row.owner) == (None, owner):
        row.idempotency_key = key
        session.flush()
    return row


def get(session: Session, job_id: str) -> JobRow:
    """One job.

    Raises
    ------
    NotFoundError
        There is none with this id.
    """
    row = session.get(JobRow, job_id)
    if row is None:
        raise _no_such_job(job_id)
    return row


def list_jobs(
    session: Session,
    *,
    states: Sequence[JobState] = (),
    name: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> tuple[list[JobRow], str | None]:
    """A page of jobs, newest first, and the cursor of the next page; None after the last.

    Parameters
    ----------
    states : sequence of JobState
        Only jobs in one of these; empty: in any.

    Raises
    ------
    RequestError
        `limit` is out of range, or `cursor` is none that an earlier page gave.
    """
    query = select(JobRow).options(defer(JobRow.spec))  # it can be a megabyte
    if states:
        query = query.where(JobRow.state.in_([JobState(state).value for state in states]))
    if name is not None:
        query = query.where(JobRow.name == name)
    return newest_first(session, query, JobRow, limit, cursor)


def request_cancel(session: Session, job_id: str, *, now: datetime | None = None) -> JobRow:
    """Cancel a job that nobody works on; ask the worker of a running one to end it.

    Raises
    ------
    NotFoundError
        There is no such job.
    ConflictError
        It has succeeded or failed.
    """
    now = now or utc_now()
    row = _locked(session, job_id)
    state = JobState(row.state)
    if state in _CANCELLED_AT_ONCE:
        _enter(session, row, JobState.CANCELLED, now)
    elif state == JobState.RUNNING and not row.cancel_requested:
        row.cancel_requested, row.updated_at = True, now
        session.flush()
    elif state in {JobState.SUCCEEDED, JobState.FAILED}:
        raise ConflictError(f"job {row.id!r} has {state.value} already; there is nothing to cancel")
    return row


def resume(
    session: Session,
    job_id: str,
    *,
    runnable: bool = True,
    device: tuple[str, str, dict[str, Any]] | None = None,
    now: datetime | None = None,
) -> JobRow:
    """Queue an interrupted, failed or cancelled job again, or one that waited for a runner that is here now.

    What it measured is kept.

    Parameters
    ----------
    runnable, device
        As `submit` takes them.

    Raises
    ------
    NotFoundError
        There is no such job.
    ConflictError
        It has succeeded, or is being cancelled.
    """
    row, now = _locked(session, job_id), now or utc_now()
    state = JobState(row.state)
    if state in _RESUMABLE or (state == JobState.WAITING_FOR_RUNNER and runnable):
        if device is not None:
            remember_device(session, *device, now)
            row.device_id = device[0]
        row.error, row.finished_at, row.cancel_requested = None, None, False
        _enter(session, row, _ready(runnable), now, "resumed")
    elif state == JobState.SUCCEEDED:
        raise ConflictError(f"job {row.id!r} has succeeded already; submit with force to measure again")
    elif row.cancel_requested:
        raise ConflictError(f"job {row.id!r} is being cancelled; resume it once it is cancelled")
    return row


def next_queued(session: Session) -> JobRow | None:
    """The job that has been there longest of those in the queue."""
    query = select(JobRow).where(JobRow.state == JobState.QUEUED.value)
    return session.scalar(query.order_by(JobRow.created_at, JobRow.id).limit(1))


def claim(session: Session, job_id: str, runner: str, *, now: datetime | None = None) -> bool:
    """Take a queued job; False if it is not queued any more. Of several that try, one gets it.

    Parameters
    ----------
    runner : str
        The process that will work on it: ``host/pid/start time``.
    """
    now = now or utc_now()
    taken = session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.state == JobState.QUEUED.value)
        .values(state=JobState.RUNNING.value, runner=runner, heartbeat_at=now, attempt=JobRow.attempt + 1)
        .execution_options(synchronize_session=False)
        .returning(JobRow.id)
    ).scalar_one_or_none()
    if taken is None:
        return False
    row = _locked(session, job_id)
    row.started_at, row.progress = row.started_at or now, None  # what an earlier attempt did last is past
    _enter(session, row, JobState.RUNNING, now)
    return True


def heartbeat(session: Session, job_id: str, runner: str, *, now: datetime | None = None) -> bool:
    """Say that `runner` is alive; whether it is to go on.

    Returns
    -------
    bool
        It still holds the job, and nobody asked to cancel it.
    """
    row = session.scalar(_lock(job_id))
    if row is None or not _holds(row, runner):
        return False
    row.heartbeat_at = now or utc_now()
    session.flush()
    return not row.cancel_requested


def running(session: Session) -> list[JobRow]:
    """Jobs that a runner holds, oldest first."""
    query = select(JobRow).where(JobRow.state == JobState.RUNNING.value)
    return list(session.scalars(query.order_by(JobRow.created_at, JobRow.id)))


def finish(
    session: Session,
    job_id: str,
    state: JobState,
    *,
    error: str | None = None,
    library_id: int | None = None,
    runner: str | None = None,
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
        Only if this runner holds the job.

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
    row = _locked(session, job_id)
    if not _holds(row, runner):
        return False
    if row.cancel_requested and state not in FINAL_STATES:
        state, error = JobState.CANCELLED, None
    error = None if error is None else one_line(error, _MAX_ERROR_CHARS)
    row.error = None if state in _HANDED_BACK else error
    row.library_id = row.library_id if library_id is None else library_id
    _enter(session, row, state, now or utc_now(), error or "")
    return True


def add_progress(
    session: Session,
    job_id: str,
    progress: Progress,
    data: dict[str, Any] | None = None,
    *,
    now: datetime | None = None,
) -> None:
    """Note a step of a job.

    Raises
    ------
    NotFoundError
        There is no such job.
    """
    row = _locked(session, job_id)
    row.progress = progress.model_dump(mode="json")
    add_event(
        session,
        row,
        now or utc_now(),
        kind="progress",
        progress=row.progress,
        message=progress.message,
        data=data or {},
    )


def _ready(runnable: bool) -> JobState:
    return JobState.QUEUED if runnable else JobState.WAITING_FOR_RUNNER


def _holds(row: JobRow, runner: str | None) -> bool:
    return row.state == JobState.RUNNING.value and runner in (None, row.runner)


def _lock(job_id: str) -> Any:
    query = select(JobRow).where(JobRow.id == job_id)
    return query.with_for_update().execution_options(populate_existing=True)


def _locked(session: Session, job_id: str) -> JobRow:
    """The row as it is now, which nobody else changes before this transaction ends."""
    row: JobRow | None = session.scalar(_lock(job_id))
    if row is None:
        raise _no_such_job(job_id)
    return row


def _no_such_job(job_id: str) -> NotFoundError:
    return NotFoundError(f"job {clip(job_id)}: no such job; `dietcode jobs` lists them")


def _enter(session: Session, row: JobRow, state: JobState, now: datetime, message: str = "") -> None:
    """Put a locked job into a state, and leave an event."""
    row.state = state.value
    if state != JobState.RUNNING:
        row.runner = None
    if state in FINAL_STATES:
        row.finished_at = now
    add_event(session, row, now, kind="state", state=state.value, message=message, data={})
