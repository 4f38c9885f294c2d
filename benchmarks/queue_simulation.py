"""Many workers on one queue: a simulation from measured durations, and where the design saturates.

    python -m benchmarks.claims              # what PostgreSQL takes
    python -m benchmarks.queue_simulation    # writes its record, and the tables of docs/scaling.md

What is simulated is what a worker does: look every half second; reserve the first job of its device; start a
process for it; claim it there, or come too late where the reservation ran out; tune; look again. Nothing in
it is a guess but what docs/scaling.md lists under "Assumed".
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from benchmarks.facts import device_name, slug, write

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
OUTPUT = RESULTS / "queue-simulation.json"
NUM_WORKERS, NUM_JOBS = 64, 1000
LOADS = (0.5, 0.7, 0.8, 0.9, 0.95)
KINDS = (1, 8, 64)
FLEETS = (0.25, 1, 2, 4)  # times the number of workers


@dataclass(frozen=True)
class Inputs:
    """What was measured.

    Attributes
    ----------
    durations : tuple of float
        Seconds of tuning runs; a simulated job takes one of them.
    poll_secs : float
        How long a worker waits between two looks at the queue.
    start_secs : float
        From its decision until the process that it started has claimed the job, or heard that it is taken.
    watch_secs, watch_secs_per_running : float
        Processor seconds of the database for a turn of any worker: of itself, and for each job that runs.
    look_secs : float
        What a worker without a job asks besides.
    reserve_secs, claim_secs, heartbeat_secs, announce_secs : float
        Of these transactions.
    reserve_latency_secs, claim_latency_secs : float
        Until such a one is answered, the disk's time included.
    lease_secs : float
        After which a job that was reserved and not claimed is anybody's again.
    heartbeat_every_secs : float
    database_cores : int
        How many of the requests it works on at once.
    """

    durations: tuple[float, ...]
    poll_secs: float
    start_secs: float
    watch_secs: float
    watch_secs_per_running: float
    look_secs: float
    reserve_secs: float
    claim_secs: float
    heartbeat_secs: float
    announce_secs: float
    reserve_latency_secs: float
    claim_latency_secs: float
    lease_secs: float
    heartbeat_every_secs: float
    database_cores: int

    @property
    def mean_secs(self) -> float:
        """Of one job."""
        return float(np.mean(self.durations))

    def watch_takes(self, num_running: float) -> float:
        """Database seconds of one turn."""
        return self.watch_secs + self.watch_secs_per_running * num_running


@dataclass(frozen=True)
class Scenario:
    """What is asked of the workers.

    Attributes
    ----------
    kinds : int
        Devices that differ; a worker has one of them, and a job is for one of them.
    load : float or None
        Jobs come at random (Poisson), this share of what the workers can do; None: all at once.
    """

    workers: int = NUM_WORKERS
    jobs: int = NUM_JOBS
    kinds: int = 1
    load: float | None = None
    seed: int = 0


class Fleet:
    """Workers, their queue and their database, in simulated time."""

    def __init__(self, inputs: Inputs, scenario: Scenario) -> None:
        self.inputs, self.scenario = inputs, scenario
        self.random = np.random.default_rng(scenario.seed)
        self.world = simpy.Environment()
        self.database = simpy.Resource(self.world, inputs.database_cores)
        self.queues: list[deque[int]] = [deque() for _ in range(scenario.kinds)]
        self.arrived = np.zeros(scenario.jobs)
        self.reserved_until = np.zeros(scenario.jobs)
        self.waited = np.full(scenario.jobs, np.nan)
        self.num_running = self.num_left = 0
        self.busy_secs = self.database_secs = self.last_end = 0.0
        self.late_starts = 0
        self.over = self.world.event()

    def run(self) -> dict[str, Any]:
        """Until the last job has ended."""
        jobs = self.scenario.jobs
        self.num_left = jobs
        durations = self.random.choice(self.inputs.durations, jobs)
        kinds = self.random.integers(self.scenario.kinds, size=jobs)
        self.world.process(self._arrive(kinds))
        for number in range(self.scenario.workers):
            self.world.process(self._work(number % self.scenario.kinds, durations))
            self.world.process(self._announce())
        self.world.run(until=self.over)
        quantiles = {f"p{q}_secs": float(np.percentile(self.waited, q)) for q in (50, 90, 99)}
        return {
            **asdict(self.scenario),
            **quantiles,
            "mean_secs": float(self.waited.mean()),
            "max_secs": float(self.waited.max()),
            "secs": self.last_end,
            "utilisation": self.busy_secs / (self.last_end * self.scenario.workers),
            "late_starts": self.late_starts,
            "database_utilisation": self.database_secs / (self.last_end * self.inputs.database_cores),
        }

    def _arrive(self, kinds: np.ndarray) -> Iterator[Any]:
        load = self.scenario.load
        for job, kind in enumerate(kinds):
            if load is not None:
                mean = self.inputs.mean_secs / (self.scenario.workers * load)
                yield self.world.timeout(self.random.exponential(mean))
            self.arrived[job] = self.world.now
            self.queues[kind].append(job)
        yield self.world.timeout(0)

    def _work(self, kind: int, durations: np.ndarray) -> Iterator[Any]:
        queue = self.queues[kind]
        inputs, poll = self.inputs, self.inputs.poll_secs
        yield self.world.timeout(self.random.uniform(0, poll))
        while True:
            yield from self._ask(inputs.watch_takes(self.num_running) + inputs.look_secs)
            job = None
            if self._first(queue) is not None:
                yield from self._ask(inputs.reserve_secs)
                job = self._first(queue)
            if job is not None:
                self.reserved_until[job] = self.world.now + inputs.lease_secs
                yield self.world.timeout(inputs.reserve_latency_secs + inputs.start_secs)
                yield from self._ask(inputs.claim_secs)
                yield self.world.timeout(inputs.claim_latency_secs)
                if job in queue:
                    queue.remove(job)
                    self.waited[job] = self.world.now - self.arrived[job]
                    yield from self._tune(durations[job])
                else:
                    self.late_starts += 1
                yield self.world.timeout(self.random.uniform(0, poll))  # until the next look finds it ended
            else:
                yield self.world.timeout(poll)

    def _first(self, queue: deque[int]) -> int | None:
        """The first job that nobody has reserved."""
        return next((job for job in queue if self.reserved_until[job] <= self.world.now), None)

    def _announce(self) -> Iterator[Any]:
        every = self.inputs.heartbeat_every_secs
        yield self.world.timeout(self.random.uniform(0, every))
        while True:
            yield from self._ask(self.inputs.announce_secs)
            yield self.world.timeout(every)

    def _tune(self, secs: float) -> Iterator[Any]:
        """The job runs; meanwhile its worker looks after it, and it says that it lives."""
        inputs, until = self.inputs, self.world.now + secs
        self.num_running += 1
        next_beat = self.world.now + inputs.heartbeat_every_secs
        while self.world.now + inputs.poll_secs < until:
            yield self.world.timeout(inputs.poll_secs)
            yield from self._ask(inputs.watch_takes(self.num_running))
            if self.world.now >= next_beat:
                next_beat += inputs.heartbeat_every_secs
                yield from self._ask(inputs.heartbeat_secs)
        yield self.world.timeout(max(0.0, until - self.world.now))
        self.num_running -= 1
        self.busy_secs += secs
        self.last_end = self.world.now
        self.num_left -= 1
        if self.num_left == 0:
            self.over.succeed()

    def _ask(self, secs: float) -> Iterator[Any]:
        """A request that keeps a core of the database busy for so long, and waits where others came first."""
        if secs == 0:
            return
        with self.database.request() as turn:
            yield turn
            yield self.world.timeout(secs)
        self.database_secs += secs


def simulate(inputs: Inputs, scenario: Scenario) -> dict[str, Any]:
    """Queue time (from arrival to claim, in seconds), utilisation, and what the database does."""
    return Fleet(inputs, scenario).run()


def most_workers(inputs: Inputs) -> float:
    """How many workers that all have work ask as much of the database as it can take.

    Each has a turn every `poll_secs`, stamps and announces itself every `heartbeat_every_secs`, and a turn
    costs more the more jobs run: the root of ``n (watch(n) / poll + (beat + announce) / every) = cores``.
    """
    stamps = inputs.heartbeat_secs + inputs.announce_secs
    linear = inputs.watch_secs / inputs.poll_secs + stamps / inputs.heartbeat_every_secs
    square = inputs.watch_secs_per_running / inputs.poll_secs
    if square <= 0:
        return inputs.database_cores / linear
    return float((-linear + np.sqrt(linear**2 + 4 * square * inputs.database_cores)) / (2 * square))


def read_inputs(results: Path = RESULTS) -> Inputs:
    """What the records of earlier measurements say, all of the machine that measured the claims.

    Raises
    ------
    SystemExit
        A record is missing; says which command writes it.
    """
    from dietcode_server.engine import supervisor
    from dietcode_server.settings import Settings

    claims_file = results / "claims.json"
    if not claims_file.is_file():
        raise SystemExit(f"{claims_file}: missing; run python -m benchmarks.claims")
    claims = json.loads(claims_file.read_text())
    folder = results / slug(device_name(claims))
    runs = sorted(folder.glob("cpu-*.json"))
    if not runs:
        raise SystemExit(f"{folder}/cpu-*.json: missing; run python -m benchmarks.cpu")
    watch, look = (_loaded(claims[task]) for task in ("watch", "look"))
    slope, level = np.polyfit(list(watch), list(watch.values()), 1)
    return Inputs(
        durations=tuple(json.loads(path.read_text())["tuning"]["secs"] for path in runs),
        poll_secs=supervisor._POLL_SECS,
        start_secs=claims["start"]["median_secs"],
        watch_secs=float(level),
        watch_secs_per_running=max(0.0, float(slope)),
        look_secs=max(0.0, float(np.mean([look[n] - watch[n] for n in watch]))),
        reserve_secs=claims["reserve"]["together"]["database_ms"] / 1e3,
        claim_secs=claims["claim"]["together"]["database_ms"] / 1e3,
        heartbeat_secs=claims["beat"]["together"]["database_ms"] / 1e3,
        announce_secs=claims["announce"]["together"]["database_ms"] / 1e3,
        reserve_latency_secs=claims["reserve"]["alone"]["p50_ms"] / 1e3,
        claim_latency_secs=claims["claim"]["alone"]["p50_ms"] / 1e3,
        lease_secs=Settings.model_fields["lost_after_secs"].default,
        heartbeat_every_secs=Settings.model_fields["heartbeat_secs"].default,
        database_cores=claims["cores"],
    )


def _loaded(measured: dict[str, Any]) -> dict[int, float]:
    """Processor seconds of the database with many clients at once, by the number of jobs that run.

    Many were measured with as many jobs as clients alone; what they take more there is taken to be the same
    factor with other numbers of jobs.
    """
    together = measured["together"]
    factor = together["database_ms"] / measured[f"alone, {together['clients']} running"]["database_ms"]
    found = {
        int(key.split()[1]): factor * each["database_ms"] / 1e3
        for key, each in measured.items()
        if key != "together"
    }
    return dict(sorted(found.items()))


def run_all(inputs: Inputs, jobs: int = NUM_JOBS, workers: int = NUM_WORKERS) -> dict[str, Any]:
    """Every table of docs/scaling.md."""
    base = Scenario(workers=workers, jobs=jobs)
    fast = replace(inputs, start_secs=0.0)
    return {
        "inputs": asdict(inputs) | {"mean_secs": inputs.mean_secs, "most_workers": most_workers(inputs)},
        "burst": [simulate(inputs, replace(base, kinds=kinds)) for kinds in KINDS if kinds <= workers],
        "loads": [simulate(inputs, replace(base, load=load)) for load in LOADS],
        "kinds": [
            simulate(inputs, replace(base, load=0.8, kinds=kinds)) for kinds in KINDS if kinds <= workers
        ],
        "fleets": [
            simulate(inputs, replace(base, load=0.8, workers=int(workers * n), jobs=int(jobs * n)))
            for n in FLEETS
        ],
        "no_start": simulate(fast, base),
    }


def main() -> None:
    """Read, simulate, write JSON and the tables."""
    from benchmarks.scaling_tables import write_tables

    argparse.ArgumentParser(description=__doc__.split("\n", 1)[0]).parse_args()
    result = run_all(read_inputs())
    write(OUTPUT, result)
    print(write_tables())


if __name__ == "__main__":
    main()
