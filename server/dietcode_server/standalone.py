"""A worker: a process without HTTP that runs the jobs of a database, on any machine that reaches it."""

from __future__ import annotations

import logging
import re
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from dietcode.confinement.parents import hide_secrets
from dietcode.errors import DietCodeError, RequestError
from dietcode.target.kinds import label_of
from dietcode.workload.text import clip
from dietcode_server.engine.announcer import Announcer
from dietcode_server.engine.targets import Targets
from dietcode_server.logs import configure_logs
from dietcode_server.process import check_confined, make_crew, unconfined
from dietcode_server.settings import DATABASE_NAME, Settings
from dietcode_server.starting import check_installed, locked_folder, no_sudden_end
from dietcode_server.store import runners
from dietcode_server.store.database import Database

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_FILE = "worker.name"  # what the worker of a data folder is announced as
_POLL_SECS = 0.2
_log = logging.getLogger("dietcode.worker")


def run_worker(settings: Settings, name: str | None = None, only_one: bool = False) -> None:
    """Run jobs until SIGTERM or Ctrl-C.

    Parameters
    ----------
    name : str or None
        What it is announced as; by default its process: ``host/pid/start time``.
    only_one : bool
        Take one job at most, and end: at once, where none can be measured here.

    Raises
    ------
    RequestError
        The name is not allowed, the database is one that a worker cannot share, a package is missing, or jobs
        for others cannot be confined here.
    ConflictError
        A worker that lives has the name.
    DietCodeError
        The data folder cannot be used, or the database cannot be opened or has another schema.
    """
    configure_logs(settings.log_format)
    hide_secrets()
    if name is not None and not _NAME.fullmatch(name):
        raise RequestError(f"--name: given {clip(name)}; allowed: up to 64 letters, digits and '._-'")
    check_installed(settings)
    _check_file(settings)
    with ExitStack() as stack:
        stack.enter_context(locked_folder(settings.data_dir, "worker"))
        database = Database(settings.database)
        stack.callback(database.dispose)
        stop = stack.enter_context(no_sudden_end())
        database.check_head()
        _check_host(database)
        check_confined(settings, database)
        for line in unconfined(settings):
            _log.warning("%s", line)
        crew = make_crew(database, settings, Targets(), name=name, only_one=only_one)
        announcer = crew.announcer
        assert announcer is not None
        announcer.check_name(stop)
        if stop.is_set():
            return
        (settings.data_dir / _NAME_FILE).write_text(announcer.name)
        stack.callback(crew.stop)
        crew.start()
        while not announcer.wait(_POLL_SECS):
            if stop.is_set():
                return
        print(_ready(announcer, settings), file=sys.stderr, flush=True)  # noqa: T201
        while not crew.supervisor.finished.is_set() and not stop.wait(_POLL_SECS):
            pass


def check_worker(settings: Settings) -> str:
    """Return what the worker of a data folder is announced as; for health checks.

    Raises
    ------
    DietCodeError
        There is no worker, or it has not announced itself lately.
    """
    path = settings.data_dir / _NAME_FILE
    try:
        name = path.read_text()
    except OSError:
        raise DietCodeError(f"{settings.data_dir}: no worker has used this data folder") from None
    _check_file(settings)
    database = Database(settings.database)
    try:
        with database.read() as session:
            there = [row.name for row in runners.live(session)]
    finally:
        database.dispose()
    if name not in there:
        raise DietCodeError(f"worker {name} has not announced itself for {settings.lost_after_secs:.3g} s")
    return name


def _ready(announcer: Announcer, settings: Settings) -> str:
    devices = ", ".join(
        f"{one.name} ({label_of(one.target)}) in slot {one.slot}" for one in announcer.devices
    )
    return (
        f"dietcode: worker {announcer.name} measures {devices or 'nothing yet'}, data in {settings.data_dir}"
    )


def _check_file(settings: Settings) -> None:
    """Refuse a SQLite file that is not that of the data folder: a server on this machine has that one open.

    Raises
    ------
    RequestError
        It is another file, or is not there.
    """
    database = Database(settings.database)
    path, is_sqlite = str(database.location), database.is_sqlite
    database.dispose()
    if not is_sqlite:
        return
    own = settings.data_dir / DATABASE_NAME
    if Path(path).absolute() != own:
        raise RequestError(
            f"--database-url: given {clip(path, 200)}; a worker uses the SQLite file of its server's data "
            "folder (--data-dir), on the server's machine, or PostgreSQL from any machine"
        )
    if not own.is_file():
        raise RequestError(
            f"{own}: no such database; give the data folder of a server on this machine with --data-dir, or "
            "a PostgreSQL database with --database-url"
        )


def _check_host(database: Database) -> None:
    """Refuse a SQLite file that another machine uses: its locks and its log do not reach over a network.

    Raises
    ------
    RequestError
        A runner on another host is announced in it.
    """
    if not database.is_sqlite:
        return
    with database.read() as session:
        hosts = {row.process.rsplit("/", 2)[0] for row in runners.live(session)} - {socket.gethostname()}
    if hosts:
        raise RequestError(
            f"{database.location}: {min(hosts)} uses this SQLite file; "
            "on several machines use PostgreSQL, with --database-url"
        )
