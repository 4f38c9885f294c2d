"""Whether the server lives, whether it can work, and how much it does."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from dietcode_server.api import examples
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.problems import Refusal
from dietcode_server.api.services import ServicesOf
from dietcode_server.process import unconfined

router = APIRouter(tags=["health"])
_OK = {"status": "ok"}


@router.get(
    "/healthz", summary="Does the process live?", responses={200: shows(_OK), **problems(token=False)}
)
async def check_health() -> dict[str, str]:
    """Asks nothing of the database."""
    return _OK


@router.get("/readyz", summary="Can the server work?", responses={200: shows(_OK), **problems(token=False)})
def check_ready(services: ServicesOf) -> dict[str, str | list[str]]:
    """The database answers with the schema that this version needs, and the engine runs.

    `unconfined` has a line for each thing that this machine does not keep what is built and measured from.
    """
    if not services.database.at_head():
        raise Refusal(
            "unavailable", 503, "the database has another schema than this version needs; restart it"
        )
    if not services.supervisor.healthy():
        raise Refusal("unavailable", 503, services.supervisor.trouble())
    missing = unconfined(services.settings, with_paths=False)
    return {**_OK, "unconfined": list(missing)} if missing else {**_OK}


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: shows(examples.METRICS, "text/plain"), **problems()},
)
def read_metrics(services: ServicesOf) -> Response:
    """Jobs by state, what waits, what ended and what was tried; requests and latency by route template."""
    with services.database.read() as session:
        services.metrics.work.read(session)
    services.metrics.engine.set(services.supervisor.healthy())
    text = services.metrics.render()
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})
