"""A job's events as a stream of server-sent events.

The database is asked again and again, so that a stream sees what any process wrote, in order and once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from dietcode.protocol import FINAL_STATES, JobEvent, JobState
from dietcode_server.api import examples
from dietcode_server.api.names import check_job_id
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.problems import log
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, wire
from dietcode_server.store.database import Database, StoreError

POLL_SECS = 0.25
KEEPALIVE_SECS = 15.0
_MAX_SEQ = 2**31 - 1

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_class=Response,
    responses={
        200: shows(
            examples.EVENTS,
            "text/event-stream",
            "Each event has the number, the kind and, as data, a JobEvent in JSON.",
        ),
        204: {"description": "The job is finished and all its events were seen: do not ask again."},
        **problems(404, 422),
    },
)
def follow_events(
    job_id: str,
    services: ServicesOf,
    last_event_id: Annotated[
        int | None,
        Header(alias="Last-Event-ID", ge=0, le=_MAX_SEQ, description="Only events after this one."),
    ] = None,
    after: Annotated[
        int, Query(ge=0, le=_MAX_SEQ, description="The same, for clients that cannot set headers.")
    ] = 0,
) -> Response:
    """All events from the first, or from the one after Last-Event-ID; ends when the job has."""
    seen = after if last_event_id is None else last_event_id
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        if JobState(row.state) in FINAL_STATES and seen >= row.num_events:
            return Response(status_code=204)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(_stream(services, job_id, seen), headers=headers)


async def _stream(services: Services, job_id: str, seen: int) -> AsyncIterator[bytes]:
    """Events with numbers above `seen` until the job is finished, the server stops or the client leaves."""
    sent_at = time.monotonic()
    while not services.stopping.is_set():
        try:
            events, finished = await anyio.to_thread.run_sync(news, services.database, job_id, seen)
        except StoreError as error:  # the client comes back and asks for what it has not seen
            log.error("events of job %s: %s", job_id, error)
            return
        for event in events:
            yield format_sse_event(data_str=event.model_dump_json(), event=event.kind, id=str(event.id))
            seen = event.id
        now = time.monotonic()
        if events:
            sent_at = now
        elif now - sent_at >= KEEPALIVE_SECS:
            yield KEEPALIVE_COMMENT
            sent_at = now
        if finished:
            return
        if not events:
            await anyio.sleep(POLL_SECS)


def news(database: Database, job_id: str, seen: int) -> tuple[list[JobEvent], bool]:
    """Events with numbers above `seen`, and whether they end the story as it stands now."""
    with database.read() as session:
        row = jobs.get(session, job_id)
        state, last = JobState(row.state), row.num_events
        # Where another process adds events in between, they wait for the next question.
        rows = [event for event in job_events.events_after(session, job_id, seen) if event.seq <= last]
        seen = rows[-1].seq if rows else seen
        return [wire.event_to_wire(event) for event in rows], state in FINAL_STATES and seen >= last
