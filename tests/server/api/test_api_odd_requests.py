"""Requests that a proxy and this server could read differently; odd numbers, paths and texts."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_libraries import spec_data
from test_api_process import serving
from test_api_tokens import bearer, closed

__all__ = ["closed"]  # a fixture

GET = b"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = {
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length and chunks": POST + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\r\n",
    "an encoding that is not there": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "nearly chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "encoded twice": POST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a signed length": POST + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": POST + b"Content-Length: -2\r\n\r\n{}",
    "a name that ends in a space": GET.replace(b"Host:", b"Host :") + b"\r\n",
    "a NUL": GET + b"X: a\x00b\r\n\r\n",
    "two hosts": GET + b"Host: example.org\r\n\r\n",
    "a line that ends in LF alone": GET + b"X: a\nTransfer-Encoding: chunked\r\n\r\n",
    "a line that goes on in the next": GET + b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a line that goes on after a tab": GET + b"Authorization: Bearer\r\n\tx\r\n\r\n",
    "lines of LF alone": GET.replace(b"\r", b"") + b"\n",
    "an empty line of LF": b"\n",
    "such a line after chunks": POST + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX: a\nY: b\r\n\r\n",
    "chunks that end in LF alone": POST + CHUNKED + b"\r\n2\n{}\n0\n\n",
    "a chunk of more than was said": POST + CHUNKED + b"\r\n2\r\n{}XX\r\n0\r\n\r\n",
    "a target of another server": GET.replace(b"/api", b"http://example.org/api")
    + b"Connection: close\r\n\r\n",
    "no end of the head": GET + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}
SPEC = json.dumps(spec_data("odd"))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("odd") / "made" / "data"
    with serving(folder, "--no-jobs") as (url, _):
        yield int(url.rpartition(":")[2])


def answered(port: int, data: bytes) -> bytes:
    """All that comes until the server hangs up; the answer to what it did not read may be lost."""
    found = b""
    lost = contextlib.suppress(ConnectionResetError, BrokenPipeError)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer, lost:
        peer.sendall(data)
        while piece := peer.recv(1 << 16):
            found += piece
    return found


@pytest.mark.parametrize("name", SMUGGLED)
def test_what_two_could_read_differently_is_refused(port: int, name: str) -> None:
    found = answered(port, SMUGGLED[name] + GET + b"\r\n")
    is_unread = name == "no end of the head" and not found
    assert is_unread or (found.startswith(b"HTTP/1.1 400 ") and found.count(b"\r\n\r\n") == 1), found


@pytest.mark.parametrize("scheme", [b"http", b"HTTPS"])
def test_a_target_may_name_this_server(port: int, scheme: bytes) -> None:
    """As proxies may pass it on; it leads where its path does."""
    for path, status in ((b"", b"200"), (b"/healthz?x=1", b"200"), (b"/no%2fpath", b"404")):
        target = scheme + b"://127.0.0.1" + path
        found = answered(port, GET.replace(b"/api/v1/jobs", target) + b"Connection: close\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 " + status), found


@pytest.mark.thorough
def test_what_is_no_request_leaves_few_lines(tmp_path: Path) -> None:
    """Anybody may send it, without a token."""
    with serving(tmp_path, "--no-jobs") as (url, process):
        port, begun = int(url.rpartition(":")[2]), time.monotonic()
        for _ in range(100):
            answered(port, SMUGGLED["no HTTP"])
            answered(port, GET + b"Connection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n")
        process.terminate()
        assert process.stderr is not None
        said = process.stderr.read().splitlines()
    kinds = 3  # one of what is no HTTP, two of an upgrade that there is not
    assert 0 < len(said) <= kinds * min(time.monotonic() - begun + 2, 99), said[:5]


@pytest.mark.thorough
def test_the_data_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "data"
    older = os.umask(0o022)
    try:
        for _ in range(2):
            with serving(folder, "--no-jobs"):
                found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
            assert {"data", "dietcode.db", "keys", "logs", "work"} <= set(found)
            assert not [name for name, mode in found.items() if mode & 0o077], found
            for name in ("logs", "dietcode.db"):  # as an older version left them
                (folder / name).chmod(0o755)
    finally:
        os.umask(older)


@pytest.mark.parametrize(
    "options",
    [
        '"priority": NaN',
        '"priority": -1e999',
        '"deadline": 1e400',
        '"deadline": -Infinity',
        '"deadline": "9999-12-31T23:59:59-23:59"',
        '"deadline": "0001-01-01T00:00:00+23:59"',
        '"priority": ' + "1" * 5000,
        '"deadline": ' + "9" * 5000,
        '"force": 1e300',
        '"\\ud800": 1',
        '"spec": {"name": "\\ud800"}',
        '"spec": ' + "1" * 5000,
        '"spec": {"name": ' + "1" * 5000 + "}",
        '"model": {"\\ud800": "\\udfff"}',
    ],
)
def test_odd_numbers_and_texts_are_refused(closed, options: str) -> None:
    headers = bearer(closed, "mallory") | {"content-type": "application/json"}
    answer = closed.client.post(
        "/api/v1/jobs", content=f'{{"spec": {SPEC}, {options}}}'.encode(), headers=headers
    )
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"].isprintable()


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/jobs",
        "/static/../api/v1/jobs",
        "/static/..%2fapi/v1/jobs",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/static//etc/passwd",
        "/static/%00",
        "/STATIC/x",
        "/healthz/../api/v1/jobs",
        "/openapi.json/",
        "/api/v1/jobs%00",
    ],
)
def test_no_spelling_of_a_path_leads_past_the_gate(closed, path: str) -> None:
    assert closed.client.get(path).status_code in (401, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs?cursor=%00",
        "/api/v1/jobs?cursor=WyIyMDI2Il0",
        "/api/v1/jobs?id=%00",
        "/api/v1/jobs?owner=%0a",
        "/api/v1/jobs?name=a%0a",
        "/api/v1/jobs?limit=1e9",
        "/api/v1/libraries?name=%ff",
        "/api/v1/libraries/a/latest%0a",
        "/api/v1/libraries/a/1%0a",
        "/api/v1/records/%00",
        "/api/v1/records/a/%ed%a0%80",
        "/libraries/%ed%a0%80",
        "/jobs/0000000000000000?x=%00",
    ],
)
def test_odd_bytes_in_a_path_or_a_query_find_nothing(closed, path: str) -> None:
    answer = closed.client.get(path, headers=bearer(closed, "root", ("admin",)))
    assert answer.status_code in (404, 422), answer.text


@pytest.mark.thorough
def test_a_job_that_is_cancelled_and_resumed_for_ever_is_given_up(closed, monkeypatch) -> None:
    from dietcode_server.store import jobs

    few = closed.settings.model_copy(update={"max_submissions_per_minute": 20})
    closed = replace(closed, settings=few)
    headers = bearer(closed, "looper")
    job = closed.client.post("/api/v1/jobs", json={"spec": spec_data("looped")}, headers=headers).json()["id"]

    def again() -> int:
        closed.client.post(f"/api/v1/jobs/{job}/cancel", headers=headers)
        return int(closed.client.post(f"/api/v1/jobs/{job}/resume", headers=headers).status_code)

    assert again() == 200
    monkeypatch.setattr(jobs, "MAX_EVENTS", 6)
    assert [again() for _ in range(3)][-1] == 409
    monkeypatch.undo()
    assert again() == 200
    most = closed.settings.max_submissions_per_minute
    assert 429 in [again() for _ in range(most + 1)], "each counts as a submission does"
