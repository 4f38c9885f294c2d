"""What the server's processes log: one line an event, for people or as JSON, with the job that it is about.

Code logs with the standard library, ``_log.info("…", extra={"job": job_id})``; what is in `extra` becomes a
field of the line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

from dietcode.lean import left_out

with left_out("rich"):  # structlog imports it for tracebacks with values, longer than all the rest of it
    import structlog

_PAUSE_SECS = 1.0
_MOST_KINDS = 1000
_OF_CONNECTIONS = "uvicorn"

Format = Literal["text", "json"]
OWN = ("dietcode", "dietcode_server")


def configure_logs(log_format: Format) -> None:
    """Send all logging of this process to its standard error: our own from INFO on, others' from WARNING.

    A JSON line has ``timestamp`` (ISO 8601, UTC), ``level``, ``logger``, ``event``, and the fields.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_formatter(log_format))
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(logging.INFO)


class Repeats(logging.Filter):
    """Lets an error of one kind through once a second, with the number of those that were left out before it.

    A failure that comes back with each turn of a loop would fill a disk otherwise, and so would what is said
    of connections that send anything that is not HTTP, for which nobody needs a token.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str, str], tuple[float, int]] = {}  # when last, how many left out since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record."""
        least = logging.WARNING if record.name.startswith(_OF_CONNECTIONS) else logging.ERROR
        if record.levelno < least:
            return True
        error = record.exc_info[1] if record.exc_info else None
        kind = record.name, str(record.msg), type(error).__name__
        now = self._clock()
        last, left_out = self._kinds.get(kind, (-_PAUSE_SECS, 0))
        if now - last < _PAUSE_SECS:
            self._kinds[kind] = last, left_out + 1
            return False
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = now, 0
        if left_out:
            record.repeats = left_out
        return True


def _formatter(log_format: Format) -> logging.Formatter:
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Any]
    if log_format == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback  # others show the values of variables, tokens too
        last = [structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, exception_formatter=plain)]
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *last])
