"""A server on loopback that speaks DietCode's wire format, and misbehaves where a test tells it to.

It is independent of the real one: what it answers was written from the interface's description.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from wire_signing import digest, head, key_list, public_der, public_pem, rotation, signature

NOW = "2026-01-02T03:04:05Z"
JOB = "0123456789abcdef"
FINAL = {"succeeded", "failed", "cancelled"}


def job(job_id: str = JOB, state: str = "queued", **changes: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "name": "dense",
        "state": state,
        "workload": "sha256:" + "1" * 64,
        "target": {"kind": "llvm"},
        "spec": {},
        "created_at": NOW,
        "updated_at": NOW,
        "a_field_of_the_future": [1],
    } | changes


def state_event(seq: int, state: str, message: str = "") -> dict[str, Any]:
    return {"id": seq, "job": JOB, "at": NOW, "kind": "state", "state": state, "message": message}


def progress_event(seq: int, **changes: Any) -> dict[str, Any]:
    step = {"stage": "measure", "message": f"candidate {seq}", "done": seq, "total": 100} | changes
    return {"id": seq, "job": JOB, "at": NOW, "kind": "progress", "progress": step}


@dataclass
class Fault:
    """What to do instead of, or with, the right answer of one request.

    Attributes
    ----------
    status, body, headers
        Take the place of the right ones where they are given; headers are added.
    cut : int, optional
        Close the connection after so many bytes of the body, which was announced in full.
    alter : int, optional
        Position of a byte of the body that is changed.
    delay_secs : float
        Before anything is sent.
    endless : bool
        Send zeros until the client hangs up, with no length announced.
    """

    status: int | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    alter: int | None = None
    delay_secs: float = 0.0
    endless: bool = False


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    sent_bytes: int = 0


class WireServer:
    """State of the server; tests change it at any time."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.manifests: dict[tuple[str, int], bytes] = {}
        self.yanked: set[tuple[str, int]] = set()
        self.sequences: dict[str, int] = {}
        self.key = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
        self.rotations: list[dict[str, Any]] = []
        self.older_keys: list[Ed25519PrivateKey] = []
        self.revoked: list[str] = []
        self.blobs: dict[str, bytes] = {}
        self.faults: list[tuple[str, Fault]] = []
        self.always: list[tuple[str, Fault]] = []
        self.requests: list[Request] = []
        self.connections: set[socket.socket] = set()
        self.port = 0
        self._http: ThreadingHTTPServer | None = None
        self.stopping = False
        self.break_events_after: int | None = None
        self.last_sent = 0  # the number of an event

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def fingerprint(self) -> str:
        return digest(public_der(self.key))

    @property
    def public_pem(self) -> str:
        return public_pem(self.key)

    def rotate(self, seed: bytes) -> None:
        """Sign with another key from now on, as the older one said."""
        new = Ed25519PrivateKey.from_private_bytes(seed * 32)
        self.rotations.append(rotation(self.key, new))
        self.older_keys.append(self.key)
        self.key = new

    def start(self) -> None:
        """Listen, on the same port as before after a `stop`."""
        self.stopping = False
        server = self

        class Bound(Handler):
            wire = server

        class Listener(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hangs up is no news."""

        self._http = Listener(("127.0.0.1", self.port), Bound)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.stopping = True
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what a client does."""
        end = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < end, "it does not happen"
            time.sleep(0.01)

    def publish(self, name: str, version: int, files: Mapping[str, bytes]) -> bytes:
        """Add a library, as `small_libraries.library_bytes` gives it; returns its manifest."""
        self.manifests[name, version] = files["manifest.json"]
        self.sequences[name] = self.sequences.get(name, 0) + 1
        self.blobs |= {digest(data): data for data in files.values()}
        return files["manifest.json"]

    def yank(self, name: str, version: int) -> None:
        """Take a version out of `latest`."""
        self.yanked.add((name, version))
        self.sequences[name] += 1

    def latest(self, name: str) -> int:
        """The newest version that is not yanked; 0 where there is none."""
        return max((v for n, v in self.manifests if n == name and (n, v) not in self.yanked), default=0)

    def fault(self, path: str, *faults: Fault) -> None:
        """Misbehave on the next requests whose path matches, one fault each."""
        self.faults += [(path, fault) for fault in faults]

    def take_fault(self, path: str) -> Fault:
        for index, (pattern, fault) in enumerate(self.faults):
            if re.search(pattern, path):
                del self.faults[index]
                return fault
        return next((fault for pattern, fault in self.always if re.search(pattern, path)), Fault())

    def asked(self, path: str) -> list[Request]:
        """Requests so far whose path matches."""
        return [request for request in self.requests if re.search(path, request.path)]


@contextmanager
def running(server: WireServer) -> Iterator[WireServer]:
    server.start()
    try:
        yield server
    finally:
        if not server.stopping:
            server.stop()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wire: WireServer

    def setup(self) -> None:
        super().setup()
        self.wire.connections.add(self.connection)

    def finish(self) -> None:
        self.wire.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: Any) -> None:
        """Tests read `requests` instead."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("content-length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = unquote(parts.path).removeprefix("/api/v1")
        self.request_seen = Request(
            self.command, path, parse_qs(parts.query), headers, self.rfile.read(length)
        )
        self.wire.requests.append(self.request_seen)
        fault = self.wire.take_fault(path)
        self._pause(fault.delay_secs)
        if fault.endless:
            self._send_endless()
        elif fault.body is None and path == f"/jobs/{JOB}/events" and fault.status is None:
            self._send_events()
        else:
            status, extra, body = (200, {}, fault.body) if fault.body is not None else self._right(path)
            if fault.status is not None:
                status = fault.status
                body = b"" if fault.body is None else body
            self._send(status, {**extra, **fault.headers}, body or b"", fault)

    def _pause(self, secs: float) -> None:
        end = time.monotonic() + secs
        while time.monotonic() < end and not self.wire.stopping:
            time.sleep(0.01)

    def _right(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body as the interface describes them."""
        wire, seen = self.wire, self.request_seen
        if found := re.fullmatch(r"/libraries/([^/]+)/(\d+)/signature", path):
            name, version = found[1], int(found[2])
            if (name, version) not in wire.manifests:
                return self._problem(404, "not-found", f"{name}@{version}: no such version")
            return 200, {}, signature(wire.key, name, version, wire.manifests[name, version], wire.revoked)
        if found := re.fullmatch(r"/libraries/([^/]+)/head", path):
            name, version = found[1], wire.latest(found[1])
            if not version:
                return self._problem(404, "not-found", f"{name}: no such library")
            return 200, {}, head(wire.key, name, version, wire.sequences[name])
        if path == "/keys":
            return 200, {}, key_list(wire.key, wire.older_keys, wire.rotations)
        if found := re.fullmatch(r"/libraries/([^/]+)/(\d+|latest)", path):
            version = wire.latest(found[1]) if found[2] == "latest" else int(found[2])
            data = wire.manifests.get((found[1], version))
            if data is None:
                return self._problem(404, "not-found", f"{found[1]}@{found[2]}: no such version")
            return 200, {"DietCode-Version": str(version), "DietCode-Manifest": digest(data)}, data
        if path.startswith("/blobs/"):
            return self._blob(path.removeprefix("/blobs/"))
        if path == "/jobs" and seen.method == "POST":
            spec = json.loads(seen.body)["spec"]
            is_new = JOB not in wire.jobs
            wire.jobs.setdefault(JOB, job(name=spec["name"], spec=spec))
            return 201 if is_new else 200, {}, json.dumps(wire.jobs[JOB]).encode()
        if path == "/jobs":
            return 200, {}, self._page()
        if found := re.fullmatch(r"/jobs/(\w+)(/cancel|/resume)?", path):
            return self._job(found[1], found[2])
        return self._problem(404, "not-found", f"{path}: no such page")

    def _job(self, job_id: str, action: str | None) -> tuple[int, dict[str, str], bytes]:
        known = self.wire.jobs.get(job_id)
        if known is None:
            return self._problem(404, "not-found", f"job '{job_id}': no such job; `dietcode jobs` lists them")
        if action is not None:
            if known["state"] == "succeeded":
                return self._problem(409, "conflict", f"job '{job_id}': succeeded; nothing to {action[1:]}")
            known["state"] = {"/cancel": "cancelled", "/resume": "queued"}[action]
        return 200, {}, json.dumps(known).encode()

    def _page(self) -> bytes:
        query = self.request_seen.query
        found = [
            one
            for one in self.wire.jobs.values()
            if one["state"] in query.get("state", [one["state"]])
            and one["name"] in query.get("name", [one["name"]])
            and one["id"].startswith(query.get("id", [""])[0])
        ]
        start = int(query.get("cursor", ["0"])[0])
        stop = start + min(2, int(query["limit"][0]))  # small pages, so that following them is tested
        after = str(stop) if stop < len(found) else None
        return json.dumps({"jobs": found[start:stop], "next": after}).encode()

    def _blob(self, name: str) -> tuple[int, dict[str, str], bytes]:
        data = self.wire.blobs.get(name)
        if data is None:
            return self._problem(404, "not-found", f"blob {name}: no such blob")
        headers = {"ETag": f'"{name}"', "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-", self.request_seen.headers.get("range", ""))
        if asked is None or self.request_seen.headers.get("if-range", f'"{name}"') != f'"{name}"':
            return 200, headers, data
        start = int(asked[1])
        if start >= len(data):
            return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
        return 206, {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}, data[start:]

    def _problem(self, status: int, kind: str, detail: str) -> tuple[int, dict[str, str], bytes]:
        body = {"type": f"urn:dietcode:problem:{kind}", "title": kind, "status": status, "detail": detail}
        return status, {"Content-Type": "application/problem+json"}, json.dumps(body).encode()

    def _send(self, status: int, headers: dict[str, str], body: bytes, fault: Fault) -> None:
        if fault.alter is not None:
            changed = bytearray(body)
            changed[fault.alter] ^= 0xFF
            body = bytes(changed)
        self.send_response(status)
        names = {name.lower() for name in headers}
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        part = body if fault.cut is None else body[: fault.cut]
        self.wfile.write(part)
        self.request_seen.sent_bytes = len(part)
        if fault.cut is not None:
            self.close_connection = True

    def _send_endless(self) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while not self.wire.stopping:
            self.wfile.write(b"0" * 65536)
            self.request_seen.sent_bytes += 65536

    def _send_events(self) -> None:
        """Chunked, as uvicorn sends them; each connection may break after some events."""
        wire, seen = self.wire, self.request_seen
        position = int(seen.headers.get("last-event-id", "0"))
        known = wire.jobs.get(JOB, {})
        if known.get("state") in FINAL and position >= len(wire.events):
            self._send(204, {}, b"", Fault())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        self._chunk(": hello\n\n")
        sent = 0
        while not wire.stopping:
            for event in wire.events[position:]:
                if wire.break_events_after is not None and sent >= wire.break_events_after:
                    self._raw_chunk(f"id: {event['id']}\nevent: {event['kind']}\ndata: {{")  # half an event
                    return
                text = f"id: {event['id']}\nevent: {event['kind']}\ndata: {json.dumps(event)}\n\n"
                self._chunk(text)
                sent, position = sent + 1, event["id"]
                wire.last_sent = position
                if position == len(wire.events) and event.get("state") in FINAL:
                    self._chunk("")
                    return
            time.sleep(0.01)

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _raw_chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data) + 100:x}\r\n".encode() + data)
