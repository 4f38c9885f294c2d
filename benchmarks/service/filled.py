"""How long lists, figures and single jobs take with a hundred thousand jobs and ten million measurements."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.service import fill
from benchmarks.service.asking import Asker
from benchmarks.service.base import database_in, peak_rss_bytes, percentiles, served
from benchmarks.service.postgres import postgres
from dietcode_server.store.database import Database

_JOBS, _LIBRARIES = "/api/v1/jobs", "/api/v1/libraries"


def measure(
    folder: Path,
    *,
    num_jobs: int = 100_000,
    num_records: int = 10_000_000,
    postgres_records: int = 1_000_000,
    rounds: int = 20,
) -> dict[str, Any]:
    """Milliseconds of each page, on SQLite and, with fewer measurements, on PostgreSQL.

    Parameters
    ----------
    rounds : int
        How often each page is asked for, after a first time that is given on its own.
    """
    results: dict[str, Any] = {"asked": {"num_jobs": num_jobs}}
    database = database_in(folder / "sqlite")
    results["sqlite"] = _measure(folder / "sqlite", database, num_jobs, num_records, rounds)
    if postgres_records:
        with postgres() as url:
            database = Database(url)
            database.upgrade()
            results["postgresql"] = _measure(
                folder / "other", database, num_jobs, postgres_records, rounds, url
            )
    return results


def _measure(
    folder: Path, database: Database, num_jobs: int, num_records: int, rounds: int, url: str = ""
) -> dict[str, Any]:
    begun = time.perf_counter()
    fill.fill(database, num_jobs, num_records)
    database.dispose()
    filled_secs = time.perf_counter() - begun
    begun = time.perf_counter()
    environment = {"DIETCODE_SERVE_DATABASE_URL": url} if url else {}
    with served(folder, environment) as (client, process), Asker(client.server) as asker:
        started_secs = time.perf_counter() - begun
        pages = {name: _timed(asker, path, rounds) for name, path in _paths(asker, num_jobs).items()}
        return {
            "num_records": num_records,
            "filled_secs": filled_secs,
            "started_secs": started_secs,
            "database_bytes": sum(path.stat().st_size for path in folder.glob("dietcode.db*")),
            "server_peak_rss_bytes": peak_rss_bytes(process),
            "pages": pages,
            "slowest_ms": max(page["max_ms"] for page in pages.values()),
        }


def _paths(asker: Asker, num_jobs: int) -> dict[str, str]:
    """What is asked for, by what it is."""
    deep_jobs = _deep(asker, f"{_JOBS}?limit=500", num_jobs // 2)
    deep_libraries = _deep(asker, f"{_LIBRARIES}?limit=500", num_jobs // 4)
    one = fill.job_id(num_jobs // 3)
    filters = {
        "of a state": "state=failed",
        "of a rare state": "state=interrupted",
        "of no state there is": "state=running",
        "of three states": "state=failed&state=cancelled&state=succeeded",
        "of a name": "name=name-7",
        "of an owner": "owner=owner-7",
        "of a name and a state": "name=name-7&state=succeeded",
        "of an owner and two states": "owner=owner-7&state=failed&state=cancelled",
    }
    return {
        "jobs": _JOBS,
        "jobs, 500": f"{_JOBS}?limit=500",
        "jobs, half-way": f"{_JOBS}?limit=50&cursor={deep_jobs}",
        "jobs, 500, half-way": f"{_JOBS}?limit=500&cursor={deep_jobs}",
        **{f"jobs {what}": f"{_JOBS}?{query}" for what, query in filters.items()},
        "jobs of a state, half-way": f"{_JOBS}?state=succeeded&cursor={deep_jobs}",
        "jobs of an owner, half-way": f"{_JOBS}?owner=owner-7&cursor={deep_jobs}",
        "libraries": _LIBRARIES,
        "libraries, 500": f"{_LIBRARIES}?limit=500",
        "libraries, half-way": f"{_LIBRARIES}?cursor={deep_libraries}",
        "versions of a name": f"{_LIBRARIES}/name-7",
        "a job": f"{_JOBS}/{one}",
        "a library": f"{_LIBRARIES}/name-7/latest/info",
        "metrics": "/metrics",
        "the dashboard": "/",
        "the page of a job": f"/jobs/{one}",
    }


def _deep(asker: Asker, path: str, num_rows: int) -> str:
    """The cursor after so many rows."""
    cursor, passed = "", 0
    while passed < num_rows:
        status, body = asker.ask(path + (f"&cursor={cursor}" if cursor else ""))
        if status != 200:
            raise RuntimeError(f"{path}: status {status}: {body[:300]!r}")
        page = json.loads(body)
        passed += len(page.get("jobs", page.get("libraries")))
        if page["next"] is None:
            break
        cursor = page["next"]
    return cursor


def _timed(asker: Asker, path: str, rounds: int) -> dict[str, float]:
    """Milliseconds of one page, asked for one after the other."""
    first = _millis(lambda: asker.ask(path))
    return {"first_ms": first, **percentiles([_millis(lambda: asker.ask(path)) for _ in range(rounds)])}


def _millis(ask: Callable[[], tuple[int, bytes]]) -> float:
    begun = time.perf_counter()
    status, body = ask()
    if status != 200:
        raise RuntimeError(f"status {status}: {body[:300]!r}")
    return (time.perf_counter() - begun) * 1e3
