"""The last step of a job: what it made becomes a version, in the transaction that ends the job."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.models.bundling import bundle_manifest, described_files, report_of_model
from dietcode.models.planning import ModelPlan
from dietcode.protocol import JobState, Progress
from dietcode.runtime.manifest import CODE, MANIFEST, file_facts, pretty_json
from dietcode_server.store import comparisons, jobs, leases, libraries, provenance
from dietcode_server.store import listings as code
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.database import Database
from dietcode_server.store.tables import DeviceRow, JobRow, LibraryFile, LibraryRow

_LISTING_SECS = 60.0  # of which it writes for two; the rest is for starting on a busy machine
_log = logging.getLogger("dietcode.worker")


def code_of(report: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Kind and text of the code of each micro-kernel; the library is published without it, too."""
    from dietcode.backends.listing import listings
    from dietcode.measure.apart import call_apart

    if not {"problem", "target"} <= report.keys():
        return {}  # nothing to write code of
    try:
        found = call_apart(listings, report, timeout_secs=_LISTING_SECS)
        return {str(name): (str(kind), str(text)) for name, (kind, text) in found.items()}
    except Exception:
        _log.exception("the generated code is not shown")
        return {}


@dataclass(frozen=True)
class Shown:
    """What is kept beside a library for people to look at.

    Attributes
    ----------
    compared : sequence of Compared
        What it reached beside the vendor's kernels.
    listings : mapping of str to (str, str)
        Kind and text of the generated code, by micro-kernel.
    """

    compared: Sequence[Compared] = ()
    listings: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def keep_shown(session: Session, library: LibraryRow, shown: Shown) -> None:
    """Keep what is shown of a library that was just published."""
    comparisons.keep(session, library.id, shown.compared)
    code.keep(session, library.id, shown.listings)


def publish(
    database: Database,
    job: JobRow,
    runner: str,
    result: Any,
    best_gflops: float | None,
    shown: Shown | None = None,
) -> None:
    """Publish what a job made, with what is shown of it, and end the job, in one transaction.

    Parameters
    ----------
    runner : str
        Who holds the job.
    result : TuneResult
    best_gflops : float or None
        The best throughput, for the last event.
    shown : Shown or None
        What is kept beside the library.

    Raises
    ------
    LeaseLostError
        The job is another's: nothing is published.
    """
    with database.write() as session:
        row = _held(session, job, runner)
        if row is None:
            return
        library = libraries.publish(
            session, job=row, device_name=str(result.device["name"]), files=result.files
        )
        if row.device_id is None:
            row.device_id = str(result.device["id"])  # whose records they were
        provenance.note_records(session, library, row.device_id)
        if shown is not None:
            keep_shown(session, library, shown)
        size = sum(map(len, result.files.values()))
        _end(session, row, runner, library, f"{size} bytes", best_gflops)


def publish_model(
    database: Database, job: JobRow, runner: str, plan: ModelPlan, made: Sequence[LibraryRow]
) -> None:
    """Publish the bundle of a model and end its job, in one transaction.

    Parameters
    ----------
    runner : str
        Who holds the job.
    plan : ModelPlan
    made : sequence of LibraryRow
        The library of each part, in their order.

    Raises
    ------
    LeaseLostError
        The job is another's: nothing is published.
    """
    with database.write() as session:
        row = _held(session, job, runner)
        if row is None:
            return
        libraries_of = {part.digest: library for part, library in zip(plan.parts, made, strict=True)}
        of_code = select(LibraryFile.library_id, LibraryFile.size_bytes).where(
            LibraryFile.library_id.in_([library.id for library in made]), LibraryFile.path == CODE
        )
        sizes = dict(session.execute(of_code).all())
        report = report_of_model(plan, {digest: sizes[one.id] for digest, one in libraries_of.items()}, {})
        files = described_files(plan, report)
        listed = {
            digest: {"manifest": one.manifest_digest, "name": one.name, "version": one.version}
            for digest, one in libraries_of.items()
        }
        facts = {name: file_facts(data) for name, data in files.items()}
        files[MANIFEST] = pretty_json(bundle_manifest(plan, facts, listed))
        device = session.get_one(DeviceRow, row.device_id)
        bundle = libraries.publish_bundle(session, job=row, device_name=device.name, files=files, parts=made)
        _end(session, row, runner, bundle, f"a bundle of {len(made)} libraries", None)


def _held(session: Session, job: JobRow, runner: str) -> JobRow | None:
    """Return the job as it is now; None where an earlier try, which lost its connection, has ended it."""
    row = jobs.get(session, job.id)
    if row.state == JobState.SUCCEEDED.value and row.attempt == job.attempt:
        return None
    return leases.require(session, job.id, runner)


def _end(
    session: Session, row: JobRow, runner: str, library: LibraryRow, what: str, best_gflops: float | None
) -> None:
    """End a job that has published.

    Parameters
    ----------
    library : LibraryRow
        What it published; for a model, its bundle.
    what : str
        For the last event, after its name and version.
    """
    message = f"{library.name}@{library.version}: {what}"
    progress = Progress(stage="publish", message=message, done=1, total=1, best_gflops=best_gflops)
    jobs.add_progress(session, row.id, progress)
    jobs.finish(session, row.id, JobState.SUCCEEDED, library_id=library.id, runner=runner, ended=True)
