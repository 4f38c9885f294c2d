"""A database as months leave it: jobs, events, libraries and measurements, written by SQL alone.

What is in it follows from the number of a row: job 7 of 100 000 has the same name, owner and state each time.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import text

from benchmarks.service.base import spec_of
from dietcode_server.store.database import Database

NUM_NAMES, NUM_OWNERS, NUM_WORKLOADS = 200, 50, 200
# Of each 20 jobs: most have made a library.
STATES = ["succeeded"] * 14 + ["failed"] * 3 + ["cancelled"] * 2 + ["interrupted"]
_BEGAN = 1_760_000_000  # seconds since 1970; a job every 40 s from then on
_EVERY_SECS = 40
_BATCH = 250_000
_TARGET = {
    "kind": "llvm",
    "mcpu": "sapphirerapids",
    "num_cores": 2,
    "features": ["avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"],
    "mtriple": "x86_64-unknown-linux-gnu",
}
_PROGRESS = {"stage": "verify", "message": "right on 8 instances against float64", "done": 8, "total": 8}


def fill(database: Database, num_jobs: int, num_records: int) -> None:
    """Write them; the database has all tables, and nothing in them."""
    workloads = [f"sha256:{hashlib.sha256(str(n).encode()).hexdigest()}" for n in range(NUM_WORKLOADS)]
    values: dict[str, Any] = {
        "spec": json.dumps(spec_of(0)),
        "target": json.dumps(_TARGET),
        "progress": json.dumps(_PROGRESS),
        "line": json.dumps(_line()),
        "rule": json.dumps({"root": {"category": 0}, "variables": ["T"]}),
        "states": len(STATES),
        "names": NUM_NAMES,
        "owners": NUM_OWNERS,
        "workloads": NUM_WORKLOADS,
        "per_workload": max(1, num_records // NUM_WORKLOADS),
        "per_job": max(1, num_records // num_jobs),
        "jobs": num_jobs,
    }
    with database.begin() as connection:
        for table, texts in (("bench_states", STATES), ("bench_workloads", workloads)):
            connection.execute(text(f"CREATE TABLE {table} (n INTEGER PRIMARY KEY, value VARCHAR(71))"))
            rows = [{"n": n, "value": value} for n, value in enumerate(texts)]
            connection.execute(text(f"INSERT INTO {table} VALUES (:n, :value)"), rows)
    for statement, count in (
        (_WORKLOADS, NUM_WORKLOADS),
        (_DEVICE, 1),
        (_NAMES, NUM_NAMES),
        (_BLOBS, num_jobs),
        (_LIBRARIES, num_jobs),
        (_FILES, num_jobs),
        (_JOBS, num_jobs),
        (_EVENTS, num_jobs),
        (_RECORDS, num_records),
    ):
        for first in range(0, count, _BATCH):
            last = min(first + _BATCH, count) - 1
            with database.begin() as connection:
                connection.execute(text(_sql(statement, database)), values | {"first": first, "last": last})
    with database.begin() as connection:
        for table in ("bench_states", "bench_workloads"):
            connection.execute(text(f"DROP TABLE {table}"))
        if not database.is_sqlite:
            connection.execute(text(_COUNT_ON))


def job_id(number: int) -> str:
    """Of one of the jobs."""
    return f"{number:016x}"


def _line() -> dict[str, Any]:
    """A measurement as it is kept, but for rows and seconds."""
    points = [{"m": 16 * n, "n": 64, "k": 768} for n in (6, 24, 96)]
    return {
        "kind": "micro_kernel",
        "columns": 64,
        "tails": "partition",
        "provenance": "mutation of 6x64, round 3",
        "points": points,
        "object_bytes": 9216,
        "build_secs": 0.213,
        "drift": 1.003,
        "attempts": 1,
        "num_readings": 5,
        "error": None,
    }


def _sql(statement: str, database: Database) -> str:
    """The statement in the words of one database: numbers from :first to :last, times, and hex."""
    sqlite, postgres = 0, 1
    words = {
        "NUMBERS": (
            "(WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last) "
            "SELECT i FROM n)",
            "(SELECT generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS i)",
        ),
        "TIME": ("strftime('%Y-%m-%d %H:%M:%S.000000', {}, 'unixepoch')", "to_timestamp({})"),
        "HEX16": ("printf('%016x', {})", "lpad(to_hex({}), 16, '0')"),
        "HEX64": ("printf('%064x', {})", "lpad(to_hex({}), 64, '0')"),
        "JSON": ("{}", "CAST({} AS json)"),
        "YES": ("1", "true"),
        "NO": ("0", "false"),
    }
    kind = sqlite if database.is_sqlite else postgres
    for word, forms in words.items():
        while word in statement:
            before, after = statement.split(word, 1)
            if "{}" not in forms[kind] and word in {"NUMBERS", "YES", "NO"}:
                statement = before + forms[kind] + after
                continue
            argument, after = _argument(after)
            statement = before + forms[kind].replace("{}", argument) + after
    return statement


def _argument(given: str) -> tuple[str, str]:
    """What stands between the first parenthesis and its other one, and the rest."""
    depth = 0
    for place, letter in enumerate(given):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return given[1:place], given[place + 1 :]
    raise ValueError(given)


_CREATED = f"TIME({_BEGAN} + i * {_EVERY_SECS})"
_STARTED = f"TIME({_BEGAN} + i * {_EVERY_SECS} + 2)"
_ENDED = f"TIME({_BEGAN} + i * {_EVERY_SECS} + 30)"
_DIGEST = "'sha256:' || HEX64(i)"
_STATE = "(SELECT value FROM bench_states WHERE n = i % :states)"
_NAME = "'name-' || (i % :names)"

_WORKLOAD = "(SELECT value FROM bench_workloads WHERE n = i % :workloads)"

_WORKLOADS = f"""
INSERT INTO workloads (digest, spec, created_at)
SELECT {_WORKLOAD}, JSON(:spec), {_CREATED} FROM NUMBERS AS numbers
"""
_DEVICE = f"""
INSERT INTO devices (id, name, target, created_at)
SELECT 'cpu0', 'A CPU of the benchmark', JSON(:target), {_CREATED} FROM NUMBERS AS numbers
"""
_NAMES = f"""
INSERT INTO names (name, owner, created_at, sequence)
SELECT {_NAME}, 'owner-' || (i % :owners), {_CREATED}, :jobs FROM NUMBERS AS numbers
"""
# Of jobs that have made a library: numbers as those of jobs.
_MADE = f"{_STATE} = 'succeeded'"
_BLOBS = f"""
INSERT INTO blobs (digest, size_bytes, created_at)
SELECT {_DIGEST}, 4096, {_CREATED} FROM NUMBERS AS numbers WHERE {_MADE}
"""
_LIBRARIES = f"""
INSERT INTO libraries (id, name, version, job_id, workload, device, target, manifest_digest, dispatch_rule,
    num_micro_kernels, size_bytes, created_at)
SELECT i + 1, {_NAME}, i / :names + 1, HEX16(i),
    {_WORKLOAD}, 'A CPU of the benchmark',
    JSON(:target), {_DIGEST}, JSON(:rule), 3, 50000, {_CREATED}
FROM NUMBERS AS numbers WHERE {_MADE}
"""
_FILES = f"""
INSERT INTO library_files (library_id, path, digest, size_bytes)
SELECT i + 1, 'manifest.json', {_DIGEST}, 4096 FROM NUMBERS AS numbers WHERE {_MADE}
"""
_JOBS = f"""
INSERT INTO jobs (id, digest, name, owner, workload, device_id, spec, target, force, measure, state, attempt,
    measured, cancel_requested, num_lost, priority, progress, error, num_events, library_id, created_at,
    started_at, finished_at, updated_at)
SELECT HEX16(i), {_DIGEST}, {_NAME}, 'owner-' || (i % :owners),
    {_WORKLOAD}, 'cpu0', JSON(:spec), JSON(:target),
    NO, YES, {_STATE}, 1, 40, NO, 0, 0, JSON(:progress),
    CASE WHEN {_STATE} = 'failed' THEN 'no micro-kernel gave right results' END, 3,
    CASE WHEN {_MADE} THEN i + 1 END, {_CREATED}, {_STARTED},
    CASE WHEN {_STATE} <> 'interrupted' THEN {_ENDED} END, {_ENDED}
FROM NUMBERS AS numbers
"""
_EVENTS = f"""
INSERT INTO events (job_id, seq, at, kind, state, message, data)
SELECT HEX16(i), s.n + 1, {_CREATED}, 'state',
    CASE s.n WHEN 0 THEN 'queued' WHEN 1 THEN 'running' ELSE {_STATE} END, '', JSON('{{}}')
FROM NUMBERS AS numbers JOIN bench_states AS s ON s.n < 3
"""
_OF_WORKLOAD = "(SELECT value FROM bench_workloads WHERE n = (i / :per_workload) % :workloads)"
_OF_JOB = "HEX16(CASE WHEN i / :per_job < :jobs THEN i / :per_job ELSE :jobs - 1 END)"
_RECORDS = f"""
INSERT INTO tuning_records (workload, device_id, job_id, attempt, kind, micro_kernel, num_readings, line,
    created_at)
SELECT {_OF_WORKLOAD}, 'cpu0', {_OF_JOB}, 1, 'micro_kernel', (i % 24 + 1) || 'x64', 5,
    JSON('{{"rows": ' || (i % 24 + 1) || ', "secs": [' || (1.0 + i % 1000 / 1000.0) || 'e-5, '
        || (4.0 + i % 997 / 997.0) || 'e-5, ' || (1.5 + i % 991 / 991.0) || 'e-4], '
        || substr(CAST(:line AS text), 2)),
    TIME({_BEGAN} + i * {_EVERY_SECS} / :per_job)
FROM NUMBERS AS numbers
"""
_COUNT_ON = """
SELECT setval(pg_get_serial_sequence('libraries', 'id'), (SELECT MAX(id) FROM libraries)),
    setval(pg_get_serial_sequence('tuning_records', 'id'), (SELECT MAX(id) FROM tuning_records))
"""
