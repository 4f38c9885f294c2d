"""A recursion on its pages: a sample structure with its levels, and where sizes of levels go."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.errors import DietCodeError
from dietcode.graph.samples import Samples, levels_of, read_samples
from dietcode.models.schedule_rows import ScheduleRow, schedule_rows
from dietcode.recursion.level_runs import KernelRuns, kernel_runs
from dietcode.runtime.manifest import DISPATCH, RECURSION, REPORT
from dietcode_server.store import blobs, libraries
from dietcode_server.store.tables import LibraryFile, LibraryRow, Workload

WIDTH = 720.0  # of a picture, in its own units
_NODES_FROM, _NODES_TO = 96.0, 600.0
_ROW, _TOP = 36.0, 20.0
_RADIUS = 6.0
_EXAMPLE_HEIGHT, _EXAMPLE_LENGTH = 5, 10
_COLOURS = 12
_log = logging.getLogger("dietcode.dashboard")
Children = Sequence[Sequence[int]]


@dataclass(frozen=True)
class DrawnLevel:
    """A level of a picture.

    Attributes
    ----------
    number, size : int
        0 for leaves; how many nodes it has.
    y : float
    xs : list of float
        Where its nodes are.
    category : int or None
        Where its size goes; None while that is not known.
    micro_kernel : str
    """

    number: int
    size: int
    y: float
    xs: list[float]
    category: int | None
    micro_kernel: str

    @property
    def colour(self) -> str:
        """The class of its nodes."""
        return "cat-none" if self.category is None else f"cat-{self.category % _COLOURS}"


@dataclass(frozen=True)
class StructureView:
    """What a page shows of a recursion.

    Attributes
    ----------
    sizes : dict
        ``max_nodes`` and ``max_level``.
    samples : Samples or None
    is_example : bool
        Whether the structure is none of the samples.
    levels : list of DrawnLevel
        The roots' first.
    edges : list of (float, float, float, float)
    height, radius : float
    rows : list of dict
        Sizes of levels and their category, for each kernel; empty while they are not known.
    report : dict
        Of the bundle, for its schedules and its memory; empty while there is none.
    """

    sizes: dict[str, int]
    samples: Samples | None
    is_example: bool
    levels: list[DrawnLevel]
    edges: list[tuple[float, float, float, float]]
    height: float
    radius: float
    rows: list[dict[str, Any]]
    report: dict[str, Any]

    @property
    def schedules(self) -> list[ScheduleRow]:
        """Those that were tried, where there were several."""
        return schedule_rows(self.report)

    @property
    def width(self) -> float:
        """Of the picture."""
        return WIDTH


def structure_of(session: Session, workload: str, library: LibraryRow | None) -> StructureView | None:
    """Return what is shown of a recursion; None for other workloads.

    Parameters
    ----------
    workload : str
        The digest of what was asked for.
    library : LibraryRow or None
        The bundle, where it is published.
    """
    columns = (Workload.spec[key] for key in ("max_nodes", "max_level", "children", "samples"))
    found = session.execute(select(*columns).where(Workload.digest == workload)).one_or_none()
    if found is None or found[0] is None:
        return None
    max_nodes, max_level, num_children, data = found
    samples = None if data is None else read_samples(data)
    shown: Children = samples.shown if samples is not None else ()
    runs: list[tuple[KernelRuns, float]] = []
    report: dict[str, Any] = {}
    if library is not None:
        try:
            report = file_of(session, library.id, REPORT) or {}
            runs = _runs_of(session, library, report)
        except (DietCodeError, KeyError, TypeError, ValueError) as error:
            _log.error("levels of %s@%s: %s", library.name, library.version, error)
    return _view(
        {"max_nodes": max_nodes, "max_level": max_level},
        samples,
        shown or example_structure(num_children, max_nodes),
        runs,
        report,
        is_example=not shown,
    )


def example_structure(num_children: int, max_nodes: int) -> Children:
    """Return a perfect binary tree, or a sequence, in which children come before their parents."""
    if num_children == 1:
        return [[node - 1] if node else [] for node in range(min(_EXAMPLE_LENGTH, max_nodes))]
    height = max(h for h in range(_EXAMPLE_HEIGHT + 1) if 2 ** (h + 1) - 1 <= max_nodes)
    below: list[list[int]] = [[] for _ in range(2**height)]
    first = 0
    for level in range(height - 1, -1, -1):
        below += [[first + 2 * at, first + 2 * at + 1] for at in range(2**level)]
        first += 2 ** (level + 1)
    return below


def _runs_of(session: Session, library: LibraryRow, report: dict[str, Any]) -> list[tuple[KernelRuns, float]]:
    """Return where the kernels of a bundle send sizes of levels, each with the FLOPs of its part."""
    description = file_of(session, library.id, RECURSION)
    if description is None or not report:
        return []
    listed = json.loads(libraries.manifest_bytes(session, library))["libraries"]
    dispatches = {}
    for digest, one in listed.items():
        part = libraries.get(session, one["name"], one["version"])
        dispatches[digest] = file_of(session, part.id, DISPATCH) or {}
    flops = {part["digest"]: float(part["flops_at_most"]) for part in report["parts"]}
    return [(one, flops[one.digest]) for one in kernel_runs(description, dispatches)]


def file_of(session: Session, library_id: int, path: str) -> dict[str, Any] | None:
    """Return the content of a library's file, JSON; None where there is no such file."""
    of_path = (LibraryFile.library_id == library_id, LibraryFile.path == path)
    digest = session.scalar(select(LibraryFile.digest).where(*of_path))
    if digest is None:
        return None
    found: dict[str, Any] = json.loads(b"".join(blobs.read(session, digest)))
    return found


def _view(
    sizes: dict[str, int],
    samples: Samples | None,
    children: Children,
    runs: Sequence[tuple[KernelRuns, float]],
    report: dict[str, Any],
    is_example: bool,
) -> StructureView:
    levels = levels_of(children)
    xs, spacing = _columns(children, levels)
    heights = {node: number for number, level in enumerate(levels) for node in level}
    ys = [_TOP + _ROW * (len(levels) - 1 - number) for number in range(len(levels))]
    drawn = []
    has_first = any(one.phase == "first" for one, _ in runs)
    for number, level in enumerate(levels):
        word = "first" if number == 1 and has_first else "cell" if number else "leaf"
        own = [pair for pair in runs if pair[0].phase == word]
        kernel = max(own, key=lambda pair: pair[1])[0] if own else None
        category = None if kernel is None else kernel.category_of(len(level))
        name = "" if kernel is None or category is None else kernel.micro_kernels[category]
        columns = [round(xs[node], 1) for node in level]
        drawn.append(DrawnLevel(number, len(level), ys[number], columns, category, name))
    edges = [
        (round(xs[node], 1), ys[heights[node]], round(xs[child], 1), ys[heights[child]])
        for node, row in enumerate(children)
        for child in row
    ]
    return StructureView(
        sizes,
        samples,
        is_example,
        drawn[::-1],
        edges,
        height=_TOP + _ROW * len(levels),
        radius=round(min(_RADIUS, max(1.2, 0.42 * spacing)), 2),
        rows=[row for kernel, _ in runs for row in kernel.to_json(samples)],
        report=report,
    )


def _columns(children: Children, levels: Sequence[Sequence[int]]) -> tuple[list[float], float]:
    """Return where nodes are from left to right, and how far the closest two leaves are from each other.

    Leaves come in the order in which the roots reach them; a parent over the middle of its children.
    """
    is_child = {child for row in children for child in row}
    waiting = [node for node in reversed(range(len(children))) if node not in is_child]
    order: list[int] = []
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if not children[node]:
            order.append(node)
        waiting += reversed(children[node])
    step = (_NODES_TO - _NODES_FROM) / len(order)
    xs = [0.0] * len(children)
    for rank, node in enumerate(order):
        xs[node] = _NODES_FROM + step * (rank + 0.5)
    for level in levels[1:]:
        for node in level:
            xs[node] = sum(xs[child] for child in children[node]) / len(children[node])
        _apart(xs, level)
    return xs, min(step, *(_closest(xs, level) for level in levels))


def _apart(xs: list[float], level: Sequence[int]) -> None:
    """Give the nodes of a level of a DAG columns of their own, where they have the same one."""
    if len({round(xs[node], 1) for node in level}) == len(level):
        return
    step = (_NODES_TO - _NODES_FROM) / len(level)
    for rank, node in enumerate(sorted(level, key=lambda one: xs[one])):
        xs[node] = _NODES_FROM + step * (rank + 0.5)


def _closest(xs: Sequence[float], level: Sequence[int]) -> float:
    columns = sorted(xs[node] for node in level)
    gaps = (after - before for before, after in itertools.pairwise(columns))
    return min(gaps, default=_NODES_TO - _NODES_FROM)
