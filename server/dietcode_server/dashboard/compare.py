"""Jobs beside each other: their specs, what they chose, and how fast that is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.errors import RequestError
from dietcode.workload.stops import uncompared
from dietcode.workload.text import counted
from dietcode_server.api.names import check_job_id
from dietcode_server.api.services import ServicesOf
from dietcode_server.dashboard.instances import Column, Order, PageNumber, Sort, Table, measured, page_of
from dietcode_server.dashboard.render import page
from dietcode_server.dashboard.reports import FloatArray, IntArray
from dietcode_server.dashboard.results import Result, library_of, num_measured, result_of
from dietcode_server.store import jobs
from dietcode_server.store.tables import SPEC, JobRow

MAX_CHOICES = 100
LABELS = "ABCDEFGH"  # of the jobs, this page's first; as many are compared at most
_ROWS = 25
_SHOWN = 120  # characters of a value

router = APIRouter(prefix="/jobs/{job_id}/compare", include_in_schema=False)
With = Annotated[list[str] | None, Query(alias="with", max_length=len(LABELS))]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results of this job, the first, and of others.

    Attributes
    ----------
    at : int64 array [num_results, num_common]
        In each result the positions of the instances that all have.
    """

    results: Sequence[Result]
    at: IntArray

    @property
    def labels(self) -> str:
        """A label for each result."""
        return LABELS[: len(self.results)]

    @property
    def predicted(self) -> FloatArray:
        """Predicted GFLOP/s, [num_results, num_common]."""
        columns = [result.report.columns["predicted"] for result in self.results]
        return self._common(columns)

    @property
    def measured(self) -> FloatArray:
        """What was measured and nothing disturbed, the same; NaN elsewhere."""
        calm = ([row for row in result.compared if not row.disturbed] for result in self.results)
        return self._common([measured(r.report, rows)[0] for r, rows in zip(self.results, calm, strict=True)])

    def _common(self, columns: Sequence[FloatArray]) -> FloatArray:
        return np.stack([column[at] for column, at in zip(columns, self.at, strict=True)])

    @property
    def num_same(self) -> int:
        """Instances that go to a micro-kernel of the same name in all."""
        names = ([r.report.kernel_of(i) for i in at] for r, at in self._each())
        return sum(len(set(of_one)) == 1 for of_one in zip(*names, strict=True))

    def kernels(self, column: int) -> list[str]:
        """Return the micro-kernel of each result at one of the instances that all have."""
        return [result.report.kernel_of(at[column]) for result, at in self._each()]

    def _each(self) -> list[tuple[Result, list[int]]]:
        return [(r, at.tolist()) for r, at in zip(self.results, self.at, strict=True)]


def compared_with(results: Sequence[Result]) -> Comparison:
    """Pair results by the instances that all have: the same values of the same variables."""
    variables = results[0].report.variables
    if any(sorted(r.report.variables) != sorted(variables) for r in results):
        return Comparison(results, np.zeros((len(results), 0), dtype=np.int64))
    positions = []
    for result in results:
        columns = [result.report.variables.index(name) for name in variables]
        shapes = result.report.shapes[:, columns].tolist()
        positions.append({tuple(shape): at for at, shape in enumerate(shapes)})
    common = [shape for shape in positions[0] if all(shape in position for position in positions)]
    found = [[position[shape] for shape in common] for position in positions]
    return Comparison(results, np.asarray(found, dtype=np.int64).reshape(len(results), -1))


@router.get("", response_class=HTMLResponse)
def show_compare(request: Request, job_id: str, services: ServicesOf, others: With = None) -> Response:
    """The page; without other jobs, a form to choose one."""
    with services.database.read() as session:
        rows = _rows(session, job_id, others)
        context: dict[str, Any] = {
            "job": rows[0],
            "rows": rows,
            "others": rows[1:],
            "choices": _choices(session, rows),
            "can_add": len(rows) < len(LABELS),
        }
        if len(rows) > 1:
            found = compared_with([result_of(session, library_of(session, row)) for row in rows])
            context |= {"found": found, "table": compare_table(found), "facts": _facts(found)}
            context |= {"differences": differences([row.spec for row in rows]), "sets": _sets(found)}
            kinds = {"predicted": found.predicted, "measured": found.measured}
            context["means"] = {name: _means(rates) for name, rates in kinds.items()}
        else:
            result_of(session, library_of(session, rows[0]))  # it has one
        return page(request, "compare.html", **context)


@router.get("/instances", response_class=HTMLResponse)
def show_instances(
    request: Request,
    job_id: str,
    services: ServicesOf,
    others: With = None,
    sort: Sort = None,
    order: Order = "asc",
    page_number: PageNumber = 1,
) -> Response:
    """A page of the table of instances that all have."""
    with services.database.read() as session:
        rows = _rows(session, job_id, others)
        found = compared_with([result_of(session, library_of(session, row)) for row in rows])
        table = compare_table(found, sort=sort, order=order, page_number=page_number)
        return page(request, "_result_compared.html", job=rows[0], others=rows[1:], table=table)


def _rows(session: Session, job_id: str, others: Sequence[str] | None) -> list[JobRow]:
    """Return this job and the others, each once.

    Raises
    ------
    RequestError
        They are too many.
    NotFoundError
        One of them is not there.
    """
    ids = list(dict.fromkeys([job_id, *filter(None, others or ())]))
    if len(ids) > len(LABELS):
        raise RequestError(f"with: {len(ids) - 1} jobs; allowed: {len(LABELS) - 1}")
    return [jobs.get(session, check_job_id(one)) for one in ids]


def _choices(session: Session, rows: Sequence[JobRow]) -> tuple[list[JobRow], list[JobRow]]:
    """Other jobs that published a library: of the same workload, and of others, the newest first."""
    chosen = [row.id for row in rows]
    published = select(JobRow).where(
        JobRow.library_id.is_not(None), JobRow.id.not_in(chosen), JobRow.kind == SPEC
    )
    newest = JobRow.created_at.desc(), JobRow.id.desc()
    workload = rows[0].workload
    same, others = (
        list(session.scalars(published.where(condition).order_by(*newest).limit(MAX_CHOICES)))
        for condition in (JobRow.workload == workload, JobRow.workload != workload)
    )
    return same, others


def _means(rates: FloatArray) -> list[float | None]:
    """Return the geometric mean of the first's rate over each other's, where both are known."""
    found: list[float | None] = []
    for other in rates[1:]:
        ratios = rates[0] / other
        known = ratios[np.isfinite(ratios) & (ratios > 0)]
        found.append(float(np.exp(np.log(known).mean())) if len(known) else None)
    return found


def _facts(found: Comparison) -> list[tuple[str, list[str]]]:
    """Figures side by side: what they are, and that of each result."""
    each = []
    for result in found.results:
        selection, is_known = result.report.facts["selection"], not uncompared(result.report.facts)
        each.append(
            {
                "device": result.library.device,
                "micro-kernels": f"{len(result.report.serves)} of {num_measured(result.report)} measured",
                "library.so": f"{result.code_bytes} bytes",
                "predicted loss, mean": f"{selection['loss_mean']:.2%}" if is_known else "not known",
                "predicted loss, worst": f"{selection['loss_worst']:.2%}" if is_known else "not known",
                "measured against the vendor": _against_vendor(result),
                "instances": str(len(result.report)),
            }
        )
    return [(name, [facts[name] for facts in each]) for name in each[0]]


def _against_vendor(result: Result) -> str:
    """Return the speed over the vendor's in words: mean, worst and best, and what was left out."""
    if result.mean_ratio is None:
        return "disturbed" if result.disturbed else "not measured"
    ratios = result.ratios
    left_out = f", {len(result.disturbed)} disturbed left out" if result.disturbed else ""
    return (
        f"{result.mean_ratio:.2f} × ({min(ratios):.2f}–{max(ratios):.2f}) "
        f"of {counted(len(ratios), 'instance')}{left_out}"
    )


def _sets(found: Comparison) -> dict[str, list[tuple[int, str]]]:
    """The chosen micro-kernels by who has them, each with the number of its colour: those of all first."""
    sets = [[r.report.names[kernel] for kernel in r.report.serves] for r in found.results]
    numbered = enumerate(dict.fromkeys(name for names in sets for name in names))  # as compare.js counts them
    groups: dict[str, list[tuple[int, str]]] = {}
    for number, name in numbered:
        labels = [label for label, names in zip(found.labels, sets, strict=True) if name in names]
        groups.setdefault("".join(labels), []).append((number, name))
    ordered = sorted(groups, key=lambda labels: (-len(labels), labels))
    return {_of(labels, found.labels): groups[labels] for labels in ordered}


def _of(labels: str, every: str) -> str:
    if labels == every:
        return "in both" if len(every) == 2 else "in all"
    return f"{labels} alone" if len(labels) == 1 else f"in {' and '.join(labels)}"


def differences(specs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Fields in which specs differ: dotted path, and the value of each."""
    flat = [dict(_flat(spec)) for spec in specs]
    paths = dict.fromkeys(path for fields in flat for path in fields)
    return [
        (path, [_value_text(fields, path) for fields in flat])
        for path in paths
        if any(fields.get(path, _value_text) != flat[0].get(path, _value_text) for fields in flat)
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
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def compare_table(
    found: Comparison, *, sort: str | None = None, order: str = "asc", page_number: int = 1
) -> Table:
    """Return a page of the table of instances that all have.

    Parameters
    ----------
    found : Comparison
    sort : str or None
        Name of the column to sort by.
    order : str
        asc or desc.
    page_number : int
        From 1.
    """
    first, labels = found.results[0].report, found.labels.lower()
    figures: dict[str, FloatArray] = {}
    columns = [Column(f"var-{name}", name, form="d") for name in first.variables]
    columns += [Column(f"kernel_{label}", label.upper()) for label in labels]
    for kind, rates in (("predicted", found.predicted), ("measured", found.measured)):
        known = np.isfinite(rates).any(axis=1)
        for row, label in zip(rates, labels, strict=True):
            figures[f"{kind}_{label}"] = row
        if not known.any():
            continue
        columns += [
            Column(f"{kind}_{label}", f"{kind} {label.upper()}", f"{kind}, GFLOP/s", ".1f")
            for label in labels
        ]
        for row, label in zip(rates[1:], labels[1:], strict=True):
            name, over = f"{kind}_ratio_{label}", f"A / {label.upper()}"
            figures[name] = rates[0] / row
            columns.append(Column(name, over, f"{kind} throughput of A over that of {label.upper()}", ".3f"))
    keys: dict[str, Any] = {f"var-{n}": first.shapes[found.at[0], i] for i, n in enumerate(first.variables)}
    keys |= figures
    for result, at, label in zip(found.results, found.at, labels, strict=True):
        keys[f"kernel_{label}"] = result.report.category[at]
    rows = np.arange(found.at.shape[1])
    chosen, number, num_pages = page_of(rows, keys.get(sort or ""), order, page_number, _ROWS)
    table = Table(columns, sort or "" if sort in keys else "", order, number, num_pages, len(rows))
    for row in chosen.tolist():
        values: dict[str, Any] = {name: _known(column[row]) for name, column in figures.items()}
        values |= {f"var-{n}": int(keys[f"var-{n}"][row]) for n in first.variables}
        names = found.kernels(row)
        values |= {f"kernel_{label}": name for label, name in zip(labels, names, strict=True)}
        table.rows.append(values)
    return table


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
