"""A database of its own for each test, of each kind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dietcode_server.store.database import Database


@pytest.fixture
def url(kind: str, tmp_path: Path, new_url: Callable[..., str], request: pytest.FixtureRequest) -> str:
    """Where `database` is; without it, where an empty one is."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'dietcode.db'}"
    return new_url(migrated="database" in request.fixturenames)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables and nothing in them."""
    path: Path = tmp_path_factory.mktemp("migrated") / "dietcode.db"
    database = Database(f"sqlite:///{path}")
    database.upgrade()
    database.dispose()
    return path


@pytest.fixture
def database(kind: str, url: str, migrated: Path, tmp_path: Path) -> Iterator[Database]:
    if kind == "sqlite":
        shutil.copy(migrated, tmp_path / "dietcode.db")
    database = Database(url)
    yield database
    database.dispose()
