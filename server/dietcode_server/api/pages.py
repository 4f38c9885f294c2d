"""The dashboard: plain pages that reload themselves, without a script."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from dietcode._version import __version__
from dietcode.protocol import RESTING_STATES
from dietcode_server.api.names import check_job_id
from dietcode_server.api.services import ServicesOf
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, libraries, wire

MAX_ROWS = 50
MAX_EVENTS = 200
_RELOAD_SECS = 5

router = APIRouter(include_in_schema=False)


@router.get("/", response_class=HTMLResponse)
def show_dashboard(services: ServicesOf) -> Response:
    """The newest jobs and libraries."""
    with services.database.read() as session:
        job_rows, _ = jobs.list_jobs(session, limit=MAX_ROWS)
        library_rows, _ = libraries.list_libraries(session, limit=MAX_ROWS)
        return _page(
            "dashboard.html",
            jobs=wire.jobs_to_wire(session, job_rows),
            libraries=wire.libraries_to_wire(session, library_rows),
            reload_secs=_RELOAD_SECS,
        )


@router.get("/jobs/{job_id}", response_class=HTMLResponse)
def show_job_page(job_id: str, services: ServicesOf) -> Response:
    """A job with its newest events."""
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        job = wire.to_wire(session, row)
        events = job_events.events_after(session, job_id, max(0, row.num_events - MAX_EVENTS), MAX_EVENTS)
        return _page(
            "job.html",
            job=job,
            events=[wire.event_to_wire(event) for event in reversed(events)],
            num_events=row.num_events,
            reload_secs=None if job.state in RESTING_STATES else _RELOAD_SECS,
        )


@router.get("/style.css")
async def show_style() -> Response:
    """The one style sheet."""
    return Response(_style(), media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def _page(template: str, **context: Any) -> Response:
    return HTMLResponse(_templates().get_template(template).render(context))


@cache
def _style() -> str:
    return (files("dietcode_server.api") / "templates" / "style.css").read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("dietcode_server.api"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"time": _time, "size": _size, "pretty": _pretty}
    environment.globals["version"] = __version__
    return environment


def _time(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def _size(num_bytes: int) -> str:
    if num_bytes < 1024:
        return f"{num_bytes} B"
    return f"{num_bytes / 1024:.1f} KiB" if num_bytes < 1 << 20 else f"{num_bytes / (1 << 20):.1f} MiB"


def _pretty(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)
