"""Opening the bundle of a program, whose parts are those of a model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dietcode.errors import LibraryError
from dietcode.runtime.library import Library
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.manifest import PROGRAM, PROGRAM_FORMAT, WEIGHTS
from dietcode.runtime.models.executable import KernelStep
from dietcode.runtime.models.loading import load_kernels, lookups, open_bundle
from dietcode.runtime.programs.loaded import LoadedProgram
from dietcode.runtime.programs.plan import BlockPlan, ProgramPlan, read_program
from dietcode.runtime.recursion.moves import MoveStep


def load_program(folder: Path, options: LoadOptions) -> LoadedProgram:
    """Load the bundle of a program; errors as for a model."""
    manifest, plan, libraries = open_bundle(folder, (PROGRAM_FORMAT, PROGRAM), read_program, options)
    limits = checked_limits(folder / PROGRAM, plan, libraries)
    kernels = load_kernels(plan, libraries, options.weights or folder / WEIGHTS)
    return LoadedProgram(folder, manifest, plan, kernels, limits)


def checked_limits(
    path: Path, plan: ProgramPlan, libraries: Mapping[str, Library]
) -> dict[tuple[int, int], int]:
    """Return how many rows the table of each operand has that is a number, by block and operand.

    Raises
    ------
    LibraryError
        A block calls a library with more rows than it takes, or reads rows of another table.
    """
    limits: dict[tuple[int, int], int] = {}
    for number, block in enumerate(plan.blocks):
        for step in block.steps:
            if isinstance(step, KernelStep):
                _check_ranges(path, plan, block, step, libraries[step.digest])
        for operand, rows in tables_of_ids(path, plan, block, libraries):
            limits[number, operand] = min(rows, limits.get((number, operand), rows))
    return limits


def _check_ranges(
    path: Path, plan: ProgramPlan, block: BlockPlan, step: KernelStep, library: Library
) -> None:
    """Refuse a call with more rows than a library takes."""
    ranges = {"T": (plan.max_rows, plan.max_rows), "B": (1, block.max_batch)}
    for name, extent in step.variables.items():
        facts = library.manifest["variables"][name]
        low, high = extent.bounds(ranges)
        if facts.get("values") is not None or not facts["min"] <= low <= high <= facts["max"]:
            raise LibraryError(f"{path}: {name} of {step.digest} is {low}…{high}, which it does not take")


def tables_of_ids(
    path: Path, plan: ProgramPlan, block: BlockPlan, libraries: Mapping[str, Library]
) -> Iterator[tuple[int, int]]:
    """Return the operands that are numbers of a table's rows, with how many rows it has.

    A table of one row is what all numbers have: kernels read it for any of them.

    Raises
    ------
    LibraryError
        A kernel reads the rows of an operand at the positions of another one, or a table as it lies.
    """
    for operand, rows in _read_tables(path, plan, block, libraries):
        if rows > 1:
            yield operand, rows


def _read_tables(
    path: Path, plan: ProgramPlan, block: BlockPlan, libraries: Mapping[str, Library]
) -> Iterator[tuple[int, int]]:
    for step in block.steps:
        if isinstance(step, MoveStep):
            if step.positions is not None and step.positions.startswith("ids") and step.source is not None:
                yield int(step.positions[3:]), plan.constant_type(step.source).shape[0].constant
            continue
        op = libraries[step.digest].manifest["workload"]["op"]
        read = {name: one.value for name, one in step.arguments.items()}
        looked_up = set()
        for table, index in lookups(op):
            source, positions = read.get(table), read.get(index, "")
            looked_up.add(source)
            if source in plan.constant_names and positions.startswith("ids"):
                yield int(positions[3:]), step.arguments[table].shape[0].constant
            elif not source or not block.are_rows_of(positions, source) or block.rules[source].is_rows:
                raise LibraryError(f"{path}: {block.name}: {step.digest} reads {source} at {positions!r}")
        tables = {one for one in read.values() if one in block.rules and not block.rules[one].is_rows}
        if tables - looked_up:
            raise LibraryError(f"{path}: {block.name}: {step.digest} reads all of {min(tables - looked_up)}")
