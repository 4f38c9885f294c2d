"""Sending calls with httpx2, in two flavours, and turning what goes wrong into DietCode's errors.

Redirects are not followed, answers have a largest size, and nothing is decompressed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2

from dietcode.client.address import API, Address
from dietcode.client.answers import Answer, check_status, error_from, error_of_transport
from dietcode.client.calls import RestCall
from dietcode.client.patience import Patience, bound_waits
from dietcode.errors import RequestError, ServerError
from dietcode.workload.text import clip, one_line

T = TypeVar("T")

_MAX_PROBLEM_BYTES = 1 << 20


class _Base:
    """The settings of both transports: the address and the time to wait for a byte, in seconds."""

    def __init__(self, address: Address, timeout_secs: float) -> None:
        if not 0 < timeout_secs < 1e6:
            raise RequestError(f"timeout_secs: given {clip(timeout_secs)}; allowed: seconds above 0")
        self.address = address
        self.timeout_secs = timeout_secs

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "headers": self.address.headers,
            "timeout": self.timeout_secs,
            "follow_redirects": False,
            "trust_env": not self.address.is_loopback,
            # Reading the certificates takes tens of milliseconds, and plain HTTP has no use for them.
            "verify": self.address.server.startswith("https:"),
        }

    def _url(self, path: str) -> str:
        return f"{self.address.server}{API}{path}"

    @contextmanager
    def _translated(self, timeout_secs: float | None = None) -> Iterator[None]:
        """Turn httpx2's errors into `ServerError`."""
        try:
            yield
        except httpx2.SSEError as error:
            raise ServerError(f"{self.address.server}: {one_line(str(error))}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            waited = self.timeout_secs if timeout_secs is None else timeout_secs
            raise error_of_transport(error, self.address.server, waited) from error

    def _arguments(self, call: RestCall[Any]) -> dict[str, Any]:
        given: dict[str, Any] = {"headers": dict(call.headers), "params": list(call.params) or None}
        return given if call.json is None else given | {"json": call.json}


class Transport(_Base):
    """Blocking; may be used by several threads."""

    def __init__(self, address: Address, timeout_secs: float) -> None:
        super().__init__(address, timeout_secs)
        self._http = httpx2.Client(**self._options)
        bound_waits(self._http)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: RestCall[T]) -> T:
        """Send a call and return what it reads from the answer.

        Raises
        ------
        DietCodeError
            As `error_from` says, or `ServerError` where there is no whole answer.
        """
        with self._translated(), ExitStack() as stack:
            patience = Patience(self.timeout_secs)
            with patience.sending():
                opened = self._http.stream(call.method, self._url(call.path), **self._arguments(call))
                response = stack.enter_context(opened)
            stack.enter_context(patience.reading(response))
            body = _Body(response, call.max_bytes)
            for chunk in response.iter_raw():
                body.add(chunk)
            return call.read(body.answer())

    @contextmanager
    def stream(
        self,
        path: str,
        headers: Mapping[str, str],
        read_secs: float | None = None,
        also: int | None = None,
        patience: Patience | None = None,
    ) -> Iterator[httpx2.Response]:
        """Open a body to be read by the caller.

        Parameters
        ----------
        path : str
            Below ``/api/v1``.
        headers : mapping of str to str
        read_secs : float, optional
            Longest wait for a byte; by default that of all requests.
        also : int, optional
            A status of 300 or more that is not raised as an error.
        patience : Patience, optional
            With all of it; by default as long as one answer may take, and longer with each byte.
        """
        timeout = httpx2.Timeout(self.timeout_secs, read=read_secs or self.timeout_secs)
        patience = patience or Patience(self.timeout_secs)
        with self._translated(read_secs), ExitStack() as stack:
            with patience.sending():
                opened = self._http.stream("GET", self._url(path), headers=dict(headers), timeout=timeout)
                response = stack.enter_context(opened)
            stack.enter_context(patience.reading(response))
            if response.status_code >= 300 and response.status_code != also:
                body = _Body(response, _MAX_PROBLEM_BYTES)
                for chunk in response.iter_raw():
                    body.add(chunk)
                body.answer()
            check_status(response.status_code, response.headers, str(response.request.url))
            yield response


class AsyncTransport(_Base):
    """The transport for asyncio."""

    def __init__(self, address: Address, timeout_secs: float) -> None:
        super().__init__(address, timeout_secs)
        self._http = httpx2.AsyncClient(**self._options)
        bound_waits(self._http)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: RestCall[T]) -> T:
        """Send as `Transport.send` does."""
        with self._translated():
            async with AsyncExitStack() as stack:
                patience = Patience(self.timeout_secs)
                with patience.sending():
                    opened = self._http.stream(call.method, self._url(call.path), **self._arguments(call))
                    response = await stack.enter_async_context(opened)
                stack.enter_context(patience.reading(response))
                body = _Body(response, call.max_bytes)
                async for chunk in response.aiter_raw():
                    body.add(chunk)
                return call.read(body.answer())

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        headers: Mapping[str, str],
        read_secs: float | None = None,
        patience: Patience | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Stream as `Transport.stream` does."""
        timeout = httpx2.Timeout(self.timeout_secs, read=read_secs or self.timeout_secs)
        patience = patience or Patience(self.timeout_secs)
        with self._translated(read_secs):
            async with AsyncExitStack() as stack:
                with patience.sending():
                    opened = self._http.stream("GET", self._url(path), headers=dict(headers), timeout=timeout)
                    response = await stack.enter_async_context(opened)
                stack.enter_context(patience.reading(response))
                if response.status_code >= 300:
                    body = _Body(response, _MAX_PROBLEM_BYTES)
                    async for chunk in response.aiter_raw():
                        body.add(chunk)
                    body.answer()
                check_status(response.status_code, response.headers, str(response.request.url))
                yield response


class _Body:
    """Collects an answer of limited size."""

    def __init__(self, response: httpx2.Response, max_bytes: int) -> None:
        self._response = response
        self._url = one_line(str(response.request.url), 200)
        self._max_bytes = max_bytes if response.status_code < 300 else _MAX_PROBLEM_BYTES
        self._data = bytearray()
        check_status(response.status_code, response.headers, self._url)
        declared = response.headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > 18 or int(declared) > self._max_bytes:
            raise self._too_large()

    def add(self, chunk: bytes) -> None:
        """Add what arrived.

        Raises
        ------
        ServerError
            It is more than allowed.
        """
        if len(self._data) + len(chunk) > self._max_bytes:
            raise self._too_large()
        self._data += chunk

    def answer(self) -> Answer:
        """The whole answer.

        Raises
        ------
        DietCodeError
            Its status is 400 or more.
        """
        response = self._response
        answer = Answer(self._url, response.status_code, dict(response.headers), bytes(self._data))
        if response.status_code >= 400:
            raise error_from(answer)
        return answer

    def _too_large(self) -> ServerError:
        return ServerError(f"{self._url}: the answer is larger than {self._max_bytes >> 20} MiB")
