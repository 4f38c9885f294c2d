"""``dietcode check``: everything that is wrong with a spec, or what it is."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dietcode.cli.common import Json, print_json
from dietcode.errors import SpecError, TargetError
from dietcode.extras import missing_packages
from dietcode.lean import leave_torch_out

if TYPE_CHECKING:
    from dietcode.workload.spec import Spec
    from dietcode.workload.summary import Summary

_STDIN = "-"


def check(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A workload in YAML or JSON; - for standard input.")
    ],
    as_json: Json = False,
) -> None:
    """Check a spec without tuning it: all that is wrong, by line.

    Each problem has file, line and column; a right spec is put into words.
    Where the compiler is installed its target is looked up, too, as `tune` does.
    """
    from dietcode.workload.check import check_file
    from dietcode.workload.loader import MAX_BYTES, read_bytes
    from dietcode.workload.summary import summarise
    from dietcode.workload.text import one_line

    is_stdin = spec == _STDIN
    source = "<stdin>" if is_stdin else one_line(spec, 120)
    raw = sys.stdin.buffer.read(MAX_BYTES + 1) if is_stdin else read_bytes(spec)
    found = check_file(raw, Path.cwd() if is_stdin else Path(spec).parent)
    if found.problems:
        if as_json:
            print_json({"source": source, "problems": [asdict(one) for one in found.problems]})
        else:
            for one in found.problems:
                field = f"{one.field}: " if one.field else ""
                typer.echo(f"{source}:{one.line}:{one.column}: {field}{one.message}")
        count = len(found.problems)
        raise SpecError("", f"{source}: {count} problem{'' if count == 1 else 's'}")
    assert found.spec is not None, "there is no problem"
    try:
        target = _target(found.spec)
    except TargetError as error:
        raise TargetError(f"{source}: {error}") from None
    summary = summarise(found.spec)
    if as_json:
        print_json({"source": source, "problems": [], "target": target} | asdict(summary))
    else:
        _show(source, found.spec, summary, target)


def _target(spec: Spec) -> dict[str, Any] | None:
    """Return what the target stands for here, whether or not it can be measured; None without a compiler.

    Raises
    ------
    TargetError
        The compiler does not know it.
    """
    if missing_packages("tune"):
        return None
    leave_torch_out()
    from dietcode.measure.device_kinds import device_kind_of

    return device_kind_of(spec.target).target(spec.target).to_json()


def _show(source: str, spec: Spec, summary: Summary, target: dict[str, Any] | None) -> None:
    from dietcode.target.kinds import label_of

    operands = ", ".join(f"{name}[{indices}]" for name, indices in summary.operands)
    largest = ", ".join(f"{name}={value}" for name, value in summary.largest.items())
    as_written = spec.target.to_json()
    given = as_written if isinstance(as_written, str) else label_of(as_written)
    named = f"{given} (not looked up: no compiler is installed)" if target is None else label_of(target)
    then = f", then {', '.join(summary.then)}" if summary.then else ""
    facts = {
        "name": spec.name,
        "operator": f"{summary.operator}: {summary.output[0]}[{summary.output[1]}] of {operands}{then}",
        "variables": ", ".join(f"{name} ({one.allowed()})" for name, one in spec.shape_vars.items()),
        "instances": f"{summary.num_instances} to tune for, {summary.num_shapes} shapes served",
        "largest": f"{largest}: {summary.flops:.4g} FLOPs, tensors of {summary.tensor_bytes / 1e6:.4g} MB",
        "by keyword": ", ".join(summary.keywords),
        "target": named,
        "budget": f"{spec.budget.trials} trials, {spec.budget.seconds:g} s",
    }
    typer.echo(f"{source}: right")
    for name, value in facts.items():
        if value:
            typer.echo(f"{name:<10} {value}")
