"""What the real application answers about its libraries, recorded once, to be given again altered or not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from small_libraries import older_library_bytes
from starlette.testclient import TestClient
from wire_signing import digest

from dietcode_server.app import create_app
from dietcode_server.engine.targets import Targets
from dietcode_server.settings import Settings
from dietcode_server.store import libraries
from dietcode_server.store.database import Database

URL = "http://127.0.0.1:8000"
MANIFESTS = re.compile(r"/libraries/(part:)?[a-z0-9-]+/(\d+|latest)")
OLD_HEAD = "what /libraries/dense/head was before the second version"
VERSIONS = {"dense": 2, "rows": 1}


@dataclass(frozen=True)
class Reply:
    """One answer."""

    body: bytes
    status: int = 200
    version: str = ""

    def headers(self, path: str) -> dict[str, str]:
        """As the server sends them with this body: whoever alters one can alter the other."""
        told = {"content-length": str(len(self.body))}
        if MANIFESTS.fullmatch(path):
            told |= {"dietcode-version": self.version, "dietcode-manifest": digest(self.body)}
        return told


Replies = Mapping[str, Reply]
Alter = Callable[[str, Reply], Reply]


class Idle:
    """An engine that runs nothing."""

    def wake(self) -> None:
        """Nothing to do."""

    def healthy(self) -> bool:
        return True


def record(folder: Path) -> dict[str, Reply]:
    """All answers of a new server, with a key of its own, that has dense in two versions and rows in one."""
    settings = Settings(data_dir=folder)
    database = Database(settings.database)
    database.upgrade()
    files = dict(older_library_bytes("dense"))
    second = files | {"manifest.json": json.dumps(json.loads(files["manifest.json"]) | {"again": 1}).encode()}
    named = json.dumps(json.loads(files["manifest.json"]) | {"name": "rows"})
    rows = files | {"manifest.json": named.encode()}  # another name is enough to be another library
    client = TestClient(create_app(database, settings, Idle(), Targets()), base_url=URL)
    replies = {"/keys": _ask(client, "/keys")}
    for given in (files, second, rows):
        with database.write() as session:
            libraries.publish(session, job=None, device_name="a test", files=given)
        replies.setdefault(OLD_HEAD, _ask(client, "/libraries/dense/head"))
    for name, newest in VERSIONS.items():
        replies[f"/libraries/{name}/head"] = _ask(client, f"/libraries/{name}/head")
        for version in ("latest", *map(str, range(1, newest + 1))):
            reply = _ask(client, f"/libraries/{name}/{version}")
            replies[f"/libraries/{name}/{version}"] = reply
            signed = f"/libraries/{name}/{reply.version}/signature"
            replies[signed] = _ask(client, signed)
            manifest = json.loads(reply.body)
            for facts in (*manifest["files"].values(), manifest["runtime"]):
                path = f"/blobs/{facts['sha256']}"
                replies[path] = _ask(client, path)
    database.dispose()
    return replies


def record_model(folder: Path, job: Callable[[Database, Path], str]) -> dict[str, Reply]:
    """All answers of a new server on which a job, which is carried out by `job`, published a bundle."""
    settings = Settings(data_dir=folder)
    database = Database(settings.database)
    database.upgrade()
    name = job(database, folder)
    client = TestClient(create_app(database, settings, Idle(), Targets()), base_url=URL)
    replies = {
        "/keys": _ask(client, "/keys"),
        f"/libraries/{name}/head": _ask(client, f"/libraries/{name}/head"),
    }
    replies[f"/libraries/{name}/latest"] = _ask(client, f"/libraries/{name}/latest")
    waiting = [f"/libraries/{name}/1"]
    while waiting:
        path = waiting.pop()
        replies[path] = _ask(client, path)
        replies[f"{path}/signature"] = _ask(client, f"{path}/signature")
        manifest = json.loads(replies[path].body)
        for one in manifest.get("libraries", {}).values():
            waiting.append(f"/libraries/{one['name']}/{one['version']}")
        for facts in (*manifest["files"].values(), manifest.get("runtime")):
            if facts:
                blob = f"/blobs/{facts['sha256']}"
                replies[blob] = _ask(client, blob)
    database.dispose()
    return replies


def _ask(client: TestClient, path: str) -> Reply:
    response = client.get(f"/api/v1{path}")
    assert response.status_code == 200, response.text
    return Reply(response.content, version=response.headers.get("dietcode-version", ""))


class Replay:
    """In the place of the network: gives what was recorded, as `alter` changes it."""

    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.alter: Alter = lambda path, reply: reply
        self.asked: list[str] = []

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix("/api/v1")
        self.asked.append(path)
        missing = Reply(b'{"title": "no", "status": 404, "detail": "no such thing"}', 404)
        reply = self.alter(path, self.replies.get(path, missing))
        return httpx2.Response(reply.status, headers=reply.headers(path), content=iter([reply.body]))

    @contextmanager
    def altering(self, alter: Alter) -> Iterator[None]:
        before, self.alter = self.alter, alter
        try:
            yield
        finally:
            self.alter = before


def install(monkeypatch: pytest.MonkeyPatch, replay: Replay) -> None:
    """Have every client of this process ask `replay`."""
    real = httpx2.Client

    def make(**options: Any) -> httpx2.Client:
        return real(**options, transport=httpx2.MockTransport(replay.handle))

    monkeypatch.setattr("dietcode.client.transport.httpx2.Client", make)
    monkeypatch.setattr("dietcode.client.blobs._FIRST_DELAY_SECS", 0.0)
    monkeypatch.setenv("DIETCODE_SERVER", URL)
    monkeypatch.delenv("DIETCODE_TOKEN", raising=False)


def with_body(reply: Reply, body: bytes) -> Reply:
    return replace(reply, body=body)
