"""``dietcode.lock``: another machine gets the same bytes, or one line that says why not."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_libraries import library_bytes
from wire_server import WireServer, digest, running

from dietcode.client.lock import update_lock
from dietcode.client.pull import install
from dietcode.errors import LibraryError
from dietcode.runtime.manifest import read_manifest

Command = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: WireServer) -> Path:
    """The current folder."""
    wire.publish("dense", 1, library_bytes("dense"))
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def second_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lock: Path) -> Path:
    """A copy of the lock file in another folder, and an empty cache."""
    root = tmp_path / "second"
    root.mkdir()
    (root / "dietcode.lock").write_bytes(lock.read_bytes())
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "second-cache"))
    monkeypatch.chdir(root)
    return root


def failed(done: Any, status: int, *words: str) -> None:
    assert done.returncode == status, done
    assert done.stderr.startswith("dietcode: ") and done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words) and done.stdout == "", done


def changed() -> dict[str, bytes]:
    files = dict(library_bytes("dense"))
    return files | {"manifest.json": files["manifest.json"] + b"\n"}


def test_a_lock_file_says_everything(project: Path, command: Command, wire: WireServer) -> None:
    done = command("pull", "dense", "-o", "build/lib")
    assert (done.returncode, done.stdout) == (0, "build/lib\n")
    text = (project / "dietcode.lock").read_text()
    lock = json.loads(text)
    assert text == json.dumps(lock, indent=2, sort_keys=True) + "\n"
    entry = lock["libraries"]["dense"]
    assert lock["format"] == "dietcode-lock/1" and entry["folder"] == "build/lib"
    assert (entry["version"], entry["server"], entry["key"]) == (1, wire.url, wire.fingerprint)
    listed = {"manifest.json": entry["manifest"], **entry["files"]}
    for path, facts in listed.items():
        data = (project / "build/lib" / path).read_bytes()
        assert facts == {"sha256": digest(data), "size_bytes": len(data)}
    assert set(listed) == {"manifest.json", "library.so", "dispatch.json", "report.json"}


def test_a_second_machine_gets_the_same_bytes(
    project: Path, command: Command, wire: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.publish("rows", 3, library_bytes("rows"))
    assert command("pull", "dense@1", "-o", "build/lib").returncode == 0
    assert command("pull", "rows").returncode == 0
    wire.publish("dense", 2, changed())
    root = second_machine(monkeypatch, tmp_path, project / "dietcode.lock")
    monkeypatch.delenv("DIETCODE_SERVER")  # the lock file names it
    done = command("pull")
    assert done.returncode == 0, done
    folders = [Path(line) for line in done.stdout.splitlines()]
    assert folders[0] == Path("build/lib") and tmp_path / "second-cache" in folders[1].parents
    for path, data in library_bytes("dense").items():
        assert (root / "build/lib" / path).read_bytes() == data
    assert read_manifest(folders[1])["name"] == "rows"
    wire.stop()
    assert command("pull").stdout == done.stdout  # all of it is here now


def test_other_bytes_than_locked_are_refused(
    project: Path, command: Command, wire: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("pull", "dense@1").returncode == 0
    old = digest(wire.manifests["dense", 1])
    wire.publish("dense", 1, changed())
    second_machine(monkeypatch, tmp_path, project / "dietcode.lock")
    new = digest(changed()["manifest.json"])
    words = f"dense@1: the server's manifest is {new}, the lock file says {old}"
    failed(command("pull"), 1, words)
    failed(command("pull", "dense"), 1, words)
    assert json.loads(Path("dietcode.lock").read_text())["libraries"]["dense"]["manifest"]["sha256"] == old
    assert not (tmp_path / "second-cache" / "libraries").exists()


def test_files_that_do_not_fit_the_locked_manifest(project: Path, command: Command) -> None:
    assert command("pull", "dense").returncode == 0
    lock = json.loads(Path("dietcode.lock").read_text())
    lock["libraries"]["dense"]["files"]["library.so"]["sha256"] = "sha256:" + "0" * 64
    Path("dietcode.lock").write_text(json.dumps(lock))
    failed(command("pull"), 1, "dense@1: files or runtime do not fit the manifest")


def test_pulling_again_moves_the_entry_on(project: Path, command: Command, wire: WireServer) -> None:
    command("pull", "dense", "--lock", "deep/my.lock")
    wire.publish("dense", 2, changed())
    command("pull", "dense", "--lock", "deep/my.lock")
    lock = json.loads(Path("deep/my.lock").read_text())
    assert lock["libraries"]["dense"]["version"] == 2 and lock["libraries"]["dense"]["folder"] is None
    assert not Path("dietcode.lock").exists()
    assert [path.name for path in Path("deep").iterdir()] == ["my.lock"]


def test_no_lock(project: Path, command: Command) -> None:
    assert command("pull", "dense", "--no-lock").returncode == 0
    assert not list(project.iterdir())


def test_a_folder_outside_means_nothing_elsewhere(project: Path, command: Command, tmp_path: Path) -> None:
    assert command("pull", "dense", "-o", tmp_path / "lib").returncode == 0
    assert json.loads(Path("dietcode.lock").read_text())["libraries"]["dense"]["folder"] is None
    read_manifest(tmp_path / "lib")


def test_what_pull_refuses(project: Path, command: Command, wire: WireServer) -> None:
    failed(command("pull"), 2, "dietcode.lock: no libraries are locked here; give NAME")
    failed(command("pull", "-o", "lib"), 2, "-o needs a NAME")
    failed(command("pull", "--no-lock"), 2, "--no-lock needs a NAME")
    failed(command("pull", "nothing"), 2, "no such version")
    failed(command("pull", "dense@7"), 2, "dense@7: no such version")
    assert not wire.asked("/blobs/")


BAD: dict[str, tuple[Any, str]] = {
    "outside": ({"folder": "../x"}, "folder '../x'"),
    "absolute": ({"folder": "/tmp/x"}, "folder '/tmp/x'"),
    "the project itself": ({"folder": "."}, "folder '.'"),
    "a version": ({"version": 0}, "version"),
    "a server": ({"server": "file:///etc/passwd"}, "server: given"),
    "a size": ({"runtime": {"sha256": "sha256:" + "0" * 64, "size_bytes": 2**60}}, "runtime: given a size"),
    "a digest": ({"manifest": {"sha256": "sha256:../x", "size_bytes": 1}}, "manifest: 'sha256:../x'"),
    "files": ({"files": {"../x": {"sha256": "sha256:" + "0" * 64, "size_bytes": 1}}}, "files: allowed"),
    "unknown": ({"scripts": ["rm"]}, "scripts"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_hostile_lock_file_is_refused(case: str, project: Path, command: Command, wire: WireServer) -> None:
    command("pull", "dense")
    before = len(wire.requests)
    lock = json.loads(Path("dietcode.lock").read_text())
    lock["libraries"]["dense"] |= BAD[case][0]
    Path("dietcode.lock").write_text(json.dumps(lock))
    failed(command("pull"), 1, "dietcode.lock: ", BAD[case][1])
    assert len(wire.requests) == before


@pytest.mark.parametrize("text", ["", "hello", "[]", '{"format": "dietcode-lock/2"}', "[" * 10_000])
def test_a_lock_file_that_is_none_is_left_alone(project: Path, command: Command, text: str) -> None:
    Path("dietcode.lock").write_text(text)
    failed(command("pull", "dense"), 1, "dietcode.lock: no lock file of format dietcode-lock/1")
    assert Path("dietcode.lock").read_text() == text


def test_a_link_does_not_lead_out(project: Path, command: Command, tmp_path: Path) -> None:
    command("pull", "dense", "-o", "build/lib")
    (project / "build").rename(tmp_path / "elsewhere")
    (project / "build").symlink_to(tmp_path / "elsewhere")
    failed(command("pull"), 1, "leads out of")


def test_the_token_goes_only_where_the_user_said(
    project: Path, command: Command, wire: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("pull", "dense")
    lock = second_machine(monkeypatch, tmp_path, project / "dietcode.lock") / "dietcode.lock"
    monkeypatch.setenv("DIETCODE_TOKEN", "secret")
    monkeypatch.delenv("DIETCODE_SERVER")
    seen = len(wire.requests)
    install(lock, None, None)
    assert not [r for r in wire.requests if "authorization" in r.headers]
    assert len(wire.requests) > seen
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "third-cache"))
    seen = len(wire.requests)
    install(lock, wire.url, None)
    assert {r.headers["authorization"] for r in wire.requests[seen:]} == {"Bearer secret"}


def test_another_server_may_serve_what_is_locked(
    project: Path, command: Command, wire: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("pull", "dense")
    second_machine(monkeypatch, tmp_path, project / "dietcode.lock")
    wire.stop()
    with running(WireServer()) as mirror:
        mirror.publish("dense", 1, library_bytes("dense"))
        assert command("pull", "--server", mirror.url).returncode == 0
        assert mirror.asked("/blobs/")


def test_writers_at_once_lose_nothing(project: Path, command: Command) -> None:
    from dietcode.client.lock import read_lock

    command("pull", "dense")
    lock = Path("dietcode.lock")
    entry = read_lock(lock)["dense"]
    threads = [threading.Thread(target=update_lock, args=(lock, f"lib{i}", entry)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_lock(lock)) == {"dense", *(f"lib{i}" for i in range(8))}
    assert list(project.iterdir()) == [project / "dietcode.lock"]


def test_a_lock_file_that_cannot_be_written(project: Path, command: Command) -> None:
    (project / "file").write_text("")
    failed(command("pull", "dense", "--lock", "file/my.lock"), 1, "file/my.lock", "cannot be")
    Path("dietcode.lock").mkdir()
    with pytest.raises(LibraryError, match="cannot be read"):
        install(Path("dietcode.lock"), None, None)


def test_a_lock_file_that_is_a_pipe_is_refused_at_once(project: Path, command: Command) -> None:
    os.mkfifo(project / "dietcode.lock")
    done = command("pull")
    assert done.returncode == 1 and "it is no file" in done.stderr and done.stderr.count("\n") == 1
