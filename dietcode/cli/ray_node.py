"""``dietcode ray-node``: this machine as a node of a Ray cluster that builds and measures."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from dietcode.cli.common import need_compiler
from dietcode.errors import RequestError
from dietcode.extras import need
from dietcode.lean import python_command

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
    """Join a Ray cluster, or begin one with --head."""
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
    role = (
        [f"--node-ip-address={host}", f"--port={port}", "--head", "--include-dashboard=false"]
        if head
        else [f"--address={address}"]
    )
    command = [
        *python_command("ray.scripts.scripts", "start", "--block"),
        *role,
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
    from dietcode.measure.device_kinds import DEVICE_KINDS, devices_here
    from dietcode.measure.ray_nodes import slot_of
    from dietcode.runtime.cpu import available_cores

    if measures:
        found = devices_here(lambda error: typer.echo(f"dietcode: {error}", err=True))
        slots = {slot_of(DEVICE_KINDS[kind], one): 1 for kind, here in found.items() for one in here}
        return ["--num-cpus=0", f"--resources={json.dumps(slots)}"]
    return [f"--num-cpus={available_cores() if builds is None else builds}"]
