"""A job's page: its state, stages, best throughput and log, also as fragments that are asked for again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from sqlalchemy.orm import Session

from dietcode.protocol import FINAL_STATES, RESTING_STATES, Job, JobState
from dietcode.target.kinds import kind_of_target
from dietcode_server.api.callers import Caller, CallerOf
from dietcode_server.api.names import check_job_id
from dietcode_server.api.services import ServicesOf
from dietcode_server.dashboard.actions import actions
from dietcode_server.dashboard.graphs import GraphView, graph_of
from dietcode_server.dashboard.jobs import duration_secs
from dietcode_server.dashboard.program_view import program_of
from dietcode_server.dashboard.render import page
from dietcode_server.dashboard.structures import structure_of
from dietcode_server.store import history, jobs, wire
from dietcode_server.store.clock import clock
from dietcode_server.store.history import Point, TimelineEntry, View
from dietcode_server.store.tables import MODEL, JobRow, LibraryRow

STAGES = {
    "calibrate": "how well this machine's cores work side by side (κ)",
    "seed": "a search by MetaSchedule on the largest instance, where the first round is slow, for a tile",
    "measure": "micro-kernels, in rounds: drop what nobody votes for, grow where shapes are served badly",
    "select": "fit the cost model, and choose categories",
    "build": "compile the chosen micro-kernels and the dispatch rule",
    "verify": "compare results with float64",
    "compare": "measure the library beside the vendor's kernels",
    "publish": "store the library as the next version of its name",
}
MAX_SHOWN_CHARS = 20_000  # of a spec; a longer one is the API's to show
NUM_ROWS = 50
MAX_SEQ = 2**31 - 1
_HEADINGS = {"decisions": "decisions", "measurements": "measurements", "all": "everything"}

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)
_View = TypeVar("_View")
Seq = Annotated[int | None, Query(ge=0, le=MAX_SEQ)]


@dataclass(frozen=True)
class JobStage:
    """A stage of a job.

    Attributes
    ----------
    status : str
        done, now, stopped (the job ended or rests in it), ahead; or skipped (not needed), passed (not run) or
        unreached (the job ended before it).
    secs : float or None
        How long the newest attempt has worked on it; None where it has not.
    why_not : str or None
        Why it was not run.
    """

    name: str
    meaning: str
    status: str
    secs: float | None
    why_not: str | None


@router.get("", response_class=HTMLResponse)
def show_job(
    request: Request,
    job_id: str,
    services: ServicesOf,
    caller: CallerOf,
    log: Annotated[View, Query()] = "decisions",
    before: Seq = None,
) -> Response:
    """The page; without scripts `log` and `before` walk through the log."""
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        return page(
            request,
            "job.html",
            oob=False,
            **_live(session, row, caller),
            **_log(session, job_id, log, before=before),
            num_events=row.num_events,
            spec=_text(row.spec),
            target=_text(row.target),
            views=list(_HEADINGS.items()),
            is_resting=JobState(row.state) in RESTING_STATES,
        )


@router.get("/live", response_class=HTMLResponse)
def show_live(request: Request, job_id: str, services: ServicesOf, caller: CallerOf) -> Response:
    """The fragments that change while a job works: state, stages, figures."""
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        return page(request, "_job_live.html", oob=True, **_live(session, row, caller))


@router.get("/log", response_class=HTMLResponse)
def show_log(
    request: Request,
    job_id: str,
    services: ServicesOf,
    log: Annotated[View, Query()] = "decisions",
    before: Seq = None,
    after: Seq = None,
) -> Response:
    """Rows of the log: those before a number with the way to older ones, or those after one alone."""
    with services.database.read() as session:
        jobs.get(session, check_job_id(job_id))
        found = _log(session, job_id, log, before=before, after=after)
        return page(request, "_job_log.html", job_id=job_id, newest_only=after is not None, **found)


@router.get("/series")
def show_series(job_id: str, services: ServicesOf) -> Response:
    """The best throughput over the time that workers spent, and each trial's, for the chart."""
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        found = history.history_of(session, job_id)
        until = history.worked_secs_at(found.timeline, _end(row, clock(session)))
        trials = history.trials_of(session, job_id, found.timeline)
    dots = [[round(t.worked_secs, 2), round(t.gflops, 2), t.message] for t in trials]
    series = [[round(p.worked_secs, 2), round(p.gflops, 2), p.stage, p.message] for p in found.points]
    return JSONResponse({"points": series, "trials": dots, "until": round(until, 2)})


def _live(session: Session, row: JobRow, caller: Caller) -> dict[str, Any]:
    """Return the context of ``_job_live.html``."""
    job, now = wire.to_wire(session, row), clock(session)
    found, end = history.history_of(session, row.id), _end(row, now)
    return {
        "job": job,
        "actions": actions(job, caller),
        "structure": _shown_of(session, row, "recursion", structure_of),
        "program": _shown_of(session, row, "program", program_of),
        "graph": _graph(session, row),
        "took": duration_secs(job, now),
        "stages": stages_of(job, found.timeline, end),
        "advice": advice_for(job),
        "points": found.points,
        "best": _best(found.points),
        "worked_secs": history.worked_secs_at(found.timeline, end),
    }


def _shown_of(
    session: Session, row: JobRow, kind: str, view: Callable[[Session, str, LibraryRow | None], _View]
) -> _View | None:
    """Return what is shown of a job about a recursion or a program; None of jobs of another kind."""
    if kind not in row.spec:
        return None
    library = None if row.library_id is None else session.get(LibraryRow, row.library_id)
    return view(session, row.workload, library)


def _graph(session: Session, row: JobRow) -> GraphView | None:
    """Return what is shown of a model's graph; None before its bundle is there, and of other jobs."""
    if row.kind != MODEL or row.library_id is None:
        return None
    library = session.get(LibraryRow, row.library_id)
    return None if library is None else graph_of(session, library)


def _end(row: JobRow, now: datetime) -> datetime:
    return now if JobState(row.state) == JobState.RUNNING else row.finished_at or row.updated_at


def stages_of(job: Job, timeline: list[TimelineEntry], end: datetime) -> list[JobStage]:
    """Return every stage, with the newest attempt's status in it."""
    attempt = max((step.attempt for step in timeline), default=0)
    own = [step for step in timeline if step.attempt == attempt > 0]
    spent: dict[str, float] = {}
    for step, following in zip_longest(own, own[1:]):
        if not step.is_state:
            until = following.worked_secs if following else step.worked_secs + _since(step, end)
            spent[step.name] = spent.get(step.name, 0.0) + until - step.worked_secs
    why_not = {step.name: step.not_run for step in own if not step.is_state}
    newest = next((step.name for step in reversed(own) if not step.is_state), None)
    return [
        JobStage(name, meaning, _status(name, job, why_not, newest), spent.get(name), why_not.get(name))
        for name, meaning in STAGES.items()
    ]


def _since(step: TimelineEntry, end: datetime) -> float:
    return max(0.0, (end - step.at).total_seconds())


def _status(name: str, job: Job, seen: Mapping[str, str | None], newest: str | None) -> str:
    """Return a stage's status; `seen` has the stages that a job reached, each with why it was not run."""
    if seen.get(name) is not None:
        return "passed"
    if job.state == JobState.SUCCEEDED:
        return "done" if name in seen else "skipped"
    if name == newest:
        return "now" if job.state == JobState.RUNNING else "stopped"
    order = list(STAGES)
    if name in seen:
        return "done"
    # What has its turn before the search may also come in its middle.
    if newest is not None and newest in order and order.index(name) < order.index(newest):
        return "skipped"
    return "unreached" if job.state in FINAL_STATES else "ahead"


def _best(points: list[Point]) -> Point | None:
    return max(points, key=lambda point: point.gflops, default=None)


def advice_for(job: Job) -> str | None:
    """Return what can be done about a job that does not go on; None where it does."""
    if job.state == JobState.WAITING_FOR_RUNNER:
        kind = kind_of_target(job.target)
        or_records = f", or records of {kind.noun}" if kind.names_architecture and not job.force else ""
        return f"It begins by itself once a runner for its target is there{or_records}."
    if job.state == JobState.INTERRUPTED:
        return (
            "Its worker died again and again. Look for what killed it (memory, a restart), then resume it: "
            "what was measured is kept."
        )
    if job.state == JobState.FAILED:
        changed = "clone it, change the spec, and submit that"
        if job.kind == "model":
            changed = "change the model, and submit it by `dietcode submit`"
        return f"Resume it once the reason is gone; or {changed}."
    return None


def _log(
    session: Session, job_id: str, view: View, *, before: int | None = None, after: int | None = None
) -> dict[str, Any]:
    limit = history.MAX_LOG if after is not None else NUM_ROWS
    rows, more = history.log(session, job_id, view, before=before, after=after, limit=limit)
    events = [wire.event_to_wire(row) for row in rows]
    return {
        "view": view,
        "events": [(event, history.summary_of(event.data)) for event in events],
        "older": events[-1].id if more else None,
    }


def _text(data: dict[str, Any]) -> dict[str, Any] | None:
    """Data to be shown, unless it is long."""
    return data if len(json.dumps(data)) <= MAX_SHOWN_CHARS else None
