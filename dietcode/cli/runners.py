"""``dietcode runners``: who runs a server's jobs, and what they can measure."""

from __future__ import annotations

import typer

from dietcode.cli.common import Json, print_json
from dietcode.cli.remote import Server


def runners(as_json: Json = False, server: Server = None) -> None:
    """List the servers and workers that run jobs now, what they measure, and where."""
    from dietcode.client import Client

    with Client(server) as client:
        found = client.runners()
    if as_json:
        print_json([runner.model_dump(mode="json") for runner in found])
        return
    if not found:
        typer.echo("no runners; start one with `dietcode worker`", err=True)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dietcode.target.kinds import label_of
    from dietcode.workload.text import one_line

    table = Table("runner", "engine", "device", "target", "slot", "job", "seen")
    for runner in found:
        seen = runner.seen_at.isoformat(sep=" ", timespec="seconds")
        devices = [(one.name, label_of(one.target), one.slot) for one in runner.devices]
        for device in devices or [("none yet", "-", "-")]:
            facts = (runner.name, runner.engine, *device, runner.job or "", seen)
            table.add_row(*(Text(one_line(fact, 64)) for fact in facts))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width; keep rows whole
    console.print(table)
