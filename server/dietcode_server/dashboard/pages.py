"""Routes of all pages, for the application."""

from __future__ import annotations

from dietcode_server.dashboard import (
    compare,
    devices,
    job,
    jobs,
    libraries,
    manual,
    results,
    static,
    submit,
)

PARTS = (static, jobs, job, results, compare, submit, libraries, devices, manual)
