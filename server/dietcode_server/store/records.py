"""Tuning records in SQL: a line is stored as soon as it is known, so a killed run keeps what it measured."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, select

from dietcode.errors import RecordsError
from dietcode.measure.checks import WRONG, reason
from dietcode.measure.records import Records
from dietcode.search_space.limits import MicroKernel
from dietcode.workload.text import clip
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.events import count_measured
from dietcode_server.store.subjects import remember_device, remember_workload, utc_now
from dietcode_server.store.tables import TuningRecord

MAX_LINES = 10_000  # of other workloads, to learn from


class SqlRecords:
    """All that is known of one workload on one device, kept in the database.

    Implements `dietcode.measure.records.RecordsStore`. Used by one thread; other processes may append for the
    same workload and device, which shows here after loading again.

    Parameters
    ----------
    workload : str
        Digest of the workload.
    device : dict
        ``id``, ``name`` and ``target`` of what is measured on.
    spec : dict
        The spec that the workload is first entered with.
    job_id, attempt : str, int or None
        Noted beside each line.

    Attributes
    ----------
    records : Records
        What is known now.

    Raises
    ------
    RecordsError
        The database cannot be used, or holds a row that is no tuning record.
    """

    def __init__(
        self,
        database: Database,
        workload: str,
        device: dict[str, Any],
        *,
        spec: dict[str, Any],
        job_id: str | None = None,
        attempt: int | None = None,
    ) -> None:
        self._database, self._job_id, self._attempt = database, job_id, attempt
        self._device_id = str(device["id"])
        self.records = Records(workload, device)
        try:
            with database.write() as session:
                now = utc_now()
                remember_workload(session, workload, spec, now)
                remember_device(session, self._device_id, str(device["name"]), device["target"], now)
            self._load()
        except StoreError as error:
            raise RecordsError(f"the tuning records cannot be read: {error}") from error

    def append(self, line: dict[str, Any]) -> None:
        """Store one line and take it in; once this returns, it outlives this process. A header is skipped.

        Raises
        ------
        RecordsError
            It is no tuning record, or cannot be stored; `records` is as before.
        """
        if "format" in line:
            return
        try:
            line = json.loads(json.dumps(line, allow_nan=False))  # as it will be when it is loaded
            replace(self.records, measurements=dict(self.records.measurements), rounds=[]).apply(line)
            row = self._row(line)
        except WRONG as error:
            raise RecordsError(f"{clip(line)} is no tuning record: {reason(error)}") from error
        try:
            with self._database.write() as session:
                session.add(row)
                if self._job_id is not None and row.num_readings == 1:
                    count_measured(session, self._job_id)
        except StoreError as error:
            raise RecordsError(f"a tuning record cannot be stored: {error}") from error
        self.records.apply(line)

    def has_lines_of(self, job_id: str) -> bool:
        """Whether a job has stored something here already.

        Raises
        ------
        RecordsError
            The database cannot be read.
        """
        query = select(TuningRecord.id).where(*self._belongs(), TuningRecord.job_id == job_id).limit(1)
        try:
            with self._database.read() as session:
                return session.scalar(query) is not None
        except StoreError as error:
            raise RecordsError(f"the tuning records cannot be read: {error}") from error

    def clear(self) -> None:
        """Forget all that is known of this workload on this device.

        Raises
        ------
        RecordsError
            The database cannot be written.
        """
        try:
            with self._database.write() as session:
                session.execute(delete(TuningRecord).where(*self._belongs()))
        except StoreError as error:
            raise RecordsError(f"the tuning records cannot be forgotten: {error}") from error
        self.records = Records(self.records.workload, self.records.device)

    def _load(self) -> None:
        query = select(TuningRecord.id, TuningRecord.line).where(*self._belongs()).order_by(TuningRecord.id)
        with self._database.read() as session:
            for row_id, line in session.execute(query):
                try:
                    self.records.apply(line)
                except WRONG as error:
                    raise RecordsError(
                        f"row {row_id} of tuning_records is no tuning record: {reason(error)}; "
                        "delete it to go on"
                    ) from error

    def _belongs(self) -> tuple[Any, ...]:
        return (
            TuningRecord.workload == self.records.workload,
            TuningRecord.device_id == self._device_id,
        )

    def _row(self, line: dict[str, Any]) -> TuningRecord:
        of_kernel = line["kind"] == "micro_kernel"
        return TuningRecord(
            workload=self.records.workload,
            device_id=self._device_id,
            job_id=self._job_id,
            attempt=self._attempt,
            kind=line["kind"],
            micro_kernel=MicroKernel.from_json(line).name if of_kernel else None,
            num_readings=int(line["num_readings"]) if of_kernel else None,
            error=line["error"] if of_kernel else None,
            line=line,
            created_at=utc_now(),
        )


def records_of_others(
    database: Database, workload: str, device: dict[str, Any], max_lines: int = MAX_LINES
) -> list[Records]:
    """What a device measured for other workloads, the oldest first; lines that are none count for nothing.

    Parameters
    ----------
    max_lines : int
        The latest lines that are read.

    Raises
    ------
    RecordsError
        The database cannot be read.
    """
    query = (
        select(TuningRecord.workload, TuningRecord.line)
        .where(TuningRecord.device_id == str(device["id"]), TuningRecord.workload != workload)
        .order_by(TuningRecord.id.desc())
        .limit(max_lines)
    )
    try:
        with database.read() as session:
            lines = session.execute(query).all()
    except StoreError as error:
        raise RecordsError(f"the tuning records cannot be read: {error}") from error
    found: dict[str, Records] = {}
    for other, line in reversed(lines):
        with contextlib.suppress(*WRONG):
            found.setdefault(other, Records(other, device)).apply(line)
    return list(found.values())
