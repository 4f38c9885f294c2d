"""What a job's events tell when they are put together: stages, the best throughput over time, the log.

One query looks at every event of the job and returns few: a page does not read ten thousand of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from dietcode.errors import RequestError
from dietcode.protocol import JobState
from dietcode.workload.text import clip
from dietcode_server.store.tables import EventRow
from dietcode_server.store.transitions import plain

View = Literal["decisions", "measurements", "all"]
VIEWS: tuple[View, ...] = get_args(View)
MAX_LOG = 200
MAX_CHANGES = 2_000


@dataclass(frozen=True)
class TimelineEntry:
    """From here on a job was in a state, or worked on a stage.

    Attributes
    ----------
    name : str
        A `JobState`'s value, or a stage of `Progress`.
    attempt : int
        Counts the times that a worker started, from 1; 0 before the first.
    worked_secs : float
        How long workers had worked on the job by then.
    not_run : str or None
        Why the stage is passed over.
    """

    name: str
    is_state: bool
    at: datetime
    attempt: int
    worked_secs: float
    not_run: str | None = None


@dataclass(frozen=True)
class Point:
    """A new best throughput.

    Attributes
    ----------
    worked_secs : float
        How long workers had worked on the job by then.
    gflops : float
        The best so far, in GFLOP/s.
    message : str
        What reached it, or the step's message.
    """

    worked_secs: float
    gflops: float
    stage: str
    message: str


@dataclass(frozen=True)
class Trial:
    """A micro-kernel that was measured, whether it was the best or not; as `Point`."""

    worked_secs: float
    gflops: float
    message: str


@dataclass(frozen=True)
class History:
    """What a job went through, in order."""

    timeline: list[TimelineEntry]
    points: list[Point]


def history_of(session: Session, job_id: str) -> History:
    """Return the newest `MAX_CHANGES` changes of a job's state, stage or best throughput."""
    stage, best = EventRow.progress["stage"].as_string(), EventRow.progress["best_gflops"].as_float()
    name = func.coalesce(EventRow.state, stage)
    found = (
        select(
            EventRow.seq,
            EventRow.at,
            EventRow.kind,
            EventRow.message,
            name.label("name"),
            func.lag(name).over(order_by=EventRow.seq).label("name_before"),
            best.label("best"),
            func.lag(best).over(order_by=EventRow.seq).label("best_before"),
            EventRow.data["not_run"].as_string().label("not_run"),
        )
        .where(EventRow.job_id == plain(job_id))
        .subquery()
    )
    now = found.c
    steps_on = or_(now.kind == "state", now.name_before.is_(None), now.name_before != now.name)
    improves = and_(now.best.is_not(None), or_(now.best_before.is_(None), now.best_before != now.best))
    query = select(now.at, now.kind, now.name, now.name_before, now.not_run, now.best, now.message)
    changes = or_(steps_on, improves, now.not_run.is_not(None))
    rows = session.execute(query.where(changes).order_by(now.seq.desc()).limit(MAX_CHANGES)).all()[::-1]
    timeline = _clocked(
        [
            (at, kind == "state", str(name), why)
            for at, kind, name, before, why, _, _ in rows
            if kind == "state" or before != name or why is not None
        ]
    )
    points: list[Point] = []
    for at, kind, name, _, _, gflops, message in rows:
        if kind != "state" and gflops is not None and not (points and points[-1].gflops == gflops):
            points.append(Point(worked_secs_at(timeline, at), float(gflops), str(name), message))
    return History(timeline, points)


def trials_of(session: Session, job_id: str, timeline: Sequence[TimelineEntry]) -> list[Trial]:
    """Return the newest `MAX_CHANGES` micro-kernels that a job measured, in order."""
    gflops = EventRow.data["gflops"].as_float()
    query = select(EventRow.at, gflops, EventRow.message).where(
        EventRow.job_id == plain(job_id), EventRow.data["gflops"].as_string().is_not(None)
    )
    rows = session.execute(query.order_by(EventRow.seq.desc()).limit(MAX_CHANGES)).all()[::-1]
    return [Trial(worked_secs_at(timeline, at), float(rate), message) for at, rate, message in rows]


def _clocked(changes: Sequence[tuple[datetime, bool, str, str | None]]) -> list[TimelineEntry]:
    """Steps with the time that workers had worked: what passed while none did is left out."""
    timeline: list[TimelineEntry] = []
    attempt, worked, since = 0, 0.0, None
    for at, is_state, name, why in changes:
        if since is not None:
            worked += max(0.0, (at - since).total_seconds())
        if is_state:
            working = name == JobState.RUNNING.value
            attempt += working
            since = at if working else None
        elif since is not None:
            since = at
        timeline.append(TimelineEntry(name, is_state, at, attempt, worked, why))
    return timeline


def worked_secs_at(timeline: Sequence[TimelineEntry], at: datetime) -> float:
    """Return how long workers had worked on a job at a time."""
    past = [step for step in timeline if step.at <= at]
    if not past:
        return 0.0
    last = past[-1]
    rests = last.is_state and last.name != JobState.RUNNING.value
    return last.worked_secs + (0.0 if rests else (at - last.at).total_seconds())


def log(
    session: Session,
    job_id: str,
    view: View = "decisions",
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = 50,
) -> tuple[list[EventRow], bool]:
    """Events of a job, newest first, and whether there are older ones of the same view.

    Parameters
    ----------
    view : str
        decisions: changes of state, rounds of the search and what else was found out, each once;
        measurements: what each micro-kernel reached, and each instance beside the vendor; all: every event,
        repeated progress included.
    before, after : int, optional
        Only events with numbers below, or above.

    Raises
    ------
    RequestError
        `view` or `limit` is not allowed.
    """
    if view not in VIEWS:
        raise RequestError(f"log: given {clip(view)}; allowed: {', '.join(VIEWS)}")
    if not 1 <= limit <= MAX_LOG:
        raise RequestError(f"limit: given {clip(limit)}; allowed: 1 to {MAX_LOG}")
    wanted = [EventRow.job_id == plain(job_id), *_in_view(view)]
    if before is not None:
        wanted.append(EventRow.seq < before)
    if after is not None:
        wanted.append(EventRow.seq > after)
    query = select(EventRow).where(*wanted).order_by(EventRow.seq.desc()).limit(limit + 1)
    rows = list(session.scalars(query))
    return rows[:limit], len(rows) > limit


def _in_view(view: View) -> list[ColumnElement[bool]]:
    stage = EventRow.progress["stage"].as_string()
    # The key of a round; what was measured has others, or none.
    is_round = EventRow.data["number"].as_string().is_not(None)
    compared = and_(stage == "compare", EventRow.progress["done"].as_integer() > 0)
    measured = or_(and_(stage == "measure", ~is_round), compared)
    if view == "measurements":
        return [measured]
    if view == "all":
        return []
    done, total = (EventRow.progress[key].as_integer() for key in ("done", "total"))
    left = EventRow.progress["secs_left"].as_float()
    searching = and_(stage == "seed", or_(done < total, left.is_not(None)))
    return [or_(EventRow.kind == "state", ~or_(measured, searching))]


def summary_of(data: dict[str, Any]) -> dict[str, Any] | None:
    """A round's facts, where an event's data are those of one."""
    return data if isinstance(data.get("number"), int) and "measured" in data else None
