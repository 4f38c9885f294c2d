"""``dietcode reselect``: on a folder here, or on a job of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dietcode.cli.common import Json, need_compiler, print_json, refuse_bundle
from dietcode.cli.job_ref import find_job
from dietcode.cli.remote import Server
from dietcode.errors import RequestError


def reselect(
    library: Annotated[
        str,
        typer.Argument(
            metavar="DIR-or-ID",
            help="A library folder, or a server's job: its id, first digits of it, or name.",
        ),
    ],
    objective: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE", help="A field of the objective, as max_kernels=3; may be repeated."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where a folder's new library goes.")
    ] = None,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Pick other categories from measurements already made.

    Nothing is measured. A folder gives a new folder. A job gives a new job, whose library is the next version
    of its name.
    """
    changes = parse_objective(objective)
    if Path(library).is_dir():
        refuse_bundle("reselect", Path(library))
        if output is None:
            raise RequestError("reselect: -o DIR is missing: where the new library goes")
        _reselect_folder(Path(library), changes, output, as_json)
        return
    if output is not None:
        raise RequestError(
            f"reselect: {library} is no folder here, and -o needs one; `dietcode pull` it first"
        )
    _reselect_job(library, changes, as_json, server)


def parse_objective(given: list[str]) -> dict[str, Any]:
    """``["max_kernels=3", "binary_size=0.1"]`` as a mapping; several may stand in one text, by commas.

    Raises
    ------
    RequestError
        One is no NAME=VALUE.
    """
    import yaml

    from dietcode.workload.text import clip

    changes: dict[str, Any] = {}
    for part in ",".join(given).split(","):
        name, sign, text = map(str.strip, part.partition("="))
        if not sign or not name or not text:
            raise RequestError(
                f"--objective: given {clip(part)}; allowed: NAME=VALUE, as max_kernels=3 or binary_size=0.1"
            )
        try:
            changes[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise RequestError(
                f"--objective: {name}: given {clip(text)}; allowed: a number or a word"
            ) from None
    return changes


def _reselect_folder(library: Path, changes: dict[str, Any], output: Path, as_json: bool) -> None:
    need_compiler()
    from dietcode.cli.progress import ProgressBars
    from dietcode.runtime.signed import signed_manifest
    from dietcode.tuner.reselect import reselect as run

    signed_manifest(library)
    with ProgressBars() as progress:
        result = run(library, changes, output, on_event=progress.on_event)
    if as_json:
        facts = {k: v for k, v in result.report["selection"].items() if k != "curve"}
        print_json({"folder": str(output), "secs": result.secs} | facts)
    else:
        typer.echo(f"{output}: done in {result.secs:.0f} s, nothing measured")


def _reselect_job(given: str, changes: dict[str, Any], as_json: bool, server: str | None) -> None:
    from dietcode.cli.remote import print_job, print_known
    from dietcode.cli.watch import follow, succeeded
    from dietcode.client import Client, calls

    with Client(server) as client:
        older = client.job(find_job(client, given))
        spec = older.spec or {}
        spec = spec | {"objective": {**spec.get("objective", {}), **changes}}
        job, is_new = client.transport.send(calls.submit(spec, False, None, measure=False))
        if not is_new:
            print_known(job)
        if not as_json:
            print_job(job, as_json)
        job = succeeded(follow(client, job.id, as_json=False) if job.library is None else job)
        if as_json:
            print_job(job, as_json)
