"""Reading what MetaSchedule wrote; the run itself is the end-to-end tests' business."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from compiled import cpu_target, make_problem

from dietcode.errors import TuningError
from dietcode.search_space.cpu import seed as seed_module
from dietcode.search_space.cpu.metaschedule import drop_torn_line
from dietcode.search_space.cpu.seed import _best_record, _inner_tiles, _is_running, _records, _state, run_seed

DATABASE = "database_tuning_record.json"


def tuning_line(run_secs: list[float] | None, m: list[int], n: list[int], k: list[int]) -> str:
    """As MetaSchedule 0.27 writes it: [workload, [[instructions, decisions], seconds, target, arguments]]."""
    instructions = [
        ["GetSBlock", [], ["Y", "main"], ["b0"]],
        ["SamplePerfectTile", ["l1"], [4, 64], ["v1", "v2", "v3", "v4"]],
        ["SamplePerfectTile", ["l2"], [4, 64], ["v5", "v6", "v7", "v8"]],
        ["SamplePerfectTile", ["l3"], [2, 64], ["v9", "v10"]],
        ["SampleCategorical", [], [[0, 16, 64], [0.3, 0.3, 0.4]], ["v11"]],
    ]
    decisions = [[1, m], [2, n], [3, k], [4, 2]]
    return json.dumps(
        [0, [[instructions, decisions], run_secs, {"kind": "llvm"}, [["TENSOR", "float32", []]]]]
    )


def write(folder: Path, *lines: str, torn: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / DATABASE).write_text("".join(f"{line}\n" for line in lines) + torn)
    return folder


GOOD = tuning_line([2e-3, 1.5e-3], [4, 2, 2, 8], [3, 4, 2, 32], [192, 4])
SLOW = tuning_line([9e-3], [16, 1, 1, 4], [3, 4, 4, 16], [96, 8])
FAILED = tuning_line([1e10], [16, 1, 1, 2], [3, 4, 4, 16], [96, 8])
NO_TIMES = tuning_line(None, [16, 1, 1, 2], [3, 4, 4, 16], [96, 8])


def test_the_best_record_wins(tmp_path: Path) -> None:
    best = _best_record(write(tmp_path, SLOW, GOOD, FAILED, NO_TIMES))
    assert best is not None
    secs, decisions = best
    assert secs == 1.5e-3
    assert decisions[0] == ["SamplePerfectTile", [4, 2, 2, 8]]
    assert [kind for kind, _ in decisions] == ["SamplePerfectTile"] * 3 + ["SampleCategorical"]


def test_failed_trials_are_no_records(tmp_path: Path) -> None:
    assert len(_records(write(tmp_path, FAILED, NO_TIMES))) == 0
    assert _best_record(tmp_path) is None
    assert _state(tmp_path, 1e9) == (0, None)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, GOOD, torn=SLOW[: len(SLOW) // 2])
    assert len(_records(tmp_path)) == 1
    assert _state(tmp_path, 3e6) == (1, pytest.approx(2.0))


def test_no_database_is_no_record(tmp_path: Path) -> None:
    assert _records(tmp_path) == []


@pytest.mark.parametrize(
    "line", ["[]", "[0, []]", "[0, [[[], []]]]", "null", '{"a": 1}', "[0, [[1], [1.0]]]"]
)
def test_other_json_is_no_record(tmp_path: Path, line: str) -> None:
    assert len(_records(write(tmp_path, line, GOOD))) == 1


def test_inner_tiles_are_those_of_the_last_level(tmp_path: Path) -> None:
    best = _best_record(write(tmp_path, GOOD))
    assert best is not None
    assert _inner_tiles(make_problem("mk,nk->mn"), best[1]) == (8, 32)
    assert _inner_tiles(make_problem("mk,nk->nm"), best[1]) == (8, 32)  # n, its rows, comes first


def test_inner_tiles_of_several_letters() -> None:
    tiles = [["SamplePerfectTile", [1, 1, 1, inner]] for inner in (2, 3, 5, 7, 11)]
    assert _inner_tiles(make_problem("bmjk,bnjk->bmn"), tiles) == (3, 5)
    assert _inner_tiles(make_problem("xmk,yzk->xmyz"), tiles) == (2 * 3, 5 * 7)


def run_a_seed(tmp_path: Path, **options: Any) -> Any:
    problem = make_problem("mk,nk->mn", {"n": 384, "k": 768})
    extents = {"m": 128, "n": 384, "k": 768}
    return run_seed(problem, extents, cpu_target("haswell"), tmp_path / "work", 8, 5.0, **options)


def test_a_run_reports_the_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(request: dict[str, Any], work_dir: Path, deadline: float, goes_on: Any) -> None:
        assert request["num_trials"] == 8
        assert json.loads(json.dumps(request)) == request
        write(work_dir, SLOW, GOOD)
        assert goes_on()

    heard: list[Any] = []
    monkeypatch.setattr(seed_module, "_run_worker", worker)
    seed, facts = run_a_seed(tmp_path, progress=lambda *state: heard.append(state))
    assert (seed.rows, seed.columns, seed.source) == (8, 32, "metaschedule")
    assert facts["trials"] == 2
    assert facts["best_gflops"] == pytest.approx(2 * 128 * 384 * 768 / 1.5e-3 / 1e9, abs=0.1)
    assert heard == [(2, pytest.approx(facts["best_gflops"], abs=0.1))]


def test_a_run_without_a_trial_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_module, "_run_worker", lambda *_: None)
    with pytest.raises(TuningError, match="no trial in 5 s"):
        run_a_seed(tmp_path)


def is_gone_soon(pid: int) -> bool:
    """Whether a process that was killed ends: it may be seen running for a moment."""
    status, until = Path(f"/proc/{pid}/stat"), time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if status.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_the_worker_is_ended_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a worker that never reads its request and has a child of its own."""
    marker = tmp_path / "child"
    code = (
        f"import subprocess, time; p = subprocess.Popen(['sleep', '300']); "
        f"open({str(marker)!r}, 'w').write(str(p.pid)); time.sleep(300)"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    started = seed_module.time.monotonic()
    with pytest.raises(TuningError, match="no trial"):
        run_seed(
            make_problem("mk,nk->mn"), {"m": 8, "n": 8, "k": 8}, cpu_target("haswell"), tmp_path / "w", 4, 2.0
        )
    assert seed_module.time.monotonic() - started < 10
    assert marker.is_file()
    assert is_gone_soon(int(marker.read_text()))


def test_the_worker_is_ended_after_the_last_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would do then nobody waits for; a trial that failed is one too."""
    lines = tmp_path / "lines"
    lines.write_text(f"{GOOD}\n{FAILED}\n")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat {lines} >>{tmp_path / 'w' / DATABASE}\nexec sleep 300\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    started = seed_module.time.monotonic()
    extents = {"m": 128, "n": 384, "k": 768}
    _, facts = run_seed(make_problem("mk,nk->mn"), extents, cpu_target("haswell"), tmp_path / "w", 2, 60.0)
    assert facts["trials"] == 1
    assert seed_module.time.monotonic() - started < 10


@pytest.mark.parametrize("torn", ["", "[0, [[", "[0]x"])
def test_a_torn_last_line_is_dropped_before_a_run_goes_on(tmp_path: Path, torn: str) -> None:
    folder = write(tmp_path / "db", GOOD, SLOW, torn=torn)
    assert drop_torn_line(folder / DATABASE) == 2
    assert (folder / DATABASE).read_text() == f"{GOOD}\n{SLOW}\n"
    assert drop_torn_line(tmp_path / "none") == 0


def test_an_interrupt_while_looking_at_the_child_leaves_nothing_locked() -> None:
    """With `Popen.poll` in its place, one interrupt in five makes the `wait` that follows hang."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def look() -> None:
        """Apart: Python 3.13.0 leaves out of a `try` what a signal raises at the end of its loop."""
        while _is_running(child.pid):
            pass

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    before = signal.signal(signal.SIGALRM, interrupt)
    rng = random.Random(0)
    deadline, interrupts = time.monotonic() + 1.0, 0
    try:
        while time.monotonic() < deadline:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 2e-4))
                look()
                raise AssertionError("it does not run")
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    with pytest.raises(ChildProcessError):
        _is_running(child.pid)


def test_what_an_earlier_run_left_is_no_link(tmp_path: Path) -> None:
    """Generated code may write to the folder, and the next run is another's."""
    victim, work = tmp_path / "victim", tmp_path / "work"
    victim.write_text(f"{GOOD}\n")
    work.mkdir()
    log = work / "metaschedule.log"
    for make in (log.symlink_to, log.hardlink_to):
        make(victim)
        with seed_module._log(work) as opened:
            opened.write(b"said")
        assert victim.read_text() == f"{GOOD}\n" and log.read_text() == "said"
        log.unlink()
    (work / DATABASE).symlink_to(victim)
    assert _records(work) == [] and seed_module._num_finished(work) == 0


def test_a_database_that_never_ends_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / DATABASE)
    assert _records(tmp_path) == []
    (tmp_path / DATABASE).unlink()
    (tmp_path / DATABASE).symlink_to("/dev/zero")
    assert _records(tmp_path) == []


@pytest.mark.parametrize(
    "hostile",
    [
        "[" * 100_000,
        tuning_line([float("nan")], [4, 2, 2, 8], [3, 4, 2, 32], [192, 4]),
        tuning_line([-1.0], [4, 2, 2, 8], [3, 4, 2, 32], [192, 4]),
        tuning_line([1e-3], "4228", [3, 4, 2, 32], [192, 4]),  # type: ignore[arg-type]
        tuning_line([1e-3], [1 << 70], [3, 4, 2, 32], [192, 4]),
        tuning_line([1e-3], [1] * 100_000, [3, 4, 2, 32], [192, 4]),
        tuning_line([1e-3], [], [3, 4, 2, 32], [192, 4]),
        json.dumps([0, [{}, {}], [1e-3]]),
        json.dumps([0, [[["x"]], [["y", 1]]], [1e-3]]),
        json.dumps([0, [[["SampleCategorical", [], []]], [[0, {"a": 1}]]], [1e-3]]),
    ],
)
def test_trials_that_no_search_wrote_are_left_out(tmp_path: Path, hostile: str) -> None:
    assert len(_records(write(tmp_path, hostile, GOOD))) == 1
