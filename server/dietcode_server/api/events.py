"""A job's events as a stream of server-sent events.

The database is asked again and again, once for all streams of a job, so that each sees what any process
wrote, in order and once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.types import Receive, Scope, Send

from dietcode.protocol import FINAL_STATES, JobState
from dietcode_server.api import examples
from dietcode_server.api.callers import Caller, CallerOf
from dietcode_server.api.followers import POLL_SECS
from dietcode_server.api.names import check_job_id
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.problems import log
from dietcode_server.api.quotas import admitted_stream
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.store import jobs
from dietcode_server.store.database import StoreError

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
        **problems(404, 422, 429),
    },
)
def follow_events(
    job_id: str,
    services: ServicesOf,
    caller: CallerOf,
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
    return _Admitted(services, caller, _stream(services, job_id, seen))


class _Admitted(EventSourceResponse):
    """A stream that counts before its first byte: of many that are asked for at once none slips by."""

    def __init__(self, services: Services, caller: Caller, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._services, self._caller = services, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with admitted_stream(self._services.followers, self._services.settings, self._caller):
            await super().__call__(scope, receive, send)


async def _stream(services: Services, job_id: str, seen: int) -> AsyncIterator[bytes]:
    """Events with numbers above `seen` until the job is finished, the server stops or the client leaves."""
    followers, sent_at = services.followers, time.monotonic()
    with followers.following(job_id):
        while not services.stopping.is_set():
            try:
                found = followers.known(job_id, seen)
                if found is None:
                    found = await anyio.to_thread.run_sync(followers.news, services.database, job_id, seen)
                events, finished = found
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
