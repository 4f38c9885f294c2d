"""The one way into the database: who may read, who may write, and which schema it has.

SQLite in WAL mode, so that readers never wait and the server and its worker write the same file;
PostgreSQL, where several servers share one database, takes the same calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from dietcode.errors import DietCodeError, RequestError
from dietcode.extras import what_to_install
from dietcode_server.store import postgres

if TYPE_CHECKING:  # a job's process, which looks at no schema, starts sooner without it
    from alembic.config import Config
    from alembic.script import ScriptDirectory

BUSY_SECS = 10.0
_RETRY_SECS = 0.02
_BACKENDS = {"sqlite", "postgresql"}
_MAX_REASON_CHARS = 200
_UPGRADE_LOCK = 0x64696574  # "diet": any fixed number will do
# What to do about it, by what SQLite or PostgreSQL says.
_ADVICE = {
    "lock timeout": f"another process has held it for {BUSY_SECS:.0f} s; end that process, or try again",
    'database "': "make it first, as with `createdb`",
    'role "': "give a user that PostgreSQL knows",
    '" does not exist': "run `dietcode db upgrade`, or `dietcode serve` once, which makes the tables",
    "password authentication": "give user and password in the URL: postgresql+psycopg://USER:PASSWORD@HOST/NAME",
    "connection refused": "is PostgreSQL running there?",
    "disk is full": "make room, then try again",
    "disk i/o error": "is the disk full, or a limit on file sizes reached?",
    "locked": f"another process has held it for {BUSY_SECS:.0f} s; end that process, or try again",
    "readonly": "make the file and its folder writable",
    "unable to open": "is its folder there, and writable? --data-dir names another",
    "no such table": "run `dietcode serve` once, which makes the tables",
    "not a database": "move it away, or choose another --data-dir",
    "malformed": "restore it from a backup",
}


class StoreError(DietCodeError):
    """The database cannot be read or written: its disk is full, it is locked, or it is not there."""


class ConnectionLostError(StoreError):
    """The connection broke, or the transaction met another's: the same call may work a moment later."""


class Database:
    """A database and its connections; safe to share between the threads of one process.

    Parameters
    ----------
    url : str
        As ``sqlite:////absolute/path/dietcode.db`` or ``postgresql+psycopg://…``.

    Raises
    ------
    RequestError
        `url` cannot be understood, or is of another kind of database.
    StoreError
        What connects to PostgreSQL is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
            if parsed.get_backend_name() not in _BACKENDS:
                raise ArgumentError(f"given {parsed.drivername}")
            self.is_sqlite = parsed.get_backend_name() == "sqlite"
            args = {"timeout": BUSY_SECS} if self.is_sqlite else postgres.connect_args(parsed, BUSY_SECS)
            options: dict[str, Any] = {"connect_args": args, "pool_pre_ping": not self.is_sqlite}
            # Threads wait for the disk, not for the pool: a connection costs little.
            self.engine: Engine = create_engine(parsed, max_overflow=-1, **options)
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            if isinstance(error, ImportError) and error.name == "psycopg":
                raise StoreError(what_to_install("a PostgreSQL database", "postgres")) from error
            raise RequestError(
                f"database URL: {_one_line(error)}; allowed: sqlite:////absolute/path/dietcode.db, "
                "or postgresql+psycopg://…"
            ) from error
        self.location = parsed.database if self.is_sqlite else parsed.render_as_string(hide_password=True)
        self._writer = self.engine.execution_options(dietcode_mode="write")
        self._reader = self.engine
        self._writing = threading.RLock()
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            self._reader = self.engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one state of the database and cannot change it.

        What it loaded stays readable after it ends.

        Raises
        ------
        StoreError
            The database cannot be read.
        """
        with self._translated(), Session(self._reader) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose changes become visible together at its end, or not at all if it ends in an error.

        On SQLite it holds the one write lock from its first statement: be brief.

        Raises
        ------
        StoreError
            The database cannot be written; nothing of this session was kept.
        """
        with (
            self._translated(),
            self._turn(),
            Session(self._writer, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection that sees one state of the database and cannot change it.

        Raises
        ------
        StoreError
            The database cannot be read.
        """
        with self._translated(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A connection without a session, in a transaction that may change the schema.

        Raises
        ------
        StoreError
            The database cannot be written; nothing of this transaction was kept.
        """
        with self._translated(), self._turn(), self._writer.begin() as connection:
            yield connection

    def upgrade(self, revision: str = "head") -> None:
        """Bring the schema to the one this code needs; processes that start at once wait for each other.

        Parameters
        ----------
        revision : str
            Only as far as this one, for tests and for copies of older databases.

        Raises
        ------
        StoreError
            The schema is newer than this code, or the database cannot be written.
        """
        from alembic import command

        with self._translated():
            if self.is_sqlite:
                self._use_wal()
            config = migrations_config()
            with self.begin() as connection:
                if not self.is_sqlite:  # BEGIN IMMEDIATE does it for SQLite
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
                self._check_known(connection, _migrations())
                config.attributes["connection"] = connection
                command.upgrade(config, revision)

    def check_head(self) -> None:
        """Refuse a schema that is not the one this code needs, where nothing is to be upgraded.

        Raises
        ------
        StoreError
            It is older, or newer; says what to do. Or the database cannot be read.
        """
        with self._translated(), self.engine.connect() as connection:
            self._check_known(connection, _migrations())
            found = _revisions(connection)
        if set(found) != _heads():
            given = f"schema {found[0]!r}" if found else "no tables"
            raise StoreError(
                f"{self.location}: it has {given}, and this version of dietcode needs "
                f"{', '.join(_heads())!r}; run `dietcode db upgrade`"
            )

    def revision(self) -> str | None:
        """The revision of the schema; None of a database without tables.

        Raises
        ------
        StoreError
            The schema is newer than this code, or the database cannot be read.
        """
        with self._translated(), self.engine.connect() as connection:
            self._check_known(connection, _migrations())
            return next(iter(_revisions(connection)), None)

    def at_head(self) -> bool:
        """Return whether the schema is the one this code needs.

        Raises
        ------
        StoreError
            The database cannot be read.
        """
        with self._translated(), self.engine.connect() as connection:
            return set(_revisions(connection)) == _heads()

    def dispose(self) -> None:
        """Close the connections that nobody uses."""
        self.engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Writers of this process one after the other, in SQLite: its own wait sleeps, and lets others by."""
        if not self.is_sqlite:
            yield
            return
        if not self._writing.acquire(timeout=BUSY_SECS):
            raise StoreError(f"{self.location}: database is locked; {_ADVICE['locked']}")
        try:
            yield
        finally:
            self._writing.release()

    def _check_known(self, connection: Connection, script: ScriptDirectory) -> None:
        known = {revision.revision for revision in script.walk_revisions()}
        for revision in _revisions(connection):
            if revision not in known:
                raise StoreError(
                    f"{self.location}: its schema {revision!r} is newer than this version of dietcode, which "
                    f"knows up to {script.get_current_head()!r}; update it, or choose another --data-dir"
                )

    def _use_wal(self) -> None:
        """Turn WAL on; it stays on in the file. SQLite does not wait for a lock here by itself."""
        for attempt in Retrying(
            retry=retry_if_exception(_is_locked),
            stop=stop_after_delay(BUSY_SECS),
            wait=wait_fixed(_RETRY_SECS),
            reraise=True,
        ):
            with attempt, self.engine.connect().execution_options(dietcode_mode="bare") as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Make one line of what the database's driver raises."""
        try:
            yield
        except IntegrityError:
            raise  # a mistake of ours, not the disk's
        except (DBAPIError, PoolTimeoutError) as error:
            first = _first_failure(error)
            original = getattr(first, "orig", None) or first
            reason = _one_line(postgres.message(original) or original)
            advice = next((text for key, text in _ADVICE.items() if key in reason.lower()), None)
            kind = ConnectionLostError if postgres.is_passing(first) else StoreError
            raise kind(f"{self.location}: {reason}" + (f"; {advice}" if advice else "")) from error


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, OperationalError) and "locked" in str(error.orig)


def migrations_config() -> Config:
    """Alembic's configuration, with the migrations that are installed beside this package."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "dietcode_migrations:")
    return config


def _migrations() -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(migrations_config())


@cache
def _heads() -> set[str]:
    """The newest revisions that this code knows; the migrations do not change while it runs."""
    return set(_migrations().get_heads())


def _revisions(connection: Connection) -> tuple[str, ...]:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_heads()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Settings that SQLite keeps for each connection."""
    connection.isolation_level = None  # `_begin_sqlite` says when a transaction begins, and which kind
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")


# How a transaction begins, by the mode of its connection. A writer takes the lock at once: a reader that
# turns writer fails without waiting. The journal's mode is set outside of transactions.
_BEGIN = {
    "read": ("PRAGMA query_only = ON", "BEGIN"),
    "write": ("PRAGMA query_only = OFF", "BEGIN IMMEDIATE"),
    "bare": ("PRAGMA query_only = OFF",),
}


def _begin_sqlite(connection: Connection) -> None:
    for statement in _BEGIN[connection.get_execution_options().get("dietcode_mode", "read")]:
        connection.exec_driver_sql(statement)


def _first_failure(error: BaseException) -> BaseException:
    """Return what went wrong before SQLite rolled everything back by itself, savepoints included."""
    while "no such savepoint" in str(error) and isinstance(error.__context__, DBAPIError):
        error = error.__context__
    return error


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:_MAX_REASON_CHARS]
