"""``dietcode trust``: which servers' keys this user trusts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.cli.common import Json, print_json
from dietcode.errors import RequestError

if TYPE_CHECKING:
    from dietcode.trust.pins import PinnedKey, Trusted


def trust(
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="URL of a server. Left out: list all.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="FINGERPRINT-or-FILE", help="Trust this key, sha256:… or PEM, and no older one."
        ),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Forget the server: its next key is trusted on first use.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pin the key that a server signs with, or list what is pinned."""
    from dietcode.client.address import normal_url
    from dietcode.trust.pins import Pins

    if server is None and (key is not None or remove):
        raise RequestError("trust: --key and --remove need a SERVER, as in http://127.0.0.1:8000")
    if key is not None and remove:
        raise RequestError("trust: --key pins and --remove forgets; give one of them")
    url = None if server is None else normal_url(server)
    if url is not None and key is not None:
        _pin(url, key)
    elif url is not None and remove:
        _remove(url)
    trusted = Pins().read()
    if as_json:
        _print_json(trusted, url)
    elif not remove:
        _print(trusted, url)


def _pin(url: str, given: str) -> None:
    from dietcode.trust.pins import Pins, ServerPins

    pin = _read_key(given)
    with Pins().changing() as trusted:
        trusted.servers = trusted.servers | {url: ServerPins(keys=[pin])}


def _read_key(given: str) -> PinnedKey:
    """A pin from a fingerprint, or from a file that holds a public key.

    Raises
    ------
    RequestError
        It is neither.
    """
    from dietcode.trust.keys import KeyFormatError, PublicKey, is_fingerprint
    from dietcode.trust.pins import PinnedKey
    from dietcode.workload.text import clip

    if is_fingerprint(given.lower()):
        return PinnedKey(fingerprint=given.lower(), how="given")
    try:
        with Path(given).open(encoding="ascii") as stream:
            key = PublicKey.from_pem(stream.read(2000))
    except (OSError, ValueError, KeyFormatError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RequestError(
            f"--key: given {clip(given)} ({reason}); allowed: sha256:<64 hex digits>, as `dietcode key list` "
            "shows it on the server, or a file with the public key in PEM"
        ) from None
    return PinnedKey(fingerprint=key.fingerprint, public_key=key.pem, how="given")


def _remove(url: str) -> None:
    from dietcode.trust.pins import Pins

    with Pins().changing() as trusted:
        if url not in trusted.servers:
            raise RequestError(f"trust: no key of {url} is pinned; `dietcode trust` lists those that are")
        trusted.servers = {name: pins for name, pins in trusted.servers.items() if name != url}


def _print_json(trusted: Trusted, url: str | None) -> None:
    plain = trusted.model_dump(mode="json")
    if url is not None:
        print_json({"server": url, **plain["servers"].get(url, {"keys": [], "seen": {}})})
    else:
        print_json({"servers": plain["servers"], "locks": plain["locks"]})


def _print(trusted: Trusted, url: str | None) -> None:
    shown = {name: pins.keys for name, pins in sorted(trusted.servers.items()) if url in {None, name}}
    if url is None and trusted.locks:
        shown["(lock files)"] = list(trusted.locks.values())
    for name, keys in shown.items():
        for pin in keys:
            typer.echo(f"{name}  {pin.fingerprint}  {pin.state}, {pin.how}, {pin.since}")
    if not shown:
        typer.echo("no keys are pinned" if url is None else f"no key of {url} is pinned", err=True)
