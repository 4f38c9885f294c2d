"""A disturbed reading is taken again, and marked where that does not help."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_libraries import built

from benchmarks.facts import calm
from dietcode.bench import compare, models
from dietcode.cli.show import BenchTable
from dietcode.cpu_time import ending, secs_of_descendants
from dietcode.measure import disturbance, turns
from dietcode.measure.disturbance import Machine, Watched, spread_of_readings, undisturbed, undisturbed_of
from dietcode.measure.turns import interleave
from dietcode.runtime.cpu import available_cores


class FakeMachine(Machine):
    """Two cores, both used, a clock of its own, and a partner that runs in some of the measurements.

    Parameters
    ----------
    others : sequence of float
        Cores that the partner keeps busy, by measurement.
    slowdowns : sequence of float
        Of the reference, by measurement.
    """

    def __init__(self, others: Sequence[float] = (), slowdowns: Sequence[float] = (), cores: int = 2) -> None:
        super().__init__(2)
        self.cores, self.num_threads = list(range(cores)), 2
        self.others, self.slowdowns = list(others), list(slowdowns)
        self.clock, self.taken, self.measured, self.asked = 0.0, 0.0, 0, 0
        self.rested: list[float] = []

    def now(self) -> float:
        return self.clock

    def rest(self, secs: float) -> None:
        self.rested.append(secs)

    def slowdown(self) -> float:
        """Return that of a measurement, before it and after it."""
        number, self.asked = self.asked // 2, self.asked + 1
        return self.slowdowns[number] if number < len(self.slowdowns) else 1.0

    def others_secs(self) -> float | None:
        return self.taken

    def measure(self) -> int:
        self.clock += 1.0
        self.taken += self.others[self.measured] if self.measured < len(self.others) else 0.0
        self.measured += 1
        return self.measured


def watched(machine: FakeMachine, spreads: Sequence[float] = (), repeats: bool = True) -> Watched[int]:
    def spread_of(number: int) -> float:
        return spreads[number - 1] if number <= len(spreads) else 1.0

    return undisturbed(machine.measure, spread_of, machine, repeats)


def test_on_a_quiet_machine_a_measurement_counts_at_once() -> None:
    machine = FakeMachine(others=[0.1], slowdowns=[1.08])
    assert watched(machine) == Watched(1, None) and machine.rested == []


@pytest.mark.parametrize(
    "signs",
    [{"others": [1.0]}, {"slowdowns": [2.0]}, {"spreads": [1.5]}],
    ids=["others", "slowdown", "spread"],
)
def test_what_was_disturbed_once_is_measured_again(signs: dict[str, Any]) -> None:
    spreads = signs.pop("spreads", ())
    machine = FakeMachine(**signs)
    assert watched(machine, spreads) == Watched(2, None) and len(machine.rested) == 1


def test_what_stays_disturbed_is_the_least_disturbed_and_says_why() -> None:
    machine = FakeMachine(others=[2.0, 0.9, 1.5])
    assert watched(machine) == Watched(2, "other processes kept 0.9 of its cores busy")
    machine = FakeMachine(slowdowns=[3.0, 3.0, 3.0])
    assert watched(machine).disturbed == "a reference kernel took 3.0 times as long as usual"
    found = watched(FakeMachine(), spreads=[2.0, 1.6, 1.7])
    assert found == Watched(2, "repeats differ: their median is 1.6 times the fastest")


def test_without_repeats_it_is_marked_at_once() -> None:
    machine = FakeMachine(others=[2.0])
    assert watched(machine, repeats=False).disturbed and machine.measured == 1


def test_others_may_have_the_cores_that_are_free() -> None:
    assert watched(FakeMachine(others=[1.9], cores=4)).disturbed is None
    assert watched(FakeMachine(others=[2.5] * 3, cores=4)).disturbed is not None


def test_nothing_begins_again_that_would_end_late() -> None:
    machine = FakeMachine(others=[2.0] * 3)
    found = undisturbed(machine.measure, lambda _: 1.0, machine, until=time.monotonic())
    assert found.disturbed and machine.measured == 1


def test_the_spread_of_readings() -> None:
    assert spread_of_readings({"a": [1.0, 1.0, 1.1], "b": [1.0, 2.0, 4.0]}) == 2.0
    assert spread_of_readings({"a": [1.0, 9.0]}) == 1.0  # two are too few


def test_means_are_of_what_nothing_disturbed() -> None:
    assert undisturbed_of(["", "why", ""], lambda row: row or None) == ["", ""]
    assert undisturbed_of(["", "why"], lambda row: row or None) == []  # one of two stands for nothing


def test_readings_of_paths_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disturbance, "_PAUSE_SECS", 0.0)
    monkeypatch.setattr(turns, "WARM_SECS", 0.0)
    monkeypatch.setattr(turns, "BATCH_SECS", 1e-9)
    machine = FakeMachine(slowdowns=[2.0] * 9)
    found = interleave({"a": lambda: None}, 3, machine=machine)
    assert found.disturbed and set(found) == {"a"} and machine.rested == [0.2, 1.0]
    assert interleave({"a": lambda: time.sleep(1e-3)}, 1, machine=FakeMachine()).disturbed is None


def with_machine(monkeypatch: pytest.MonkeyPatch, slowdown: float) -> None:
    machine = FakeMachine(slowdowns=[slowdown] * 99)
    for module in (compare, models, turns, disturbance):
        monkeypatch.setattr(module, "machine_of", lambda num_threads=None: machine, raising=False)


def test_a_disturbed_bench_prints_no_mean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, 2.0)
    (record,) = compare.bench(built("dense"), ["numpy"], num_instances=1, rounds=1)
    assert record["disturbed"] == "a reference kernel took 2.0 times as long as usual"
    table = BenchTable()
    table.row(record)
    table.summary([record])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("disturbed: ") for line in lines) == 1 and len(lines) == 4, "none is wrapped"
    out = " ".join(" ".join(lines).split())
    assert "numpy (disturbed)" in out and "geometric mean" not in out
    assert "disturbed: 1 of 1 instances, so there are no means (a reference kernel took 2.0 times" in out
    table.summary([record, record | {"disturbed": None}, record | {"disturbed": None}])
    out = " ".join(capsys.readouterr().out.split())
    assert "1 of 3 instances, left out of the means" in out and "of the vendor in geometric mean" in out


def test_with_little_time_disturbed_rows_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are measured again in what time there is, and given as they are where that does not help."""
    with_machine(monkeypatch, 1.0)
    spoiled = iter([True, False, False, True])
    plain = compare._record
    asked: list[int] = []

    def sometimes(own: Any, row: Any, *rest: Any) -> dict[str, Any]:
        asked.append(row["shape_vars"]["M"])
        return plain(own, row, *rest) | {"disturbed": "a partner" if next(spoiled) else None}

    monkeypatch.setattr(compare, "_record", sometimes)
    found = list(compare.bench(built("rows"), [], 3, rounds=1, until=time.monotonic() + 60.0))
    assert asked[-1] == asked[0] == found[-1]["shape_vars"]["M"] and len(asked) == 4
    assert [record["disturbed"] for record in found] == [None, None, "a partner"]


def test_a_disturbed_call_of_a_model_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with_machine(monkeypatch, 1.0)
    monkeypatch.setattr(models, "_LEAST_SECS", 0.0)
    assert models.timed_call(lambda: None, lambda: [("step", 1.0)], 1)[1:] == ([("step", 1.0)], None)
    with_machine(monkeypatch, 2.0)
    assert models.timed_call(lambda: None, lambda: [("step", 1.0)], 1)[2]


def _spin(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1000))


@contextmanager
def busy_partner() -> Iterator[None]:
    """Processes that take as much of every core as they are given."""
    context = multiprocessing.get_context("spawn")
    until = time.monotonic() + 60.0
    children = [context.Process(target=_spin, args=(until,), daemon=True) for _ in range(available_cores())]
    for child in children:
        child.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.join()


@pytest.mark.long
def test_a_busy_partner_is_noticed() -> None:
    a = np.ones((256, 256), np.float32)
    with busy_partner():
        found = interleave({"a": lambda: a @ a}, 3)
    assert found.disturbed is not None
    assert re.search(r"other processes kept \d\.\d of its cores busy|a reference kernel", found.disturbed)


def test_figures_of_benchmarks_are_of_calm_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"at": 1, "disturbed": None}, {"at": 2, "disturbed": "a partner"}, {"at": 3, "disturbed": None}]
    assert [row["at"] for row in calm(rows, "dense")] == [1, 3]
    assert "dense: 1 of 3 rows were disturbed (a partner)" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="dense: no figure is written"):
        calm(rows[:2], "dense")


def test_a_child_that_has_ended_was_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cores' time stands still here, so that what is left of it shrinks by what is this process's own."""
    machine = Machine(1)
    lines = [f"cpu{core} 900 0 0 900 0 0 0 0 0 0" for core in machine.cores]
    monkeypatch.setattr(disturbance.Path, "read_text", lambda *_, **__: "\n".join(lines))
    before = machine.others_secs()
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = machine.others_secs()
    assert before is not None and after is not None and before - after >= 0.4


def test_a_child_that_measures_is_no_other_process() -> None:
    """Libraries of benchmarks are timed in children, which run on."""
    burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    before = secs_of_descendants()
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        gained = secs_of_descendants() - before
        child.communicate("\n")
    assert gained >= 0.3
    assert (
        disturbance.machine_of(1, in_children=True).in_children and not disturbance.machine_of(1).in_children
    )


BURN = """
import os, time
from dietcode.lifeline import die_with_parent
die_with_parent()
while time.process_time() < 0.4: pass
print(os.getpid(), flush=True)
time.sleep(60)
"""
START = f"""
import signal, subprocess, sys
if sys.argv[1:] == ["forgets"]:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of it the kernel forgets all
subprocess.Popen([sys.executable, "-c", {BURN!r}])
input()
"""
WATCH = f"""
import subprocess, sys
from dietcode.cpu_time import secs_of_descendants
from dietcode.measure.disturbance import Machine, undisturbed
from dietcode.search_space.seed import end_group
before, is_group, pipe = secs_of_descendants(), sys.argv[1] == "group", subprocess.PIPE
def measure():
    command = [sys.executable, "-c", {START!r}]
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=is_group)
    child.stdout.readline()
    if is_group:
        end_group(child)
    else:
        child.kill()
        child.wait()
undisturbed(measure, lambda _: 1.0, Machine(1, in_children=True), repeats=False)
print(secs_of_descendants() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are adopted on Linux alone")
@pytest.mark.parametrize("how", ["group", "child"])
def test_what_an_ended_child_had_started_is_no_other_process(how: str) -> None:
    """It computes, its parent is killed, and nobody has waited for it: its seconds are not lost."""
    command = [sys.executable, "-c", WATCH, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) >= 0.4


@pytest.mark.skipif(sys.platform != "linux", reason="seconds of children that run are known on Linux alone")
def test_time_that_the_kernel_forgets_is_kept() -> None:
    command, pipe = [sys.executable, "-c", START, "forgets"], subprocess.PIPE
    before = secs_of_descendants()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        with ending():
            os.kill(pid, signal.SIGKILL)
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.01)
        child.communicate("\n")
    assert secs_of_descendants() - before >= 0.4
