"""Sample structures: counted, from arrays of children or from structures."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import DietCodeError, ModelError
from dietcode.graph.samples import MAX_SHOWN, Samples
from dietcode.models.importing.archives import check_archive
from dietcode.runtime.recursion.structure import Structure
from dietcode.workload.text import clip

SUFFIX = ".npz"
_ALLOWED = (
    "arrays of children, int32 [nodes, children of a node] with -1 for none, each what one call is given"
)


def load_samples(path: Path) -> Samples:
    """Count the structures of a file that `numpy.savez` wrote.

    Raises
    ------
    ModelError
        There is no such file, or an array of it is no structure.
    """
    return _counted(_arrays(path, "--samples").items(), str(path))


def load_structures(path: Path) -> list[tuple[str, Structure]]:
    """Return the structures of a file that `numpy.savez` wrote, with their names, the smallest first.

    Raises
    ------
    ModelError
        As for `load_samples`.
    """
    label = f"--structures: {path}"
    arrays = _arrays(path, "--structures")
    found = [(name, _structure(given, f"{label}: {clip(name)}")) for name, given in arrays.items()]
    found = [(name, one) for name, one in found if one.num_nodes]
    if not found:
        raise ModelError(f"{label} has no structure with a node; allowed: {_ALLOWED}")
    return sorted(found, key=lambda one: one[1].num_nodes)


def _arrays(path: Path, option: str) -> dict[str, Any]:
    try:
        check_archive(path)
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not hasattr(file, "files"):
                raise ValueError("one array")
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "not a file of numpy.savez"
        raise ModelError(f"{option}: {path}: {reason}; allowed: {_ALLOWED}") from error


def _structure(given: Any, label: str) -> Structure:
    try:
        return given if isinstance(given, Structure) else Structure(given)
    except DietCodeError as error:
        raise ModelError(f"{label}: {error}") from None


def samples_of(structures: Any, label: str) -> Samples:
    """Count structures, each of which is what one call is given.

    Parameters
    ----------
    structures : iterable of `Structure`, or of arrays of children
    label : str
        Where they come from, for messages.

    Raises
    ------
    ModelError
        There is none, or one is no structure.
    """
    if isinstance(structures, Structure | str) or not isinstance(structures, Iterable):
        raise ModelError(
            f"--samples: {label} is {clip(structures)}; allowed: a list of structures, or {_ALLOWED}"
        )
    return _counted(((str(at), one) for at, one in enumerate(structures)), label)


def _counted(structures: Iterable[tuple[str, Any]], label: str) -> Samples:
    nodes, leaves, levels = Counter[int](), Counter[int](), Counter[int]()
    known: list[Structure] = []
    for name, given in structures:
        one = _structure(given, f"--samples: {label}: {clip(name)}")
        if not one.num_nodes:
            continue
        sizes = np.diff(one.level_begins).tolist()
        nodes[one.num_nodes] += 1
        leaves[sizes[0]] += 1
        levels.update(sizes[1:])
        known.append(one)
    if not nodes:
        raise ModelError(f"--samples: {label} has no structure with a node; allowed: {_ALLOWED}")
    known.sort(key=lambda one: one.num_nodes)
    return Samples(nodes.total(), nodes, leaves, levels, _shown(known[len(known) // 2]))


def _shown(structure: Structure) -> tuple[tuple[int, ...], ...]:
    """Return the children of each node, level by level, so that they come before their parents.

    Of many nodes only those below one root, the first that has few enough; empty where none has.
    """
    rows = structure.children[structure.order].tolist()
    places = structure.positions.tolist()
    below = [tuple(places[child] for child in row if child >= 0) for row in rows]
    if len(below) <= MAX_SHOWN:
        return tuple(below)
    for root in structure.root_positions.tolist():
        kept, waiting = {root}, [root]
        while waiting and len(kept) <= MAX_SHOWN:
            new = set(below[waiting.pop()]) - kept
            kept |= new
            waiting += new
        if len(kept) <= MAX_SHOWN:
            numbers = {node: number for number, node in enumerate(sorted(kept))}
            return tuple(tuple(numbers[child] for child in below[node]) for node in numbers)
    return ()
