"""``dietcode compile``: a whole model becomes a bundle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dietcode.cli.common import Json, need_compiler, print_json
from dietcode.errors import RequestError

_RANGE = re.compile(r"([A-Za-z_][\w.]*)=(\d+)\.\.(\d+)")

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A program of torch.export, model.pt2, or a model.onnx.")
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="L=1..512",
        help="The range of a dimension, narrower than the export's; ONNX has none.",
    ),
]


def compile_model(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the bundle goes.")],
    ranges: Ranges = None,
    name: Annotated[str | None, typer.Option(help="Of the model; by default that of the file.")] = None,
    trials: Annotated[
        int | None, typer.Option(help="Most candidates to measure, of each part. [default: 32]")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Seconds of measuring, for a part on average; more FLOPs get more. [default: 60]"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Measure and build again what is already known.")
    ] = False,
    weights: Annotated[bool, typer.Option(help="Whether the weights go into the bundle.")] = True,
    ray: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Build and measure on this Ray cluster.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile a whole model: tune its parts for all of its shapes, and write a bundle that runs anywhere."""
    wanted = read_ranges(ranges or [])
    from dietcode.models.importing.reader import KINDS, read_model

    need_compiler(*KINDS.get(model.suffix, KINDS[".pt2"]))

    graph, values = read_model(model, label_of(name or model.stem), wanted)
    from dietcode.cli.progress import ProgressBars
    from dietcode.graph.model_request import SECONDS, TRIALS
    from dietcode.measure.engine_spec import EngineSpec
    from dietcode.measure.opening import open_engine
    from dietcode.models.compiling import Options, compile_graph

    options = Options(trials or TRIALS, seconds or SECONDS, force=force)
    with open_engine(EngineSpec.from_options(ray, None, None)) as engine, ProgressBars() as progress:
        result = compile_graph(
            graph,
            values,
            output,
            options=options,
            engine=engine,
            on_event=progress.on_event,
            keep_weights=weights,
        )
    if result.report["warning"]:
        typer.echo(f"dietcode: warning: {result.report['warning']}", err=True)
    if as_json:
        print_json({"folder": str(output), "secs": result.secs} | result.report)
        return
    parts, calls = len(result.report["parts"]), result.report["num_calls"]
    typer.echo(
        f"{output}: done in {result.secs:.0f} s; {calls} calls of {parts} libraries, "
        f"{result.num_tuned} tuned now; run it: dietcode.load({str(output)!r})"
    )


def label_of(name: str) -> str:
    """Return a name as models and their bundles have one."""
    return re.sub(r"[^a-z0-9._-]", "-", name.lower()).strip("-._")[:64] or "model"


def read_ranges(given: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return ranges by the name of the dimension.

    Raises
    ------
    RequestError
        One is not ``NAME=LOW..HIGH``.
    """
    found = {}
    for text in given:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise RequestError(f"--range: given {text[:60]!r}; allowed: NAME=LOW..HIGH, as L=1..512")
        found[match[1]] = (int(match[2]), int(match[3]))
    return found
