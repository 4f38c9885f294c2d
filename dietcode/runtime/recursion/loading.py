"""Opening the bundle of a recursion, whose parts are those of a model's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dietcode.errors import LibraryError
from dietcode.graph.extent import Extent
from dietcode.runtime.library import Library
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.manifest import RECURSION, RECURSION_FORMAT, WEIGHTS
from dietcode.runtime.models.executable import KernelStep
from dietcode.runtime.models.loading import load_kernels, lookups, open_bundle
from dietcode.runtime.recursion.loaded import LoadedRecursion
from dietcode.runtime.recursion.plan import PHASES, RecursionDescription, positions_in, read_recursion
from dietcode.workload.text import clip


def load_recursion(folder: Path, options: LoadOptions) -> LoadedRecursion:
    """Load the bundle of a recursion; errors as for a model."""
    kind = RECURSION_FORMAT, RECURSION
    manifest, description, libraries = open_bundle(folder, kind, read_recursion, options)
    path = folder / RECURSION
    for phase, steps in enumerate(description.phases):
        for step in (one for one in steps if isinstance(one, KernelStep)):
            _check_ranges(path, description, phase, step, libraries[step.digest])
            _check_lookups(path, description, phase, step, libraries[step.digest])
    kernels = load_kernels(description, libraries, options.weights or folder / WEIGHTS)
    return LoadedRecursion(folder, manifest, description, kernels, _num_ids(description, libraries))


def _check_ranges(
    path: Path, description: RecursionDescription, phase: int, step: KernelStep, library: Library
) -> None:
    """Refuse a call with more rows than a library takes; tables, which it looks up, may have any number."""
    most = description.max_level if PHASES[phase] in ("cell", "first") else description.max_nodes
    nodes = description.max_nodes
    ranges = {"N": (1, nodes), "T": (2, nodes + 1), "B": (1, most)}
    for name, extent in step.variables.items():
        if not extent.variables & ({"B"} if phase else {"B", "N"}):
            continue
        facts = library.manifest["variables"][name]
        low, high = extent.bounds(ranges)
        if facts.get("values") is not None or not facts["min"] <= low <= high <= facts["max"]:
            raise LibraryError(f"{path}: {name} of {step.digest} is {low}…{high}, which it does not take")


def _check_lookups(
    path: Path, description: RecursionDescription, phase: int, step: KernelStep, library: Library
) -> None:
    """Refuse a kernel that would read rows that a table has not: of other positions than its own.

    A table of one row is read at any: kernels read the last row where positions are past the end.
    """
    for table, index in lookups(library.manifest["workload"]["op"]):
        read, by = step.arguments.get(table), step.arguments.get(index)
        if read is not None and by is not None:
            if read.value in description.constant_names and read.shape[:1] == (Extent.of(1),):
                continue
            if by.value in positions_in(description, phase, read.value, read.shape):
                continue
        raise LibraryError(
            f"{path}: {step.digest} reads rows of {clip(read and read.value)} at {clip(by and by.value)}"
        )


def _num_ids(description: RecursionDescription, libraries: Mapping[str, Library]) -> dict[int, int]:
    """Return the rows of the smallest table that inputs are numbers of, by the phase that reads it."""
    found: dict[int, int] = {}
    for phase, steps in enumerate(description.phases):
        for step in (one for one in steps if isinstance(one, KernelStep)):
            for table, index in lookups(libraries[step.digest].manifest["workload"]["op"]):
                if step.arguments[index].value == "ids":
                    rows = step.arguments[table].shape[0].constant
                    found[phase] = min(rows, found.get(phase, rows))
        for move in description.moves[phase]:
            if move.positions == "ids" and move.source is not None:
                rows = description.constant_type(move.source).shape[0].constant
                found[phase] = min(rows, found.get(phase, rows))
    if description.leaf_rows > 1:  # leaves of which the first level reads what they are
        found[1] = min(description.leaf_rows, found.get(1, description.leaf_rows))
    return found
