"""Backups: one SQLite file, whichever database it is of, and back into either.

So a backup also moves a service from SQLite to PostgreSQL, or the other way, and any SQL client can look into
it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
)

from dietcode.errors import ConflictError, DietCodeError, RequestError
from dietcode.workload.text import clip, one_line
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.tables import Base
from dietcode_server.store.times import UtcDateTime

_VERSION_TABLE = "alembic_version"
_ROWS_AT_ONCE = {"blob_chunks": 8}  # of a megabyte each
_PASSING = frozenset({"runners", "slots"})  # who is there now: no reason to keep a database
# What a schema may have beside tables of plain columns and indexes over these: one view.
_NO_TABLES = """
SELECT CASE WHEN sql LIKE 'CREATE VIRTUAL%' THEN 'virtual table' ELSE type END, name FROM sqlite_master
WHERE sql LIKE 'CREATE VIRTUAL%'
OR (type NOT IN ('table', 'index') AND (type, name) <> ('view', 'dispatch_explained'))
UNION ALL SELECT 'computed column', c.name FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c
WHERE t.type = 'table' AND c.hidden <> 0
UNION ALL SELECT 'computed index', i.name FROM sqlite_master AS i, pragma_index_xinfo(i.name) AS c
WHERE i.type = 'index' AND c.cid = -2
"""
_KINDS: dict[type, type | tuple[type, ...]] = {
    Integer: int,
    BigInteger: int,
    Float: (int, float),
    String: str,
    Text: str,
    LargeBinary: bytes,
}
_NUMBERED = ("tuning_records", "libraries")  # tables whose ids the database counts


def backup(database: Database, file: Path) -> int:
    """Write all that a database holds, as it is at one moment; servers go on meanwhile.

    Parameters
    ----------
    file : path
        It is there complete, or not at all; what was there before is replaced only then.

    Returns
    -------
    int
        Size of the file, in bytes.

    Raises
    ------
    DietCodeError
        The database cannot be read, or the file cannot be written.
    """
    if database.revision() is None:
        raise StoreError(f"{database.location}: it has no tables, so there is nothing to back up")
    if database.is_sqlite and file.exists() and file.samefile(str(database.location)):
        raise RequestError(f"{file}: this is the database itself; give another file")
    partial = file.with_name(f".{file.name}.partial")
    try:
        with _cleared(partial):
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # it holds all there is
            if database.is_sqlite:
                _copy_file(Path(str(database.location)), partial)
            else:
                _copy_rows_out(database, partial)
            _settle(partial)
            partial.replace(file)
        return file.stat().st_size
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        raise DietCodeError(f"{file}: cannot be written: {reason}; choose another place") from error


def restore(database: Database, file: Path, *, force: bool = False) -> int:
    """Fill a database from a backup, all of it or nothing; an older backup is upgraded on its way.

    Parameters
    ----------
    force : bool
        Replace what the database holds.

    Returns
    -------
    int
        How many rows there are now.

    Raises
    ------
    RequestError
        The file is no backup.
    ConflictError
        The database is not empty, and nobody said `force`; or a worker is writing to it.
    StoreError
        The database cannot be written, or has an older schema; it is as it was.
    """
    with _opened(file) as source:
        if database.revision() is not None:
            database.check_head()  # there is no way back from an upgrade, and the rest may be refused
        database.upgrade()
        with source.snapshot() as given, database.begin() as connection:
            _check_free(database, connection, force)
            for table in reversed(Base.metadata.sorted_tables):
                connection.execute(table.delete())
            tables = [table for table in reflected(given) if table.name not in _PASSING]
            _check_tables(file, tables)
            try:
                count = copy_rows(given, connection, tables, _checked_row)
            except (ValueError, TypeError, RecursionError) as error:  # of JSON and times, too
                raise _damaged(file, f"{type(error).__name__}: {error}") from error
            if not database.is_sqlite:
                count_on(connection)
    return count


@contextmanager
def _cleared(partial: Path) -> Iterator[None]:
    """Leave nothing half written behind."""
    paths = [partial.with_name(partial.name + ending) for ending in ("", "-wal", "-shm", "-journal")]
    for path in paths:
        path.unlink(missing_ok=True)
    try:
        yield
    finally:
        for path in paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _copy_file(source: Path, target: Path) -> None:
    """SQLite's own backup, in one step: a snapshot that neither waits for writers nor holds them up."""
    readable = f"{source.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(readable, uri=True, timeout=10.0)) as given,
        closing(sqlite3.connect(target)) as made,
    ):
        given.backup(made)


def _copy_rows_out(database: Database, target: Path) -> None:
    """The tables of PostgreSQL, row by row, in a SQLite file of the same schema."""
    copy = Database(f"sqlite:///{target}")
    try:
        copy.upgrade(database.revision() or "head")
        with database.snapshot() as given, copy.begin() as made:
            copy_rows(given, made, reflected(made))
    finally:
        copy.dispose()


def _settle(path: Path) -> None:
    """Make one whole file of it, and have it on the disk."""
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("PRAGMA journal_mode = DELETE")
        made.execute("VACUUM")
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


@contextmanager
def _opened(file: Path) -> Iterator[Database]:
    """A copy of a backup, with the schema of this version; the file itself stays as it is.

    Raises
    ------
    RequestError
        It is no backup.
    """
    with tempfile.TemporaryDirectory(prefix="dietcode-restore-") as folder:
        path = Path(folder) / "backup.db"
        try:
            shutil.copyfile(file, path)
        except OSError as error:
            raise RequestError(f"{file}: cannot be read: {error.strerror or error}") from error
        _check_backup(file, path)
        copy = Database(f"sqlite:///{path}")
        try:
            copy.upgrade()
            yield copy
        finally:
            copy.dispose()


def _check_backup(file: Path, path: Path) -> None:
    """Refuse what `dietcode db backup` did not write, or what was damaged since.

    Raises
    ------
    RequestError
        It is not a backup.
    """
    try:
        with closing(sqlite3.connect(path)) as given:
            given.execute("PRAGMA trusted_schema = OFF")
            others = given.execute(_NO_TABLES).fetchone()
            found = "ok" if others else next(given.execute("PRAGMA integrity_check(1)"))[0]
            names = {name for (name,) in given.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            strays = given.execute("PRAGMA foreign_key_check").fetchone() if others is None else None
            has_versions = others is None and _VERSION_TABLE in names
            versions = list(given.execute(f"SELECT * FROM {_VERSION_TABLE}")) if has_versions else []
    except sqlite3.Error as error:
        raise RequestError(
            f"{file}: no backup of dietcode: {one_line(str(error))}; give what `dietcode db backup` wrote"
        ) from error
    if not {_VERSION_TABLE, "jobs", "tuning_records"} <= names:
        raise RequestError(
            f"{file}: no backup of dietcode: it lacks the tables; give what `dietcode db backup` wrote"
        )
    if others is not None:  # it would act as the file is read or upgraded
        raise RequestError(
            f"{file}: no backup of dietcode: it has the {others[0]} {clip(others[1])}; "
            "give what `dietcode db backup` wrote"
        )
    if found != "ok":
        raise _damaged(file, str(found))
    if strays is not None:
        raise _damaged(file, f"rows of {strays[0]} refer to none")
    if len(versions) != 1:
        raise _damaged(file, f"it names {len(versions)} schemas")


def _damaged(file: Path, what: str) -> RequestError:
    return RequestError(f"{file}: the backup is damaged: {one_line(what)}; take another")


def _check_tables(file: Path, tables: list[Table]) -> None:
    """Refuse tables and columns that this version has not: rows would go to whatever has their names.

    Raises
    ------
    RequestError
        There is one.
    """
    for table in tables:
        own = Base.metadata.tables.get(table.name)
        if own is None:
            raise _damaged(file, f"it has a table {clip(table.name)}")
        for column in table.columns:
            if column.name not in own.columns:
                raise _damaged(file, f"{table.name} has a column {clip(column.name)}")


def _checked_row(table: Table, row: dict[str, Any]) -> None:
    """Refuse values of other types than their columns: SQLite keeps anything in any.

    Raises
    ------
    ValueError
        There is one.
    """
    for column in table.columns:
        value = row[column.name]
        if value is not None and not isinstance(value, _KINDS.get(type(column.type), object)):
            raise ValueError(f"{table.name}.{column.name} is a {type(value).__name__}")


def _check_free(database: Database, connection: Connection, force: bool) -> None:
    """Refuse a database that is in use.

    Raises
    ------
    ConflictError
        It holds rows, and nobody said that they may go; or a worker holds a job.
    """
    if not database.is_sqlite:  # a writer of SQLite is alone
        connection.execute(text("LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE"))
    now = clock(connection)
    jobs = Base.metadata.tables["jobs"]
    held = select(jobs.c.id).where(jobs.c.state == "running", jobs.c.leased_until > now).limit(1)
    busy = connection.execute(held).scalar()
    if busy is not None:
        raise ConflictError(f"{database.location}: a worker holds job {busy}; stop the servers first")
    runners = Base.metadata.tables["runners"]
    there = connection.execute(select(runners.c.name).where(runners.c.leased_until > now).limit(1)).scalar()
    if there is not None:
        raise ConflictError(
            f"{database.location}: runner {there} uses it; stop the servers and workers first"
        )
    filled = [
        name
        for name, table in Base.metadata.tables.items()
        if name not in _PASSING and connection.execute(select(func.count()).select_from(table)).scalar_one()
    ]
    if filled and not force:
        raise ConflictError(
            f"{database.location}: not empty, there are rows in {', '.join(sorted(filled)[:3])}; "
            "give an empty database, or --force to replace all of it"
        )


def reflected(connection: Connection) -> list[Table]:
    """The tables of a SQLite file as they are there, in an order in which they can be filled."""
    metadata = MetaData()
    names = set(inspect(connection).get_table_names()) - {_VERSION_TABLE}
    metadata.reflect(connection, only=sorted(names))
    for table in metadata.tables.values():
        for column in table.columns:
            kind = column.type.as_generic(allow_nulltype=True)
            column.type = UtcDateTime() if isinstance(kind, DateTime) else kind
            if isinstance(kind, JSON):
                column.type = JSON(none_as_null=True)
    return metadata.sorted_tables


def copy_rows(
    given: Connection,
    made: Connection,
    tables: list[Table],
    check: Callable[[Table, dict[str, Any]], None] = lambda *_: None,
) -> int:
    """Copy whole tables, each row of which passes a check; how many rows that were."""
    count = 0
    for table in tables:
        at_once = _ROWS_AT_ONCE.get(table.name, 500)
        query = select(table).order_by(*table.primary_key.columns)
        rows = given.execution_options(yield_per=at_once).execute(query)
        for some in rows.mappings().partitions(at_once):
            given_rows = [dict(row) for row in some]
            for row in given_rows:
                check(table, row)
            made.execute(insert(table), given_rows)
            count += len(given_rows)
    return count


def count_on(connection: Connection) -> None:
    """Let PostgreSQL count on from the ids that were copied."""
    for table in _NUMBERED:
        connection.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), "
                f"coalesce((SELECT max(id) FROM {table}), 0) + 1, false)"
            )
        )
