"""What a line of the log looks like; read from a process of its own, as logging is the process's."""

from __future__ import annotations

import json
import subprocess
import sys

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
