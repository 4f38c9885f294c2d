"""The client against ``dietcode serve`` in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_libraries import ROOT, as_served, draw, error, expected, library_bytes, packed_arguments, spec_data

import dietcode
from dietcode.client import AsyncClient, Client
from dietcode.errors import ConflictError, NotFoundError
from dietcode.protocol import JobState
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.manifest import read_manifest
from dietcode_server.store import libraries
from dietcode_server.store.database import Database

# More cores than there are: its jobs wait for another machine, and nothing is tuned.
WAITING = spec_data(target={"kind": "llvm", "num_cores": available_cores() + 1})


class Server:
    """A server process on a folder of its own, with one published library."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = ""
        database = Database(f"sqlite:///{root / 'dietcode.db'}")
        database.upgrade()
        with database.write() as session:
            libraries.publish(session, job=None, device_name="a test", files=library_bytes("dense"))
        database.dispose()

    def start(self, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dietcode", "serve", "--port", str(port), "--data-dir", str(self.root)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"serving (http://127\.0\.0\.1:\d+)", line):
                self.url = found[1]
                return
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("served"))
    made.start()
    yield made
    made.stop()


def test_a_library_comes_from_the_real_server(server: Server, tmp_path: Path) -> None:
    library = dietcode.pull("dense@1", tmp_path / "lib", server=server.url, num_threads=2)
    for path, data in as_served(library_bytes("dense")).items():
        assert (tmp_path / "lib" / path).read_bytes() == data
    arrays = draw("dense", T=7)
    assert error(library(**packed_arguments(library, arrays)), expected("dense", arrays)) < 1e-5
    with Client(server.url) as client:
        assert client.pull("dense").name == "dense"
        assert client.library("dense").manifest == client.library("dense", 1).manifest
        assert [one.version for one in client.libraries().libraries] == [1]
        with pytest.raises(NotFoundError):
            client.pull("dense@2")


def test_keys_are_rotated_and_revoked_while_the_server_runs(
    server: Server, command: Callable[..., Any], tmp_path: Path
) -> None:
    def pull() -> Any:
        return command("pull", "dense", "--no-lock", "-o", tmp_path / "lib", "--server", server.url)

    assert "first use" in pull().stderr
    old = json.loads((tmp_path / "lib" / "signature.json").read_text())["signatures"][0]["keyid"]
    new = command("key", "rotate", "--data-dir", server.root).stdout.strip()
    dietcode.load(tmp_path / "lib")
    assert f"its key is now {new}" in pull().stderr
    assert command("key", "revoke", old, "--data-dir", server.root).returncode == 0
    assert pull().returncode == 0
    listed = command("trust", server.url).stdout.splitlines()
    assert [line.split()[1:3] for line in listed] == [[old, "revoked,"], [new, "current,"]]
    dietcode.load(tmp_path / "lib")


def test_a_partial_blob_is_continued_by_the_real_server(server: Server, own_cache: Path) -> None:
    with Client(server.url) as client:
        whole = library_bytes("dense")["library.so"]
        facts = read_facts(client)
        partial = own_cache / "downloads" / f"{facts['sha256'].replace(':', '-')}.part"
        partial.parent.mkdir(exist_ok=True)
        partial.write_bytes(whole[:1000])
        headers = {"Range": "bytes=1000-", "If-Range": f'"{facts["sha256"]}"'}
        with client.transport.stream(f"/blobs/{facts['sha256']}", headers) as response:
            assert response.status_code == 206  # so that what follows downloads the rest only
        assert client.blob(facts["sha256"], facts["bytes"]).read_bytes() == whole
        assert not partial.exists()


def read_facts(client: Client) -> dict[str, Any]:
    facts: dict[str, Any] = read_manifest(client.pull("dense"))["files"]["library.so"]
    (Path(os.environ["DIETCODE_CACHE"]) / "blobs" / facts["sha256"].replace(":", "-")).unlink()
    return facts


def test_jobs_of_the_real_server(server: Server, command: Callable[..., Any]) -> None:
    with Client(server.url) as client:
        job = client.submit(WAITING)
        assert job.state is JobState.WAITING_FOR_RUNNER and client.submit(WAITING) == job
        assert client.job(job.id) == job
        assert [one.id for one in client.jobs(["waiting_for_runner"]).jobs] == [job.id]
        assert client.cancel(job.id).state is JobState.CANCELLED
        events = list(client.events(job.id))
        assert [event.id for event in events] == [1, 2]
        assert events[-1].state is JobState.CANCELLED
        assert list(client.events(job.id, after=2)) == []

        async def again() -> list[Any]:
            async with AsyncClient(server.url) as other:
                return [event async for event in other.events(job.id)]

        assert asyncio.run(again()) == events
        with pytest.raises(NotFoundError, match="no such job"):
            client.job("0" * 16)
        with pytest.raises(ConflictError):
            client.submit(WAITING, force=True, idempotency_key="k")
            client.submit(WAITING | {"name": "other"}, force=True, idempotency_key="k")
    for arguments in (["show", job.id], ["jobs"], ["resume", job.id], ["cancel", job.id]):
        done = command(*arguments, "--server", server.url)
        assert done.returncode == 0 and job.id in done.stdout, done


@pytest.mark.long
def test_events_outlive_a_restart_of_the_real_server(server: Server) -> None:
    port = int(server.url.rpartition(":")[2])
    with Client(server.url) as client:
        job = client.submit(WAITING | {"name": "restarted"})
        client.cancel(job.id)
        client.resume(job.id)
        seen = []
        for event in client.events(job.id):
            seen.append(event)
            if len(seen) == 3:  # waiting, cancelled, waiting again
                server.stop()
                server.start(port)
                client.cancel(job.id)
    assert [event.id for event in seen] == [1, 2, 3, 4]
    assert [event.state for event in seen] == [JobState.WAITING_FOR_RUNNER, JobState.CANCELLED] * 2
