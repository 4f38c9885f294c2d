"""Servers that always send something, and never an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from wire_server import JOB, job

from dietcode.client import AsyncClient, Client
from dietcode.errors import DietCodeError, ServerError

OK = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n\r\n"
STATE = (
    b'{"id":1,"job":"%s","at":"2026-01-02T03:04:05Z","kind":"state","state":"failed","message":""}'
    % JOB.encode()
)
Send = Callable[[bytes], None]


def endless_100(send: Send, request: str) -> None:
    while True:
        send(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
        time.sleep(0.05)


def slow_head(send: Send, request: str) -> None:
    for byte in OK * 100:
        send(bytes([byte]))
        time.sleep(0.05)


def slow_body(send: Send, request: str) -> None:
    send(OK % b"application/json")
    while True:
        send(b" ")
        time.sleep(0.05)


def comments(send: Send, request: str) -> None:
    send(OK % b"text/event-stream")
    while True:
        send(b": there\n\n" * 100)


def comments_at_the_end(send: Send, request: str) -> None:
    """A job that has failed; whether more comes is never said."""
    if "/events" not in request:
        send(OK % b"application/json" + json.dumps(job(state="failed")).encode())
        return
    send(OK % b"text/event-stream")
    if "Last-Event-ID" not in request:
        send(b"id: 1\nevent: state\ndata: " + STATE + b"\n\n")
    while True:
        send(b": there\n\n")
        time.sleep(0.1)


@contextlib.contextmanager
def serving(answer: Callable[[Send, str], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def one(peer: socket.socket) -> None:
            with peer, contextlib.suppress(OSError):
                answer(peer.sendall, peer.recv(65536).decode())

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("answer", [endless_100, slow_head, slow_body])
def test_an_answer_has_so_long_in_all(answer: Callable[[Send, str], None]) -> None:
    with serving(answer) as url:
        began = time.monotonic()
        with Client(url, timeout_secs=0.4) as client, pytest.raises(ServerError, match=r"within 0.4 s"):
            client.job(JOB)

        async def ask() -> None:
            async with AsyncClient(url, timeout_secs=0.4) as client:
                with pytest.raises(ServerError, match=r"within 0.4 s"):
                    await client.job(JOB)

        asyncio.run(ask())
        assert time.monotonic() - began < 5


def test_comments_without_end_are_no_events() -> None:
    with serving(comments) as url:
        began = time.monotonic()
        with Client(url) as client, pytest.raises(ServerError):
            list(client.events(JOB, reconnect_secs=0))

        async def follow() -> None:
            async with AsyncClient(url) as client:
                with pytest.raises(ServerError):
                    async for _ in client.events(JOB, reconnect_secs=0):
                        pass

        asyncio.run(follow())
        assert time.monotonic() - began < 10


def test_a_job_that_ended_is_left() -> None:
    with serving(comments_at_the_end) as url, Client(url, timeout_secs=5) as client:
        events, began = client.events(JOB, reconnect_secs=0), time.monotonic()
        assert next(events).id == 1
        assert list(events) == []
        assert time.monotonic() - began < 10


def test_a_connection_is_used_again_after_an_answer_that_was_whole() -> None:
    """Patience ends with its request: a later one on the same connection has its own."""
    seen: list[int] = []

    def answers(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while peer.recv(65536):
                seen.append(peer.fileno())
                body = b'{"keys":[],"current":"x","rotations":[]}'
                peer.sendall(b"HTTP/1.1 404 No\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: answers(listener.accept()[0]), daemon=True)
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_secs=2.0) as client:
            for pause_secs in (1.1, 1.1, 0.0):  # together longer than one request may take
                with pytest.raises(DietCodeError):
                    client.job(JOB)
                time.sleep(pause_secs)
        thread.join(60)
    assert len(seen) == 3 and len(set(seen)) == 1
