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
from dietcode_server.store import gpus, runners
from dietcode_server.store.events import add_event
from dietcode_server.store.tables import JobRow


def no_such_job(job_id: str) -> NotFoundError:
    """What to raise where there is none."""
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
        There is none.
    """
    row: JobRow | None = session.scalar(lock(job_id))
    if row is None:
        raise no_such_job(job_id)
    return row


def enter(session: Session, row: JobRow, state: JobState, now: datetime, message: str = "") -> None:
    """Put a locked job into a state, and leave an event; one that waits for a runner says for which."""
    row.state = state.value
    if state != JobState.RUNNING:
        row.runner, row.leased_until = None, None
    if state in FINAL_STATES:
        row.finished_at = now
    if state == JobState.WAITING_FOR_RUNNER:
        waits = job_waits_for(session, row, runners.without_device(session, now=now))
        message = "; ".join(part for part in (message, waits) if part)
    add_event(session, row, now, kind="state", state=state.value, message=message, data={})


def job_waits_for(session: Session, row: JobRow, silent: Sequence[str]) -> str:
    """What a job waits for that nobody can measure, and what to start.

    Parameters
    ----------
    silent : sequence of str
        As `waits_for` takes them.
    """
    if gpus.is_gpu(row.target):
        return gpus.waits_for(session, row.workload, row.target, force=row.force, measure=row.measure)
    return waits_for(row.target, silent)


def waits_for(target: dict[str, Any], silent: Sequence[str] = ()) -> str:
    """What a job for a CPU that nobody can measure waits for, and what to start.

    Parameters
    ----------
    target : dict
        Resolved, or what the spec says where nobody could resolve it.
    silent : sequence of str
        Runners whose device has not answered: it may be theirs.
    """
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
