"""Ways to compute the same recursion, of which the faster one on samples is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dietcode.graph.samples import Samples, levels_of

_EXAMPLE_NODES = 31  # of each structure where there are no samples
_EXAMPLES = 8
_MOST_NODES = 4096  # of what is tried
Children = Sequence[Sequence[int]]


@dataclass(frozen=True)
class RecursionSchedule:
    """How a recursion is computed.

    Attributes
    ----------
    unrolled : bool
        Where leaves are rows of constant tables, nodes above leaves alone are computed from what their
        children are rows of, not from their children's states: the recursion is unrolled there, by one level.
        It is done where that takes fewer multiplications.
    refactored : bool
        Products that a node takes of several children are taken where each child is computed.
    """

    unrolled: bool = True
    refactored: bool = False

    @property
    def label(self) -> str:
        """What reports call it."""
        words = [word for word in ("unrolled", "refactored") if getattr(self, word)]
        return " and ".join(words) or "plain"


USUAL = RecursionSchedule()
SCHEDULES = (USUAL, RecursionSchedule(False), RecursionSchedule(True, True), RecursionSchedule(False, True))


def tried_structure(samples: Samples | None, num_children: int, max_nodes: int) -> Children:
    """Return the children of each node of what schedules are tried on, children before their parents.

    The structure that samples keep, as often as a call of median size has room for it; without samples
    random trees by a fixed seed, or sequences.
    """
    if samples is not None and samples.shown:
        one: Children = samples.shown
        sizes = np.repeat([*samples.nodes], [*samples.nodes.values()])
        count = round(float(np.median(sizes)) / len(one))
    else:
        one, count = _example(num_children, min(_EXAMPLE_NODES, max_nodes)), _EXAMPLES
    most = min(_MOST_NODES, max_nodes)
    return repeated(one, max(1, min(count, most // len(one))))


def timed_structures(samples: Samples | None, num_children: int, max_nodes: int) -> list[Children]:
    """Return what schedules are timed on: what they are tried on, and without samples a large call too.

    A large call has as many of these trees as there may be, or 4096 nodes.
    """
    own = tried_structure(samples, num_children, max_nodes)
    count = min(_MOST_NODES, max_nodes) // len(own)
    return [own] if samples is not None or count < 2 else [own, repeated(own, count)]


def repeated(children: Children, count: int) -> Children:
    """Return a structure several times, as one."""
    return [[k * len(children) + child for child in row] for k in range(count) for row in children]


def _example(num_children: int, num_nodes: int) -> Children:
    """Return a random tree whose nodes have two children at the least, where the cell takes as many."""
    if num_children < 2:
        return [[node - 1] if node and num_children else [] for node in range(num_nodes)]
    random = np.random.default_rng(0)
    below: list[list[int]] = []
    roots: list[int] = []
    for node in range(num_nodes):
        rest = num_nodes - node
        wants = len(roots) >= 2 and (random.random() < 0.5 or len(roots) >= rest)
        own: list[int] = []
        if wants:
            many = min(len(roots), int(random.integers(2, num_children + 1)))
            own = [roots.pop(int(random.integers(len(roots)))) for _ in range(many)]
        below.append(own)
        roots.append(node)
    return below


def multiply_adds_of(children: Children, of_forms: Mapping[str, int], skips_leaves: bool) -> int:
    """Return the multiplications of a structure.

    Parameters
    ----------
    children : sequence of sequence of int
        Of each node, numbers of nodes before it.
    of_forms : mapping of str to int
        Of a node of each form that there is: before, leaf, first, cell.
    skips_leaves : bool
        Whether `before` is not computed for leaves.
    """
    nodes, leaves, *rest = len(children), *map(len, levels_of(children))
    lowest = rest[0] if rest and "first" in of_forms else 0
    total = leaves * of_forms.get("leaf", of_forms["cell"]) + lowest * of_forms.get("first", 0)
    total += (nodes - leaves - lowest) * of_forms["cell"]
    return total + (nodes - leaves * skips_leaves) * of_forms.get("before", 0)
