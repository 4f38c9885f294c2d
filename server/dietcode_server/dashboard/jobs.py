"""The list of jobs: filtered, sorted and paged by its URL, with or without scripts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from dietcode.protocol import Job, JobState
from dietcode_server.api.callers import CallerOf
from dietcode_server.api.services import ServicesOf
from dietcode_server.dashboard.actions import actions, why_not_submit
from dietcode_server.dashboard.render import is_fragment, page
from dietcode_server.dashboard.summaries import summaries
from dietcode_server.store import jobs, wire
from dietcode_server.store.clock import clock
from dietcode_server.store.comparisons import speed_ups
from dietcode_server.store.job_lists import MAX_SEARCH_CHARS, ORDERS, Order

NUM_ROWS = 50
_ORDER_NAMES = {"newest": "newest first", "oldest": "oldest first", "finished": "last finished first"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Filters:
    """The filters of a list: the query of its URL.

    Attributes
    ----------
    q : str
        Text in the names of the jobs; empty for all.
    owner : str
        Whose jobs; empty for everybody's.
    cursor : str or None
        Where the page begins; None for the first.
    """

    q: str = ""
    state: JobState | None = None
    owner: str = ""
    order: Order = "newest"
    cursor: str | None = None

    def url(self, **changes: object) -> str:
        """The list with these filters, some of them changed; another filter begins at its first page."""
        other = replace(self, **({"cursor": None} | changes))  # type: ignore[arg-type]
        given = {
            "q": other.q,
            "state": other.state.value if other.state else "",
            "owner": other.owner,
            "order": "" if other.order == "newest" else other.order,
            "cursor": other.cursor or "",
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/?{query}" if query else "/"

    @property
    def are_set(self) -> bool:
        """Return whether some jobs may be left out."""
        return bool(self.q or self.state or self.owner)


@router.get("/", response_class=HTMLResponse)
def show_jobs(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    q: Annotated[str, Query(max_length=MAX_SEARCH_CHARS)] = "",
    state: Annotated[JobState | None, Query()] = None,
    owner: Annotated[str, Query(max_length=64)] = "",
    order: Annotated[Order, Query()] = "newest",
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """The list, or what changes in it for htmx."""
    filters = Filters(q.strip(), state, owner.strip(), order, cursor)
    typed = request.headers.get("hx-trigger") == "filters"  # then the address bar says what is shown
    with services.database.read() as session:
        return page(
            request,
            "_jobs.html" if is_fragment(request) else "jobs.html",
            headers={"HX-Replace-Url": filters.url()} if typed else None,
            filters=filters,
            orders=[(name, _ORDER_NAMES[name]) for name in ORDERS],
            why_not_submit=why_not_submit(caller),
            actions=lambda job: actions(job, caller),
            **_found(session, filters),
        )


def _found(session: Session, filters: Filters) -> dict[str, Any]:
    """Return the rows that the page shows."""
    only = {"search": filters.q or None, "owner": filters.owner or None}
    counts = jobs.count_by_state(session, **only)
    states = () if filters.state is None else (filters.state,)
    found = jobs.page_of_jobs(
        session, states=states, order=filters.order, limit=NUM_ROWS, cursor=filters.cursor, **only
    )
    now = clock(session)
    rows = wire.jobs_to_wire(session, found.rows)
    said = summaries(session, {row.workload for row in found.rows})
    speeds = speed_ups(session, {row.library_id for row in found.rows if row.library_id is not None})
    return {
        "jobs": [
            (job, duration_secs(job, now), said.get(row.workload), speeds.get(row.library_id or 0))
            for row, job in zip(found.rows, rows, strict=True)
        ],
        "counts": counts,
        "num_jobs": sum(counts.values()),
        "next": found.next,
        "previous": found.previous,
    }


def duration_secs(job: Job, now: datetime) -> float | None:
    """Seconds from a job's start to its end, or until now where it runs; None before it started."""
    end = job.finished_at or (now if job.state == JobState.RUNNING else job.updated_at)
    return None if job.started_at is None else max(0.0, (end - job.started_at).total_seconds())
