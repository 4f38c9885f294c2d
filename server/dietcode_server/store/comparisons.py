"""What a library reached beside the vendor's kernels when it was built, by instance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import and_, delete, insert, select
from sqlalchemy.orm import Session

from dietcode.measure.disturbance import undisturbed_of
from dietcode_server.store.tables import ComparisonRow, DispatchRow


@dataclass(frozen=True)
class Compared:
    """One instance of a library, measured; rates in GFLOP/s.

    Attributes
    ----------
    position : int
        Of the instance in the report, and in `dispatch_table`.
    measured_gflops : float
    vendors : dict of str to float
        Each path of the vendor; empty where it has no kernel for the operator.
    vendor, vendor_gflops : str, float or None
        The fastest of them.
    company_gflops, vendor_company_gflops : float or None
        Of the library and of that path where their calls alternate.
    max_rel_error : float
        Against float64, a fraction of the output's largest value.
    spread : float or None
        The largest median of repeats over their fastest.
    disturbed : str or None
        Why the rates must not become figures; None where they may.
    peak_gflops, roof_gflops : float or None
        What the cores gave at most beside it, of multiply-adds, and the roofline at the instance.
    """

    position: int
    measured_gflops: float
    vendors: dict[str, float]
    vendor: str | None
    vendor_gflops: float | None
    max_rel_error: float
    measured_at: datetime
    company_gflops: float | None = None
    vendor_company_gflops: float | None = None
    spread: float | None = None
    disturbed: str | None = None
    peak_gflops: float | None = None
    roof_gflops: float | None = None


@dataclass(frozen=True)
class SpeedUp:
    """Of a library over the vendor's fastest kernels.

    Attributes
    ----------
    mean : float
        Geometric, over the instances that were compared and nothing disturbed.
    least, most : float
        At the worst and at the best of these.
    """

    mean: float
    least: float
    most: float


def keep(session: Session, library_id: int, compared: Sequence[Compared]) -> None:
    """Keep figures of a library, in the place of those that were there; none change nothing."""
    if not compared:
        return
    session.execute(delete(ComparisonRow).where(ComparisonRow.library_id == library_id))
    session.execute(insert(ComparisonRow), [{"library_id": library_id, **asdict(row)} for row in compared])


def of_library(session: Session, library_id: int) -> list[ComparisonRow]:
    """Return what was measured of a library, by position; empty where nothing was."""
    query = select(ComparisonRow).where(ComparisonRow.library_id == library_id)
    return list(session.scalars(query.order_by(ComparisonRow.position)))


def speed_ups(session: Session, ids: Collection[int]) -> dict[int, SpeedUp]:
    """Return the speed over the vendor's fastest, by library, where it was compared.

    They are of what nothing disturbed, and there is none where that is less than half.
    """
    columns = ComparisonRow.library_id, ComparisonRow.measured_gflops, ComparisonRow.vendor_gflops
    query = select(*columns, ComparisonRow.disturbed).where(ComparisonRow.library_id.in_(ids))
    logs: dict[int, list[tuple[float, str | None]]] = defaultdict(list)
    for library, ours, vendors, disturbed in session.execute(query):
        if vendors and ours > 0:
            logs[library].append((math.log(ours / vendors), disturbed))
    calm = {library: undisturbed_of(found, lambda row: row[1]) for library, found in logs.items()}
    return {library: _speed_up([log for log, _ in found]) for library, found in calm.items() if found}


def _speed_up(logs: Sequence[float]) -> SpeedUp:
    mean, least, most = (math.exp(log) for log in (sum(logs) / len(logs), min(logs), max(logs)))
    return SpeedUp(mean, least, most)


def instances_of(session: Session, library_id: int) -> list[tuple[ComparisonRow, DispatchRow]]:
    """The same, each with the instance that it is of."""
    of_instance = and_(
        DispatchRow.library_id == ComparisonRow.library_id, DispatchRow.position == ComparisonRow.position
    )
    query = select(ComparisonRow, DispatchRow).join(DispatchRow, of_instance)
    query = query.where(ComparisonRow.library_id == library_id).order_by(ComparisonRow.position)
    return [(compared, instance) for compared, instance in session.execute(query)]
