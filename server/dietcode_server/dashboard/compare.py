"""Two jobs beside each other: their specs, what they chose, and how fast that is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode_server.api.names import check_job_id
from dietcode_server.api.services import ServicesOf
from dietcode_server.dashboard.instances import Column, Order, PageNumber, Sort, Table, measured, page_of
from dietcode_server.dashboard.render import page
from dietcode_server.dashboard.reports import FloatArray, IntArray
from dietcode_server.dashboard.results import Result, library_of, result_of
from dietcode_server.store import jobs
from dietcode_server.store.tables import JobRow

MAX_CHOICES = 100
_ROWS = 25
_SHOWN = 120  # characters of a value

router = APIRouter(prefix="/jobs/{job_id}/compare", include_in_schema=False)
With = Annotated[str | None, Query(alias="with", max_length=64)]


@dataclass(frozen=True, eq=False)
class Pair:
    """Results `a` and `b`, of this job and of another.

    Attributes
    ----------
    at_a, at_b : int64 array [num_common]
        Positions of the instances that both have.
    """

    a: Result
    b: Result
    at_a: IntArray
    at_b: IntArray

    @property
    def predicted(self) -> FloatArray:
        """Predicted throughput of a over that of b, [num_common]."""
        ratio: FloatArray = self.a.report.columns["predicted"][self.at_a] / self._b("predicted")
        return ratio

    def _b(self, name: str) -> FloatArray:
        return self.b.report.columns[name][self.at_b]

    @property
    def measured(self) -> FloatArray:
        """The same of what was measured; NaN where one was not."""
        ours, _ = measured(self.a.report, self.a.compared)
        theirs, _ = measured(self.b.report, self.b.compared)
        ratio: FloatArray = ours[self.at_a] / theirs[self.at_b]
        return ratio

    @property
    def num_same(self) -> int:
        """Instances that go to a micro-kernel of the same name."""
        pairs = zip(self.at_a.tolist(), self.at_b.tolist(), strict=True)
        return sum(self.a.report.kernel_of(a) == self.b.report.kernel_of(b) for a, b in pairs)


def pair(a: Result, b: Result) -> Pair:
    """Pair two results by the instances that both have: the same values of the same variables."""
    if sorted(a.report.variables) != sorted(b.report.variables):
        return Pair(a, b, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    columns = [b.report.variables.index(name) for name in a.report.variables]
    row_of = {tuple(shape): at for at, shape in enumerate(b.report.shapes[:, columns].tolist())}
    found = [(at, row_of.get(tuple(shape))) for at, shape in enumerate(a.report.shapes.tolist())]
    common = np.asarray([both for both in found if both[1] is not None], dtype=np.int64).reshape(-1, 2)
    return Pair(a, b, common[:, 0], common[:, 1])


@router.get("", response_class=HTMLResponse)
def show_compare(request: Request, job_id: str, services: ServicesOf, other: With = None) -> Response:
    """The page; without another job, a form to choose one."""
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        context: dict[str, Any] = {
            "job": row,
            "a": result_of(session, library_of(session, row)),
            "choices": _choices(session, row),
            "other": None,
        }
        if other:
            beside = jobs.get(session, check_job_id(other))
            found = pair(context["a"], result_of(session, library_of(session, beside)))
            context |= {"other": beside, "pair": found, "table": compare_table(found), "facts": _facts(found)}
            context |= {"differences": differences(row.spec, beside.spec), "sets": _sets(found)}
            context |= {"means": [_mean(found.predicted), _mean(found.measured)]}
        return page(request, "compare.html", **context)


@router.get("/instances", response_class=HTMLResponse)
def show_instances(
    request: Request,
    job_id: str,
    services: ServicesOf,
    other: Annotated[str, Query(alias="with", max_length=64)],
    sort: Sort = None,
    order: Order = "asc",
    page_number: PageNumber = 1,
) -> Response:
    """A page of the table of instances that both have."""
    with services.database.read() as session:
        rows = [jobs.get(session, check_job_id(given)) for given in (job_id, other)]
        found = pair(*(result_of(session, library_of(session, row)) for row in rows))
        table = compare_table(found, sort=sort, order=order, page_number=page_number)
        return page(request, "_result_compared.html", job=rows[0], other=rows[1], table=table)


def _choices(session: Session, row: JobRow) -> tuple[list[JobRow], list[JobRow]]:
    """Other jobs that published: of the same workload, and of others, the newest first."""
    published = select(JobRow).where(JobRow.library_id.is_not(None), JobRow.id != row.id)
    newest = JobRow.created_at.desc(), JobRow.id.desc()
    same, others = (
        list(session.scalars(published.where(condition).order_by(*newest).limit(MAX_CHOICES)))
        for condition in (JobRow.workload == row.workload, JobRow.workload != row.workload)
    )
    return same, others


def _mean(ratios: FloatArray) -> float | None:
    """Return the geometric mean of the known ratios."""
    known = ratios[np.isfinite(ratios) & (ratios > 0)]
    return float(np.exp(np.log(known).mean())) if len(known) else None


def _facts(found: Pair) -> list[tuple[str, str, str]]:
    """Figures side by side: what they are, of a, of b."""
    both = []
    for result in (found.a, found.b):
        selection = result.report.facts["selection"]
        ratio = "not measured" if result.mean_ratio is None else f"{result.mean_ratio:.2f} ×"
        both.append(
            {
                "device": result.library.device,
                "micro-kernels": f"{len(result.report.serves)} of {len(result.report.names)} considered",
                "library.so": f"{result.code_bytes} bytes",
                "mean predicted loss against the measured": f"{selection['loss_mean']:.2%}",
                "worst predicted loss against the measured": f"{selection['loss_worst']:.2%}",
                "measured against the vendor": ratio,
                "instances": str(len(result.report)),
            }
        )
    return [(name, both[0][name], both[1][name]) for name in both[0]]


def _sets(found: Pair) -> dict[str, list[tuple[int, str]]]:
    """The chosen micro-kernels, each with the number of its colour: in both, in a alone, in b alone."""
    a, b = ([r.report.names[k] for k in r.report.serves] for r in (found.a, found.b))
    numbered = list(enumerate([*a, *(name for name in b if name not in a)]))  # as compare.js counts them
    return {
        "in both": [(number, name) for number, name in numbered if name in a and name in b],
        "A alone": [(number, name) for number, name in numbered if name not in b],
        "B alone": [(number, name) for number, name in numbered if name not in a],
    }


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Fields in which two specs differ: dotted path, of a, of b."""
    flat_a, flat_b = dict(_flat(a)), dict(_flat(b))
    paths = [*flat_a, *(path for path in flat_b if path not in flat_a)]
    return [
        (path, _value_text(flat_a, path), _value_text(flat_b, path))
        for path in paths
        if flat_a.get(path, _value_text) != flat_b.get(path, _value_text)
    ]


def _flat(data: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(data, Mapping) and data:
        return [
            leaf
            for key, value in data.items()
            for leaf in _flat(value, f"{path}.{key}" if path else str(key))
        ]
    return [(path, data)]


def _value_text(flat: Mapping[str, Any], path: str) -> str:
    if path not in flat:
        return "–"
    value = flat[path]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def compare_table(found: Pair, *, sort: str | None = None, order: str = "asc", page_number: int = 1) -> Table:
    """Return a page of the table of instances that both have.

    Parameters
    ----------
    found : Pair
    sort : str or None
        Name of the column to sort by.
    order : str
        asc or desc.
    page_number : int
        From 1.
    """
    a, b = found.a.report, found.b.report
    ours, theirs = measured(a, found.a.compared)[0], measured(b, found.b.compared)[0]
    figures = {
        "predicted_a": a.columns["predicted"][found.at_a],
        "predicted_b": b.columns["predicted"][found.at_b],
        "predicted_ratio": found.predicted,
        "measured_a": ours[found.at_a],
        "measured_b": theirs[found.at_b],
        "measured_ratio": found.measured,
    }
    columns = [Column(f"var-{name}", name, form="d") for name in a.variables]
    columns += [Column("kernel_a", "A"), Column("kernel_b", "B")]
    titles = {"predicted": "predicted, GFLOP/s", "measured": "measured, GFLOP/s"}
    for kind, meaning in titles.items():
        if np.isfinite(figures[f"{kind}_a"]).any() or np.isfinite(figures[f"{kind}_b"]).any():
            columns += [Column(f"{kind}_{x}", f"{kind} {x.upper()}", meaning, ".1f") for x in "ab"]
            columns.append(Column(f"{kind}_ratio", "A / B", f"{kind} throughput of A over that of B", ".3f"))
    keys: dict[str, Any] = {f"var-{n}": a.shapes[found.at_a, at] for at, n in enumerate(a.variables)}
    keys |= figures | {"kernel_a": a.category[found.at_a], "kernel_b": b.category[found.at_b]}
    rows = np.arange(len(found.at_a))
    at, number, num_pages = page_of(rows, keys.get(sort or ""), order, page_number, _ROWS)
    table = Table(columns, sort or "" if sort in keys else "", order, number, num_pages, len(rows))
    for row in at.tolist():
        values: dict[str, Any] = {name: _known(column[row]) for name, column in figures.items()}
        values |= {f"var-{n}": int(a.shapes[found.at_a[row], i]) for i, n in enumerate(a.variables)}
        values |= {"kernel_a": a.kernel_of(found.at_a[row]), "kernel_b": b.kernel_of(found.at_b[row])}
        table.rows.append(values)
    return table


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
