"""``dietcode worker`` as a process: beside its server on SQLite, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command

from dietcode.runtime.cpu import cpu_model
from dietcode_server.engine.worker import without_paths
from dietcode_server.store import runners
from dietcode_server.store.database import Database, migrations_config
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.subjects import utc_now

Inside = Callable[..., Any]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """That of the data folder ``tmp_path``."""
    made = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    made.upgrade()
    yield made
    made.dispose()


def start(*arguments: object) -> subprocess.Popen[str]:
    command_line = [sys.executable, "-m", "dietcode", *map(str, arguments)]
    return subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.long
def test_a_worker_beside_its_server(tmp_path: Path, inside: Inside) -> None:
    """With the real compiler, which says what this machine is."""
    with start("serve", "--no-jobs", "--port", 0, "--data-dir", tmp_path) as server:
        try:
            assert server.stderr is not None
            url = server.stderr.readline().split()[2].rstrip(",")
            with start("worker", "--name", "mine", "--data-dir", tmp_path) as worker:
                try:
                    assert worker.stderr is not None
                    ready = worker.stderr.readline()
                    assert ready.startswith(f"dietcode: worker mine measures {cpu_model()} ("), ready
                    assert inside("worker", "--check", "--data-dir", tmp_path).stdout == "mine\n"
                    (found,) = json.loads(inside("runners", "--json", "--server", url).stdout)
                    assert found["name"] == "mine" and found["devices"][0]["name"] == cpu_model()
                    table = inside("runners", "--server", url).stdout
                    assert "mine" in table and found["devices"][0]["slot"] in table
                    worker.send_signal(signal.SIGTERM)
                    assert worker.wait(20) == 0 and worker.stderr.read() == ""
                finally:
                    worker.kill()
            done = inside("runners", "--server", url)
            assert done.returncode == 0 and "no runners" in done.stderr
            done = inside("worker", "--check", "--data-dir", tmp_path)
            assert done.returncode == 1 and "has not announced itself" in done.stderr
        finally:
            server.kill()


def refused(done: Any, status: int, *words: str) -> None:
    assert done.returncode == status and done.stderr.count("\n") == 1, done
    assert all(word in done.stderr for word in words), done.stderr


def test_sqlite_is_for_the_servers_own_data_folder(
    inside: Inside, database: Database, tmp_path: Path
) -> None:
    refused(inside("worker", "--data-dir", tmp_path / "new"), 2, "no such database", "PostgreSQL")
    assert not (tmp_path / "new").exists()
    url = f"sqlite:///{tmp_path / 'dietcode.db'}"
    done = inside("worker", "--data-dir", tmp_path / "new", "--database-url", url)
    refused(done, 2, "--database-url", "data folder", "PostgreSQL")
    device = AnnouncedDevice("d", "a CPU", {}, {}, "elsewhere")
    with database.write() as session:
        assert runners.announce(
            session,
            name="theirs",
            process="elsewhere/1/1.00",
            engine="local",
            version="1",
            devices=[device],
            started_at=utc_now(),
            lease_secs=60.0,
        )
    refused(inside("worker", "--data-dir", tmp_path), 2, "elsewhere uses this SQLite file", "PostgreSQL")


def test_what_else_is_refused(inside: Inside, database: Database, tmp_path: Path) -> None:
    refused(inside("worker", "--name", "a/b", "--data-dir", tmp_path), 2, "--name: given 'a/b'")
    refused(inside("worker", "--check", "--data-dir", tmp_path), 1, "no worker has used")
    config = migrations_config()
    with database.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0005")
    refused(inside("worker", "--data-dir", tmp_path), 1, "run `dietcode db upgrade`")


@pytest.mark.parametrize("home", ["/", None, "/srv", "/users/al"])
def test_errors_say_no_folder_of_the_server_and_stay_readable(
    home: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a user whose home is the root, as a service's may be, or who has none."""

    def expanded(_: Path) -> Path:
        if home is None:
            raise RuntimeError("Could not determine home directory.")
        return Path(home)

    monkeypatch.setattr(Path, "home", classmethod(expanded))
    monkeypatch.setenv("DIETCODE_CACHE", "/var/cache/dc")
    text = "2 / 3 GFLOP/s: /srv/dc/jobs/a, /var/cache/dc/b, /users/alice/c and /users/al/d: none in /srv/dc."
    said = without_paths(text, Path("/srv/dc/jobs"))
    own = "~" if home == "/users/al" else "/users/al"
    assert said == f"2 / 3 GFLOP/s: DATA_DIR/jobs/a, CACHE/b, /users/alice/c and {own}/d: none in DATA_DIR."
