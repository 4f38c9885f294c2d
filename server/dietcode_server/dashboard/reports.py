"""A library's ``report.json`` in columns; read once, kept by its digest."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.runtime.manifest import REPORT
from dietcode_server.store import blobs
from dietcode_server.store.tables import LibraryFile, LibraryRow

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_KEPT = 8
_NONE = -1  # in the place of a micro-kernel that is not known
_COLUMNS = {  # by name: the report's field, and what it is divided by
    "weight": ("weight", 1.0),
    "f_local": ("f_local", 1e9),
    "f_spatial": ("f_spatial", 1.0),
    "f_pad": ("f_pad", 1.0),
    "waves": ("waves", 1.0),
    "predicted": ("predicted_gflops", 1.0),
    "best": ("best_predicted_gflops", 1.0),
    "other": ("other_predicted_gflops", 1.0),
}


@dataclass(frozen=True, eq=False)
class Report:
    """A library's report.

    Attributes
    ----------
    digest : str
        Of ``report.json``.
    facts : dict
        Everything but the instances.
    workload : dict
        The spec.
    variables : tuple of str
        Shape variables, in the order in which the spec declares them.
    shapes : int64 array [num_instances, num_variables]
    names : tuple of str
        All micro-kernels that were considered, in the report's order.
    category : int64 array [num_instances]
    serves : int64 array [num_categories]
        Position of each category's micro-kernel in `names`.
    prefers, runner_up : int64 array [num_instances]
        The best micro-kernel, and the best beside the one that serves; -1 where the report does not say.
    columns : dict of str to float64 array [num_instances]
        ``weight``; ``f_local``, ``predicted``, ``best`` and ``other`` (of the runner-up) in GFLOP/s;
        ``f_spatial``, ``f_pad``, ``loss`` as fractions; ``padding``, ``waves`` as ratios. NaN: not known.
    """

    digest: str
    facts: dict[str, Any]
    workload: dict[str, Any]
    variables: tuple[str, ...]
    shapes: IntArray
    names: tuple[str, ...]
    category: IntArray
    serves: IntArray
    prefers: IntArray
    runner_up: IntArray
    columns: dict[str, FloatArray]

    def __len__(self) -> int:
        return len(self.category)

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """The report's rows about micro-kernels."""
        rows: list[dict[str, Any]] = self.facts["micro_kernels"]
        return rows

    @property
    def slots(self) -> int | None:
        """P, the execution slots of a wave; None where each micro-kernel has its own, as on a GPU."""
        slots = self.facts.get("target", {}).get("num_cores")
        return slots if isinstance(slots, int) else None

    def kernel_of(self, position: int) -> str:
        """The micro-kernel that serves an instance."""
        return self.names[int(self.serves[self.category[position]])]


def report_of(session: Session, library: LibraryRow) -> Report:
    """The report of a published version.

    Raises
    ------
    StoreError
        Its bytes are not whole.
    """
    of_file = (LibraryFile.library_id == library.id, LibraryFile.path == REPORT)
    digest = session.scalars(select(LibraryFile.digest).where(*of_file)).one()
    return _kept.get(session, digest, library)


class _Kept:
    """The reports that were asked for last, as many as `MAX_KEPT`; thread-safe."""

    def __init__(self) -> None:
        self._reports: OrderedDict[tuple[str, str], Report] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, session: Session, digest: str, library: LibraryRow) -> Report:
        """Return a report from memory, or read it now; two threads may read the same one."""
        key = digest, library.manifest_digest
        with self._lock:
            if key in self._reports:
                self._reports.move_to_end(key)
                return self._reports[key]
        manifest = json.loads(b"".join(blobs.read(session, library.manifest_digest)))
        made = read_report(json.loads(b"".join(blobs.read(session, digest))), manifest, digest)
        with self._lock:
            self._reports[key] = made
            while len(self._reports) > MAX_KEPT:
                self._reports.popitem(last=False)
        return made


_kept = _Kept()


def read_report(data: dict[str, Any], manifest: Mapping[str, Any], digest: str) -> Report:
    """A report in columns.

    Parameters
    ----------
    data : dict
        The content of ``report.json``; its instances are taken out.
    manifest : mapping
        The content of ``manifest.json``.
    """
    rows = data.pop("instances")
    variables = tuple(manifest.get("variable_order") or rows[0]["shape_vars"])
    names = tuple(str(row["micro_kernel"]) for row in data["micro_kernels"])
    index = {name: position for position, name in enumerate(names)}
    of_category = {row["category"]: index[row["micro_kernel"]] for row in data["micro_kernels"]
                   if row.get("category") is not None}  # fmt: skip
    columns = {name: _column(rows, field) / unit for name, (field, unit) in _COLUMNS.items()}
    columns["padding"] = 1.0 / columns["f_pad"]
    columns["loss"] = np.maximum(0.0, 1.0 - columns["predicted"] / columns["best"])
    shapes = [[row["shape_vars"][name] for name in variables] for row in rows]
    return Report(
        digest=digest,
        facts=data,
        workload=dict(manifest["workload"]),
        variables=variables,
        shapes=np.asarray(shapes, dtype=np.int64).reshape(len(rows), len(variables)),
        names=names,
        category=np.asarray([row["category"] for row in rows], dtype=np.int64),
        serves=np.asarray([of_category[c] for c in sorted(of_category)], dtype=np.int64),
        prefers=_positions(rows, "best_micro_kernel", index),
        runner_up=_positions(rows, "other_micro_kernel", index),
        columns=columns,
    )


def _column(rows: Sequence[Mapping[str, Any]], field: str) -> FloatArray:
    return np.asarray([row.get(field, np.nan) for row in rows], dtype=np.float64)


def _positions(rows: Sequence[Mapping[str, Any]], field: str, index: Mapping[str, int]) -> IntArray:
    return np.asarray([index.get(row.get(field, ""), _NONE) for row in rows], dtype=np.int64)
