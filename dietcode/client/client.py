"""The client of a DietCode server: blocking, and for asyncio, with the same calls."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2

from dietcode.client import calls
from dietcode.client.address import Address
from dietcode.client.answers import UnreachableError
from dietcode.client.blobs import BlobCache
from dietcode.client.calls import Manifest
from dietcode.client.events import PEEK_SECS, SILENCE_SECS, Follower, OnLost
from dietcode.client.listing import check_facts
from dietcode.client.patience import Patience
from dietcode.client.pull import pull
from dietcode.client.transport import AsyncTransport, Transport
from dietcode.errors import ServerError
from dietcode.graph.model_request import ModelRequest
from dietcode.protocol import (
    RESTING_STATES,
    FileFacts,
    Job,
    JobEvent,
    JobPage,
    JobState,
    LibraryInfo,
    LibraryPage,
    Runner,
)
from dietcode.workload.spec import Spec

_NO_CONTENT = 204


class Client:
    """A DietCode server, for programs that wait for each answer. Threads may share it.

    Parameters
    ----------
    server : str, optional
        URL; by default ``$DIETCODE_SERVER``, or ``http://127.0.0.1:8000``.
    token : str, optional
        By default ``$DIETCODE_TOKEN``.
    timeout_secs : float
        Longest silence of the server, in seconds.

    Raises
    ------
    NotFoundError, ConflictError, SpecError, RequestError
        By any call: the server refused it (status 404, 409, 422 of a spec's field, another 4xx).
    ServerError
        By any call: the server cannot be reached, failed, or answered something else than DietCode does.
    """

    def __init__(
        self, server: str | None = None, *, token: str | None = None, timeout_secs: float = 30.0
    ) -> None:
        self.transport = Transport(Address.of(server, token), timeout_secs)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server(self) -> str:
        """URL of the server."""
        return self.transport.address.server

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def submit(
        self,
        spec: Spec | ModelRequest | Mapping[str, Any],
        *,
        force: bool = False,
        measure: bool = True,
        idempotency_key: str | None = None,
        priority: int = 0,
        deadline: float | datetime | None = None,
    ) -> Job:
        """Ask for a workload to be tuned; the same workload again gives the same job, unless `force`.

        Parameters
        ----------
        spec : Spec, ModelRequest or mapping
            The workload, or a whole model; a mapping is a workload.
        force : bool
            Measure again what is known.
        measure : bool
            False: it is built from what was measured before.
        idempotency_key : str, optional
            The same key again gives the same job.
        priority : int
            From -100 to 100: of the jobs that wait, the one with the highest begins first.
        deadline : float, datetime or None
            Seconds from now, or an aware time: a job that has not finished by then fails.
        """
        call = calls.submit(spec, force, idempotency_key, measure, priority=priority, deadline=deadline)
        return self.transport.send(call).job

    def job(self, job_id: str) -> Job:
        """Return one job."""
        return self.transport.send(calls.job(job_id))

    def jobs(
        self,
        states: Sequence[JobState | str] = (),
        name: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        id_prefix: str | None = None,
    ) -> JobPage:
        """Return jobs, newest first; `cursor` is the `next` of the page before.

        Parameters
        ----------
        states : sequence of JobState or str
            Those to list; by default all.
        name : str, optional
        limit : int
            Most jobs of a page.
        cursor : str, optional
            The `next` of the page before.
        id_prefix : str, optional
            Only jobs whose id begins so: 4 to 16 hex digits.
        """
        return self.transport.send(calls.jobs(states, name, limit, cursor, id_prefix))

    def cancel(self, job_id: str) -> Job:
        """End a job that is not finished."""
        return self.transport.send(calls.cancel(job_id))

    def resume(self, job_id: str) -> Job:
        """Go on with a job that was interrupted, failed or cancelled."""
        return self.transport.send(calls.resume(job_id))

    def runners(self) -> list[Runner]:
        """Return who runs jobs now, and what each can measure."""
        return self.transport.send(calls.runners()).runners

    def libraries(self, name: str | None = None, limit: int = 50, cursor: str | None = None) -> LibraryPage:
        """Return published versions, newest first."""
        return self.transport.send(calls.libraries(name, limit, cursor))

    def library(self, name: str, version: int | None = None) -> LibraryInfo:
        """Return the facts of one version, by default the latest."""
        return self.transport.send(calls.library(name, version))

    def yank(self, name: str, version: int, *, undo: bool = False) -> LibraryInfo:
        """Take a version out of lists and of the latest, or back; pulled by its number it still comes."""
        return self.transport.send(calls.yank(name, version, undo))

    def manifest(self, name: str, version: int | None = None) -> Manifest:
        """Return a manifest byte for byte, and its version; the digest was checked."""
        return self.transport.send(calls.manifest(name, version))

    def blob(self, digest: str, size_bytes: int) -> Path:
        """Return the cached file of a blob, downloaded if need be; size and digest were checked."""
        facts = check_facts(FileFacts(sha256=digest, size_bytes=size_bytes), "blob")
        return BlobCache().fetch(facts, self.transport, digest)

    def pull(self, ref: str, folder: str | os.PathLike[str] | None = None) -> Path:
        """Download ``NAME[@VERSION]`` and return its folder, for `dietcode.load`.

        A version that is in the cache needs no server. Where the latest is asked for and the server cannot be
        reached, the newest cached version is used, with a `UserWarning`.

        Parameters
        ----------
        folder : path, optional
            Where to put it; by default the cache.

        Raises
        ------
        LibraryError
            What arrived is not what its manifest lists, or cannot be written.
        """
        return pull(self.transport, ref, folder, _warn).folder

    def wait(self, job_id: str, on_event: Callable[[JobEvent], None] | None = None) -> Job:
        """Wait until nothing happens to a job any more, and return it."""
        for event in self.events(job_id):
            if on_event is not None:
                on_event(event)
        return self.job(job_id)

    def events(
        self,
        job_id: str,
        after: int = 0,
        *,
        reconnect_secs: float = 60.0,
        on_lost: OnLost | None = None,
    ) -> Iterator[JobEvent]:
        """Yield a job's events, past ones first, each once, until it is finished or interrupted.

        Parameters
        ----------
        after : int
            Id of the last event that is already known.
        reconnect_secs : float
            How long to try again when the server does not answer, in seconds.
        on_lost : callable, optional
            Called when the connection is lost, once each time.
        """
        follower = Follower(job_id, after, reconnect_secs, on_lost)
        while True:
            try:
                with self.transport.stream(
                    follower.path, follower.headers, SILENCE_SECS, patience=follower.patience()
                ) as response:
                    follower.connected()
                    if response.status_code == _NO_CONTENT:
                        return
                    for sse in httpx2.EventSource(response):
                        event = follower.accept(sse)
                        if event is None:
                            continue
                        yield event
                        if event.state in RESTING_STATES and self._is_over(follower):
                            return
                error: ServerError = UnreachableError(f"{self.server}: the server ended the events early")
            except ServerError as caught:
                error = caught
            delay = follower.lost(error)
            if delay is None:
                return
            time.sleep(delay)

    def _is_over(self, follower: Follower) -> bool:
        """Return whether the event just seen is the last one of a job that does not go on."""
        try:
            with self.transport.stream(
                follower.path, follower.headers, PEEK_SECS, patience=Patience(PEEK_SECS)
            ) as response:
                if response.status_code == _NO_CONTENT:
                    return True
                for sse in httpx2.EventSource(response):
                    if sse.data:
                        return False
        except UnreachableError:
            pass
        try:
            return self.job(follower.job_id).state in RESTING_STATES
        except UnreachableError:
            return False


class AsyncClient:
    """A DietCode server, for asyncio; parameters, calls and errors as of `Client`."""

    def __init__(
        self, server: str | None = None, *, token: str | None = None, timeout_secs: float = 30.0
    ) -> None:
        self.transport = AsyncTransport(Address.of(server, token), timeout_secs)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def server(self) -> str:
        """URL of the server."""
        return self.transport.address.server

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    async def submit(
        self,
        spec: Spec | ModelRequest | Mapping[str, Any],
        *,
        force: bool = False,
        measure: bool = True,
        idempotency_key: str | None = None,
        priority: int = 0,
        deadline: float | datetime | None = None,
    ) -> Job:
        """See `Client.submit`."""
        call = calls.submit(spec, force, idempotency_key, measure, priority=priority, deadline=deadline)
        return (await self.transport.send(call)).job

    async def job(self, job_id: str) -> Job:
        """See `Client.job`."""
        return await self.transport.send(calls.job(job_id))

    async def jobs(
        self,
        states: Sequence[JobState | str] = (),
        name: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        id_prefix: str | None = None,
    ) -> JobPage:
        """See `Client.jobs`."""
        return await self.transport.send(calls.jobs(states, name, limit, cursor, id_prefix))

    async def cancel(self, job_id: str) -> Job:
        """See `Client.cancel`."""
        return await self.transport.send(calls.cancel(job_id))

    async def resume(self, job_id: str) -> Job:
        """See `Client.resume`."""
        return await self.transport.send(calls.resume(job_id))

    async def runners(self) -> list[Runner]:
        """See `Client.runners`."""
        return (await self.transport.send(calls.runners())).runners

    async def libraries(
        self, name: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> LibraryPage:
        """See `Client.libraries`."""
        return await self.transport.send(calls.libraries(name, limit, cursor))

    async def library(self, name: str, version: int | None = None) -> LibraryInfo:
        """See `Client.library`."""
        return await self.transport.send(calls.library(name, version))

    async def yank(self, name: str, version: int, *, undo: bool = False) -> LibraryInfo:
        """See `Client.yank`."""
        return await self.transport.send(calls.yank(name, version, undo))

    async def manifest(self, name: str, version: int | None = None) -> Manifest:
        """See `Client.manifest`."""
        return await self.transport.send(calls.manifest(name, version))

    async def blob(self, digest: str, size_bytes: int) -> Path:
        """See `Client.blob`; runs in a thread."""
        return await asyncio.to_thread(self._blocking, lambda client: client.blob(digest, size_bytes))

    async def pull(self, ref: str, folder: str | os.PathLike[str] | None = None) -> Path:
        """See `Client.pull`; runs in a thread."""
        return await asyncio.to_thread(self._blocking, lambda client: client.pull(ref, folder))

    def _blocking(self, call: Callable[[Client], Path]) -> Path:
        address = self.transport.address
        client = Client(address.server, token=address.token, timeout_secs=self.transport.timeout_secs)
        with client:
            return call(client)

    async def wait(self, job_id: str, on_event: Callable[[JobEvent], None] | None = None) -> Job:
        """See `Client.wait`."""
        async with aclosing(self.events(job_id)) as events:
            async for event in events:
                if on_event is not None:
                    on_event(event)
        return await self.job(job_id)

    async def events(
        self,
        job_id: str,
        after: int = 0,
        *,
        reconnect_secs: float = 60.0,
        on_lost: OnLost | None = None,
    ) -> AsyncGenerator[JobEvent, None]:
        """See `Client.events`."""
        follower = Follower(job_id, after, reconnect_secs, on_lost)
        while True:
            try:
                async with self.transport.stream(
                    follower.path, follower.headers, SILENCE_SECS, patience=follower.patience()
                ) as response:
                    follower.connected()
                    if response.status_code == _NO_CONTENT:
                        return
                    async for sse in httpx2.EventSource(response):
                        event = follower.accept(sse)
                        if event is None:
                            continue
                        yield event
                        if event.state in RESTING_STATES and await self._is_over(follower):
                            return
                error: ServerError = UnreachableError(f"{self.server}: the server ended the events early")
            except ServerError as caught:
                error = caught
            delay = follower.lost(error)
            if delay is None:
                return
            await asyncio.sleep(delay)

    async def _is_over(self, follower: Follower) -> bool:
        """See `Client._is_over`."""
        try:
            async with self.transport.stream(
                follower.path, follower.headers, PEEK_SECS, patience=Patience(PEEK_SECS)
            ) as response:
                if response.status_code == _NO_CONTENT:
                    return True
                async for sse in httpx2.EventSource(response):
                    if sse.data:
                        return False
        except UnreachableError:
            pass
        try:
            return (await self.job(follower.job_id)).state in RESTING_STATES
        except UnreachableError:
            return False


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)
