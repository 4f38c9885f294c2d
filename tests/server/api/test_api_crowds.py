"""More connections than a server has descriptors for: those that ask for nothing have to go."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import uvicorn

from dietcode_server.api.connections import limited

MOST = 8
_slow: set[int] = set()  # requests that are at work


async def plain_app(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/slow":
        _slow.add(id(scope))
        message = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
        _slow.discard(id(scope))
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port() -> Iterator[int]:
    config = uvicorn.Config(
        plain_app, port=0, lifespan="off", http=limited(30.0, MOST), log_config=None, backlog=4
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = server.force_exit = True
    thread.join()
    listener.close()


@pytest.fixture
def peers(port: int) -> Iterator[Any]:
    made: list[socket.socket] = []

    def connect(sent: bytes = b"") -> socket.socket:
        made.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        made[-1].sendall(sent)
        return made[-1]

    yield connect
    for one in made:
        one.close()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def test_half_open_connections_keep_nobody_out(port: int, peers: Any) -> None:
    first = peers(b"GET / HT")
    for _ in range(10 * MOST):
        peers()
    assert httpx2.get(f"http://127.0.0.1:{port}/").text == "ok"
    assert first.recv(100).startswith(b"HTTP/1.1 503 Service Unavailable")


def test_who_is_served_is_not_put_out(port: int, peers: Any) -> None:
    """Where all connections are at work, it is the new one that is refused; the next finds room again."""
    busy = [peers(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(MOST)]
    until(lambda: len(_slow) == MOST)
    answer = httpx2.get(f"http://127.0.0.1:{port}/")
    assert answer.status_code == 503 and f"{MOST} connections are open" in answer.json()["detail"]
    busy[0].close()
    until(lambda: len(_slow) == MOST - 1)
    until(lambda: httpx2.get(f"http://127.0.0.1:{port}/").text == "ok")
    assert httpx2.get(f"http://127.0.0.1:{port}/").text == "ok"
    for one in busy[1:]:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)
