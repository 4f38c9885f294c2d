"""The memory of a call of a recursion: which buffers it has, and where they lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from dietcode.runtime.models.executable import ALIGNMENT
from dietcode.runtime.recursion.plan import RecursionDescription
from dietcode.runtime.recursion.rows import written_by

Sizes = tuple[int, int, int, int]  # nodes, leaves, and the rows of the largest range of cell and of first
InnerBuffer: TypeAlias = "tuple[int, str]"  # its phase, and what it holds; those of phase 0 stay


def laid_out(
    description: RecursionDescription, buffers: Iterable[InnerBuffer], sizes: Sizes
) -> tuple[dict[InnerBuffer, int], int]:
    """Return the offset of each buffer, and the bytes of all.

    What leaves and levels compute on the way lies in the same bytes, one after the other.
    """
    nodes, *rows = sizes
    offsets: dict[InnerBuffer, int] = {}
    ends = [0] * len(sizes)
    for phase, name in sorted(buffers):
        count = rows[phase - 1] if phase else nodes + (name not in description.hoisted)  # a row of zeros
        if phase and not ends[phase]:
            ends[phase] = ends[0]
        offsets[phase, name] = ends[phase]
        ends[phase] += -(-count * row_bytes(description, phase, name) // ALIGNMENT) * ALIGNMENT
    return offsets, max(ends)


def row_bytes(description: RecursionDescription, phase: int, name: str) -> int:
    """Return the bytes of a row of what a name stands for in a phase."""
    return description.rule(phase, name).row_bytes


def node_bytes(description: RecursionDescription) -> int:
    """Return the bytes of a node in a call: its states, and what is computed before the first level."""
    return sum(row_bytes(description, phase, name) for phase, name in _buffers(description) if not phase)


def workspace_bytes(description: RecursionDescription) -> int:
    """Return the most bytes that a call works in: with `max_nodes` nodes, and levels of `max_level`."""
    nodes, level = description.max_nodes, description.max_level
    return laid_out(description, _buffers(description), (nodes, nodes, level, level))[1]


def _buffers(description: RecursionDescription) -> set[InnerBuffer]:
    states = range(len(description.states))
    kept = {*description.hoisted, *(f"state{state}" for state in states)}
    found = {(0, name) for name in kept}
    for phase, steps in enumerate(description.phases):
        written = {name for step in steps for name in written_by(step)}
        found |= {(phase, name) for name in written - kept - {f"next{state}" for state in states}}
    return found
