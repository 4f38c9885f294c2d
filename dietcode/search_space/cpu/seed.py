"""The seed: an Ansor-style run of MetaSchedule on the largest instance (paper, section 4.3).

The run happens in a process of its own (``python -m dietcode.search_space.cpu.metaschedule``), so that it can
be stopped at any moment; its database is on disk, and a later run resumes from it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dietcode.confinement import kept_environment
from dietcode.lean import python_command, without_torch
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import NoTrialError, Seed, end_group
from dietcode.target.cpu import CpuTarget

_MODULE = "dietcode.search_space.cpu.metaschedule"
_POLL_SECS = 0.5


def run_seed(
    problem: Problem,
    extents: dict[str, int],
    target: CpuTarget,
    work_dir: Path,
    num_trials: int,
    max_secs: float,
    progress: Callable[[int, float | None], None] = lambda done, gflops: None,
) -> tuple[Seed, dict[str, Any]]:
    """Tune the largest instance and take T0 from the best schedule.

    T0 is the innermost spatial tile (S3 of the "SSRSRS" nest, inside the last reduction loop): the tile
    that is accumulated in registers, which is what `MicroKernel` stands for.

    Parameters
    ----------
    extents : dict of str to int
        Extents of the largest instance, of all indices of the problem at least.
    work_dir : Path
        Where MetaSchedule keeps its database; trials already in it are not repeated.
    num_trials, max_secs
        Bounds on the run, which stops at the first that it reaches.
    progress : callable
        Called with the number of finished trials and the best GFLOP/s so far.

    Returns
    -------
    Seed, dict
        T0, and facts for the report: trials, seconds, best GFLOP/s, decisions.

    Raises
    ------
    NoTrialError
        No trial gave a schedule; its log is in `work_dir`.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    request = {
        "parent_pid": os.getpid(),
        "problem": problem.to_json(),
        "extents": extents,
        "target": target.to_json(),
        "work_dir": str(work_dir),
        "num_trials": num_trials,
    }
    flops = float(problem.flops({k: float(v) for k, v in extents.items()}))
    started = time.monotonic()

    def goes_on() -> bool:  # after the last trial MetaSchedule would spend seconds on trials that never run
        progress(*_state(work_dir, flops))
        return _num_finished(work_dir) < num_trials

    _run_worker(request, work_dir, started + max_secs, goes_on)
    best = _best_record(work_dir)
    if best is None:
        raise NoTrialError(f"MetaSchedule finished no trial in {max_secs:.0f} s")
    secs, decisions = best
    rows, columns = _inner_tiles(problem, decisions)
    facts = {
        "trials": _state(work_dir, flops)[0],
        "secs": round(time.monotonic() - started, 2),
        "best_gflops": round(flops / secs / 1e9, 1),
        "decisions": decisions,
        "tile": [rows, columns],
    }
    return Seed(rows, columns, "metaschedule"), facts


def _run_worker(
    request: dict[str, Any], work_dir: Path, deadline: float, goes_on: Callable[[], bool]
) -> None:
    threads = str(request["target"]["num_cores"])
    with (
        (work_dir / "metaschedule.log").open("ab") as log,
        tempfile.TemporaryDirectory(prefix="dietcode-seed-", ignore_cleanup_errors=True) as temporary,
    ):
        own = {"TVM_NUM_THREADS": threads, "TVM_BIND_THREADS": "0", "TMPDIR": temporary}
        process = subprocess.Popen(
            python_command("dietcode.confinement.start", _MODULE, str(work_dir.absolute())),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=without_torch(kept_environment(os.environ) | own),
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
            while _is_running(process.pid) and time.monotonic() < deadline and goes_on():
                time.sleep(_POLL_SECS)
        finally:
            end_group(process)


def _is_running(pid: int) -> bool:
    """Whether a child still runs; it is not reaped.

    Not `subprocess.Popen.poll`: an interrupt in the middle leaves its lock held, and the next `wait` hangs.
    """
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _num_finished(work_dir: Path) -> int:
    """Return the number of trials on disk, failed ones included."""
    path = work_dir / "database_tuning_record.json"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _records(work_dir: Path) -> list[tuple[float, list[Any]]]:
    """Return ``(seconds, sampled decisions)`` of the finished trials in MetaSchedule's JSON database."""
    path = work_dir / "database_tuning_record.json"
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            _, (trace, run_secs, *_rest) = json.loads(line)
            instructions, decisions = trace
            times = [float(s) for s in run_secs or []]
        except (ValueError, TypeError, IndexError):
            continue  # the last line of a run that was stopped while writing
        if times and min(times) < 1e9:
            chosen = [[instructions[index][0], value] for index, value in decisions]
            found.append((min(times), chosen))
    return found


def _state(work_dir: Path, flops: float) -> tuple[int, float | None]:
    records = _records(work_dir)
    best = min((secs for secs, _ in records), default=None)
    return len(records), None if best is None else flops / best / 1e9


def _best_record(work_dir: Path) -> tuple[float, list[Any]] | None:
    return min(_records(work_dir), key=lambda record: record[0], default=None)


def _inner_tiles(problem: Problem, decisions: list[Any]) -> tuple[int, int]:
    """Return the innermost tile of the rows and of the columns, flattened over their indices."""
    tiles = [value for kind, value in decisions if kind == "SamplePerfectTile"]
    order = [*problem.indices[problem.output], *problem.reduction]
    inner = {index: int(tile[-1]) for index, tile in zip(order, tiles, strict=False)}
    rows = columns = 1
    for index in problem.rows:
        rows *= inner.get(index, 1)
    for index in problem.columns:
        columns *= inner.get(index, 1)
    return rows, columns
