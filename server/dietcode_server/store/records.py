"""Tuning records in SQL: a line is stored as soon as it is known, so a killed run keeps what it measured."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from dietcode.errors import RecordsError
from dietcode.measure import checks
from dietcode.measure.checks import WRONG, reason
from dietcode.measure.formats import RecordFormat
from dietcode.measure.records import Records
from dietcode.workload.text import clip
from dietcode_server.store import device_headers, leases
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.events import count_measured
from dietcode_server.store.patience import patiently
from dietcode_server.store.subjects import remember_device, remember_workload, utc_now
from dietcode_server.store.tables import TuningRecord

MAX_LINES = 10_000  # of other workloads, to learn from
_MAX_KIND, _MAX_NAME = 16, 64  # characters, of the columns


class SqlRecords:
    """`dietcode.measure.records.RecordsStore` in the database.

    Used by one thread; other processes may append for the same workload and device, which shows here after
    loading again.

    Parameters
    ----------
    workload : str
        Digest of the workload.
    device : dict
        The device of the records' header.
    spec : dict
        The spec that the workload is first entered with.
    job_id, attempt : str, int or None
        Noted beside each line.
    runner : str or None
        Who works on the job: once it has lost it, nothing is written any more.

    Attributes
    ----------
    records : Records
        What is known now.

    Raises
    ------
    RecordsError
        The database cannot be used, or holds a row that is no tuning record; or the device is emulated.
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
        runner: str | None = None,
    ) -> None:
        self._database, self._job_id, self._attempt, self._runner = database, job_id, attempt, runner
        self._device_id = str(device["id"])
        self.records = Records(workload, device)
        check_measured(self.records)
        try:
            patiently(lambda: self._enter(spec))
            self.records = patiently(self._load)
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
            self._copy().apply(line)
            columns = self._columns(line)
        except WRONG as error:
            raise RecordsError(f"{clip(line)} is no tuning record: {reason(error)}") from error
        try:
            tries = itertools.count()
            patiently(lambda: self._store(columns, again=next(tries) > 0))
        except StoreError as error:
            raise RecordsError(f"a tuning record cannot be stored: {error}") from error
        self.records.apply(line)

    def has_lines_of(self, job_id: str) -> bool:
        """Return whether a job has stored something here already.

        Raises
        ------
        RecordsError
            The database cannot be read.
        """
        query = select(TuningRecord.id).where(*self._belongs(), TuningRecord.job_id == job_id).limit(1)
        try:
            return patiently(lambda: self._is_there(query))
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
            patiently(self._forget)
        except StoreError as error:
            raise RecordsError(f"the tuning records cannot be forgotten: {error}") from error
        self.records = Records(self.records.workload, self.records.device)

    def _enter(self, spec: dict[str, Any]) -> None:
        with self._database.write() as session:
            now = utc_now()
            remember_workload(session, self.records.workload, spec, now)
            remember_device(session, *device_headers.device_row(self.records.device), now)

    def _store(self, columns: dict[str, Any], again: bool) -> None:
        """Insert one row, unless an earlier try did, and lost its connection before it heard so."""
        own = (TuningRecord.job_id == self._job_id, TuningRecord.created_at == columns["created_at"])
        with self._database.write() as session:
            self._require_lease(session)
            if again and session.scalar(select(TuningRecord.id).where(*self._belongs(), *own)) is not None:
                return
            session.add(TuningRecord(**columns))
            if self._job_id is not None and columns["num_readings"] == 1:
                count_measured(session, self._job_id)

    def _forget(self) -> None:
        with self._database.write() as session:
            self._require_lease(session)
            session.execute(delete(TuningRecord).where(*self._belongs()))

    def _is_there(self, query: Any) -> bool:
        with self._database.read() as session:
            return session.scalar(query) is not None

    def _require_lease(self, session: Session) -> None:
        if self._job_id is not None and self._runner is not None:
            leases.require(session, self._job_id, self._runner)

    def _copy(self) -> Records:
        """Return what is known, to try a line on."""
        return replace(self.records, measurements=dict(self.records.measurements), rounds=[])

    def _load(self) -> Records:
        query = select(TuningRecord.id, TuningRecord.line).where(*self._belongs()).order_by(TuningRecord.id)
        records = Records(self.records.workload, self.records.device)
        with self._database.read() as session:
            for row_id, line in session.execute(query):
                try:
                    records.apply(line)
                except WRONG as error:
                    raise RecordsError(
                        f"row {row_id} of tuning_records is no tuning record: {reason(error)}; "
                        "delete it to go on"
                    ) from error
        return records

    def _belongs(self) -> tuple[Any, ...]:
        return (
            TuningRecord.workload == self.records.workload,
            TuningRecord.device_id == self._device_id,
        )

    def _columns(self, line: dict[str, Any]) -> dict[str, Any]:
        checks.line(line["kind"], "kind", _MAX_KIND)
        of_kernel = line["kind"] == "micro_kernel"
        return {
            "workload": self.records.workload,
            "device_id": self._device_id,
            "job_id": self._job_id,
            "attempt": self._attempt,
            "kind": line["kind"],
            "micro_kernel": name_of(self.records.format, line) if of_kernel else None,
            "num_readings": int(line.get("num_readings", 1)) if of_kernel else None,
            "error": line["error"] if of_kernel else None,
            "line": line,
            "created_at": utc_now(),
        }


def name_of(format: RecordFormat, line: Mapping[str, Any]) -> str:
    """The micro-kernel that a line is about.

    Raises
    ------
    KeyError, TypeError, ValueError
        It is about none, or about one whose numbers are beyond any device.
    """
    name: str = format.micro_kernel(line).name
    checks.line(name, "micro_kernel", _MAX_NAME)
    return name


def check_measured(records: Records) -> None:
    """Refuse records that no device measured: the service keeps none, and publishes nothing from them.

    Raises
    ------
    RecordsError
        They are synthetic.
    """
    if records.is_synthetic:
        name = clip(records.device.get("name"))
        raise RecordsError(f"the records are synthetic ({name}): no device measured them; measure on a GPU")


def records_of_others(
    database: Database, workload: str, device: dict[str, Any], max_lines: int = MAX_LINES
) -> list[Records]:
    """Return what a device measured for other workloads, the oldest first; malformed lines are ignored.

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

    def read() -> Sequence[Any]:
        with database.read() as session:
            return session.execute(query).all()

    try:
        lines = patiently(read)
    except StoreError as error:
        raise RecordsError(f"the tuning records cannot be read: {error}") from error
    found: dict[str, Records] = {}
    for other, line in reversed(lines):
        with contextlib.suppress(*WRONG):
            found.setdefault(other, Records(other, device)).apply(line)
    return list(found.values())
