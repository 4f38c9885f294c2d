"""``dietcode bench``: a library, or each part of a whole model or recursion, beside the vendors' kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from dietcode.cli.common import Folder, Json, print_json
from dietcode.errors import DietCodeError, RequestError


def bench(
    folder: Folder,
    vs: Annotated[
        list[str] | None, typer.Option("--vs", help="numpy or torch; may be given twice. [default: numpy]")
    ] = None,
    instances: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many, evenly spread; 0 for all; of a recursion, structures; of a program, the first.",
        ),
    ] = 16,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,…",
            help="Of a whole model: its dimensions; may be given several times. "
            "[default: the smallest sizes, the middle and the largest]",
        ),
    ] = None,
    structures: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of a recursion: *.npz with arrays of children, each what one call is given. "
            "[default: the sample that the bundle keeps]",
        ),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Of a program: a list of instances, or a function that returns one; the file is run.",
        ),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Of a recorded program: the program that it was compiled from; the file is run.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median counts.")] = 7,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads on both sides.")] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of a model, recursion or program whose weights are kept apart: *.safetensors.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON here.")] = None,
    as_json: Json = False,
) -> None:
    """Measure a library beside the vendor's kernels, in one run.

    Of a model, recursion or program each part is measured.
    """
    from dietcode.runtime.manifest import is_bundle, is_program, is_recorded, is_recursion

    vendors = vs or ["numpy"]
    if structures and not is_recursion(folder):
        raise RequestError(f"bench: --structures is of recursions, and {folder} is none; leave it out")
    if samples and not is_program(folder):
        raise RequestError(f"bench: --samples is of programs, and {folder} is none; leave it out")
    if program and not is_recorded(folder):
        raise RequestError(f"bench: --program is of recorded programs, and {folder} is none; leave it out")
    if is_program(folder):
        if at or not samples or bool(program) != is_recorded(folder):
            own = "--program FILE.py:NAME and " if is_recorded(folder) else ""
            raise RequestError(f"bench: {folder} is a program: give {own}--samples FILE.py:NAME, and no --at")
        options = samples, instances or None, rounds, threads, weights
        rows = _of_bundle(_program_records(folder, program, vendors, options), as_json)
    elif is_bundle(folder):
        from dietcode.bench.models import bench_model

        sizes = [_size(text) for text in at or []]
        rows = _of_bundle(bench_model(folder, vendors, sizes, rounds, threads, weights), as_json)
    elif is_recursion(folder):
        if at:
            raise RequestError(f"bench: --at is of whole models; {folder} is a recursion: give --structures")
        from dietcode.bench.recursions import bench_recursion

        calls = structures, instances or None, rounds, threads, weights
        rows = _of_bundle(bench_recursion(folder, vendors, *calls), as_json)
    elif at or weights:
        raise RequestError(
            f"bench: --at and --weights are of whole models, and {folder} is a library; leave them out"
        )
    else:
        rows = _bench_library(folder, vendors, instances, rounds, threads, as_json)
    if output is not None:
        _write(rows, output)
    if as_json:
        print_json(rows)


def _write(rows: list[dict[str, Any]], output: Path) -> None:
    try:
        output.write_text(json.dumps(rows, indent=2) + "\n")
    except OSError as error:
        raise DietCodeError(f"{output}: cannot be written: {error.strerror}") from error


def _program_records(
    folder: Path, program: str | None, vendors: list[str], options: tuple[Any, ...]
) -> Iterable[dict[str, Any]]:
    from dietcode.bench.programs import bench_program
    from dietcode.bench.recorded import bench_recorded

    if program is None:
        return bench_program(folder, vendors, *options)
    return bench_recorded(folder, program, vendors, *options)


def _bench_library(
    folder: Path, vendors: list[str], instances: int, rounds: int, threads: int | None, as_json: bool
) -> list[dict[str, Any]]:
    from dietcode.bench.compare import bench as run_bench
    from dietcode.cli.show import BenchTable

    rows = []
    table = None
    for record in run_bench(folder, vendors, instances or None, rounds, threads):
        rows.append(record)
        if not as_json:
            table = table or BenchTable()
            table.row(record)
    if table is not None:
        table.summary(rows)
    return rows


def _of_bundle(records: Iterable[dict[str, Any]], as_json: bool) -> list[dict[str, Any]]:
    """Return the records of a model, a recursion or a program, each shown as it comes."""
    from dietcode.cli.show_model import show_model_times

    rows = []
    for record in records:
        rows.append(record)
        if not as_json:
            show_model_times(record)
    return rows


def _size(text: str) -> dict[str, int]:
    """Return the dimensions of ``L=37,B=2``."""
    found = {}
    for one in text.split(","):
        name, _, value = (part.strip() for part in one.partition("="))
        if not name or not value.isascii() or not value.isdigit() or len(value) > 18:
            raise RequestError(f"--at: {text!r}; allowed: NAME=VALUE,…, such as L=37 or B=2,L=128")
        found[name] = int(value)
    return found
