"""Following one job on a terminal until nothing happens to it any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from dietcode.errors import DietCodeError, ServerError

if TYPE_CHECKING:
    from dietcode.cli.progress import ProgressBars
    from dietcode.client import Client
    from dietcode.protocol import Job, JobEvent

# How long the server may be away, in seconds: an hour, as a machine is restarted or a laptop sleeps.
_RECONNECT_SECS = 3600.0
_MAX_MESSAGE = 400  # characters of an event; a round of a part that says where its space grew has 300


class LeftError(DietCodeError):
    """Ctrl-C ended the watching, not the job."""

    exit_status = 130


def follow(client: Client, job_id: str, as_json: bool) -> Job:
    """Show a job's events until it rests, and return it.

    Parameters
    ----------
    as_json : bool
        Print each event on stdout as a line of JSON, and nothing on stderr but lost connections.

    Raises
    ------
    LeftError
        Ctrl-C; the job goes on.
    DietCodeError
        As the client.
    """
    client.job(job_id)  # a server that was never there is an error at once
    try:
        if as_json:
            for event in client.events(job_id, reconnect_secs=_RECONNECT_SECS, on_lost=_print_lost):
                typer.echo(json.dumps(event.model_dump(mode="json")))
        else:
            _show(client, job_id)
        return client.job(job_id)
    except KeyboardInterrupt:
        raise LeftError(
            f"left; job {job_id} goes on, and `dietcode watch {job_id}` follows it again"
        ) from None


def succeeded(job: Job) -> Job:
    """Return a job that succeeded.

    Raises
    ------
    DietCodeError
        It did not succeed; the message says why, and what to do.
    """
    from dietcode.protocol import JobState
    from dietcode.workload.text import one_line

    if job.state is JobState.SUCCEEDED:
        return job
    reason = f": {one_line(job.error, 300)}" if job.error else ""
    resume = f"`dietcode resume {job.id}`"
    advice = "" if resume in reason else f"; {resume} goes on with it"
    raise DietCodeError(f"job {job.id}: {job.state.value}{reason}{advice}")


def _show(client: Client, job_id: str) -> None:
    from dietcode.cli.progress import ProgressBars

    with ProgressBars() as progress:

        def lost(error: ServerError) -> None:
            progress.print_line(_LOST)

        for event in client.events(job_id, reconnect_secs=_RECONNECT_SECS, on_lost=lost):
            _show_event(progress, event)


def _show_event(progress: ProgressBars, event: JobEvent) -> None:
    from dietcode.workload.text import one_line

    if event.progress is not None:
        stage, message = one_line(event.progress.stage, 20), one_line(event.progress.message, _MAX_MESSAGE)
        clean = {"stage": stage, "message": message}
        progress.on_event(event.progress.model_copy(update=clean))
    elif event.state is not None:
        message = f": {one_line(event.message, _MAX_MESSAGE)}" if event.message else ""
        progress.print_line(f"job {event.job}: {event.state.value.replace('_', ' ')}{message}")


_LOST = "dietcode: the server does not answer; trying again (Ctrl-C leaves)"


def _print_lost(error: ServerError) -> None:
    typer.echo(_LOST, err=True)
