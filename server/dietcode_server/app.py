"""The application: routes, guards, metrics and problem documents put together."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from dietcode._version import __version__
from dietcode_server.api import blobs, events, health, jobs, libraries, records, runners, signing, tokens
from dietcode_server.api.address import is_loopback, names_of
from dietcode_server.api.gate import Gate
from dietcode_server.api.guards import Guard
from dietcode_server.api.metrics import RequestMetrics
from dietcode_server.api.openapi import describe, operation_id
from dietcode_server.api.problems import HANDLERS
from dietcode_server.api.reading import HeadAsGet
from dietcode_server.api.services import Services, SupervisorLike
from dietcode_server.dashboard.errors import ErrorPages
from dietcode_server.dashboard.pages import PARTS
from dietcode_server.engine.targets import Targets
from dietcode_server.settings import Settings
from dietcode_server.store.chunks import ChunkCache
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing

_DESCRIPTION = """Tuning jobs and the libraries that they publish.

Every error is a problem document (RFC 9457) whose `detail` is one line: what was given, what is allowed, what
to do. Pages are walked with `cursor`, which is `next` of the page before. A server that asks for tokens
takes one as `Authorization: Bearer`, and for reading also as the password of HTTP Basic."""


def create_app(
    database: Database, settings: Settings, supervisor: SupervisorLike, targets: Targets | None = None
) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    database : Database
        With the schema of this version; stays the caller's.
    supervisor : SupervisorLike
        Told about jobs that were added or changed; stays the caller's.
    targets : Targets, optional
        Resolves the targets of submitted specs.
    """
    keys = KeyRing(settings.data_dir, settings.signing_key)
    services = Services(database, settings, supervisor, keys, ChunkCache(database), targets or Targets())
    app = FastAPI(
        title="DietCode",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        exception_handlers=HANDLERS,
        middleware=[
            Middleware(RequestMetrics, services.metrics),
            Middleware(ErrorPages),
            Middleware(Guard, (*names_of(settings.host), *settings.allowed_hosts), settings.max_body_bytes),
            Middleware(Gate, database, not is_loopback(settings.host), settings.max_wrong_tokens_per_minute),
            Middleware(RequestBodyLimitMiddleware, settings.max_body_bytes),
            Middleware(HeadAsGet),
        ],
    )
    app.state.services = services
    app.state.routes = list(app.routes)
    for part in (jobs, events, runners, records, signing, libraries, blobs, tokens, health, *PARTS):
        app.include_router(part.router)
        app.state.routes += part.router.routes
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    return app
