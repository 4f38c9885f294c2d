"""``dietcode token``: who may use a server. It works on the server's database, on the server's machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dietcode.cli.common import Json, local_time, print_json
from dietcode.errors import DietCodeError, RequestError
from dietcode.extras import need

if TYPE_CHECKING:
    from dietcode_server.store.database import Database
    from dietcode_server.store.tables import TokenRow

token_app = typer.Typer(help="Who may use a server; run it on the server's machine.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="The server's. [default: the user's data folder]"),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", metavar="URL", help="The server's. [default: SQLite in the data folder]"),
]

_LIFETIME = re.compile(r"([1-9][0-9]{0,3})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


@token_app.command("create")
def create_token(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who it is for: jobs and names belong to NAME.")
    ],
    scopes: Annotated[
        str, typer.Option(help="Of read, submit, publish, admin; separated by commas.")
    ] = "read,submit,publish",
    expires: Annotated[str, typer.Option(help="As 12h, 90d or 52w; or never.")] = "90d",
    as_json: Json = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a token; it is printed once, and nowhere kept. A server that has one asks everybody for theirs."""
    lifetime = _lifetime(expires)
    with _database(data_dir, database_url, make=True) as database:
        from dietcode_server.store import tokens

        with database.write() as session:
            row, token = tokens.create(session, name, _words(scopes), lifetime)
    if as_json:
        print_json(_facts(row) | {"token": token})
        return
    until = "does not expire" if row.expires_at is None else f"expires {_day(row.expires_at)}"
    line = f"token {row.id} of {row.owner}: {', '.join(row.scopes.split())}; {until}; it is shown only now"
    typer.echo(f"dietcode: {line}", err=True)
    typer.echo(token)


@token_app.command("list")
def list_tokens(as_json: Json = False, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """List tokens, the newest last; the tokens themselves are not kept."""
    with _database(data_dir, database_url) as database:
        from dietcode_server.store import tokens

        with database.read() as session:
            rows = [_facts(row) for row in tokens.list_tokens(session)]
    if as_json:
        print_json(rows)
    elif not rows:
        typer.echo("no tokens", err=True)
    else:
        _print_table(rows)


@token_app.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `dietcode token list` shows it.")],
    as_json: Json = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let nobody in with a token any more, from the next request on."""
    with _database(data_dir, database_url) as database:
        from dietcode_server.store import tokens

        with database.write() as session:
            row = tokens.revoke(session, token_id)
    if as_json:
        print_json(_facts(row))
    else:
        typer.echo(f"token {row.id} of {row.owner}: revoked")


@contextmanager
def _database(data_dir: Path | None, url: str | None, make: bool = False) -> Iterator[Database]:
    """The server's database, with the schema of this version.

    Raises
    ------
    RequestError
        There is no database, and it is not to be made.
    DietCodeError
        It cannot be made or opened.
    """
    need("server", "this command")
    from dietcode_server.settings import DATABASE_NAME, load_settings
    from dietcode_server.store.database import Database

    settings = load_settings(data_dir=data_dir, database_url=url)
    if not settings.database_url:
        path = settings.data_dir / DATABASE_NAME
        if not make and not path.exists():
            raise RequestError(f"{path}: no such database; give the server's --data-dir or --database-url")
        try:
            settings.data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DietCodeError(
                f"{settings.data_dir}: cannot be written: {error.strerror or error}"
            ) from error
    database = Database(settings.database)
    try:
        database.upgrade()
        yield database
    finally:
        database.dispose()


def _lifetime(given: str) -> timedelta | None:
    from dietcode.workload.text import clip

    match = _LIFETIME.fullmatch(given)
    if match is None and given != "never":
        raise RequestError(f"--expires: given {clip(given)}; allowed: as 12h, 90d or 52w, or never")
    return None if match is None else timedelta(hours=int(match[1]) * _HOURS[match[2]])


def _words(given: str) -> list[str]:
    return [word.strip() for word in given.split(",") if word.strip()]


def _facts(row: TokenRow) -> dict[str, Any]:
    from dietcode_server.store.subjects import utc_now
    from dietcode_server.store.wire import token_to_wire

    facts = token_to_wire(row, utc_now()).model_dump()
    times = {name: at.isoformat(timespec="seconds") for name, at in facts.items() if isinstance(at, datetime)}
    return facts | times


def _print_table(rows: list[dict[str, Any]]) -> None:
    from dietcode.cli.tables import TableColumn, print_table

    columns = [
        *(TableColumn("id", whole=True), TableColumn("owner"), TableColumn("scopes"), TableColumn("state")),
        *(TableColumn("created", rank=3), TableColumn("expires", rank=1), TableColumn("last used", rank=2)),
    ]
    times = ("created_at", "expires_at", "last_used_at")
    cells = [
        [
            row["id"],
            row["owner"],
            ", ".join(row["scopes"]),
            row["state"],
            *(local_time(datetime.fromisoformat(row[at])) if row[at] else "never" for at in times),
        ]
        for row in rows
    ]
    print_table(columns, cells)


def _day(at: datetime) -> str:
    return at.astimezone().date().isoformat()
