"""How a job gets from one state into the next: its row is locked, changed, and an event is left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.errors import NotFoundError
from dietcode.protocol import FINAL_STATES, JobState
from dietcode.workload.text import clip
from dietcode_server.store import architectures, runners
from dietcode_server.store.events import add_event
from dietcode_server.store.tables import JobRow


def no_such_job(job_id: str) -> NotFoundError:
    """Return the error for an unknown job."""
    return NotFoundError(f"job {clip(job_id)}: no such job; `dietcode jobs` lists them")


def plain(job_id: str) -> str:
    """An id that PostgreSQL takes, too: its texts have no NUL. What had one stays the id of no job."""
    return job_id.replace("\0", "?")


def lock(job_id: str) -> Any:
    """A query for a job's row as it is now, which nobody else changes before the transaction ends."""
    query = select(JobRow).where(JobRow.id == plain(job_id))
    return query.with_for_update(key_share=True).execution_options(populate_existing=True)


def locked(session: Session, job_id: str) -> JobRow:
    """The row that `lock` asks for.

    Raises
    ------
    NotFoundError
        There is no such job.
    """
    row: JobRow | None = session.scalar(lock(job_id))
    if row is None:
        raise no_such_job(job_id)
    return row


def enter(session: Session, row: JobRow, state: JobState, now: datetime, message: str = "") -> None:
    """Put a locked job into a state, and leave an event; one that waits for a runner says for which.

    Parameters
    ----------
    row : JobRow
        Locked.
    state : JobState
    now : datetime
    message : str
        Of the event.
    """
    row.state = state.value
    if state != JobState.RUNNING:
        row.runner, row.leased_until = None, None
    if state in FINAL_STATES:
        row.finished_at = now
    if state == JobState.WAITING_FOR_RUNNER:
        waits = waits_for(
            session,
            row.workload,
            row.target,
            force=row.force,
            measure=row.measure,
            silent=runners.without_device(session, now=now),
        )
        message = "; ".join(part for part in (message, waits) if part)
    add_event(session, row, now, kind="state", state=state.value, message=message, data={})


def waits_for(
    session: Session,
    workload: str,
    target: dict[str, Any],
    *,
    force: bool,
    measure: bool,
    silent: Sequence[str] = (),
) -> str:
    """Say what a job that nobody can measure waits for, and what to start.

    Parameters
    ----------
    target : dict
        Resolved, or what the spec says where nobody could resolve it.
    force, measure : bool
        As of the job.
    silent : sequence of str
        Runners whose device has not answered: it may be theirs.
    """
    if architectures.names_one(target):
        return architectures.waits_for(session, workload, target, force=force, measure=measure)
    what = (
        f"mcpu {target['mcpu']}"
        if "mcpu" in target
        else str(target.get("tag") or target.get("kind") or "its target")
    )
    if "num_cores" in target:
        what += f" with {target['num_cores']} cores"
    start = "run `dietcode worker` on a machine that can"
    if silent:
        start += f", or start the RPC server behind {', '.join(silent)}, which has not answered"
    return f"no runner can measure {what}; {start}"
