"""What several commands share."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dietcode.errors import RequestError, SpecError
from dietcode.extras import need
from dietcode.lean import leave_torch_out

if TYPE_CHECKING:
    from dietcode.workload.spec import Spec

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A library folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON on stdout.")]


def local_time(at: datetime) -> str:
    """Return a time of the server's as this machine's clock has it, with its offset from UTC."""
    return at.astimezone().isoformat(sep=" ", timespec="seconds")


def read_spec(path: Path) -> Spec:
    """Read a spec from a file.

    Raises
    ------
    RequestError
        It cannot be read.
    SpecError
        It is refused: the first problem, and how many more there are.
    """
    from dietcode.workload.check import check_file
    from dietcode.workload.loader import read_bytes
    from dietcode.workload.parse import load_spec

    try:
        return load_spec(path)
    except SpecError as error:
        others = len(check_file(read_bytes(path), path.parent).problems) - 1
        if others < 1:
            raise
        raise SpecError("", f"{error}; {others} more: dietcode check {path}") from None


def print_json(data: Any) -> None:
    """Facts on stdout."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    typer.echo(
        "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
    )


def say(text: str, err: bool = False) -> None:
    """One line; what a server or a file says in it is no order to the terminal."""
    from dietcode.workload.text import printable

    typer.echo(printable(text), err=err)


def need_compiler(extra: str = "tune", what: str = "this command") -> None:
    """Say what to install before an import fails deep inside; leave out what only makes that import longer.

    Parameters
    ----------
    extra, what : str
        A further extra, and what needs it: asked for before PyTorch is hidden from this process.

    Raises
    ------
    MissingExtraError
        The tuning extra is not installed.
    """
    need("tune", "this command")
    need(extra, what)
    leave_torch_out()


def refuse_bundle(command: str, folder: Path) -> None:
    """Refuse a whole model where a command takes a library.

    Raises
    ------
    RequestError
        The folder holds a model.
    """
    from dietcode.runtime.manifest import has_parts

    if has_parts(folder):
        raise RequestError(
            f"{command}: {folder} is a whole model; give one of its libraries, DIR/libraries/DIGEST, which "
            "`dietcode inspect` lists"
        )
