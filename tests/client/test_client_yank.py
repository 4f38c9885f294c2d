"""Yanked versions, as clients see them; and the token, which goes to the server alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from small_libraries import library_bytes
from wire_server import Fault, WireServer

from dietcode.client import Client
from dietcode.errors import DietCodeError

Command = Callable[..., subprocess.CompletedProcess[str]]
YANKED = {"DietCode-Yanked": "2026-01-05T09:30:00+00:00"}
INFO = {
    "name": "dense",
    "version": 1,
    "workload": "sha256:" + "0" * 64,
    "device": "a CPU",
    "target": {},
    "num_micro_kernels": 1,
    "size_bytes": 1,
    "manifest": {"sha256": "sha256:" + "0" * 64, "size_bytes": 1},
    "created_at": "2026-01-05T09:30:00Z",
}


@pytest.fixture
def library(wire: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WireServer:
    monkeypatch.chdir(tmp_path)
    wire.publish("dense", 1, library_bytes("dense"))
    return wire


def test_a_yanked_version_comes_with_a_warning(library: WireServer, command: Command) -> None:
    library.fault("/libraries/dense/1", Fault(headers=YANKED))
    done = command("pull", "dense@1", "--no-lock")
    assert done.returncode == 0
    assert "dense@1 was yanked on 2026-01-05" in done.stderr


def test_a_lock_file_still_gets_it_with_a_warning(
    library: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "yanked" not in command("pull", "dense@1").stderr
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "another-cache"))
    library.fault("/libraries/dense/1", Fault(headers=YANKED))
    done = command("pull")
    assert done.returncode == 0
    assert "dense@1 was yanked on 2026-01-05" in done.stderr


def test_python_warns_too(library: WireServer) -> None:
    library.fault("/libraries/dense/1", Fault(headers=YANKED))
    with Client() as client, pytest.warns(UserWarning, match="dense@1 was yanked"):
        client.pull("dense@1")


@pytest.mark.parametrize("undo", [False, True])
def test_the_command(wire: WireServer, command: Command, undo: bool) -> None:
    path = f"/libraries/dense/1/{'unyank' if undo else 'yank'}"
    info = INFO | {"yanked_at": None if undo else "2026-01-05T09:30:00Z"}
    wire.fault(path, Fault(body=json.dumps(info).encode()))
    done = command("yank", "dense@1", *(["--undo"] if undo else []))
    assert done.stdout == f"dense@1: {'not yanked' if undo else 'yanked'}\n"
    assert wire.asked(path)[0].method == "POST"


@pytest.mark.parametrize("ref", ["dense", "dense@latest"])
def test_a_yank_needs_a_version(wire: WireServer, command: Command, ref: str) -> None:
    done = command("yank", ref)
    assert done.returncode == 2 and "dense@3" in done.stderr
    assert not wire.requests


def test_the_token_is_sent_to_the_server_and_said_to_nobody(
    library: WireServer, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "dct_" + "S" * 43
    monkeypatch.setenv("DIETCODE_TOKEN", secret)
    assert command("pull", "dense").returncode == 0
    assert {request.headers["authorization"] for request in library.requests} == {f"Bearer {secret}"}
    for status in (401, 403, 404, 429, 500):
        library.fault("/jobs", Fault(status=status, body=b"not a problem document"))
        done = command("jobs")
        assert done.returncode != 0
        assert secret not in done.stdout + done.stderr
    with Client() as client:
        assert secret not in repr(client.transport.address)


def test_a_redirect_does_not_take_the_token_along(
    wire: WireServer, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wire_server import running

    monkeypatch.setenv("DIETCODE_TOKEN", "dct_secret")
    with running(WireServer()) as other:
        for status in (301, 302, 303, 307, 308):
            wire.fault("/jobs", Fault(status=status, headers={"Location": f"{other.url}/api/v1/jobs"}))
            done = command("jobs")
            assert done.returncode == 1 and "not followed" in done.stderr
            assert "dct_secret" not in done.stderr
        assert other.requests == []


def test_a_refusal_is_one_line(wire: WireServer) -> None:
    problem = {"type": "x", "title": "Not allowed", "status": 403, "detail": "dense belongs to alice"}
    wire.fault("/libraries/dense/1/yank", Fault(status=403, body=json.dumps(problem).encode()))
    with Client() as client, pytest.raises(DietCodeError, match=r"^dense belongs to alice$"):
        client.yank("dense", 1)


def test_a_yank_that_was_seen_holds_without_the_server(library: WireServer) -> None:
    """Dropped packets must not bring back what was withdrawn."""
    library.publish("dense", 2, library_bytes("dense"))
    with Client() as client:
        client.pull("dense")
        library.yank("dense", 2)
        client.pull("dense")
        library.stop()
        with pytest.warns(match="using dense@1 from the cache"):
            client.pull("dense")


def test_what_was_yanked_is_what_was_asked_for(wire: WireServer, command: Command) -> None:
    body = json.dumps(INFO | {"name": "x\x9b2J"}).encode()
    wire.fault("/libraries/dense/1/yank", Fault(body=body))
    done = command("yank", "dense@1")
    assert done.returncode == 1 and "asked for dense@1, given 'x\\x9b2J'@1" in done.stderr
