"""Connections of a real server: what is no HTTP, requests that trickle in, answers that nobody takes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from plain_server import plain_files
from test_api_process import database_in, serving

from dietcode_server.store import libraries

SLOW_SECS = 2.0  # longer than a busy machine keeps a process waiting
HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("slow")
    with database_in(folder) as database:
        database.upgrade()
        with database.write() as session:
            files = plain_files("dense", b"x" * (24 << 20))
            libraries.publish(session, job=None, device_name="a test", files=files)
    with serving(folder, DIETCODE_SERVE_SLOW_PEER_SECS=str(SLOW_SECS)) as (url, _):
        yield int(url.rpartition(":")[2])


@pytest.fixture
def peer(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as made:
        yield made


def read_all(peer: socket.socket) -> bytes:
    """What arrives until the server hangs up."""
    data = b""
    while piece := peer.recv(1 << 16):
        data += piece
    return data


def document(data: bytes, status: int, kind: str) -> dict[str, Any]:
    head, _, body = data.partition(b"\r\n\r\n")
    assert (
        head.startswith(b"HTTP/1.1 %d " % status)
        and b"content-type: application/problem+json" in head.lower()
    )
    assert b"connection: close" in head.lower() and b"x-content-type-options: nosniff" in head.lower()
    plain: dict[str, Any] = json.loads(body)
    assert (plain["type"], plain["status"]) == (f"urn:dietcode:problem:{kind}", status)
    return plain


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/x\r\n\r\n", b"GET /\x00 HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_http_gets_a_problem_document(peer: socket.socket, sent: bytes) -> None:
    peer.sendall(sent)
    document(read_all(peer), 400, "request")


NOT_WHOLE = (
    b"",
    b"GET /healthz HT",
    HEAD,
    HEAD + b"Content-Length: 100\r\n\r\n{",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /heal",
)


def test_requests_that_do_not_arrive(port: int) -> None:
    """On a connection each, all at once."""

    def wait(sent: bytes) -> tuple[bytes, float]:
        begun = time.monotonic()  # before the server can know of it
        with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
            peer.sendall(sent)
            data = read_all(peer)
        return data, time.monotonic() - begun

    with ThreadPoolExecutor(len(NOT_WHOLE)) as pool:
        found = list(pool.map(wait, NOT_WHOLE))
    for data, secs in found:
        answer = data[data.rindex(b"HTTP/1.1") :]
        assert "DIETCODE_SERVE_SLOW_PEER_SECS" in document(answer, 408, "too-slow")["detail"]
        assert SLOW_SECS * 0.9 < secs < SLOW_SECS + 5


def test_a_body_that_trickles_in(peer: socket.socket) -> None:
    """Each byte in time does not prolong the whole."""
    peer.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
    begun = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() - begun < 10 * SLOW_SECS:
            peer.sendall(b" ")
            time.sleep(SLOW_SECS / 10)
    assert time.monotonic() - begun < SLOW_SECS + 5


def test_an_answer_that_nobody_takes(port: int, peer: socket.socket) -> None:
    manifest = httpx2.get(f"http://127.0.0.1:{port}/api/v1/libraries/dense/1").json()
    digest = manifest["files"]["library.so"]["sha256"]
    peer.sendall(b"GET /api/v1/blobs/%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % digest.encode())
    time.sleep(3 * SLOW_SECS)
    assert len(read_all(peer)) < manifest["files"]["library.so"]["bytes"]


@pytest.mark.thorough
def test_who_is_not_slow_is_served_for_longer(peer: socket.socket) -> None:
    """Requests on one connection, together longer than the limit; each is answered."""
    for _ in range(6):
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += peer.recv(4096)
        assert b"200 OK" in answer
        time.sleep(SLOW_SECS / 4)
