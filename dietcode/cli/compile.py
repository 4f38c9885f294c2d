"""``dietcode compile``: a whole model becomes a bundle."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

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
MaxNodes = Annotated[
    int | None,
    typer.Option(help="Of a recursion: the most nodes of all structures of a call. [default: 8192]"),
]
MaxLevel = Annotated[
    int | None,
    typer.Option(help="Of a recursion: the most nodes that one step computes. [default: 1024]"),
]
SamplesOf = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.npz|NAME",
        help="Structures or instances to tune for: a list or function in FILE.py; structures also as a file.",
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
    max_nodes: MaxNodes = None,
    max_level: MaxLevel = None,
    samples: SamplesOf = None,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded", help="Of a program: let Python run it, and record what its tensor code calls."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile a whole model, recursion or program.

    Its parts are tuned for all of its shapes, and a bundle is written that needs no compiler.
    """
    wanted = read_ranges(ranges or [])
    is_recursion = is_object_of_file(model)
    check_options(is_recursion, bool(wanted), StructureOptions(max_nodes, max_level, samples))
    if recorded and (not is_recursion or max_nodes or max_level):
        raise RequestError("--recorded: is for programs, FILE.py:NAME, with --samples alone")
    label = label_of(name or stem_of(model))
    if recorded:
        made = _recorded(model, label, samples)
    elif is_recursion:
        made = _object(model, label, StructureOptions(max_nodes, max_level, samples))
    else:
        made = _whole_model(model, label, wanted)
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
    blocks = f"{len(result.report['blocks'])} blocks, " if recorded else ""
    program = f", program={str(model).rpartition(':')[2]}" if recorded else ""
    typer.echo(
        f"{output}: done in {result.secs:.0f} s; {blocks}{calls} calls of {parts} libraries, "
        f"{result.num_tuned} tuned now; run it: dietcode.load({str(output)!r}{program})"
    )
    for one in result.report["eager"] if recorded else ():
        typer.echo(f"runs eagerly: {one['where']}: {one['reason']}")


def is_object_of_file(model: Path) -> bool:
    """Whether MODEL names an object of a Python file, as ``FILE.py:NAME``."""
    return ".py:" in str(model) or model.suffix == ".py"


def stem_of(model: Path) -> str:
    """Return the name of the file without suffix."""
    return model.name.partition(".py")[0] if is_object_of_file(model) else model.stem


class StructureOptions(NamedTuple):
    """Options of a recursion, where they are given.

    Attributes
    ----------
    max_nodes, max_level : int or None
    samples : str or None
    """

    max_nodes: int | None = None
    max_level: int | None = None
    samples: str | None = None


def check_options(is_recursion: bool, has_ranges: bool, options: StructureOptions) -> None:
    """Refuse options of the other kind of model.

    Raises
    ------
    RequestError
        Names the options that are allowed.
    """
    if is_recursion and has_ranges:
        raise RequestError(
            "--range: given for a recursion; allowed: --max-nodes and --max-level, or --samples"
        )
    if not is_recursion and options != StructureOptions():
        raise RequestError(
            "--max-nodes, --max-level, --samples: given for a model without structures; allowed: --range"
        )


def _whole_model(model: Path, name: str, ranges: dict[str, tuple[int, int]]) -> Callable[..., CompileResult]:
    """Read a model, and return what compiles it."""
    from dietcode.models.importing.reader import KINDS, read_model

    need_compiler(*KINDS.get(model.suffix, KINDS[".pt2"]))
    graph, values = read_model(model, name, ranges)
    from dietcode.models.compiling import compile_graph

    return partial(compile_graph, graph, values)


def _object(model: Path, name: str, options: StructureOptions) -> Callable[..., CompileResult]:
    """Read a recursion or a program out of a file, which is run, and return what compiles it."""
    need_compiler("models", "reading a recursion or a program")
    from dietcode.graph.program_model import ProgramModel
    from dietcode.programs.compiling import compile_program
    from dietcode.programs.reader import read_object
    from dietcode.recursion.compiling import compile_recursion

    found, values = read_object(str(model), name, *options)
    if isinstance(found, ProgramModel):
        return partial(compile_program, found, values)
    return partial(
        compile_recursion,
        found.cells,
        values,
        max_nodes=found.max_nodes,
        max_level=found.max_level,
        samples=found.samples,
    )


def _recorded(model: Path, name: str, samples: str | None) -> Callable[..., CompileResult]:
    """Record a program of a file, which is run, and return what compiles it."""
    need_compiler("models", "reading a program")
    from dietcode.frontends.python.compiling import compile_recorded
    from dietcode.frontends.python.reader import read_recorded

    return partial(compile_recorded, *read_recorded(str(model), name, samples))


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
