"""One server process: data folder, database, engine, HTTP; and its orderly end."""

from __future__ import annotations

import os
import resource
import socket
import sys
from contextlib import ExitStack
from threading import Event

import uvicorn

from dietcode.confinement.parents import hide_secrets
from dietcode.errors import DietCodeError, RequestError
from dietcode.workload.text import clip
from dietcode_server.api.address import family_of, is_loopback, parse_host
from dietcode_server.api.connections import limited
from dietcode_server.app import create_app
from dietcode_server.engine.announced_targets import AnnouncedTargets
from dietcode_server.logs import configure_logs
from dietcode_server.process import (
    Crew,
    check_confined,
    check_installed,
    locked_folder,
    make_crew,
    no_sudden_end,
    unconfined,
)
from dietcode_server.settings import DATABASE_NAME, Settings
from dietcode_server.store import tokens
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing

_GRACE_SECS = 3
# Connections are accepted so many at a time, before the number of those that are open is looked at.
_BACKLOG = 64
_OTHER_DESCRIPTORS = 192  # of the database, of blobs that are sent, of children
_MOST_CONNECTIONS = 10_000
# The event loop gives Python up with each send, and has it again after so long from a thread that computes.
_SWITCH_SECS = 0.001


def run(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises
    ------
    RequestError
        Others can reach the address, and there is no token; a package is missing that its jobs need.
    DietCodeError
        The data folder cannot be used, the port is taken, or the database cannot be opened.
    """
    configure_logs(settings.log_format)
    hide_secrets()
    sys.setswitchinterval(_SWITCH_SECS)
    address = parse_host(settings.host)
    _check_tokens_possible(settings)
    if settings.jobs:
        check_installed(settings)
    with ExitStack() as stack:
        stack.enter_context(locked_folder(settings.data_dir, "server"))
        listener = stack.enter_context(_listen(family_of(address), str(address), settings.port))
        database = Database(settings.database)
        stack.callback(database.dispose)
        asked_to_stop = stack.enter_context(no_sudden_end())
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


def _check_tokens_possible(settings: Settings) -> None:
    """Refuse an address that others can reach before any folder is made, where there can be no token yet.

    Raises
    ------
    RequestError
        There is no database.
    """
    made = settings.database_url or (settings.data_dir / DATABASE_NAME).exists()
    if not is_loopback(settings.host) and not made:
        raise _no_token(settings)


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
            raise _no_token(settings)


def _no_token(settings: Settings) -> RequestError:
    return RequestError(
        f"--host: given {clip(settings.host)}, which others can reach, but there are no live tokens; "
        "run `dietcode token create NAME` with the same --data-dir first, or listen on 127.0.0.1"
    )


def _listen(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    # With the protocol named, asyncio turns Nagle's delay off, which costs 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno or 0).lower()
        raise DietCodeError(
            f"{address} port {port}: {reason}; choose another with --port, or 0 for a free one"
        ) from error
    return listener


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
