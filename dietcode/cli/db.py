"""``dietcode db``: the server's database, upgraded, backed up and restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.errors import ConflictError, DietCodeError, RequestError
from dietcode.extras import need

if TYPE_CHECKING:
    from dietcode_server.settings import Settings
    from dietcode_server.store.database import Database

db_app = typer.Typer(
    help="The server's database: upgrade, backup, restore, prune, scrub.", no_args_is_help=True
)

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
    settings = _settings(data_dir, database_url)
    with _database(settings) as database:
        _need(database)
        from dietcode_server.store.backup import backup as write

        size = write(database, file)
    typer.echo(f"{file}: {size} bytes")
    typer.echo(f"dietcode: the keys that sign libraries are NOT in it: {_keys_of(settings)}", err=True)


def _keys_of(settings: Settings) -> str:
    """Where they are, and what becomes of clients without them."""
    kept = settings.signing_key or settings.data_dir / "keys"
    return f"copy {kept} apart, to where only you read it; without it every client has to trust a new key"


@db_app.command()
def scrub(data_dir: DataDir = None, database_url: Url = None) -> None:
    """Hash all files of libraries again, and name those that are damaged; the server goes on meanwhile."""
    with _database(_settings(data_dir, database_url)) as database:
        _need(database)
        from dietcode_server.store.scrubbing import DamagedBlob
        from dietcode_server.store.scrubbing import scrub as hash_again

        database.check_head()
        found = list(hash_again(database))
        damaged = [one for one in found if isinstance(one, DamagedBlob)]
        for one in damaged:
            typer.echo(str(one))
        if damaged:
            raise DietCodeError(
                f"{len(damaged)} of {len(found)} blobs are damaged; restore a backup, or yank what has them"
            )
        typer.echo(f"{database.location}: all {len(found)} blobs are what their digests say")


@db_app.command()
def prune(
    jobs_days: Annotated[
        float, typer.Option("--jobs-days", min=0, help="Jobs that ended so long ago and published nothing.")
    ] = 0.0,
    jobs_at_most: Annotated[
        int, typer.Option("--jobs-at-most", min=0, help="Of such jobs all but the last so many.")
    ] = 0,
    records_days: Annotated[
        float,
        typer.Option(
            "--records-days", min=0, help="Measurements of that age that no job or library is about."
        ),
    ] = 0.0,
    records_of: Annotated[
        str | None,
        typer.Option("--records-of", metavar="WORKLOAD", help="All measurements of a workload, by digest."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="ID", help="With --records-of: those of one device.")
    ] = None,
    data_dir: DataDir = None,
    database_url: Url = None,
) -> None:
    """Delete old jobs with their specs and events, and measurements; libraries and their jobs stay."""
    if device is not None and records_of is None:
        raise RequestError("--device: goes with --records-of WORKLOAD, which is missing")
    if not (jobs_days or jobs_at_most or records_days or records_of):
        wanted = "--jobs-days, --jobs-at-most, --records-days or --records-of"
        raise RequestError(f"nothing to delete was named; give {wanted}")
    with _database(_settings(data_dir, database_url)) as database:
        _need(database)
        from dietcode_server.store.retention import Policy, forget_records, sweep

        database.check_head()
        policy = Policy(jobs_days=jobs_days, jobs_at_most=jobs_at_most, records_days=records_days)
        forgotten = 0 if records_of is None else forget_records(database, records_of, device)
        swept = sweep(database, policy)
        typer.echo(f"deleted {replace(swept, records=swept.records + forgotten)}")


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
