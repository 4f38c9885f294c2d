"""Servers to measure, and what is submitted to them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from dietcode.client import Client
from dietcode_server.store import tokens
from dietcode_server.store.database import Database

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def served(
    folder: Path, environment: Mapping[str, str] | None = None, token: str | None = None
) -> Iterator[tuple[Client, psutil.Process]]:
    """A server process on its own data folder and cache."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dietcode", "serve", "--port", "0", "--data-dir", str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"DIETCODE_CACHE": str(folder / "cache"), "DIETCODE_SERVE_COMPARE": "none"}
        | dict(environment or {}),
    )
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if found := re.match(r"dietcode: serving (\S+),", line):
            break
    else:
        raise RuntimeError(f"the server did not start: {lines}")
    rest = threading.Thread(target=process.stderr.read)
    rest.start()
    try:
        with Client(found[1], token=token) as client:
            yield client, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)
        rest.join()
        process.stderr.close()


def database_in(folder: Path) -> Database:
    """The database that a server in this folder has, with all tables."""
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(f"sqlite:///{folder / 'dietcode.db'}")
    database.upgrade()
    return database


def new_token(database: Database) -> str:
    """One of somebody who reads, submits and publishes."""
    with database.write() as session:
        return tokens.create(session, "bench", ["read", "submit", "publish"], None)[1]


def spec_of(number: int, **changes: Any) -> dict[str, Any]:
    """The paper's dense layer with a job identity of its own: the same workload and records each time."""
    data: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "bert-dense.yaml").read_text())
    return data | {"budget": {"trials": 64, "seconds": 300 + number}} | changes


def peak_rss_bytes(process: psutil.Process) -> int:
    """The most memory that a process has held, as the kernel counts it."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    assert found
    return int(found[1]) << 10


def percentiles(millis: Sequence[float]) -> dict[str, float]:
    """Count, median, 99th percentile and largest."""
    return {
        "count": len(millis),
        "p50_ms": float(np.percentile(millis, 50)),
        "p99_ms": float(np.percentile(millis, 99)),
        "max_ms": max(millis),
    }


def made_up_files(num_bytes: int, name: str = "pulled") -> dict[str, bytes]:
    """Files of a library that can be published and pulled, not run; its code has `num_bytes` of noise."""
    code = np.random.default_rng(0).bytes(num_bytes)
    runtime = np.random.default_rng(1).bytes(1 << 10)
    files = {
        "library.so": code,
        "dispatch.json": json.dumps({"categories": [], "rule": {}}).encode(),
        "report.json": json.dumps({"micro_kernels": [], "instances": []}).encode(),
    }
    manifest = {
        "format": "dietcode-library/1",
        "name": name,
        "workload": spec_of(0),
        "workload_digest": "sha256:" + "ab" * 32,
        "target": {"kind": "llvm"},
        "variable_order": ["T"],
        "runtime": _facts(runtime),
        "files": {path: _facts(data) for path, data in files.items()},
    }
    blob = f"blobs/{_facts(runtime)['sha256'].replace(':', '-')}"
    return {**files, "manifest.json": json.dumps(manifest).encode(), blob: runtime}


def _facts(data: bytes) -> dict[str, Any]:
    return {"sha256": f"sha256:{hashlib.sha256(data).hexdigest()}", "bytes": len(data)}
