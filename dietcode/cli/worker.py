"""``dietcode worker``: runs the jobs of a server's database, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dietcode.extras import need


def worker(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Work files, one folder for each worker; with SQLite the server's. "
            "[default: the user's data folder]",
        ),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server's. [default: $DIETCODE_SERVE_DATABASE_URL, or SQLite]"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What it is announced as. [default: host/pid/start time]")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take one job at most, and end.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the worker of this data folder works.")
    ] = False,
) -> None:
    """Run jobs of a server's database on this machine until Ctrl-C.

    `dietcode runners` lists who does.
    """
    need("server", "this command")
    from dietcode_server.settings import load_settings
    from dietcode_server.standalone import check_worker, run_worker

    settings = load_settings(data_dir=data_dir, database_url=database_url)
    if check:
        typer.echo(check_worker(settings))
    else:
        run_worker(settings, name, once)
