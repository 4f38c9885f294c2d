"""What the service costs: a job beside `dietcode tune`, metadata calls while it tunes, a pull of 10 MB."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.service.base import percentiles, served, spec_of
from dietcode.protocol import JobState
from dietcode_server.store import libraries
from dietcode_server.store.database import Database

_ROUNDS = 7
_CALLS_A_SECOND = 50
_PULLED_BYTES = 10_000_000
_HELP_ROUNDS = 21


def command(*arguments: object, cache: Path, server: str = "") -> float:
    """Seconds of one command that must succeed."""
    environment = os.environ | {"DIETCODE_CACHE": str(cache), "DIETCODE_SERVER": server}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "dietcode", *map(str, arguments)],
        check=True,
        capture_output=True,
        env=environment,
    )
    return time.perf_counter() - started


def overhead(folder: Path) -> dict[str, Any]:
    """Seconds of jobs whose records are all there, by the service and by `dietcode tune`, in turns.

    What is left is what the two do differently: processes, database, polling; the measuring itself, which
    differs from run to run by more than that, is not in it.
    """
    spec = folder / "spec.json"
    rounds: dict[str, list[float]] = {"tune": [], "submit": []}
    with served(folder / "data") as (client, _):
        for number in range(_ROUNDS + 1):
            spec.write_text(json.dumps(spec_of(number)))
            tune = command("tune", spec, "-o", folder / "library", cache=folder / "cache")
            submit = command("submit", spec, "--wait", cache=folder / "cache", server=client.server)
            if number == 0:
                cold = {"tune": tune, "submit": submit}
                continue
            rounds["tune"].append(tune)
            rounds["submit"].append(submit)
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    return {
        "cold_secs": cold,
        "warm_secs": rounds,
        "median_secs": medians,
        "added_secs": medians["submit"] - medians["tune"],
    }


def latency(folder: Path) -> dict[str, Any]:
    """Milliseconds of metadata calls, at a fixed rate, while a job is tuning from nothing."""
    millis: dict[str, list[float]] = {}
    with served(folder) as (client, process):
        job = client.submit(spec_of(0, budget={"trials": 256, "seconds": 600}))
        calls: dict[str, Callable[[], Any]] = {
            "job": lambda: client.job(job.id),
            "jobs": client.jobs,
            "libraries": client.libraries,
            "events": lambda: next(client.events(job.id)),
        }
        start = time.perf_counter()
        number = 0
        while client.job(job.id).state in {JobState.QUEUED, JobState.RUNNING}:
            for _ in range(_CALLS_A_SECOND):
                name = list(calls)[number % len(calls)]
                number += 1
                time.sleep(max(0.0, start + number / _CALLS_A_SECOND - time.perf_counter()))
                begun = time.perf_counter()
                calls[name]()
                millis.setdefault(name, []).append((time.perf_counter() - begun) * 1e3)
        found = client.job(job.id)
        assert found.state == JobState.SUCCEEDED, found
        memory = process.memory_info().rss
    every = [value for values in millis.values() for value in values]
    return {
        "tuning_secs": time.perf_counter() - start,
        "server_rss_bytes": memory,
        "all": percentiles(every),
        **{name: percentiles(values) for name, values in millis.items()},
    }


def pull(folder: Path) -> dict[str, Any]:
    """Seconds to pull a library of 10 MB into an empty cache, by the client and by a new process."""
    library = folder / "library"
    client_secs, process_secs = [], []
    with served(folder / "pulled") as (client, _):
        database = Database(f"sqlite:///{folder / 'pulled' / 'dietcode.db'}")
        with database.write() as session:
            row = libraries.publish(session, job=None, device_name="a benchmark", files=_large(library))
            ref, size = f"{row.name}@{row.version}", row.size_bytes
        for number in range(_ROUNDS):
            cache = folder / f"cache-{number}"
            os.environ["DIETCODE_CACHE"] = str(cache)
            begun = time.perf_counter()
            client.pull(ref)
            client_secs.append(time.perf_counter() - begun)
            shutil.rmtree(cache)
            process_secs.append(command("pull", ref, "--no-lock", cache=cache, server=client.server))
            shutil.rmtree(cache)
        database.dispose()
    return {
        "size_bytes": size,
        "client_secs": client_secs,
        "command_secs": process_secs,
        "median_client_secs": statistics.median(client_secs),
        "median_command_secs": statistics.median(process_secs),
    }


def _large(library: Path) -> dict[str, bytes]:
    """A library's files with code padded to 10 MB; the manifest fits."""
    files = {str(p.relative_to(library)): p.read_bytes() for p in library.rglob("*") if p.is_file()}
    noise = np.random.default_rng(0).bytes(_PULLED_BYTES - len(files["library.so"]))
    files["library.so"] += noise
    manifest = json.loads(files["manifest.json"])
    code = files["library.so"]
    manifest["files"]["library.so"] |= {
        "sha256": f"sha256:{hashlib.sha256(code).hexdigest()}",
        "bytes": len(code),
    }
    files["manifest.json"] = json.dumps(manifest).encode()
    return files


def startup() -> dict[str, Any]:
    """Seconds of `dietcode --help`, and of Python alone, in turns."""
    rounds: dict[str, list[float]] = {"help": [], "python": []}
    for _ in range(_HELP_ROUNDS):
        for name, arguments in (("help", ["-m", "dietcode", "--help"]), ("python", ["-c", ""])):
            begun = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            rounds[name].append(time.perf_counter() - begun)
    return {f"median_{name}_secs": statistics.median(values) for name, values in rounds.items()}


def measure(folder: Path) -> dict[str, Any]:
    """All of it."""
    return {
        "startup": startup(),
        "overhead": overhead(folder),
        "pull": pull(folder),
        "latency": latency(folder / "latency"),
    }
