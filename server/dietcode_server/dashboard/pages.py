"""Every page's routes, for the application."""

from __future__ import annotations

from dietcode_server.dashboard import job, jobs, static

PARTS = (static, jobs, job)
