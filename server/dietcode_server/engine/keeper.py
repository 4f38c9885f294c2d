"""Where a job's measurements are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from dietcode.measure.records import Records
from dietcode_server.store.database import Database
from dietcode_server.store.records import SqlCudaRecords, SqlRecords, records_of_others
from dietcode_server.store.tables import JobRow

StoredT = TypeVar("StoredT", SqlRecords, SqlCudaRecords)


def open_for_job(
    kind: type[StoredT], database: Database, job: JobRow, workload: str, device: Mapping[str, Any]
) -> StoredT:
    """Records that a job adds to; one that measures anew forgets the older ones first.

    Parameters
    ----------
    job : JobRow
        Noted beside each line.

    Raises
    ------
    RecordsError
        They cannot be read, or the device is none: it is emulated.
    """
    store = kind(
        database,
        workload,
        dict(device),
        spec=job.spec,
        job_id=job.id,
        attempt=job.attempt,
        runner=job.runner,
    )
    if job.force and not store.has_lines_of(job.id):
        store.clear()
    return store


class SqlKeeper:
    """`dietcode.tuner.measuring.Keeper` in the server's database, with MetaSchedule's files beside it."""

    def __init__(self, database: Database, job: JobRow, work_root: Path) -> None:
        self._database = database
        self._job = job
        self._root = work_root

    def open(self, workload: str, device: Mapping[str, Any]) -> SqlRecords:
        """The records of a workload on a device; see `open_for_job`."""
        return open_for_job(SqlRecords, self._database, self._job, workload, device)

    def others(self, workload: str, device: Mapping[str, Any]) -> list[Records]:
        """What a device measured for other workloads, the oldest first; nothing for a forced job."""
        if self._job.force:
            return []
        return records_of_others(self._database, workload, dict(device))

    def work_dir(self, workload: str, device: Mapping[str, Any]) -> Path:
        """Folder of MetaSchedule's database; a job that measures anew has one of its own."""
        own = f".{self._job.id}" if self._job.force else ""
        return self._root / str(device["id"]) / f"{workload.removeprefix('sha256:')[:24]}{own}"


class SqlCudaKeeper:
    """`dietcode.tuner.cuda_measuring.CudaKeeper` in the server's database."""

    def __init__(self, database: Database, job: JobRow) -> None:
        self._database, self._job = database, job

    def open(self, workload: str, device: Mapping[str, Any]) -> SqlCudaRecords:
        """The records of a workload on a GPU; see `open_for_job`."""
        return open_for_job(SqlCudaRecords, self._database, self._job, workload, device)
