"""``dietcode records import|export --server``: records of GPUs to a server, and any back from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dietcode.cli.common import read_spec, say
from dietcode.errors import RecordsError, RequestError
from dietcode.workload.text import one_line

_BATCH_BYTES = 256 << 10  # of lines in one request; a server takes a mebibyte by default


def import_to_server(file: Path, spec: Path | None, server: str) -> None:
    """Send what a GPU measured to a server.

    Parameters
    ----------
    spec : path, optional
        The workload, where the server does not know it.

    Raises
    ------
    RecordsError
        The file is not of a GPU.
    RequestError, ServerError
        The server refuses it, or does not answer; what was sent before stays, and the same command goes on.
    """
    from dietcode.client import Client, calls
    from dietcode.measure.records import read_records

    records = read_records(file)
    if not records.format.is_imported:
        raise RecordsError(f"{file}: measured on {records.format.word}, as a server's own runners do alone")
    given = None if spec is None else read_spec(spec).to_json()
    if not records.measurements:
        raise RecordsError(f"{file}: holds no micro-kernel")
    added = 0
    with Client(server) as client:
        # What a search decided is about its own run; a server keeps that of its own alone.
        for lines in _batches([line for line in records.lines() if line.get("kind") != "round"]):
            done = client.transport.send(calls.import_records(lines, given))
            added += done.added
    queued = f"; jobs that begin: {' '.join(done.queued)}" if done.queued else ""
    device = one_line(done.device)
    say(f"{file}: {added} micro-kernels added, {done.known} known of {device}{queued}")


def _batches(lines: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Lines in parts, each with the header; the calibration comes last, since nothing is built without it."""
    header = lines[0]
    part, size = [header], 0
    for line in sorted(lines[1:], key=lambda line: line["kind"] == "calibration"):
        if size > _BATCH_BYTES and line["kind"] != "calibration":
            yield part
            part, size = [header], 0
        part.append(line)
        size += len(json.dumps(line))
    yield part


def export_from_server(file: Path, spec: Path, device: str | None, server: str) -> None:
    """Write what a server knows of a workload on one device to a file.

    Parameters
    ----------
    file : Path
        To write.
    spec : Path
        Of the workload.
    device : str or None
        Id of a device; None: the only one that measured it.
    server : str
        Its URL.

    Raises
    ------
    RequestError
        Nobody measured it there, or several devices did and none is named.
    RecordsError
        The file cannot be written.
    """
    from dietcode.client import Client, calls
    from dietcode.measure.records import Records, write_records
    from dietcode.workload.identity import workload_digest

    workload = workload_digest(read_spec(spec))
    with Client(server) as client:
        there = client.transport.send(calls.measured_on(workload)).devices
        wanted = [one for one in there if device in (None, one.id)]
        if len(wanted) != 1:
            names = ", ".join(one_line(f"{one.id} ({one.name})") for one in there) or "none"
            raise RequestError(f"--device: given {device or 'none'}; devices that measured it: {names}")
        lines = client.transport.send(calls.export_records(workload, wanted[0].id)).lines
    known = Records(workload, lines[0]["device"])
    for line in lines[1:]:
        known.apply(line)
    write_records(file, known)
    say(f"{file}: {len(known.measurements)} micro-kernels measured on {one_line(wanted[0].name)}")
