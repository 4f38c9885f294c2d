"""Jobs and their events. All truth about a job is in its row; each change of state leaves an event.

Every function that changes something is meant for a session of `Database.write` and changes the row and
its events together. Times are aware, in UTC.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from dietcode.errors import ConflictError, RequestError
from dietcode.graph.model_request import ModelOrder, ModelRequest
from dietcode.protocol import JobState, Progress
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip
from dietcode_server.store import architectures, shares
from dietcode_server.store.clock import clock
from dietcode_server.store.device_headers import DeviceIdentity
from dietcode_server.store.events import add_event
from dietcode_server.store.job_lists import count_by_state, list_jobs, page_of_jobs
from dietcode_server.store.leases import claim, finish, heartbeat, next_queued, require, running
from dietcode_server.store.locks import one_at_a_time
from dietcode_server.store.subjects import (
    asked_of,
    job_identity,
    kind_of,
    order_of,
    remember_device,
    remember_workload,
    workload_of,
)
from dietcode_server.store.tables import LOCAL, JobRow
from dietcode_server.store.transitions import enter, locked, no_such_job, plain

__all__ = [
    "add_progress",
    "claim",
    "count_by_state",
    "find",
    "finish",
    "get",
    "heartbeat",
    "list_jobs",
    "next_queued",
    "page_of_jobs",
    "request_cancel",
    "resume",
    "running",
    "submit",
]

_CANCELLED_AT_ONCE = frozenset({JobState.QUEUED, JobState.WAITING_FOR_RUNNER, JobState.INTERRUPTED})
_RESUMABLE = frozenset({JobState.INTERRUPTED, JobState.FAILED, JobState.CANCELLED})
_GOING_WELL = ("queued", "waiting_for_runner", "running", "succeeded")
MAX_PRIORITY = 100
MAX_EVENTS = 20_000


def submit(
    session: Session,
    *,
    spec: Spec | ModelRequest,
    target: dict[str, Any],
    device: DeviceIdentity | None,
    runnable: bool,
    force: bool,
    idempotency_key: str | None,
    measure: bool = True,
    owner: str = LOCAL,
    priority: int = 0,
    deadline: datetime | timedelta | None = None,
    now: datetime | None = None,
) -> tuple[JobRow, bool]:
    """The job of a request, and whether it is new.

    The same request gives the job there is, whatever its state; with `force` it makes another one. A job of
    another owner counts only as long as it goes well: nobody but its owner could resume it.

    Parameters
    ----------
    spec : Spec or ModelRequest
        What is asked for.
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
    priority : int
        From -100 to 100: of the jobs that wait, the one with the highest begins first.
    deadline : datetime, timedelta or None
        When, or how long after now, the job fails if it has not finished.

    Raises
    ------
    ConflictError
        The key was used for another request.
    RequestError
        The priority is out of range, or the deadline is past.
    """
    one_at_a_time(session, "submit")
    order = order_of(spec)
    digest = job_identity(order, target, measure)
    known = _known_by_key(session, order, force, measure, idempotency_key)
    if known is None and not force:
        known = _known(session, digest, idempotency_key, owner)
    if known is not None:
        return known, False
    now = now or clock(session)
    deadline_at = _checked(priority, deadline, now)
    workload, content = workload_of(spec)
    remember_workload(session, workload, content, now)
    if device is not None:
        remember_device(session, *device, now)
    row = JobRow(
        id=secrets.token_hex(8),
        digest=digest,
        idempotency_key=idempotency_key,
        name=spec.name,
        kind=kind_of(spec),
        owner=owner,
        workload=workload,
        device_id=None if device is None else device[0],
        spec=order.to_json(),
        target=target,
        force=force,
        measure=measure,
        state=_ready(runnable),
        attempt=0,
        measured=0,
        cancel_requested=False,
        priority=priority,
        deadline_at=deadline_at,
        num_lost=0,
        num_events=0,
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    session.flush()
    shares.add_job(session, row)
    enter(session, row, _ready(runnable), now)
    return row, True


def _checked(priority: int, deadline: datetime | timedelta | None, now: datetime) -> datetime | None:
    """The time of a deadline, from now or as it is."""
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise RequestError(f"priority: given {clip(priority)}; allowed: -{MAX_PRIORITY} to {MAX_PRIORITY}")
    at = now + deadline if isinstance(deadline, timedelta) else deadline
    if at is not None and at <= now:
        raise RequestError(
            f"deadline: given {at.isoformat()}, which is past; allowed: seconds from now, or a time to come"
        )
    return at


def _known_by_key(
    session: Session, asked: Spec | ModelOrder, force: bool, measure: bool, key: str | None
) -> JobRow | None:
    """The job that a key was used for; what its target was resolved to may have changed since.

    Raises
    ------
    ConflictError
        It was another request.
    """
    row = session.scalar(select(JobRow).where(JobRow.idempotency_key == key)) if key is not None else None
    if row is None:
        return None
    given, known = (job_identity(one, {}, measure) for one in (asked, asked_of(row)))
    if (given, force, measure) != (known, row.force, row.measure):
        raise ConflictError(
            f"Idempotency-Key {clip(key)} was used for another request, job {row.id!r}; "
            "use a new key for each request"
        )
    return row


def find(session: Session, digest: str, owner: str) -> JobRow | None:
    """The job that a submission of this content gives, by the digest of `subjects.job_identity`."""
    return session.scalar(
        select(JobRow)
        .where(JobRow.digest == digest, or_(JobRow.owner == owner, JobRow.state.in_(_GOING_WELL)))
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(1)
    )


def _known(session: Session, digest: str, key: str | None, owner: str) -> JobRow | None:
    row = find(session, digest, owner)
    if row is not None and key is not None and (row.idempotency_key, row.owner) == (None, owner):
        row.idempotency_key = key
        session.flush()
    return row


def get(session: Session, job_id: str) -> JobRow:
    """One job.

    Raises
    ------
    NotFoundError
        No job has this id.
    """
    row = session.get(JobRow, plain(job_id))
    if row is None:
        raise no_such_job(job_id)
    return row


def request_cancel(session: Session, job_id: str, *, now: datetime | None = None) -> JobRow:
    """Cancel a job that nobody works on; ask the worker of a running one to end it.

    Raises
    ------
    NotFoundError
        There is no such job.
    ConflictError
        It has succeeded or failed.
    """
    row, now = locked(session, job_id), now or clock(session)
    state = JobState(row.state)
    if state in _CANCELLED_AT_ONCE:
        enter(session, row, JobState.CANCELLED, now)
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
    device: DeviceIdentity | None = None,
    now: datetime | None = None,
) -> JobRow:
    """Queue an interrupted, failed or cancelled job again, or one that waited for a runner that is here now.

    What it measured is kept; its deadline is not, and its attempts count anew. A job that waits for its next
    attempt begins at once.

    Parameters
    ----------
    runnable, device
        As `submit` takes them.

    Raises
    ------
    NotFoundError
        There is no such job.
    ConflictError
        It has succeeded, is being cancelled, or has `MAX_EVENTS` events.
    """
    row, now = locked(session, job_id), now or clock(session)
    state = JobState(row.state)
    if state in _RESUMABLE or (state == JobState.WAITING_FOR_RUNNER and runnable):
        if row.num_events >= MAX_EVENTS:  # all are kept as long as it is
            raise ConflictError(
                f"job {row.id!r} has {row.num_events} events, and is resumed no more; submit it with force"
            )
        if device is not None:
            remember_device(session, *device, now)
            row.device_id = device[0]
        elif architectures.names_one(row.target):
            row.device_id = None  # built from records, or for the first GPU that comes
        row.error, row.finished_at, row.cancel_requested = None, None, False
        row.num_lost, row.not_before, row.deadline_at = 0, None, None
        enter(session, row, _ready(runnable), now, "resumed")
    elif state == JobState.SUCCEEDED:
        raise ConflictError(f"job {row.id!r} has succeeded already; submit with force to measure again")
    elif row.cancel_requested:
        raise ConflictError(f"job {row.id!r} is being cancelled; resume it once it is cancelled")
    elif row.not_before is not None:
        row.not_before = None
        session.flush()
    return row


def add_progress(
    session: Session,
    job_id: str,
    progress: Progress,
    data: dict[str, Any] | None = None,
    *,
    runner: str | None = None,
    now: datetime | None = None,
) -> None:
    """Note a step of a job.

    Parameters
    ----------
    runner : str or None
        Only if this runner holds the job.

    Raises
    ------
    NotFoundError
        There is no such job.
    LeaseLostError
        The runner has lost it.
    """
    row = locked(session, job_id) if runner is None else require(session, job_id, runner, now=now)
    row.progress = progress.model_dump(mode="json")
    add_event(
        session,
        row,
        now or clock(session),
        kind="progress",
        progress=row.progress,
        message=progress.message,
        data=data or {},
    )


def _ready(runnable: bool) -> JobState:
    return JobState.QUEUED if runnable else JobState.WAITING_FOR_RUNNER
