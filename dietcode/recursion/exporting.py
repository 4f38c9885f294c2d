"""The cells of a recursion as graphs of one node, by ``torch.export``: needs PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dietcode.errors import ModelError
from dietcode.graph.cells import Cells, Shape
from dietcode.graph.graph import Graph
from dietcode.models.exporting import export
from dietcode.models.importing.exported import Weights, import_exported
from dietcode.models.nested import renamed
from dietcode.recursion.eager import checked_states
from dietcode.recursion.module import Recursion

ADVICE = "a cell is computed for one node, with fixed shapes; what depends on values is for dietcode.program"


def export_cells(recursion: Recursion, name: str) -> tuple[Cells, Weights]:
    """Return the cells of a recursion and the weights that they read.

    Raises
    ------
    ModelError
        A cell cannot be exported, has an unknown operator, or returns other states than were declared.
    """
    import torch

    x = [] if recursion.x is None else [_example(recursion.x, is_id=not recursion.x)]
    per_child = [torch.zeros(shape, dtype=torch.float32) for shape in recursion.states]
    if recursion.is_sum:
        below = [torch.stack([one] * recursion.children) for one in per_child]
    else:
        below = per_child * recursion.children
    below = [one.clone() for one in below]
    cell, weights = _imported(recursion.cell, (*x, *below), "cell", recursion.states)
    leaf = None
    if recursion.leaf is not None:
        leaf, own = _imported(recursion.leaf, tuple(x), "leaf", recursion.states)
        leaf, own = _shared(leaf, own, weights)
        weights = weights | own
    shapes = recursion.states
    return Cells(name, recursion.children, recursion.is_sum, shapes, recursion.x, cell, leaf), weights


def _example(shape: Shape, is_id: bool) -> Any:
    import torch

    return torch.zeros(shape, dtype=torch.int64 if is_id else torch.float32)


def _imported(
    module: Any, args: tuple[Any, ...], word: str, states: Sequence[Shape]
) -> tuple[Graph, Weights]:
    """Return the graph and the weights of a module, whose names begin with a word."""
    try:
        program = export(module, args)
    except ModelError as error:
        raise ModelError(f"{word}: {error}; {ADVICE}") from error
    import torch

    try:
        with torch.no_grad():
            made = checked_states(module(*args), tuple(states))
    except RuntimeError as error:  # as of weights of another dtype, which an export does not always see
        line = str(error).partition("\n")[0]
        raise ModelError(f"{word}: {line}; its inputs and states are float32") from error
    wrong = [str(one.dtype) for one in made if one.dtype != torch.float32]
    if wrong:
        given = f"{word}: returns a state of {wrong[0].removeprefix('torch.')}"
        raise ModelError(f"{given}; allowed: float32, as .float() makes a module's weights and a tensor")
    try:
        graph, weights = import_exported(program, word, {})
    except ModelError as error:
        raise ModelError(f"{word}: {error}; {ADVICE}") from error
    if graph.ranges:
        raise ModelError(
            f"{word}: a size or position depends on values; choose by one_hot and a product; {ADVICE}"
        )
    names = {one: f"{word}.{one}" if one in graph.weights else one for one in graph.types}
    return renamed(graph, names), {names[one]: array for one, array in weights.items()}


def _shared(leaf: Graph, own: Weights, weights: Weights) -> tuple[Graph, Weights]:
    """Return a leaf that reads the weights that it has in common with the cell by their names there."""
    names = {name: name for name in leaf.types}
    for name, array in own.items():
        for other, known in weights.items():
            if array.shape == known.shape and array.dtype == known.dtype and np.shares_memory(array, known):
                names[name] = other
    return renamed(leaf, names), {names[name]: array for name, array in own.items()}
