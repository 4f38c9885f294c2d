"""``dietcode yank``: advise against a published version, which stays where it is."""

from __future__ import annotations

from typing import Annotated

import typer

from dietcode.cli.common import Json, print_json, say
from dietcode.cli.remote import Server
from dietcode.errors import RequestError


def yank(
    library: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="One published version.")],
    undo: Annotated[bool, typer.Option("--undo", help="Take the yank back.")] = False,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Take a version out of lists and of the latest.

    By its number, or by a lock file, it still comes.
    """
    from dietcode.client import Client
    from dietcode.client.calls import parse_ref

    name, version = parse_ref(library)
    if version is None:
        raise RequestError(f"yank: given {library}; allowed: one version, as in {name}@3")
    with Client(server) as client:
        info = client.yank(name, version, undo=undo)
    if as_json:
        print_json(info.model_dump(mode="json"))
    else:
        say(f"{info.name}@{info.version}: {'yanked' if info.yanked_at else 'not yanked'}")
