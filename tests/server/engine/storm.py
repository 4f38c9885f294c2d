"""Kills at random: of workers, of servers, of connections, and servers that stand still for a while."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
from small_libraries import spec_data
from sqlalchemy import select

from dietcode.protocol import JobState
from dietcode.workload.parse import spec_from_data
from dietcode_server.engine.runner import is_alive
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.patience import patiently
from dietcode_server.store.tables import JobRow, LibraryRow, TuningRecord

NUM_KERNELS = 12  # as in storm_worker.py
LEASE_SECS = 1.5
DEVICE = ("cpu0", "A test CPU", {"kind": "llvm"})


class Storm:
    """Servers over one database, and what is done to them.

    Parameters
    ----------
    cut : callable or None
        Ends the connections to the database; says how many there were.
    seed : int
        Of what is struck, and of the seconds between blows; when processes act is their own matter.
    """

    def __init__(
        self, folder: Path, url: str, num_servers: int, cut: Callable[[], int] | None, seed: int
    ) -> None:
        self.folder, self.url, self.cut = folder, url, cut
        self.rng = random.Random(seed)
        self.database = Database(url)
        self.database.upgrade()
        (folder / "work").mkdir(exist_ok=True)
        self.servers = [self.serve() for _ in range(num_servers)]
        self.ids: list[str] = []
        self.hit: Counter[str] = Counter()
        self.seen: dict[int, tuple[str, str | None, dict[str, object]]] = {}

    def serve(self) -> subprocess.Popen[str]:
        arguments = (self.url, self.folder, LEASE_SECS, 1_000_000, "storm_worker.py")
        script = Path(__file__).with_name("storm_server.py")
        return subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )

    def submit(self) -> None:
        """One more job, on a workload of its own."""
        number = len(self.ids)
        spec = spec_from_data(spec_data(f"storm{number}", dims={"m": "16*T", "n": 64, "k": 48 + number}))

        def add() -> str:
            with self.database.write() as session:
                target = {"kind": "llvm"}
                row, _ = jobs.submit(
                    session,
                    spec=spec,
                    target=target,
                    device=DEVICE,
                    runnable=True,
                    force=False,
                    idempotency_key=None,
                )
                return row.id

        self.ids.append(patiently(add))

    def rows(self) -> list[JobRow]:
        def read() -> list[JobRow]:
            with self.database.read() as session:
                found = [jobs.get(session, job_id) for job_id in self.ids]
                session.expunge_all()
                return found

        return patiently(read)

    def look(self) -> None:
        """What was once there is there still, as it was."""

        def read() -> dict[int, tuple[str, str | None, dict[str, object]]]:
            columns = (TuningRecord.id, TuningRecord.workload, TuningRecord.micro_kernel, TuningRecord.line)
            with self.database.read() as session:
                return {
                    number: (one, two, line) for number, one, two, line in session.execute(select(*columns))
                }

        now = patiently(read)
        assert {number: now.get(number) for number in self.seen} == self.seen, "a record was lost or changed"
        self.seen = now

    def rage(self, num_kills: int) -> None:
        """So many blows; each hits something."""
        kinds = ["worker"] * 3 + ["server"] * 2 + ["freeze"] + (["cut"] * 3 if self.cut else [])
        while self.hit.total() < num_kills:
            unfinished = sum(row.state != JobState.SUCCEEDED.value for row in self.rows())
            for _ in range(2 - unfinished):
                self.submit()
            self.wait_for_a_worker()
            time.sleep(self.rng.uniform(0.0, 0.6))
            kind = self.rng.choice(kinds)
            if getattr(self, f"hit_{kind}")():
                self.hit[kind] += 1
                self.look()

    def workers(self) -> list[str]:
        """Names of those that hold a job, and live."""
        held = [row.runner for row in self.rows() if row.state == JobState.RUNNING.value and row.runner]
        return [runner for runner in held if is_alive(runner)]

    def wait_for_a_worker(self, timeout_secs: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_secs
        while not self.workers():
            if all(row.state == JobState.SUCCEEDED.value for row in self.rows()):
                return
            assert time.monotonic() < deadline, [(row.state, row.error) for row in self.rows()]
            time.sleep(0.02)

    def hit_worker(self) -> bool:
        alive = self.workers()
        if not alive:
            return False
        try:
            os.kill(int(self.rng.choice(alive).split("/")[1]), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def hit_server(self) -> bool:
        index = self.rng.randrange(len(self.servers))
        end(self.servers[index])
        self.servers[index] = self.serve()
        return True

    def hit_cut(self) -> bool:
        assert self.cut is not None
        return self.cut() > 0

    def hit_freeze(self) -> bool:
        """A server and its worker stand still for longer than a lease, and wake up again."""
        server = psutil.Process(self.rng.choice(self.servers).pid)
        processes = [server, *server.children(recursive=True)]
        stopped = []
        for process in processes:
            try:
                process.suspend()
                stopped.append(process)
            except psutil.NoSuchProcess:
                continue
        time.sleep(LEASE_SECS * 1.4)
        for process in stopped:
            try:
                process.resume()
            except psutil.NoSuchProcess:
                continue
        return True

    def calm_down(self, timeout_secs: float = 120.0) -> None:
        """Until all jobs have succeeded, with nobody's help."""
        deadline = time.monotonic() + timeout_secs
        while left := [row for row in self.rows() if row.state != JobState.SUCCEEDED.value]:
            assert time.monotonic() < deadline, [(row.id, row.state, row.error) for row in left]
            assert all(row.state in {"queued", "running"} for row in left), [row.error for row in left]
            time.sleep(0.1)

    def check(self) -> None:
        """Each micro-kernel was kept once, each job published once, and what was told is true."""
        self.look()
        kept = Counter((workload, kernel) for workload, kernel, _ in self.seen.values())
        assert set(kept.values()) == {1}, kept.most_common(3)
        rows = self.rows()
        assert len(kept) == len(rows) * NUM_KERNELS
        assert all(row.measured == NUM_KERNELS for row in rows), [row.measured for row in rows]
        told = [tuple(line.split()) for line in (self.folder / "work" / "told").read_text().splitlines()]
        assert len(told) == len(set(told)) and set(told) <= set(kept)
        with self.database.read() as session:
            made = session.execute(select(LibraryRow.name, LibraryRow.version)).all()
            for row in rows:
                events = job_events.events_after(session, row.id, 0, limit=100_000)
                assert [event.seq for event in events] == list(range(1, row.num_events + 1))
                states = [event.state for event in events if event.kind == "state"]
                assert states.count("running") == row.attempt and states[-1] == "succeeded"
                assert all(one != two for one, two in pairwise(states)), states
        assert sorted(map(tuple, made)) == sorted((row.name, 1) for row in rows)
        beside = list((self.folder / "work").glob("*.beside"))
        assert len(beside) <= self.hit["freeze"], "two jobs, or one twice, ran at once"

    def close(self) -> None:
        for server in self.servers:
            end(server)
        self.database.dispose()


def end(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()
    if server.stdout is not None:
        server.stdout.close()
