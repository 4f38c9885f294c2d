"""What a server that begins goes on with: database, engine, HTTP; and its orderly end."""

from __future__ import annotations

import resource
import socket
import sys
from contextlib import ExitStack
from threading import Event

import uvicorn

from dietcode_server.api.address import is_loopback
from dietcode_server.api.connections import limited
from dietcode_server.app import create_app
from dietcode_server.engine.announced_targets import AnnouncedTargets
from dietcode_server.process import Crew, check_confined, make_crew, unconfined
from dietcode_server.settings import Settings
from dietcode_server.starting import no_token
from dietcode_server.store import tokens
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing

_GRACE_SECS = 3
# Connections are accepted so many at a time, before the number of those that are open is looked at.
_BACKLOG = 64
_OTHER_DESCRIPTORS = 192  # of the database, of blobs that are sent, of children
_MOST_CONNECTIONS = 10_000


def serve(settings: Settings, listener: socket.socket, asked_to_stop: Event) -> None:
    """Serve until SIGTERM or Ctrl-C, in a data folder that is this process's.

    Parameters
    ----------
    listener : socket
        Bound to the address of the settings.
    asked_to_stop : Event
        Set where a signal came before the server was ready for it.

    Raises
    ------
    RequestError
        Others can reach the address, and there is no token; jobs cannot be confined.
    DietCodeError
        The database cannot be opened.
    """
    with ExitStack() as stack:
        database = Database(settings.database)
        stack.callback(database.dispose)
        database.upgrade()
        _check_tokens(settings, database)
        check_confined(settings, database)
        # A server that cannot sign does not start.
        KeyRing(settings.data_dir, settings.signing_key).signing_key()
        targets = AnnouncedTargets(database, settings.jobs and settings.engine == "local")
        crew = make_crew(database, settings, targets, runs_jobs=settings.jobs)
        app = create_app(database, settings, crew.supervisor, targets)
        stack.callback(crew.stop)
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            http=limited(settings.slow_peer_secs, _max_connections()),
            backlog=_BACKLOG,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # nothing that a client says changes who it is
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECS,
        )
        said = [f"serving {_url(listener)}, data in {settings.data_dir}", *unconfined(settings)]
        ready = "\n".join(f"dietcode: {line}" for line in said)
        _Server(config, ready, asked_to_stop, app.state.services.stopping, crew).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it is ready, lets its threads begin, and tells open event streams when it is to stop."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: str,
        stop: Event,
        stopping: Event,
        crew: Crew,
    ) -> None:
        super().__init__(config)
        self._ready, self._stop, self._stopping = ready, stop, stopping
        self._crew = crew

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._stop.is_set():
            self.should_exit = True
        else:
            print(self._ready, file=sys.stderr, flush=True)  # noqa: T201
            self._crew.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


def _check_tokens(settings: Settings, database: Database) -> None:
    """Refuse an address that others can reach where nobody has a token.

    Raises
    ------
    RequestError
        No token is live.
    """
    if is_loopback(settings.host):
        return
    with database.read() as session:
        if not tokens.any_live(session):
            raise no_token(settings)


def _max_connections() -> int:
    """Raise the limit of descriptors as far as it goes, and return how many connections fit below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _OTHER_DESCRIPTORS + _BACKLOG
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    limit = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
    return max(limit - _OTHER_DESCRIPTORS - _BACKLOG, limit // 4)


def _url(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
