"""Keeping house: every hour, what the policy lets go leaves the database and the data folder."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

from sqlalchemy import select

from dietcode.errors import DietCodeError
from dietcode_server.store.database import Database
from dietcode_server.store.retention import Policy, Swept, sweep
from dietcode_server.store.tables import JobRow, Workload

_EVERY_SECS = 3600.0
_DIGITS = 24  # of a workload's digest, in the name of its folder; see `SqlKeeper.work_dir`
_log = logging.getLogger("dietcode.housekeeping")


class Housekeeper:
    """A thread of the server.

    Parameters
    ----------
    work_root, log_dir : Path
        What jobs left: MetaSchedule's files by device and workload, and a log for each job.
    """

    def __init__(
        self,
        database: Database,
        policy: Policy,
        work_root: Path,
        log_dir: Path,
        every_secs: float = _EVERY_SECS,
    ) -> None:
        self._database, self._policy = database, policy
        self._work_root, self._log_dir = work_root, log_dir
        self._every_secs = every_secs
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin; the first round is at once."""
        self._thread.start()

    def stop(self) -> None:
        """No further round."""
        self._stop.set()

    def tidy(self) -> Swept:
        """One round.

        Raises
        ------
        StoreError
            The database cannot be read or written.
        """
        swept = sweep(self._database, self._policy)
        self._tidy_folders()
        return swept

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                swept = self.tidy()
                if swept:
                    _log.info("deleted %s", swept)
            except (DietCodeError, OSError) as error:
                _log.error("%s", error)
            except Exception:
                _log.exception("housekeeping goes on")
            self._stop.wait(self._every_secs)

    def _tidy_folders(self) -> None:
        """Files of jobs and workloads that are not in the database any more."""
        logs = {path: path.stem for path in self._log_dir.glob("*.log")}
        folders = {path: path.name[:_DIGITS] for path in self._work_root.glob("*/*") if path.is_dir()}
        if not logs and not folders:
            return
        with self._database.read() as session:
            jobs = set(session.scalars(select(JobRow.id)))
            digests = session.scalars(select(Workload.digest))
            workloads = {digest.removeprefix("sha256:")[:_DIGITS] for digest in digests}
        for path, job in logs.items():
            if job not in jobs:
                path.unlink(missing_ok=True)
        for path, workload in folders.items():
            if workload not in workloads:
                shutil.rmtree(path, ignore_errors=True)
