"""``dietcode serve``: the server, where its packages are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dietcode.extras import need


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="One that others can reach needs `dietcode token create`. [default: 127.0.0.1]",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 picks a free one. [default: 8000]")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Database and work files. [default: the user's data folder]"),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            metavar="URL",
            help="Not with a password, which others see. [default: $DIETCODE_SERVE_DATABASE_URL, or SQLite]",
        ),
    ] = None,
    no_jobs: Annotated[
        bool, typer.Option("--no-jobs", help="Run no jobs here: `dietcode worker` does, on any machine.")
    ] = False,
) -> None:
    """Run the server and its dashboard until Ctrl-C."""
    need("server", "this command")
    from dietcode_server.run import run
    from dietcode_server.settings import load_settings

    jobs = False if no_jobs else None
    run(load_settings(host=host, port=port, data_dir=data_dir, database_url=database_url, jobs=jobs))
