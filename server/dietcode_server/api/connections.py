"""Connections: bytes that are not HTTP get a problem document, and slow clients are disconnected.

Neither reaches the application: a request begins there when its headers have arrived.
"""

from __future__ import annotations

import asyncio
import re

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

from dietcode_server.api.guards import HEADERS
from dietcode_server.api.problems import problem

# Lines that end without CR, or go on in the next one: a proxy in front may take both for parts of one value.
_HEAD_END, _ODD_LINE = re.compile(rb"\n\r?\n"), re.compile(rb"(?<!\r)\n|\n[ \t]")
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}


class _Lines(ReceiveBuffer):
    """What has come, of which the heads of requests and what follows their chunks are lines of CR and LF."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Lines up to an empty one, once that is there; `h11.RemoteProtocolError` for other lines."""
        end = _HEAD_END.search(self._data, self._multiple_lines_search)
        if self._data[:1] == b"\n" or (end and _ODD_LINE.search(self._data, 0, end.end())):
            raise h11.RemoteProtocolError("a line that ends in LF alone, or goes on in the next one")
        return super().maybe_extract_lines()


class Connection(H11Protocol):
    """Uvicorn's, with a time by which a request is whole, and one by which an answer is taken.

    Attributes
    ----------
    slow_secs : float
        Both, in seconds; `limited` sets it.
    most : int
        Connections at a time; `limited` sets it.
    all_open : dict
        Those that there are, in the order in which they came.
    """

    slow_secs: float
    most: int
    all_open: dict[Connection, None]

    _arriving: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a first request; where there are too many, the oldest that asks for nothing has to go."""
        super().connection_made(transport)
        self.conn._receive_buffer = _Lines()
        self.all_open[self] = None
        if len(self.all_open) > self.most:
            oldest = next(one for one in self.all_open if one is self or one._is_idle())
            oldest._refuse("unavailable", 503, f"{self.most} connections are open; try again later")
        self._set_clock()

    def data_received(self, data: bytes) -> None:
        """More of a request, or of several."""
        super().data_received(data)
        self._set_clock()

    def on_response_complete(self) -> None:
        """The next request may have begun already."""
        super().on_response_complete()
        self._set_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self.all_open.pop(self, None)
        self._arriving, self._leaving = _ended(self._arriving), _ended(self._leaving)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client takes less than it is sent: it must go on soon."""
        super().pause_writing()
        self._leaving = self._leaving or self.loop.call_later(self.slow_secs, self.transport.abort)

    def resume_writing(self) -> None:
        """The client takes data again: stop the timer."""
        self._leaving = _ended(self._leaving)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not an HTTP request."""
        self._refuse("request", 400, "what was sent is no HTTP/1.1 request; send one with valid headers")

    def _set_clock(self) -> None:
        """Run the timer from the first byte of a request, or the beginning, until the request is whole."""
        if self._is_awaited() and not self.transport.is_closing():
            self._arriving = self._arriving or self.loop.call_later(self.slow_secs, self._too_slow)
        else:
            self._arriving = _ended(self._arriving)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _is_awaited(self) -> bool:
        if self.cycle is None:
            return True
        if self.cycle.response_complete:
            return len(self.conn.trailing_data[0]) > 0
        return self.cycle.more_body

    def _too_slow(self) -> None:
        limit = f"{self.slow_secs:g} s; DIETCODE_SERVE_SLOW_PEER_SECS sets the limit"
        self._refuse("too-slow", 408, f"the request did not arrive within {limit}")

    def _refuse(self, kind: str, status: int, detail: str) -> None:
        """Answer where nothing was answered yet, and hang up."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # so that nobody waits for the rest of the body, or answers
            self.cycle.message_event.set()
        answer = problem(kind, status, detail, headers={**HEADERS, "Connection": "close"})
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            head = h11.Response(status_code=status, headers=answer.raw_headers, reason=_REASONS[status])
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def limited(slow_secs: float, most: int) -> type[Connection]:
    """So many connections, whose requests arrive, and whose answers are taken, within so many seconds."""

    class Limited(Connection):
        pass

    Limited.slow_secs, Limited.most, Limited.all_open = slow_secs, most, {}
    return Limited


def _ended(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer that is not needed; return None in its place."""
    if timer is not None:
        timer.cancel()
    return None
