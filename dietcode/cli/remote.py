"""The commands that talk to a server: `COMMANDS`, which the app adds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dietcode.cli.budget import Seconds, Trials, with_budget
from dietcode.cli.common import Json, local_time, print_json, read_spec, say
from dietcode.cli.compile import MaxLevel, MaxNodes, Ranges, SamplesOf, StructureOptions
from dietcode.cli.job_ref import JobRef, find_job
from dietcode.errors import RequestError

if TYPE_CHECKING:
    from dietcode.cli.submit_model import PreparedModel
    from dietcode.client import Client
    from dietcode.client.assembling import Pulled
    from dietcode.protocol import Job, JobPart

Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="[default: $DIETCODE_SERVER, or http://127.0.0.1:8000]"),
]

Lock = Annotated[Path, typer.Option("--lock", metavar="FILE", help="The lock file.")]
NoLock = Annotated[bool, typer.Option("--no-lock", help="Leave the lock file alone.")]
_LOCK = Path("dietcode.lock")


def submit(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC|MODEL",
            help="A workload in YAML or JSON, a model.pt2, or FILE.py:NAME, a recursion or program.",
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Show progress until the job is finished.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Measure again what is already known.")] = False,
    trials: Trials = None,
    seconds: Seconds = None,
    ranges: Ranges = None,
    name: Annotated[str | None, typer.Option(help="Of a model; by default that of the file.")] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where a model's weights go. [default: MODEL.safetensors, beside it]"
        ),
    ] = None,
    max_nodes: MaxNodes = None,
    max_level: MaxLevel = None,
    samples: SamplesOf = None,
    priority: Annotated[
        int, typer.Option(min=-100, max=100, help="Of the jobs that wait, the highest begins first.")
    ] = 0,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="SECS|TIME", help="Fail if not done in so many seconds, or by a time."),
    ] = None,
    lock: Lock = _LOCK,
    no_lock: NoLock = False,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Have a server tune a workload, or the parts of a model.

    The job's id is the last line printed. Of a model, recursion or program the graphs are sent; its weights
    are written to a file here, for `load` and `pull`, and their digest to the lock file. With --wait, exit
    status 0 says that the job succeeded, 1 that it did not.
    """
    from dietcode.cli.submit_model import is_model, prepare_model
    from dietcode.cli.watch import follow, succeeded
    from dietcode.client import calls
    from dietcode.client.lock import lock_weights

    model: PreparedModel | None = None
    structures = StructureOptions(max_nodes, max_level, samples)
    if is_model(spec):
        model = prepare_model(
            spec,
            name=name,
            ranges=ranges or [],
            trials=trials,
            seconds=seconds,
            weights=weights,
            structures=structures,
        )
    elif ranges or name is not None or weights is not None:
        raise RequestError(
            f"{spec}: --range, --name and --weights are for a model, a file of torch.export.save"
        )
    elif structures != StructureOptions():
        raise RequestError(
            f"{spec}: --max-nodes, --max-level and --samples are for FILE.py:NAME, a recursion or program"
        )
    asked = model.request if model else with_budget(read_spec(spec), trials, seconds)
    with _client(server) as client:
        try:
            call = calls.submit(asked, force, None, priority=priority, deadline=_number_or_text(deadline))
            job, is_new = client.transport.send(call)
            if model is not None:
                model.keep_weights()
        finally:
            if model is not None:
                model.discard()
        if model is not None and model.weights is not None:
            say(f"dietcode: weights, which stay here: {model.weights}", err=True)
        if not is_new:
            print_known(job)
        if not (wait and as_json):
            print_job(job, as_json)
        if model is not None and model.weights is not None and not no_lock:
            lock_weights(lock, model.request.name, model.weights)
        if wait:
            from dietcode.protocol import RESTING_STATES

            job = job if job.state in RESTING_STATES else follow(client, job.id, as_json=False)
            if as_json:
                print_job(job, as_json)
            succeeded(job)


def jobs(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only jobs in this state; may be given again.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 50,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """List jobs, newest first."""
    with _client(server) as client:
        found = list(_pages(client, state or [], name, limit))
    if as_json:
        print_json([job.model_dump(mode="json") for job in found])
    else:
        _print_jobs(found)


def show(job: JobRef, as_json: Json = False, server: Server = None) -> None:
    """Show one job."""
    with _client(server) as client:
        found = client.job(find_job(client, job))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    for name, value in _facts(found).items():
        if value:
            say(f"{name:<10} {value}")
    if found.parts:
        _print_parts(found.parts)


def watch(
    job: JobRef,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
    server: Server = None,
) -> None:
    """Show a job's progress until it is finished.

    Ctrl-C leaves the job running. Exit status 0 says that the job succeeded, 1 that it did not.
    """
    from dietcode.cli.watch import follow, succeeded

    with _client(server) as client:
        done = succeeded(follow(client, find_job(client, job), as_json))
    if not as_json and done.library is not None:
        say(f"{done.library.name}@{done.library.version}")


def cancel(job: JobRef, as_json: Json = False, server: Server = None) -> None:
    """End a job; what it measured is kept."""
    with _client(server) as client:
        _print_steered(client.cancel(find_job(client, job)), as_json)


def resume(job: JobRef, as_json: Json = False, server: Server = None) -> None:
    """Go on with a job that was interrupted, failed or cancelled."""
    with _client(server) as client:
        _print_steered(client.resume(find_job(client, job)), as_json)


def pull(
    library: Annotated[
        str | None, typer.Argument(metavar="NAME[@VERSION]", help="Left out: all that the lock file lists.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to put it, complete.")
    ] = None,
    lock: Lock = _LOCK,
    no_lock: NoLock = False,
    as_json: Json = False,
    server: Server = None,
) -> None:
    """Download a library, check it, cache it and lock it.

    Its folder is printed.
    """
    from dietcode.client.pull import install, pull_and_lock
    from dietcode.client.pull import pull as pull_only

    if library is None:
        if output is not None or no_lock:
            given = "-o" if output is not None else "--no-lock"
            raise RequestError(f"pull: {given} needs a NAME; without one, all that {lock} lists is pulled")
        done = install(lock, server, None, warn=_warn)
    else:
        with _client(server) as client:
            if no_lock:
                done = [pull_only(client.transport, library, output, _warn)]
            else:
                done = [pull_and_lock(client.transport, library, output, lock, _warn)]
    if as_json:
        print_json([_pulled_facts(one) for one in done])
        return
    for one in done:
        say(f"dietcode: {one.listing.label}, manifest {one.listing.manifest.sha256}", err=True)
        say(str(one.folder))


def _number_or_text(given: str | None) -> Any:
    try:
        return None if given is None else float(given)
    except ValueError:
        return given


def _client(server: str | None) -> Client:
    from dietcode.client import Client

    return Client(server)


def _pages(client: Client, states: list[str], name: str | None, limit: int) -> Iterable[Job]:
    """As many jobs as asked for, over as many pages as that takes."""
    cursor = None
    while limit > 0:
        page = client.jobs(states, name, min(limit, 500), cursor)
        yield from page.jobs[:limit]
        limit -= len(page.jobs)
        cursor = page.next
        if cursor is None or not page.jobs:
            return


def _sentence(job: Job) -> str:
    from dietcode.workload.text import one_line

    error = f": {one_line(job.error)}" if job.error else ""
    return f"job {job.id} of {one_line(job.name, 64)}, {job.state.value.replace('_', ' ')}{error}"


def _print_steered(job: Job, as_json: bool) -> None:
    if as_json:
        print_json(job.model_dump(mode="json"))
        return
    ends = job.cancel_requested and job.finished_at is None
    say(_sentence(job) + (", ends soon" if ends else ""))


def print_known(job: Job) -> None:
    """Say on stderr that a submitted job was there before."""
    say(f"dietcode: known already: {_sentence(job)}", err=True)


def print_job(job: Job, as_json: bool) -> None:
    """Print a job's id, or all of it."""
    if as_json:
        print_json(job.model_dump(mode="json"))
    else:
        say(job.id)


def _facts(job: Job) -> dict[str, str]:
    """Return what `show` prints, by the word in front."""
    from dietcode.cli.progress import describe
    from dietcode.workload.text import counted, one_line

    step, library = job.progress, job.library
    counts = f" {step.done}/{step.total}" if step is not None and step.total else ""
    times = {
        "created": job.created_at,
        "deadline": job.deadline_at,
        "started": job.started_at,
        "finished": job.finished_at,
    }
    facts = {
        "job": job.id,
        "name": job.name,
        "owner": "" if job.owner == "local" else job.owner,
        "state": job.state.value + (", cancel requested" if job.cancel_requested else ""),
        "error": job.error or "",
        "waits for": job.waits_for or "",
        "library": f"{library.name}@{library.version}" if library else "",
        "progress": f"{step.stage}{counts}: {describe(step)}" if step else "",
        "tried": f"{counted(job.measured, 'micro-kernel')}, attempt {job.attempt}" if job.attempt else "",
        "device": job.device or "",
        "standing": job.standing or "",
        "priority": str(job.priority) if job.priority else "",
        "workload": job.workload,
        **{word: local_time(time) for word, time in times.items() if time},
    }
    return {word: one_line(text, 400) for word, text in facts.items()}


def _print_jobs(found: list[Job]) -> None:
    from dietcode.cli.tables import TableColumn, print_table
    from dietcode.workload.text import one_line

    if not found:
        say("no jobs", err=True)
        return
    columns = [
        *(
            TableColumn("job", whole=True),
            TableColumn("name"),
            TableColumn("state"),
            TableColumn("progress", rank=1),
        ),
        *(TableColumn("tried", rank=4), TableColumn("library", rank=2), TableColumn("created", rank=3)),
    ]
    rows = []
    for job in found:
        step = job.progress
        counts = f" {step.done}/{step.total}" if step and step.total else ""
        progress = f"{step.stage}{counts}" if step else ""
        library = f"{job.library.name}@{job.library.version}" if job.library else ""
        created = local_time(job.created_at)
        cells = (job.id, job.name, job.state.value, progress, str(job.measured), library, created)
        rows.append([one_line(cell, 64) for cell in cells])
    print_table(columns, rows)


def _print_parts(parts: list[JobPart]) -> None:
    from dietcode.cli.tables import TableColumn, print_table
    from dietcode.workload.text import one_line

    names = ("part", "state", "calls", "FLOPs", "categories", "GFLOP/s")
    columns = [TableColumn(name, whole=number < 2, right=number > 1) for number, name in enumerate(names)]
    rows = [
        [
            one_line(part.name, 64),
            part.state,
            str(part.calls),
            f"{part.share:.1%}",
            "" if part.categories is None else str(part.categories),
            "" if part.gflops is None else f"{part.gflops:.0f}",
        ]
        for part in parts
    ]
    print_table(columns, rows)


def _pulled_facts(one: Pulled) -> dict[str, Any]:
    listing = one.listing
    return {
        "name": listing.name,
        "version": listing.version,
        "server": one.server,
        "folder": str(one.folder),
        "key": one.key,
        "manifest": listing.manifest.model_dump(),
        "files": {path: facts.model_dump() for path, facts in listing.files.items()},
        "runtime": None if listing.runtime is None else listing.runtime.model_dump(),
    }


def _warn(text: str) -> None:
    say(f"dietcode: {' '.join(text.split())}", err=True)


COMMANDS = (submit, jobs, show, watch, cancel, resume, pull)
