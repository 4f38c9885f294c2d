"""The list of jobs, and a job's page."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from dietcode.protocol import RESTING_STATES
from dietcode_server.api.names import check_job_id
from dietcode_server.api.services import ServicesOf
from dietcode_server.dashboard.render import page
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, libraries, wire

MAX_ROWS = 50
MAX_EVENTS = 200
_RELOAD_SECS = 5

router = APIRouter(include_in_schema=False)


@router.get("/", response_class=HTMLResponse)
def show_dashboard(request: Request, services: ServicesOf) -> Response:
    """The newest jobs and libraries."""
    with services.database.read() as session:
        job_rows, _ = jobs.list_jobs(session, limit=MAX_ROWS)
        library_rows, _ = libraries.list_libraries(session, limit=MAX_ROWS)
        return page(
            request,
            "jobs.html",
            jobs=wire.jobs_to_wire(session, job_rows),
            libraries=wire.libraries_to_wire(session, library_rows),
            reload_secs=_RELOAD_SECS,
        )


@router.get("/jobs/{job_id}", response_class=HTMLResponse)
def show_job_page(request: Request, job_id: str, services: ServicesOf) -> Response:
    """A job with its newest events."""
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        job = wire.to_wire(session, row)
        events = job_events.events_after(session, job_id, max(0, row.num_events - MAX_EVENTS), MAX_EVENTS)
        return page(
            request,
            "job.html",
            job=job,
            events=[wire.event_to_wire(event) for event in reversed(events)],
            num_events=row.num_events,
            reload_secs=None if job.state in RESTING_STATES else _RELOAD_SECS,
        )
