"""One server process: what refuses to begin, then its data folder and its port; `serving` has the rest."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack

from dietcode.confinement.parents import hide_secrets
from dietcode.errors import DietCodeError
from dietcode_server.api.address import family_of, is_loopback, parse_host
from dietcode_server.logs import configure_logs
from dietcode_server.settings import DATABASE_NAME, Settings
from dietcode_server.starting import check_installed, locked_folder, no_sudden_end, no_token

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
        asked_to_stop = stack.enter_context(no_sudden_end())
        from dietcode_server.serving import serve  # a second, which nobody waits for who is refused

        serve(settings, listener, asked_to_stop)


def _check_tokens_possible(settings: Settings) -> None:
    """Refuse an address that others can reach before any folder is made, where there can be no token yet.

    Raises
    ------
    RequestError
        There is no database.
    """
    made = settings.database_url or (settings.data_dir / DATABASE_NAME).exists()
    if not is_loopback(settings.host) and not made:
        raise no_token(settings)


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
