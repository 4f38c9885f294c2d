"""What the server's processes log: one line an event, for people or as JSON, with the job that it is about.

Code logs with the standard library, ``_log.info("…", extra={"job": job_id})``; what is in `extra` becomes a
field of the line.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import structlog

Format = Literal["text", "json"]
OWN = ("dietcode", "dietcode_server")


def configure_logs(log_format: Format) -> None:
    """Send all logging of this process to its standard error: our own from INFO on, others' from WARNING.

    A JSON line has ``timestamp`` (ISO 8601, UTC), ``level``, ``logger``, ``event``, and the fields.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_formatter(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(logging.INFO)


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
