"""A database of its own for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dietcode_server.store.database import Database


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'dietcode.db'}"


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables and nothing in them."""
    path: Path = tmp_path_factory.mktemp("migrated") / "dietcode.db"
    database = Database(f"sqlite:///{path}")
    database.upgrade()
    database.dispose()
    return path


@pytest.fixture
def database(url: str, migrated: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copy(migrated, tmp_path / "dietcode.db")
    database = Database(url)
    yield database
    database.dispose()
