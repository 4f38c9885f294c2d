"""``dietcode db``: the server's database, upgraded, backed up and restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.errors import ConflictError, DietCodeError, RequestError
from dietcode.extras import need

if TYPE_CHECKING:
    from dietcode_server.settings import Settings
    from dietcode_server.store.database import Database

db_app = typer.Typer(help="The server's database: upgrade, backup, restore.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="As of `dietcode serve`. [default: the user's data folder]"
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--database-url", metavar="URL", help="[default: $DIETCODE_SERVE_DATABASE_URL, or SQLite]"),
]


@db_app.command()
def upgrade(data_dir: DataDir = None, database_url: Url = None) -> None:
    """Bring the database to the schema of this version; `dietcode serve` does so by itself."""
    settings = _settings(data_dir, database_url)
    with _database(settings) as database:
        before = database.revision() if _is_there(database) else None
        database.upgrade()
        after = database.revision()
        done = "has it already" if before == after else f"upgraded from {before}" if before else "made"
        typer.echo(f"{database.location}: schema {after}, {done}")


@db_app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To write: a SQLite file.")],
    data_dir: DataDir = None,
    database_url: Url = None,
) -> None:
    """Write all that the database holds to one file; the server goes on meanwhile."""
    with _database(_settings(data_dir, database_url)) as database:
        _need(database)
        from dietcode_server.store.backup import backup as write

        size = write(database, file)
    typer.echo(f"{file}: {size} bytes")


@db_app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `dietcode db backup` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Replace what the database holds.")] = False,
    data_dir: DataDir = None,
    database_url: Url = None,
) -> None:
    """Fill an empty database from a backup, of SQLite or PostgreSQL; the servers must be stopped."""
    settings = _settings(data_dir, database_url)
    with _stopped(settings), _database(settings) as database:
        from dietcode_server.store.backup import restore as fill

        count = fill(database, file, force=force)
        typer.echo(f"{database.location}: {count} rows from {file}")


def _settings(data_dir: Path | None, database_url: str | None) -> Settings:
    """Return where the database is, by the rules of `dietcode serve`.

    Raises
    ------
    RequestError
        The server extra is not installed, or a setting is refused.
    """
    need("server", "this command")
    from dietcode_server.settings import load_settings

    return load_settings(data_dir=data_dir, database_url=database_url)


@contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    from dietcode_server.store.database import Database

    database = Database(settings.database)
    try:
        yield database
    finally:
        database.dispose()


def _is_there(database: Database) -> bool:
    """Return whether asking for the revision makes no empty file."""
    return not database.is_sqlite or Path(str(database.location)).is_file()


def _need(database: Database) -> None:
    """Refuse a SQLite file that is not there, before it is made.

    Raises
    ------
    RequestError
        There is no database.
    """
    if not _is_there(database):
        raise RequestError(f"{database.location}: no such database; give its folder with --data-dir")


@contextmanager
def _stopped(settings: Settings) -> Iterator[None]:
    """Keep servers out of the data folder meanwhile.

    Raises
    ------
    ConflictError
        One runs on it.
    DietCodeError
        The folder cannot be written.
    """
    from filelock import FileLock, Timeout

    folder = settings.data_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "server.lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise ConflictError(f"{folder}: a server uses this data folder; stop it first") from None
    except OSError as error:
        raise DietCodeError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()
