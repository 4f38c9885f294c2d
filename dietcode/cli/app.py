"""The commands: thin, each one calls a package and prints what it returns.

Exit status: 0 done, 1 the operation failed, 2 the request was wrong. Errors are one line on stderr.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from dietcode._version import __version__
from dietcode.cli import key, remote
from dietcode.cli.bench import bench
from dietcode.cli.budget import Seconds, Trials, with_budget
from dietcode.cli.check import check
from dietcode.cli.command_owner import check_command_owner
from dietcode.cli.common import Folder, Json, need_compiler, print_json, read_spec, refuse_bundle
from dietcode.cli.compile import compile_model
from dietcode.cli.db import db_app
from dietcode.cli.groups import HERE, OPERATING, REMOTE, GroupedCommands
from dietcode.cli.init import init
from dietcode.cli.ray_node import ray_node
from dietcode.cli.records import export_from_server, import_to_server
from dietcode.cli.reselect import reselect
from dietcode.cli.runners import runners
from dietcode.cli.serve import serve
from dietcode.cli.token import token_app
from dietcode.cli.trust import trust
from dietcode.cli.worker import worker
from dietcode.cli.yank import yank
from dietcode.errors import DietCodeError, LibraryError, RequestError
from dietcode.workload.text import one_line, printable

app = typer.Typer(
    cls=GroupedCommands,
    help="One tuning run for a whole range of shapes: a small set of micro-kernels and a dispatch rule.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
records_app = typer.Typer(help="Measurements as versioned JSON Lines.", no_args_is_help=True)

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="A workload in YAML or JSON.")]

RecordsServer = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="A server's, in place of this machine's.")
]
_INTERRUPTED = 130


@functools.cache
def commands() -> Any:
    """Return what ``app`` declares, as one command with all below it; it takes 30 ms to read them."""
    return typer.main.get_command(app)


def run() -> None:
    """Run the command line and turn every designed error into one line and an exit status."""
    try:
        check_command_owner()
        status = commands()(standalone_mode=False)
        if status == _INTERRUPTED:  # Typer turns Ctrl-C into a value
            raise KeyboardInterrupt
    except DietCodeError as error:
        _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        _fail("interrupted; what was measured is kept, and the same command goes on from there", _INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except typer.Abort:
        _fail("interrupted", _INTERRUPTED)
    except OSError as error:  # a full disk, a folder that went away
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", 1)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(str(error), err=True)
            sys.exit(2)
        if hasattr(error, "format_message"):  # a usage error of click's
            _fail(f"{error.format_message()} (dietcode --help)", 2)
        raise


def _fail(message: str, status: int) -> None:
    print("dietcode:", printable(" ".join(message.split())), file=sys.stderr)  # noqa: T201
    sys.exit(status)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dietcode {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Parent of all commands."""


def tune(
    spec: SpecFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the library goes.")],
    records: Annotated[
        Path | None, typer.Option(help="Build from these measurements; measure nothing, need no device.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure again what is already known.")] = False,
    trials: Trials = None,
    seconds: Seconds = None,
    ray: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Build and measure on this Ray cluster.")
    ] = None,
    rpc_tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Measure on a device of this TVM RPC tracker.")
    ] = None,
    rpc_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The key under which the device registers there.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tune a workload for its whole range, in this process."""

    parsed = with_budget(read_spec(spec), trials, seconds)
    if records is not None and force:
        raise RequestError("--force measures again and --records measures nothing; give one of them")
    if records is not None and (ray or rpc_tracker or rpc_key):
        raise RequestError("--records measures nothing; leave out --ray and --rpc-tracker")
    if records is not None and (trials is not None or seconds is not None):
        raise RequestError("--records measures nothing; leave out --trials and --seconds")
    need_compiler()
    from dietcode.cli.progress import ProgressBars
    from dietcode.measure.engine_spec import EngineSpec
    from dietcode.tuner.tune import tune as run_tuning

    engine = EngineSpec.from_options(ray, rpc_tracker, rpc_key)
    with ProgressBars() as progress:
        result = run_tuning(
            parsed, output, records=records, force=force, on_event=progress.on_event, engine=engine
        )
    if as_json:
        facts = {k: v for k, v in result.report["selection"].items() if k != "curve"}
        print_json({"folder": str(output), "secs": result.secs, "measured": result.measured} | facts)
    else:
        typer.echo(f"{output}: done in {result.secs:.0f} s, {result.measured} micro-kernels measured")


def inspect(
    folder: Folder,
    header: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a C header with the library's functions here."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a library holds, and how fast it is predicted to be.

    Categories, dispatch rule, sizes; of a whole model its parts.
    """
    from dietcode.runtime.manifest import has_parts
    from dietcode.runtime.signed import signed_manifest

    signed_manifest(folder)
    if header is not None:
        _write_header(folder, header)
    show = _inspect_model if has_parts(folder) else _inspect_library
    try:
        show(folder, as_json)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LibraryError(f"{folder}: reports what cannot be shown: {one_line(what)}") from error


def _inspect_library(folder: Path, as_json: bool) -> None:
    from dietcode.cli.show import show_library
    from dietcode.runtime.manifest import DISPATCH, REPORT, read_json, read_manifest

    manifest = read_manifest(folder)
    report, dispatch = read_json(folder / REPORT), read_json(folder / DISPATCH)
    if as_json:
        print_json({"manifest": manifest, "dispatch": dispatch, "report": report})
    else:
        show_library(manifest, dispatch, report)


def _write_header(folder: Path, header: Path) -> None:
    from dietcode.library.c_header import c_header
    from dietcode.runtime.manifest import read_manifest

    refuse_bundle("inspect --header", folder)
    text = c_header(read_manifest(folder))
    try:
        header.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DietCodeError(f"{header}: cannot be written: {error.strerror}") from error


def _inspect_model(folder: Path, as_json: bool) -> None:
    from dietcode.cli.show_model import show_model
    from dietcode.cli.show_program import show_program, show_recorded
    from dietcode.runtime.manifest import (
        LIBRARIES,
        PROGRAM,
        RECORDED_FORMAT,
        RECURSION,
        REPORT,
        kind_of_bundle,
        read_json,
    )
    from dietcode.runtime.models.loading import described_bundle

    kind = kind_of_bundle(folder)
    manifest, report = described_bundle(folder, kind)
    for part in report["parts"]:
        own = read_json(folder / LIBRARIES / str(part["digest"]) / REPORT)
        part["measured"] = own.get("space", {}).get("measured")
    if kind[1] == RECURSION:
        report["levels"] = _levels(folder, manifest, report)
    if kind[1] == PROGRAM:
        report["runs"] = _runs(folder, report)
    if as_json:
        print_json({"manifest": manifest, "report": report})
    elif kind[1] == PROGRAM:
        show = show_recorded if kind[0] == RECORDED_FORMAT else show_program
        show(manifest, report, read_json(folder / PROGRAM))
    else:
        show_model(manifest, report)


def _levels(folder: Path, manifest: dict[str, Any], report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return which category each kernel of a recursion sends sizes of levels to."""
    from dietcode.graph.samples import read_samples
    from dietcode.recursion.level_runs import kernel_runs
    from dietcode.runtime.manifest import RECURSION, read_json
    from dietcode.runtime.models.loading import bundle_dispatches

    samples = read_samples(manifest["samples"]) if "samples" in manifest else None
    dispatches = bundle_dispatches(folder, [str(part["digest"]) for part in report["parts"]])
    runs = kernel_runs(read_json(folder / RECURSION), dispatches)
    return [row for one in runs for row in one.to_json(samples)]


def _runs(folder: Path, report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return which category each kernel of a program sends numbers of rows to."""
    from dietcode.programs.block_runs import block_kernels
    from dietcode.runtime.manifest import LIBRARIES, PROGRAM, REPORT, read_json
    from dietcode.runtime.models.loading import bundle_dispatches

    digests = [str(part["digest"]) for part in report["parts"]]
    dispatches = bundle_dispatches(folder, digests)
    reports = {digest: read_json(folder / LIBRARIES / digest / REPORT) for digest in digests}
    buckets = {
        one["name"]: {int(rows): int(count) for rows, count in one["buckets"].items()}
        for one in report["blocks"]
    }
    kernels = block_kernels(read_json(folder / PROGRAM), dispatches, reports)
    return [row for one in kernels for row in one.to_json(buckets[one.block])]


def targets(as_json: Json = False) -> None:
    """What can be built for and measured on, here and now."""
    need_compiler()
    from dietcode.backends.table import BACKENDS
    from dietcode.cli.show import show_targets

    facts = [backend.availability() for backend in BACKENDS.values()]
    if as_json:
        print_json(facts)
    else:
        show_targets(facts)


@records_app.command("export")
def export_records(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To write: *.jsonl or *.jsonl.zst.")],
    spec: Annotated[
        Path, typer.Option("--spec", metavar="SPEC", help="The workload whose records to write.")
    ],
    device: Annotated[
        str | None, typer.Option(metavar="ID", help="Of a device; this machine's own by default.")
    ] = None,
    server: RecordsServer = None,
) -> None:
    """Write what was measured of a workload to a file: on this device, or on a server's."""

    if server is not None:
        export_from_server(file, spec, device, server)
        return
    parsed = read_spec(spec)
    need_compiler()
    from dietcode.measure.store import export_file

    known = export_file(parsed, file, device)
    typer.echo(f"{file}: {len(known.measurements)} micro-kernels measured on {known.device['name']}")


@records_app.command("import")
def import_records(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A records file.")],
    spec: Annotated[
        Path | None,
        typer.Option(metavar="SPEC", help="With --server: the workload, where the server does not know it."),
    ] = None,
    server: RecordsServer = None,
) -> None:
    """Add the measurements of a file to what is known of their workload and device: here, or at a server.

    A server takes those of GPUs. It begins the jobs that waited for them.
    """
    if server is not None:
        import_to_server(file, spec, server)
        return
    need_compiler()
    from dietcode.measure.store import import_file

    known, added = import_file(file)
    typer.echo(f"{file}: {added} micro-kernels added, {len(known.measurements)} known")


_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    HERE: (init, check, tune, compile_model, inspect, bench, reselect, targets),
    REMOTE: (*remote.COMMANDS, yank, trust, runners),
    OPERATING: (serve, worker, ray_node),
}
_NAMES = {"compile_model": "compile"}  # a name that Python has already
for _panel, _members in _COMMANDS.items():
    for _member in _members:
        app.command(_NAMES.get(_member.__name__), rich_help_panel=_panel)(_member)
app.add_typer(records_app, name="records", rich_help_panel=HERE)
for _name, _group in {"token": token_app, "key": key.app, "db": db_app}.items():
    app.add_typer(_group, name=_name, rich_help_panel=OPERATING)
