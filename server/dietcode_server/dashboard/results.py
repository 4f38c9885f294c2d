"""The result of a job, which is that of its library: figures, charts, tables, generated code."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.errors import NotFoundError
from dietcode.measure.disturbance import undisturbed_of
from dietcode.runtime.manifest import CODE
from dietcode.workload.stops import cut_off_by, uncompared
from dietcode.workload.text import clip
from dietcode_server.api.callers import Caller, CallerOf
from dietcode_server.api.names import check_job_id, check_library
from dietcode_server.api.services import ServicesOf
from dietcode_server.dashboard.actions import why_not_submit
from dietcode_server.dashboard.charts import chart_data, fixed_json, version_of
from dietcode_server.dashboard.curves import fit_of, trade_off
from dietcode_server.dashboard.instances import Order, PageNumber, Sort, instance_table, kernel_table
from dietcode_server.dashboard.losses import losses_of
from dietcode_server.dashboard.render import is_fragment, page
from dietcode_server.dashboard.reports import Report, report_of
from dietcode_server.store import comparisons, jobs, libraries, listings
from dietcode_server.store.tables import BUNDLE, ComparisonRow, JobRow, LibraryFile, LibraryRow

router = APIRouter(include_in_schema=False)
Category = Annotated[int | None, Query(ge=0, le=1_000_000)]
_LIBRARY = "/libraries/{name}/{version}"


@dataclass(frozen=True, eq=False)
class Result:
    """A published library and all that is known of how fast it is.

    Attributes
    ----------
    compared : sequence of ComparisonRow
        Instances that were measured, maybe none.
    code_bytes : int
        Of ``library.so``.
    """

    library: LibraryRow
    report: Report
    compared: Sequence[ComparisonRow]
    code_bytes: int

    @property
    def path(self) -> str:
        """The path of the library's pages."""
        return f"/libraries/{self.library.name}/{self.library.version}"

    @property
    def version(self) -> str:
        """The version of the charts' data."""
        return version_of(self.report, self.compared)

    @property
    def calm(self) -> list[ComparisonRow]:
        """What was compared and nothing disturbed; nothing where that is less than half."""
        return undisturbed_of(self.compared, lambda row: row.disturbed)

    @property
    def disturbed(self) -> list[ComparisonRow]:
        """What was compared while something else ran; no figure is of it."""
        return [row for row in self.compared if row.disturbed]

    @property
    def ratios(self) -> list[float]:
        """Measured over the vendor's fastest, of each instance of `calm`."""
        return [row.measured_gflops / row.vendor_gflops for row in self.calm if row.vendor_gflops]

    @property
    def vendors(self) -> list[str]:
        """The vendor's paths that were the fastest somewhere in `calm`."""
        return sorted({row.vendor for row in self.calm if row.vendor})

    @property
    def in_company(self) -> list[float]:
        """The share of its speed that it keeps beside the vendor, of each instance of `calm`."""
        return [row.company_gflops / row.measured_gflops for row in self.calm if row.company_gflops]

    @property
    def of_roof(self) -> list[float]:
        """Measured over the roofline, of each instance of `calm`."""
        return [row.measured_gflops / row.roof_gflops for row in self.calm if row.roof_gflops]

    @property
    def peak_gflops(self) -> float | None:
        """What the cores gave at most beside the instances of `calm`: the median; None where nobody knows."""
        peaks = [row.peak_gflops for row in self.calm if row.peak_gflops]
        return statistics.median(peaks) if peaks else None

    @property
    def f_local_over_peak(self) -> float | None:
        """The largest f_local in GFLOP/s, where that is above the peak; None where it is not."""
        most = float(self.report.columns["f_local"].max(initial=0.0))
        return most if self.peak_gflops is not None and most > self.peak_gflops else None

    @property
    def mean_of_roof(self) -> float | None:
        """Geometric mean of `of_roof`; None where nothing was compared."""
        return statistics.geometric_mean(self.of_roof) if self.of_roof else None

    @property
    def mean_ratio(self) -> float | None:
        """Geometric mean of `ratios`; None where nothing was compared."""
        return statistics.geometric_mean(self.ratios) if self.ratios else None

    @property
    def mean_in_company(self) -> float | None:
        """Geometric mean of `in_company`; None where nothing was compared."""
        return statistics.geometric_mean(self.in_company) if self.in_company else None


def num_measured(report: Report) -> int:
    """Return how many micro-kernels were measured to the end."""
    return int(report.facts.get("space", {}).get("measured", len(report.names)))


def result_of(session: Session, library: LibraryRow) -> Result:
    """Return the result of a published version.

    Raises
    ------
    NotFoundError
        It is a whole model.
    """
    if library.kind == BUNDLE:
        raise NotFoundError(f"{library.name}@{library.version}: a model, whose libraries have results")
    of_code = (LibraryFile.library_id == library.id, LibraryFile.path == CODE)
    size = session.scalar(select(LibraryFile.size_bytes).where(*of_code))
    return Result(
        library, report_of(session, library), comparisons.of_library(session, library.id), size or 0
    )


def library_of(session: Session, row: JobRow) -> LibraryRow:
    """Return the library that a job published.

    Raises
    ------
    NotFoundError
        Nothing, or not yet.
    """
    library = None if row.library_id is None else session.get(LibraryRow, row.library_id)
    if library is not None and library.kind == BUNDLE:
        raise NotFoundError(f"job {row.id}: a model has no result of its own; its parts have")
    if library is None:
        raise NotFoundError(f"job {row.id}: it has published nothing; its state is {row.state}")
    return library


@router.get("/jobs/{job_id}/result", response_class=HTMLResponse)
def show_job_result(request: Request, job_id: str, services: ServicesOf, caller: CallerOf) -> Response:
    """The result of a job that succeeded: a fragment for its page, or a page of its own."""
    with services.database.read() as session:
        library = library_of(session, jobs.get(session, check_job_id(job_id)))
        return _show(request, result_of(session, library), caller, job_id)


@router.get(_LIBRARY + "/result", response_class=HTMLResponse)
def show_result(
    request: Request, name: str, version: str, services: ServicesOf, caller: CallerOf
) -> Response:
    """The same of any published version."""
    with services.database.read() as session:
        library = libraries.get(session, *check_library(name, version))
        in_library = is_fragment(request)  # whose page says already what it says of the whole
        return _show(request, result_of(session, library), caller, library.job_id, in_library=in_library)


def _show(
    request: Request, result: Result, caller: Caller, job_id: str | None, *, in_library: bool = False
) -> Response:
    template = "_result.html" if is_fragment(request) else "result.html"
    return page(request, template, in_library=in_library, **shown(result, caller, job_id))


def shown(result: Result, caller: Caller, job_id: str | None) -> dict[str, Any]:
    """Return the context of ``_result.html``."""
    report = result.report
    return {
        "num_measured": num_measured(report),
        "cut_off": cut_off_by(report.facts),
        "uncompared": uncompared(report.facts),
        "result": result,
        "report": report,
        "facts": report.facts,
        "job_id": job_id,
        "why_not": why_not_submit(caller),
        "points": trade_off(report),
        "fit": fit_of(report),
        "losses": losses_of(report, result.calm),
        "instances": instance_table(report, result.compared, sort=None, order="asc", page=1),
        "category": None,
        "kernels": kernel_table(report, sort=None, order="asc", page=1),
    }


@router.get(_LIBRARY + "/result.json")
def show_data(request: Request, name: str, version: str, services: ServicesOf) -> Response:
    """The data that the charts draw."""
    with services.database.read() as session:
        result = result_of(session, libraries.get(session, *check_library(name, version)))
        return fixed_json(request, result.version, lambda: chart_data(result.report, result.compared))


@router.get(_LIBRARY + "/instances", response_class=HTMLResponse)
def show_instances(
    request: Request,
    name: str,
    version: str,
    services: ServicesOf,
    sort: Sort = None,
    order: Order = "asc",
    page_number: PageNumber = 1,
    category: Category = None,
) -> Response:
    """A page of the table of instances."""
    with services.database.read() as session:
        result = result_of(session, libraries.get(session, *check_library(name, version)))
        table = instance_table(
            result.report, result.compared, sort=sort, order=order, page=page_number, category=category
        )
        return page(request, "_result_instances.html", result=result, instances=table, category=category)


@router.get(_LIBRARY + "/micro-kernels", response_class=HTMLResponse)
def show_kernels(
    request: Request,
    name: str,
    version: str,
    services: ServicesOf,
    sort: Sort = None,
    order: Order = "asc",
    page_number: PageNumber = 1,
) -> Response:
    """A page of the table of micro-kernels."""
    with services.database.read() as session:
        result = result_of(session, libraries.get(session, *check_library(name, version)))
        table = kernel_table(result.report, sort=sort, order=order, page=page_number)
        return page(request, "_result_kernels.html", result=result, kernels=table)


@router.get(_LIBRARY + "/micro-kernels/{kernel}", response_class=HTMLResponse)
def show_code(request: Request, name: str, version: str, kernel: str, services: ServicesOf) -> Response:
    """The generated code of one micro-kernel."""
    with services.database.read() as session:
        library = libraries.get(session, *check_library(name, version))
        report = report_of(session, library)
        if kernel not in report.names:
            raise NotFoundError(f"{clip(kernel)}: no micro-kernel of {library.name}@{library.version}")
        return page(
            request, "_result_code.html", kernel=kernel, code=listings.code_of(session, library.id, kernel)
        )
