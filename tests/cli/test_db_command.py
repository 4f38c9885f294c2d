"""``dietcode db``: what it prints, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from filelock import FileLock
from small_libraries import spec_data
from sqlalchemy import update

from dietcode.workload.parse import spec_from_data
from dietcode_server.store import blobs, jobs
from dietcode_server.store.database import Database, migrations_config
from dietcode_server.store.tables import BlobChunk

Inside = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder whose database has one job."""
    folder = tmp_path / "data"
    folder.mkdir()
    database = Database(f"sqlite:///{folder / 'dietcode.db'}")
    database.upgrade()
    with database.write() as session:
        jobs.submit(
            session,
            spec=spec_from_data(spec_data()),
            target={},
            device=None,
            runnable=False,
            force=False,
            idempotency_key=None,
        )
    database.dispose()
    return folder


def said(done: Any, status: int, *words: str) -> None:
    text = done.stderr if status else done.stdout
    assert done.returncode == status and text.count("\n") == 1, done
    assert all(word in text for word in words), text


def num_jobs(folder: Path) -> int:
    database = Database(f"sqlite:///{folder / 'dietcode.db'}")
    with database.read() as session:
        found, _ = jobs.list_jobs(session)
    database.dispose()
    return len(found)


def test_a_backup_and_back(inside: Inside, data: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "b.db", tmp_path / "other"
    said(inside("db", "backup", file, "--data-dir", data), 0, str(file), "bytes")
    said(inside("db", "restore", file, "--data-dir", other), 0, "dietcode.db", "rows from")
    assert num_jobs(other) == 1
    said(inside("db", "restore", file, "--data-dir", other), 2, "not empty", "--force")
    said(inside("db", "restore", file, "--data-dir", other, "--force"), 0, "rows from")
    url = f"sqlite:///{tmp_path / 'third.db'}"
    said(inside("db", "restore", file, "--data-dir", other, "--database-url", url), 0, "third.db")
    said(inside("db", "restore", data / "nothing", "--data-dir", other, "--force"), 2, "cannot be read")
    assert num_jobs(other) == 1


def test_nothing_is_restored_beside_a_server(inside: Inside, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.db"
    lock = FileLock(data / "server.lock")
    lock.acquire()
    said(inside("db", "backup", file, "--data-dir", data), 0, "bytes")
    said(inside("db", "restore", file, "--force", "--data-dir", data), 2, "a server uses", "stop it")
    lock.release()


def test_upgrade(inside: Inside, data: Path, tmp_path: Path) -> None:
    said(inside("db", "upgrade", "--data-dir", data), 0, "has it already")
    config = migrations_config()
    database = Database(f"sqlite:///{data / 'dietcode.db'}")
    with database.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")
    database.dispose()
    said(inside("db", "upgrade", "--data-dir", data), 0, "upgraded from 0002")
    said(inside("db", "upgrade", "--database-url", f"sqlite:///{tmp_path / 'new.db'}"), 0, "made")
    said(inside("db", "upgrade", "--data-dir", tmp_path / "no"), 1, "is its folder there")


def test_what_is_not_there(inside: Inside, tmp_path: Path) -> None:
    said(
        inside("db", "backup", tmp_path / "b.db", "--data-dir", tmp_path), 2, "no such database", "--data-dir"
    )
    assert list(tmp_path.iterdir()) == []
    said(inside("db", "backup", tmp_path / "b.db", "--database-url", "nonsense"), 2, "database URL")


def test_prune_deletes_what_is_named(inside: Inside, data: Path) -> None:
    said(inside("db", "prune", "--data-dir", data), 2, "--jobs-days", "--records-of")
    said(inside("db", "prune", "--device", "x", "--data-dir", data), 2, "--records-of WORKLOAD")
    said(inside("db", "prune", "--jobs-at-most", 1, "--data-dir", data), 0, "deleted 0 jobs, 0 records")
    database = Database(f"sqlite:///{data / 'dietcode.db'}")
    with database.write() as session:
        found, _ = jobs.list_jobs(session)
        jobs.request_cancel(session, found[0].id)
    database.dispose()
    line = ("db", "prune", "--jobs-days", 1e-9, "--data-dir", data)
    said(inside(*line, "--records-of", "nonsense"), 2, "workload 'nonsense': no measurements of it")
    assert num_jobs(data) == 1
    said(inside(*line), 0, "deleted 1 job, 0 records")
    assert num_jobs(data) == 0


def test_a_backup_says_loudly_that_keys_are_not_in_it(inside: Inside, data: Path, tmp_path: Path) -> None:
    done = inside("db", "backup", tmp_path / "b.db", "--data-dir", data)
    assert "keys that sign libraries are NOT in it" in done.stderr and str(data / "keys") in done.stderr


def test_scrub_names_what_is_damaged(inside: Inside, data: Path) -> None:
    database = Database(f"sqlite:///{data / 'dietcode.db'}")
    with database.write() as session:
        digest = blobs.add(session, b"content")
    said(inside("db", "scrub", "--data-dir", data), 0, "all 1 blobs")
    with database.write() as session:
        session.execute(update(BlobChunk).values(data=b"c0ntent"))
    database.dispose()
    done = inside("db", "scrub", "--data-dir", data)
    assert done.returncode == 1 and done.stdout.startswith(f"{digest}: its bytes are sha256:")
    assert "1 of 1 blobs are damaged" in done.stderr
