"""A program on its pages: one run of its samples, bucket by bucket, and where its time should go."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.errors import DietCodeError
from dietcode.graph.program_model import MAX_SHOWN, Bucket
from dietcode.programs.block_runs import FIRST, BlockKernelRuns, block_kernels, sources_of
from dietcode.runtime.manifest import DISPATCH, PROGRAM, REPORT
from dietcode_server.dashboard.structures import file_of
from dietcode_server.store import libraries
from dietcode_server.store.tables import LibraryRow, Workload

_LEFT, _TOP, _COLUMN, _ROW = 150.0, 34.0, 34.0, 44.0
_SMALLEST, _LARGEST = 2.0, 14.0  # radii
_COLOURS = 12
_log = logging.getLogger("dietcode.dashboard")


@dataclass(frozen=True)
class DrawnBucket:
    """A bucket of a picture.

    Attributes
    ----------
    x, y, radius : float
        Its area is in proportion to its rows.
    rows : int
    category : int or None
        Where its rows go; None while that is not known, or where a block only moves elements.
    micro_kernel : str
    secs : float or None
        What is predicted for its kernels.
    """

    x: float
    y: float
    radius: float
    rows: int
    category: int | None
    micro_kernel: str
    secs: float | None

    @property
    def colour(self) -> str:
        """The class of its circle."""
        return "cat-none" if self.category is None else f"cat-{self.category % _COLOURS}"


@dataclass(frozen=True)
class DrawnBlock:
    """A row of a picture.

    Attributes
    ----------
    name, sources : str
        What it is called, and the lines that it comes from.
    y : float
    buckets : list of DrawnBucket
    share : float or None
        Of the predicted time of the run.
    """

    name: str
    sources: str
    y: float
    buckets: list[DrawnBucket]
    share: float | None

    @property
    def num_rows(self) -> int:
        """Of all its buckets."""
        return sum(one.rows for one in self.buckets)


@dataclass(frozen=True)
class ProgramView:
    """What a page shows of a program.

    Attributes
    ----------
    num_samples, max_rows : int
    blocks : list of DrawnBlock
    columns : list of (float, str)
        Where each depth is, and its number.
    decisions : list of float
        Where instances waited for values.
    width, height : float
    is_cut : bool
        Whether the run has more buckets than are drawn.
    rows : list of dict
        Numbers of rows and their category, for each kernel; empty while they are not known.
    """

    num_samples: int
    max_rows: int
    blocks: list[DrawnBlock]
    columns: list[tuple[float, str]]
    decisions: list[float]
    width: float
    height: float
    is_cut: bool
    rows: list[dict[str, Any]]


def program_of(session: Session, workload: str, library: LibraryRow | None) -> ProgramView | None:
    """Return what is shown of a program; None for other workloads.

    Parameters
    ----------
    workload : str
        The digest of what was asked for.
    library : LibraryRow or None
        The bundle, where it is published.
    """
    columns = (Workload.spec[key] for key in ("num_samples", "max_rows", "shown"))
    found = session.execute(select(*columns).where(Workload.digest == workload)).one_or_none()
    if found is None or found[0] is None:
        return None
    num_samples, max_rows, shown = found
    built = _Built({}, [], [])
    if library is not None:
        try:
            built = _built(session, library)
        except (DietCodeError, KeyError, TypeError, ValueError) as error:
            _log.error("blocks of %s@%s: %s", library.name, library.version, error)
    return _view(num_samples, max_rows, [tuple(one) for one in shown or ()], built)


@dataclass(frozen=True)
class _Built:
    """What a published bundle says.

    Attributes
    ----------
    sources : dict of str to str
        Of its blocks, in their order.
    kernels : list of BlockKernelRuns
        Of each block the one with most FLOPs first.
    rows : list of dict
    """

    sources: dict[str, str]
    kernels: list[BlockKernelRuns]
    rows: list[dict[str, Any]]

    def of(self, block: str) -> list[BlockKernelRuns]:
        """Return the kernels of a block."""
        return [one for one in self.kernels if one.block == block]


def _built(session: Session, library: LibraryRow) -> _Built:
    description, report = (file_of(session, library.id, name) for name in (PROGRAM, REPORT))
    if description is None or report is None:
        return _Built({}, [], [])
    dispatches, reports = {}, {}
    for digest, one in json.loads(libraries.manifest_bytes(session, library))["libraries"].items():
        part = libraries.get(session, one["name"], one["version"])
        dispatches[digest] = file_of(session, part.id, DISPATCH) or {}
        reports[digest] = file_of(session, part.id, REPORT) or {}
    sources = {str(block["name"]): sources_of(block) for block in description["blocks"]}
    kernels = block_kernels(description, dispatches, reports)
    buckets = {
        str(one["name"]): {int(rows): int(count) for rows, count in one["buckets"].items()}
        for one in report["blocks"]
    }
    flops = {part["digest"]: float(part["flops_at_most"]) for part in report["parts"]}
    by_work = sorted(kernels, key=lambda one: -flops[one.digest])
    return _Built(sources, by_work, [row for one in kernels for row in one.to_json(buckets[one.block])])


def _with_first(shown: Sequence[Bucket], names: Mapping[str, str]) -> dict[str, dict[tuple[int, int], int]]:
    """Return rows by block and column: what is taken out of a block runs at once, at the first depth."""
    found: dict[str, dict[tuple[int, int], int]] = {name: {} for name in names}
    for flush, key, block, rows in shown:
        name = f"block{block}"
        columns = [(name, (flush, key))]
        if f"{name}{FIRST}" in names:
            columns.append((f"{name}{FIRST}", (flush, 1)))
        for own, column in columns:
            of_block = found.setdefault(own, {})
            of_block[column] = of_block.get(column, 0) + rows
    return found


def _view(num_samples: int, max_rows: int, shown: Sequence[Any], built: _Built) -> ProgramView:
    cells = _with_first(shown, built.sources)
    if not built.sources:
        cells = dict(sorted(cells.items(), key=lambda item: int(item[0].removeprefix("block"))))
    columns = sorted({column for own in cells.values() for column in own})
    xs = {column: _LEFT + _COLUMN * (at + 0.5) for at, column in enumerate(columns)}
    largest = max((rows for own in cells.values() for rows in own.values()), default=1)
    blocks = []
    for at, (name, own) in enumerate(cells.items()):
        y, kernels = _TOP + _ROW * (at + 0.4), built.of(name)
        drawn = [_bucket(xs[column], y, rows, largest, kernels) for column, rows in sorted(own.items())]
        blocks.append(DrawnBlock(name, built.sources.get(name, ""), y, drawn, None))
    depths: dict[int, int] = {}
    numbers = []
    for column in columns:
        depths[column[0]] = depths.get(column[0], 0) + 1
        numbers.append((xs[column], str(depths[column[0]])))
    begins = [
        xs[after] - _COLUMN / 2 for before, after in itertools.pairwise(columns) if before[0] != after[0]
    ]
    return ProgramView(
        num_samples,
        max_rows,
        _with_shares(blocks),
        numbers,
        begins,
        _LEFT + _COLUMN * len(columns) + 8,
        _TOP + _ROW * len(blocks) + 8,
        len(shown) >= MAX_SHOWN,
        built.rows,
    )


def _bucket(x: float, y: float, rows: int, largest: int, kernels: Sequence[BlockKernelRuns]) -> DrawnBucket:
    radius = max(_SMALLEST, _LARGEST * math.sqrt(rows / largest))
    category = kernels[0].category_of(rows) if kernels else None
    name = "" if category is None else kernels[0].micro_kernels[category]
    times = [one.secs_of(rows) for one in kernels]
    known = [one for one in times if one is not None]
    secs = sum(known) if known and len(known) == len(times) else None
    return DrawnBucket(round(x, 1), round(y, 1), round(radius, 2), rows, category, name, secs)


def _with_shares(blocks: list[DrawnBlock]) -> list[DrawnBlock]:
    """Return blocks with their share of the predicted time, where all that computes something has one."""
    times = [sum(bucket.secs or 0.0 for bucket in one.buckets) for one in blocks]
    is_known = all(b.secs is not None for one in blocks for b in one.buckets if b.category is not None)
    total = sum(times)
    if not is_known or not total:
        return blocks
    return [
        DrawnBlock(one.name, one.sources, one.y, one.buckets, secs / total)
        for one, secs in zip(blocks, times, strict=True)
    ]
