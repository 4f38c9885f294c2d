"""Where a job's measurements are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.measure.records import Records
from dietcode_server.store import architectures, device_headers
from dietcode_server.store.database import Database
from dietcode_server.store.records import SqlRecords, records_of_others
from dietcode_server.store.tables import JobRow


class SqlKeeper:
    """`dietcode.tuner.measuring.Keeper` in the server's database, with MetaSchedule's files beside it.

    Parameters
    ----------
    work_root : Path
        Folder of MetaSchedule's files.
    spec : dict, optional
        That of a part of the job's model; by default that of the job.
    """

    def __init__(
        self, database: Database, job: JobRow, work_root: Path, spec: dict[str, Any] | None = None
    ) -> None:
        self._database = database
        self._job = job
        self._root = work_root
        self._spec = job.spec if spec is None else spec

    def open(self, workload: str, device: Mapping[str, Any]) -> SqlRecords:
        """The records of a workload on a device; a job that measures anew forgets the older ones first.

        Raises
        ------
        RecordsError
            They cannot be read, or the device is emulated.
        """
        job = self._job
        store = SqlRecords(
            self._database,
            workload,
            dict(device),
            spec=self._spec,
            job_id=job.id,
            attempt=job.attempt,
            runner=job.runner,
        )
        if job.force and not store.has_lines_of(job.id):
            store.clear()
        return store

    def others(self, workload: str, device: Mapping[str, Any]) -> list[Records]:
        """Return what a device measured for other workloads, the oldest first; nothing for a forced job."""
        if self._job.force:
            return []
        return records_of_others(self._database, workload, dict(device))

    def work_dir(self, workload: str, device: Mapping[str, Any]) -> Path:
        """Folder of MetaSchedule's database; a job that measures anew has one of its own."""
        own = f".{self._job.id}" if self._job.force else ""
        return self._root / str(device["id"]) / f"{workload.removeprefix('sha256:')[:24]}{own}"


def known_records(database: Database, job: JobRow) -> Records | None:
    """Return the records that a job for an architecture is built from; None where it has to be measured.

    Raises
    ------
    RecordsError
        The database cannot be read.
    """
    if job.force or not architectures.names_one(job.target):
        return None
    with database.read() as session:
        row = architectures.measured_on(session, job.workload, job.target, whole=job.measure)
        device = None if row is None else device_headers.header_of(row)
    if device is None:
        return None
    return SqlRecords(database, job.workload, device, spec=job.spec).records
