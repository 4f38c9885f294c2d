"""Runners: who runs jobs, and what they can measure."""

from __future__ import annotations

from fastapi import APIRouter

from dietcode.protocol import RunnerList
from dietcode_server.api import examples
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.services import ServicesOf
from dietcode_server.store import runners, wire

router = APIRouter(prefix="/api/v1/runners", tags=["runners"])


@router.get("", summary="List runners", responses={200: shows(examples.RUNNERS), **problems()})
def list_runners(services: ServicesOf) -> RunnerList:
    """Servers and workers that announced themselves lately, their devices and the jobs that they work on."""
    with services.database.read() as session:
        return RunnerList(runners=[wire.runner_to_wire(row) for row in runners.live(session)])
