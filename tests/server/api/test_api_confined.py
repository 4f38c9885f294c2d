"""What a server says and does where jobs cannot be confined."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dietcode import confinement
from dietcode.confinement import landlock
from dietcode.errors import RequestError
from dietcode_server.process import check_confined, unconfined
from dietcode_server.settings import Settings
from dietcode_server.store import tokens
from dietcode_server.store.database import Database


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.delenv("DIETCODE_SERVE_UNCONFINED_JOBS", raising=False)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    database = Database(f"sqlite:///{tmp_path}/dietcode.db")
    database.upgrade()
    yield database
    database.dispose()


def test_others_jobs_are_not_run_unconfined(database: Database, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    check_confined(settings, database)  # nobody but this machine's users
    with database.write() as session:
        tokens.create(session, "alice", ["read"], None)
    with pytest.raises(RequestError, match=r"Landlock.*DIETCODE_SERVE_UNCONFINED_JOBS=1") as raised:
        check_confined(settings, database)
    assert "\n" not in str(raised.value)
    check_confined(Settings(data_dir=tmp_path, unconfined_jobs=True), database)
    check_confined(Settings(data_dir=tmp_path, jobs=False), database)


def test_jobs_are_run_where_only_a_compilers_signals_are_open(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user without namespaces, on a kernel before 6.12: that is said, and no more."""
    monkeypatch.setattr(landlock, "version", lambda: 5)
    monkeypatch.setattr(confinement, "can_separate", lambda: False)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    settings = Settings(data_dir=tmp_path)
    with database.write() as session:
        tokens.create(session, "alice", ["read"], None)
    (line,) = unconfined(settings)
    assert "send signals" in line
    check_confined(settings, database)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with pytest.raises(RequestError, match="send signals"):
        check_confined(settings, database)


def test_secrets_among_programs_are_said(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Settings(data_dir=tmp_path, signing_key=tmp_path / "keys" / "key.pem")
    assert not any("lies below" in line for line in unconfined(here))
    monkeypatch.setattr(
        sys, "path", ["", *sys.path, str(tmp_path)]
    )  # as a package that is linked, not copied
    said = [line for line in unconfined(here) if "lies below" in line]
    assert [line.partition(",")[0] for line in said] == ["the data folder", "DIETCODE_SERVE_SIGNING_KEY"]
    with database.write() as session:
        tokens.create(session, "alice", ["read"], None)
    with pytest.raises(RequestError, match=r"the data folder, .*, lies below "):
        check_confined(here, database)
    assert unconfined(Settings(data_dir=tmp_path, jobs=False)) == ()


def test_readiness_says_what_is_not_confined(service, monkeypatch: pytest.MonkeyPatch) -> None:
    client: TestClient = service.client
    monkeypatch.setattr(landlock, "version", lambda: 0)
    found = client.get("/readyz").json()
    assert found["status"] == "ok"
    assert found["unconfined"] == list(unconfined(service.settings))
    assert any("Landlock" in line for line in found["unconfined"])
    monkeypatch.setattr(landlock, "version", lambda: 1)
    assert not any("Landlock" in line for line in client.get("/readyz").json().get("unconfined", ()))


def test_readiness_tells_strangers_no_paths(service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs a token for it: which secret lies wrong is said there, and where in the log alone."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(service.settings.data_dir)])
    assert any(str(service.settings.data_dir) in line for line in unconfined(service.settings))
    found = service.client.get("/readyz")
    assert str(service.settings.data_dir) not in found.text
    assert [line for line in found.json()["unconfined"] if line.startswith("the data folder lies ")]
