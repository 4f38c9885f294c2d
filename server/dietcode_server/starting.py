"""How `dietcode serve` and `dietcode worker` begin: what refuses to, before all the rest is imported."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from filelock import FileLock, Timeout

from dietcode.errors import DietCodeError, RequestError
from dietcode.extras import MissingExtraError, need, what_to_install
from dietcode.lean import has_torch
from dietcode.workload.text import clip
from dietcode_server.settings import DATABASE_NAME, Settings

WORK, LOGS = "work", "logs"


def check_installed(settings: Settings) -> None:
    """Refuse settings for jobs whose packages are not installed, before the first job fails for them.

    Raises
    ------
    MissingExtraError
        Ray or PyTorch is asked for, and is not there.
    """
    if settings.engine == "ray":
        need("ray", "DIETCODE_SERVE_ENGINE=ray")
    if settings.compare == "torch" and not has_torch():
        raise MissingExtraError(what_to_install("DIETCODE_SERVE_COMPARE=torch", "bench", ("torch",)))


def no_token(settings: Settings) -> RequestError:
    """Return the error of an address that others can reach where nobody has a token."""
    return RequestError(
        f"--host: given {clip(settings.host)}, which others can reach, but there are no live tokens; "
        "run `dietcode token create NAME` with the same --data-dir first, or listen on 127.0.0.1"
    )


@contextmanager
def no_sudden_end() -> Iterator[Event]:
    """SIGTERM and SIGINT end nothing at once in here: yields an event that is set where one came.

    While uvicorn serves it has handlers of its own, and raises what it caught again afterwards.
    """
    stop = Event()
    older = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in older.items():
            signal.signal(number, handler)


@contextmanager
def locked_folder(folder: Path, who: str) -> Iterator[None]:
    """Make the data folder where it is missing, and keep others of the same kind out of it.

    What this process writes from then on is for its user alone; so is the folder, where it is made here.

    Parameters
    ----------
    who : str
        server or worker: each data folder may have one of both.

    Raises
    ------
    DietCodeError
        It cannot be written, or another one has it.
    """
    older = os.umask(0o077)
    try:
        for path in (folder, folder / WORK, folder / LOGS):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in (folder / WORK, folder / LOGS, *folder.glob(f"{DATABASE_NAME}*")):
            if path.stat().st_uid == os.geteuid():  # an older version left them open
                path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o077)
        lock = FileLock(folder / f"{who}.lock")
        lock.acquire(timeout=0)
    except Timeout:
        os.umask(older)
        raise DietCodeError(
            f"{folder}: another {who} uses this data folder; end it, or choose another with --data-dir"
        ) from None
    except OSError as error:
        os.umask(older)
        raise DietCodeError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}; "
            "choose another with --data-dir"
        ) from error
    try:
        yield
    finally:
        lock.release()
        os.umask(older)
