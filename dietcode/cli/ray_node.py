"""``dietcode ray-node``: this machine as a node of a Ray cluster that builds and measures."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.cli.common import need_compiler
from dietcode.errors import RequestError, TargetError
from dietcode.extras import need

if TYPE_CHECKING:
    from dietcode.measure.gpu import Gpu

_STORE_BYTES = 100 << 20  # code is all that goes through it


def ray_node(
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Of the cluster's head; with --head, to listen on."),
    ] = None,
    head: Annotated[bool, typer.Option("--head", help="Be the head.")] = False,
    measures: Annotated[
        bool, typer.Option("--measures", help="Jobs measure here, one at a time; it builds for them alone.")
    ] = False,
    builds: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Builds at a time; 0: jobs start here. [default: one a core]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command; start nothing.")] = False,
) -> None:
    """Join a Ray cluster, or begin one with --head; runs until it is ended."""
    need("ray", "this command")
    need_compiler()
    from dietcode.measure.engine_spec import split_address
    from dietcode.measure.ray_nodes import need_token

    need_token()
    if address is None:
        raise RequestError(
            "--address: missing; allowed: HOST:PORT of the cluster's head, as in 10.0.0.5:6379"
        )
    if measures and builds:
        raise RequestError("--builds: a build beside a timing would disturb it; leave it out with --measures")
    host, port = split_address("--address", address)
    place = (
        [f"--node-ip-address={host}", f"--port={port}", "--head", "--include-dashboard=false"]
        if head
        else [f"--address={address}"]
    )
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        *place,
        *_resources(measures, builds),
        f"--object-store-memory={_STORE_BYTES}",
        "--disable-usage-stats",
    ]
    if dry_run:
        typer.echo(json.dumps(command))
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or its workers would see no GPU
    sys.stdout.flush()
    os.execv(sys.executable, command)


def _resources(measures: bool, builds: int | None) -> list[str]:
    from dietcode.measure.ray_nodes import place_of
    from dietcode.runtime.cpu import available_cores
    from dietcode.target.cpu import Host

    if measures:
        places = [place_of(Host.here()), *map(place_of, _gpus())]
        return ["--num-cpus=0", f"--resources={json.dumps(dict.fromkeys(places, 1))}"]
    return [f"--num-cpus={available_cores() if builds is None else builds}"]


def _gpus() -> list[Gpu]:
    """Those of this machine that candidates can be built for and measured on here."""
    from dietcode.measure.gpu import list_gpus
    from dietcode.target.nvrtc import missing_packages

    if missing_packages():
        return []
    try:
        return [gpu for gpu in list_gpus() if gpu.target is not None]
    except TargetError as error:
        typer.echo(f"dietcode: the GPU of this machine is not measured on: {error}", err=True)
        return []
