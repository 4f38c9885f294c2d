"""The parts of a model that a job works on, and the libraries that they share with other models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, Literal

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from dietcode._version import __version__
from dietcode.protocol import JobPart, LibraryRef
from dietcode.runtime.manifest import PART_PREFIX
from dietcode_server.store.tables import DispatchRow, LibraryRow, ModelPartRow

PartState = Literal["waiting", "tuning", "tuned", "reused", "failed"]
STATES: dict[str, PartState] = {
    "waiting": "waiting",
    "tuning": "tuning",
    "tuned": "tuned",
    "reused": "reused",
    "failed": "failed",
}
_MAX_KIND = 40  # characters


def library_name(kind: str, digest: str, device_id: str, fields: Mapping[str, Any]) -> str:
    """Return the name of a part's library: equal for all models that can share it.

    Parameters
    ----------
    kind : str
        The operator in one word.
    digest : str
        Of what is computed.
    fields : mapping
        Budget and objective, as a spec has them.
    """
    wanted = [digest, device_id, fields["budget"], fields["objective"], __version__]
    key = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    return f"{PART_PREFIX}{kind[:_MAX_KIND]}-{key[:20]}"


def enter_parts(session: Session, job_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Enter the parts of a job anew; those that the job had a library for keep it.

    Parameters
    ----------
    rows : sequence of mapping
        Columns of `ModelPartRow` from `digest` to `flops`, in the order in which they are tuned.
    """
    known = {row.digest: row for row in parts_of(session, job_id)}
    kept = {digest: row.library_id for digest, row in known.items() if row.library_id is not None}
    states = {digest: row.state for digest, row in known.items()}
    session.execute(delete(ModelPartRow).where(ModelPartRow.job_id == job_id))
    made = [
        {
            **row,
            "job_id": job_id,
            "position": position,
            "state": states[row["digest"]] if row["digest"] in kept else STATES["waiting"],
            "library_id": kept.get(row["digest"]),
        }
        for position, row in enumerate(rows)
    ]
    if made:
        session.execute(insert(ModelPartRow), made)
    session.expire_all()


def parts_of(session: Session, job_id: str) -> list[ModelPartRow]:
    """Return the parts of a job, in the order in which they are tuned."""
    query = select(ModelPartRow).where(ModelPartRow.job_id == job_id)
    return list(session.scalars(query.order_by(ModelPartRow.position)))


def set_state(
    session: Session, job_id: str, position: int, state: PartState, library: LibraryRow | None = None
) -> None:
    """Note how far a part is, and its library where it has one."""
    row = session.get_one(ModelPartRow, (job_id, position))
    row.state = state
    if library is not None:
        row.library_id = library.id
    session.flush()


def known_library(session: Session, name: str) -> LibraryRow | None:
    """Return the newest library of a part that was built before; None where there is none."""
    query = select(LibraryRow).where(LibraryRow.name == name, LibraryRow.yanked_at.is_(None))
    return session.scalar(query.order_by(LibraryRow.version.desc()).limit(1))


def parts_to_wire(session: Session, job_id: str) -> list[JobPart]:
    """Return the parts of a job as they travel."""
    rows = parts_of(session, job_id)
    ids = {row.library_id for row in rows if row.library_id is not None}
    libraries = {row.id: row for row in session.scalars(select(LibraryRow).where(LibraryRow.id.in_(ids)))}
    rates = predicted_gflops(session, ids)
    total = sum(row.flops for row in rows) or 1.0
    return [
        JobPart(
            position=row.position,
            digest=row.digest,
            name=row.name,
            kind=row.kind,
            operator=row.operator,
            calls=row.calls,
            share=row.flops / total,
            state=STATES[row.state],
            **_facts(libraries.get(row.library_id or 0), rates),
        )
        for row in rows
    ]


def _facts(library: LibraryRow | None, rates: Mapping[int, float]) -> dict[str, Any]:
    if library is None:
        return {}
    return {
        "library": LibraryRef(name=library.name, version=library.version),
        "categories": library.num_micro_kernels,
        "gflops": rates.get(library.id),
    }


def predicted_gflops(session: Session, ids: Collection[int]) -> dict[int, float]:
    """Return the geometric mean over its instances of what each library is predicted to reach."""
    found: dict[int, list[float]] = {}
    query = select(DispatchRow.library_id, DispatchRow.predicted_gflops).where(
        DispatchRow.library_id.in_(ids)
    )
    for library_id, rate in session.execute(query):
        if rate > 0:
            found.setdefault(library_id, []).append(rate)
    return {library_id: geometric_mean(rates) for library_id, rates in found.items()}
