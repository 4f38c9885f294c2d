"""What a line of the log looks like; read from a process of its own, as logging is the process's."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

from dietcode_server.logs import Repeats

CODE = """
import logging, sys
from dietcode_server.logs import configure_logs
configure_logs(sys.argv[1])
logging.getLogger("dietcode.worker").info("started %d", 3, extra={"job": "abc"})
logging.getLogger("elsewhere").info("not ours")
try:
    secret = "token"
    raise ValueError("why")
except ValueError:
    logging.getLogger("dietcode_server").exception("failed", extra={"job": "abc"})
"""


def logged(log_format: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CODE, log_format], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_a_line_of_json_has_the_job_and_the_traceback() -> None:
    first, second = (json.loads(line) for line in logged("json").splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert first == {"event": "started 3", "level": "info", "logger": "dietcode.worker", "job": "abc"}
    assert (second["job"], second["level"]) == ("abc", "error")
    assert "ValueError: why" in second["exception"]


def test_text_is_for_people_and_shows_no_values_of_variables() -> None:
    text = logged("text")
    assert "started 3" in text and "job=abc" in text and "not ours" not in text
    assert "ValueError: why" in text
    assert "'token'" not in text.replace('secret = "token"', "")


def test_an_error_that_comes_back_with_each_turn_is_written_once_a_second() -> None:
    now = [0.0]
    repeats = Repeats(lambda: now[0])
    written = []

    def log(level: int, text: str, value: int) -> None:
        record = logging.LogRecord("asyncio", level, "file", 1, text, (value,), None)
        if repeats.filter(record):
            written.append((text % value, getattr(record, "repeats", 0)))

    for turn in range(5000):
        now[0] = turn / 2000
        log(logging.ERROR, "accept failed %d", turn)
    log(logging.ERROR, "another %d", 1)
    log(logging.WARNING, "warning %d", 1)
    log(logging.WARNING, "warning %d", 1)
    assert written[:3] == [("accept failed 0", 0), ("accept failed 2000", 1999), ("accept failed 4000", 1999)]
    assert written[3:] == [("another 1", 0), ("warning 1", 0), ("warning 1", 0)]
