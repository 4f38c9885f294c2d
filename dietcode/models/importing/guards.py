"""Checks of a program's inputs that its nodes do not have: sums of sizes, and what PyTorch's guards say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import ModelError
from dietcode.models.importing.conditions import read_condition
from dietcode.models.importing.context import Importer
from dietcode.models.importing.dimensions import guard_in, program_sizes, whole_bounds
from dietcode.models.importing.sizes import require
from dietcode.workload.text import clip, one_line


def check_sums(program: Any, importer: Importer, named: Mapping[str, str]) -> None:
    """Add checks of the ranges of axes whose size is a sum of others, where the others' do not keep them."""
    for label, size in program_sizes(program):
        if isinstance(size, int) or not importer.symbols.is_sum(size.node.expr):
            continue
        value = importer.symbols.extent(size)
        least, most = whole_bounds(program.range_constraints.get(size.node.expr))
        low, high = value.bounds(importer.graph.ranges)
        if low < least or (most is not None and high > most):
            name, _, axis = label.rpartition(".")
            allowed = f"{least}…{'' if most is None else most}"
            text = f"axis {axis} of {named[name]}, which is {value}, within {allowed}"
            importer.add("assert", value=value, least=least, most=most, text=text)


def check_guards(program: Any, importer: Importer, named: Mapping[str, str], guards: Sequence[str]) -> None:
    """Add checks of what PyTorch's guards say of sizes, whose branches the program has one way of.

    Raises
    ------
    ModelError
        A guard says something that is no comparison of sizes.
    """
    found = {label: importer.symbols.extent(size) for label, size in program_sizes(program)}
    sizes = {label: f"({extent})" for label, extent in found.items()}
    shown = {}
    for label in found:
        node, _, axis = label.rpartition(".")
        shown[label] = f"{named[node]}.shape[{axis}]"
    for guard in guards:
        try:
            condition = read_condition(guard_in(guard, sizes))
            text = guard_in(guard, shown)
        except (KeyError, ValueError):
            text = clip(guard, 120)
            raise ModelError(
                f"the program is guarded by {text}, which calls cannot check; allowed: comparisons "
                "of sizes; an export by dietcode.export has no guards"
            ) from None
        if not condition.is_of_ones:
            require(importer, condition, f"{one_line(text, 120)}, a guard of the export")
