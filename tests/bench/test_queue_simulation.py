"""The simulation of many workers: against theory, and its page against its record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.facts import facts
from benchmarks.queue_simulation import OUTPUT, Inputs, Scenario, most_workers, read_inputs, run_all, simulate
from benchmarks.scaling_tables import PAGE, filled, tables

FREE = Inputs(
    durations=(60.0,),
    poll_secs=0.05,
    start_secs=0.0,
    watch_secs=0.0,
    watch_secs_per_running=0.0,
    look_secs=0.0,
    reserve_secs=0.0,
    claim_secs=0.0,
    heartbeat_secs=0.0,
    announce_secs=0.0,
    reserve_latency_secs=0.0,
    claim_latency_secs=0.0,
    lease_secs=15.0,
    heartbeat_every_secs=2.0,
    database_cores=1,
)


def erlang_c(servers: int, load: float) -> float:
    """The share of customers of M/M/c that wait."""
    offered = servers * load
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - load)
    return last / (sum(terms) + last)


@pytest.mark.thorough
def test_random_arrivals_wait_as_theory_says() -> None:
    """M/M/4: exponential durations, polled often enough not to matter."""
    servers, load = 4, 0.7
    durations = tuple(60.0 * -np.log1p(-(np.arange(2000) + 0.5) / 2000))  # quantiles of the distribution
    inputs = replace(FREE, durations=durations, poll_secs=0.6, heartbeat_every_secs=1e9)
    means = []
    for seed in range(3):
        found = simulate(inputs, Scenario(workers=servers, jobs=1000, load=load, seed=seed))
        assert found["utilisation"] == pytest.approx(load, rel=0.1)
        means.append(found["mean_secs"])
    theory = erlang_c(servers, load) * inputs.mean_secs / (servers * (1 - load))
    assert np.mean(means) == pytest.approx(theory, rel=0.25)


def test_a_burst_goes_in_waves() -> None:
    """12 jobs of a minute on 4 workers: three waves, and nobody works twice on one."""
    found = simulate(FREE, Scenario(workers=4, jobs=12))
    assert found["secs"] == pytest.approx(180, abs=1)
    assert found["utilisation"] == pytest.approx(1.0, rel=0.01)
    assert found["p50_secs"] == pytest.approx(60, abs=1)
    assert found["late_starts"] == 0


def test_idle_workers_begin_with_different_jobs() -> None:
    """However long a start takes, unless it takes longer than a reservation lasts."""
    slow = replace(FREE, poll_secs=0.5, start_secs=2.0)
    found = simulate(slow, Scenario(workers=8, jobs=8))
    assert found["late_starts"] == 0
    assert 2.0 <= found["max_secs"] <= 2.5
    found = simulate(replace(slow, lease_secs=1.0), Scenario(workers=8, jobs=6))
    assert found["late_starts"] > 0 and found["max_secs"] < 10.0


def test_a_worker_takes_what_its_device_is_for() -> None:
    """Two kinds: the jobs of one cannot be done by the idle worker of the other."""
    found = [simulate(FREE, Scenario(workers=2, jobs=40, kinds=kinds, seed=3)) for kinds in (1, 2)]
    assert found[0]["secs"] == pytest.approx(20 * 60, rel=0.01)
    assert found[1]["secs"] > found[0]["secs"] + 30


def test_a_slow_database_holds_workers_up() -> None:
    """Turns that take as long as the time between them: one worker keeps the database busy, and four come."""
    slow = replace(FREE, poll_secs=0.5, watch_secs=0.5)
    assert most_workers(slow) == pytest.approx(1.0)
    found = simulate(slow, Scenario(workers=4, jobs=8))
    assert found["database_utilisation"] > 0.8
    assert found["secs"] > simulate(FREE, Scenario(workers=4, jobs=8))["secs"]


def test_the_limit_is_where_the_database_is_busy() -> None:
    inputs = replace(FREE, poll_secs=0.5, watch_secs=0.002, watch_secs_per_running=1e-4, announce_secs=0.003)
    n = most_workers(inputs)
    assert n * (inputs.watch_takes(n) / 0.5 + 0.003 / 2) == pytest.approx(1.0)


def test_the_page_has_the_tables_of_the_record() -> None:
    """No figure stands in docs/scaling.md that was not computed from a measurement."""
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, tables()) == text
    outside = filled(text, dict.fromkeys(tables(), ""))
    assert "%" in outside and outside.count("<!-- end -->") == len(tables())


@pytest.mark.long
def test_the_record_is_of_this_simulation() -> None:
    record = json.loads(OUTPUT.read_text())
    names = list(Inputs.__dataclass_fields__)
    inputs = Inputs(**{name: record["inputs"][name] for name in names})
    inputs = replace(inputs, durations=tuple(inputs.durations))
    found = run_all(inputs, jobs=40, workers=4)
    assert found.keys() == record.keys() - facts().keys()
    assert simulate(inputs, Scenario(kinds=64)) == record["burst"][-1]


def test_inputs_are_of_the_machine_that_measured_the_claims(tmp_path: Path) -> None:
    durations = read_inputs().durations
    assert len(durations) == 16 and 25 < min(durations) < max(durations) < 200
    with pytest.raises(SystemExit, match=r"benchmarks\.claims"):
        read_inputs(tmp_path)
    facts = {"device": "A processor", "cores": 2}
    (tmp_path / "claims.json").write_text(json.dumps(facts))
    with pytest.raises(SystemExit, match=r"a-processor-2-cores/cpu-\*\.json: missing"):
        read_inputs(tmp_path)
