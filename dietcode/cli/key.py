"""``dietcode key``: the keys that the server in a data folder signs with. The server may run meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.cli.common import Json, print_json
from dietcode.extras import need

if TYPE_CHECKING:
    from dietcode_server.store.keys import KeyRing

app = typer.Typer(help="The keys that a server signs libraries with.", no_args_is_help=True)
DataDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The server's. [default: the user's data folder]")
]


@app.command("list")
def list_keys(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the server's keys, the one that signs first."""
    found = _ring(data_dir).public()
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    for key in sorted(found.keys, key=lambda one: one.fingerprint != found.current):
        typer.echo(f"{key.fingerprint}  {key.state}, since {key.since:%Y-%m-%d %H:%M:%S} UTC")


@app.command()
def rotate(
    data_dir: DataDir = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="The new private key, where DIETCODE_SERVE_SIGNING_KEY is set."
        ),
    ] = None,
) -> None:
    """Sign with a new key from now on; the older one signs it, so that clients follow by themselves."""
    old, new = _ring(data_dir).rotate(to)
    typer.echo(f"dietcode: {old} signed its successor, and signs nothing any more", err=True)
    typer.echo(new)


@app.command()
def revoke(
    fingerprint: Annotated[str, typer.Argument(metavar="FINGERPRINT", help="An earlier key, sha256:….")],
    data_dir: DataDir = None,
) -> None:
    """Stand for an earlier key no longer, because it was stolen: clients load nothing that it signed."""
    _ring(data_dir).revoke(fingerprint)
    typer.echo(f"dietcode: {fingerprint} is revoked; clients learn of it with their next pull", err=True)


def _ring(data_dir: Path | None) -> KeyRing:
    need("server", "this command")
    from dietcode_server.settings import load_settings
    from dietcode_server.store.keys import KeyRing

    settings = load_settings(data_dir=data_dir)
    return KeyRing(settings.data_dir, settings.signing_key)
