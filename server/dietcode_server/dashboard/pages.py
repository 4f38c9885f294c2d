"""Every page's routes, for the application."""

from __future__ import annotations

from dietcode_server.dashboard import devices, job, jobs, libraries, static, submit

PARTS = (static, jobs, job, submit, libraries, devices)
