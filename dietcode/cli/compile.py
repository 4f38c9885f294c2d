"""``dietcode compile``: a whole model becomes a bundle."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.cli.common import Json, need_compiler, print_json
from dietcode.errors import RequestError

if TYPE_CHECKING:
    from dietcode.models.compiling import CompileResult

_RANGE = re.compile(r"([A-Za-z_][\w.]*)=(\d+)\.\.(\d+)")

ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A program of torch.export, model.pt2, or a model.onnx; or FILE.py:NAME."
    ),
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
    max_nodes: Annotated[
        int | None,
        typer.Option(help="Of a recursion: the most nodes of all structures of a call. [default: 8192]"),
    ] = None,
    max_level: Annotated[
        int | None,
        typer.Option(help="Of a recursion: the most nodes that one step computes. [default: 1024]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile a whole model: tune its parts for all of its shapes, and write a bundle that runs anywhere."""
    wanted = read_ranges(ranges or [])
    is_recursion = is_object_of_file(model)
    _check_options(is_recursion, wanted, max_nodes, max_level)
    read = _recursion if is_recursion else _whole_model
    made = read(model, label_of(name or _stem(model)), wanted, max_nodes, max_level)
    from dietcode.cli.progress import ProgressBars
    from dietcode.graph.model_request import SECONDS, TRIALS
    from dietcode.measure.engine_spec import EngineSpec
    from dietcode.measure.opening import open_engine
    from dietcode.models.compiling import Options

    options = Options(trials or TRIALS, seconds or SECONDS, force=force)
    with open_engine(EngineSpec.from_options(ray, None, None)) as engine, ProgressBars() as progress:
        result: CompileResult = made(
            output, options=options, engine=engine, on_event=progress.on_event, keep_weights=weights
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


def is_object_of_file(model: Path) -> bool:
    """Whether MODEL names an object of a Python file, as ``FILE.py:NAME``."""
    return ".py:" in str(model) or model.suffix == ".py"


def _stem(model: Path) -> str:
    return model.name.partition(".py:")[0] if is_object_of_file(model) else model.stem


def _check_options(
    is_recursion: bool, ranges: dict[str, tuple[int, int]], max_nodes: int | None, max_level: int | None
) -> None:
    """Refuse options of the other kind of model."""
    if is_recursion and ranges:
        raise RequestError("--range: given for a recursion; allowed: --max-nodes and --max-level")
    if not is_recursion and (max_nodes is not None or max_level is not None):
        raise RequestError("--max-nodes, --max-level: given for a model without structures; allowed: --range")


def _whole_model(
    model: Path, name: str, ranges: dict[str, tuple[int, int]], *_: int | None
) -> Callable[..., CompileResult]:
    """Read a model, and return what compiles it."""
    from dietcode.models.importing.reader import KINDS, read_model

    need_compiler(*KINDS.get(model.suffix, KINDS[".pt2"]))
    graph, values = read_model(model, name, ranges)
    from dietcode.models.compiling import compile_graph

    return partial(compile_graph, graph, values)


def _recursion(
    model: Path,
    name: str,
    ranges: dict[str, tuple[int, int]],
    max_nodes: int | None,
    max_level: int | None,
) -> Callable[..., CompileResult]:
    """Read a recursion out of a file, which is run, and return what compiles it."""
    need_compiler("models", "reading a recursion")
    from dietcode.recursion.compiling import check_sizes, compile_recursion, default_sizes
    from dietcode.recursion.reader import read_recursion

    sizes = default_sizes(max_nodes, max_level)
    check_sizes(*sizes)
    cells, values = read_recursion(str(model), name)
    return partial(compile_recursion, cells, values, max_nodes=sizes[0], max_level=sizes[1])


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
