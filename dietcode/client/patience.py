"""How long a request may take in all.

httpx2 bounds the wait for each byte: a server that sends one a second, or answers of status 100 without end,
would hold a client for ever. Here each wait ends where the patience with its request ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore2
import httpx2

_LEAST_BYTES_PER_SEC = 4096  # of what is sent, and of an answer's body
_MAX_IDLE_BYTES = 4 << 20  # between two events: comments of many days, and more than an event may have


class Patience:
    """The time that a request has left: some seconds, and more with each byte that gets on.

    Parameters
    ----------
    secs : float
    of_events : bool
        Whether the body may be silent for long: its bytes are counted between events instead.
    """

    def __init__(self, secs: float, of_events: bool = False) -> None:
        self._until, self._of_events = time.monotonic() + secs, of_events
        self._in_body, self._idle_bytes = False, 0

    def left(self, timeout: float | None) -> float | None:
        """Return the seconds that the next wait may take, at most `timeout`.

        Raises
        ------
        httpcore2.ReadTimeout
            None is left.
        """
        if self._of_events and self._in_body:
            if self._idle_bytes > _MAX_IDLE_BYTES:
                raise httpcore2.ReadTimeout("many bytes, and no event")
            return timeout
        left = self._until - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("the whole answer takes too long")
        return left if timeout is None else min(left, timeout)

    def sent(self, num_bytes: int) -> None:
        """Count what was sent."""
        self._until += num_bytes / _LEAST_BYTES_PER_SEC

    def received(self, num_bytes: int) -> None:
        """Count what came; before the body nothing earns more time."""
        if self._in_body:
            self._until += num_bytes / _LEAST_BYTES_PER_SEC
            self._idle_bytes += num_bytes

    def got_on(self) -> None:
        """Note that an event came."""
        self._idle_bytes = 0

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Hold for all connections of this thread or task, until the answer begins."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def reading(self, response: httpx2.Response) -> Iterator[None]:
        """Hold for the connection of an answer that has begun."""
        stream = response.extensions.get("network_stream")
        self._in_body = True
        if not isinstance(stream, _Stream | _AsyncStream):
            yield
            return
        stream.patience = self
        try:
            yield
        finally:
            stream.patience = None


_CURRENT: ContextVar[Patience | None] = ContextVar("patience", default=None)


def bound_waits(client: httpx2.Client | httpx2.AsyncClient) -> None:
    """Have every connection of a client heed the patience with its request; httpx2 has no option for that."""
    kind: type[_Backend | _AsyncBackend] = (
        _AsyncBackend if isinstance(client, httpx2.AsyncClient) else _Backend
    )
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = kind(pool._network_backend)


class _Limited:
    """What the streams of both flavours share."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.patience: Patience | None = None

    def _held(self) -> Patience | None:
        return self.patience or _CURRENT.get()

    def _left(self, timeout: float | None) -> float | None:
        held = self._held()
        return timeout if held is None else held.left(timeout)

    def _count(self, sent: int = 0, received: int = 0) -> None:
        held = self._held()
        if held is not None:
            held.sent(sent)
            held.received(received)

    def get_extra_info(self, info: str) -> Any:
        """As httpcore2's stream."""
        return self._stream.get_extra_info(info)


class _Stream(_Limited, httpcore2.NetworkStream):
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._stream.read(max_bytes, self._left(timeout))
        self._count(received=len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._left(timeout))
        self._count(sent=len(buffer))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._left(timeout)))


class _AsyncStream(_Limited, httpcore2.AsyncNetworkStream):
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = await self._stream.read(max_bytes, self._left(timeout))
        self._count(received=len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, self._left(timeout))
        self._count(sent=len(buffer))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, self._left(timeout)))


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        return _Stream(self._backend.connect_tcp(host, port, timeout, local_address, socket_options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _AsyncBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, backend: httpcore2.AsyncNetworkBackend) -> None:
        self._backend = backend

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        found = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        return _AsyncStream(found)

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)
