"""``dietcode runners``: who runs a server's jobs, and what they can measure."""

from __future__ import annotations

import typer

from dietcode.cli.common import Json, local_time, print_json
from dietcode.cli.remote import Server


def runners(as_json: Json = False, server: Server = None) -> None:
    """List the servers and workers that run jobs now."""
    from dietcode.client import Client

    with Client(server) as client:
        found = client.runners()
    if as_json:
        print_json([runner.model_dump(mode="json") for runner in found])
        return
    if not found:
        typer.echo("no runners; start one with `dietcode worker`", err=True)
        return
    from dietcode.cli.tables import TableColumn, print_table
    from dietcode.target.kinds import label_of
    from dietcode.workload.text import one_line

    columns = [
        *(
            TableColumn("runner"),
            TableColumn("engine", rank=2),
            TableColumn("device"),
            TableColumn("target", rank=1),
        ),
        *(TableColumn("slot", rank=3), TableColumn("job", whole=True), TableColumn("seen", rank=4)),
    ]
    rows = []
    for runner in found:
        seen = local_time(runner.seen_at)
        devices = [(one.name, label_of(one.target), one.slot) for one in runner.devices]
        for device in devices or [("none yet", "-", "-")]:
            facts = (runner.name, runner.engine, *device, runner.job or "", seen)
            rows.append([one_line(fact, 64) for fact in facts])
    print_table(columns, rows)
