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
from typing import Any, BinaryIO

from dietcode.confinement import kept_environment
from dietcode.confinement.left import open_left
from dietcode.lean import python_command, without_torch
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import NoTrialError, Seed, end_group
from dietcode.target.cpu import CpuTarget

_MODULE = "dietcode.search_space.cpu.metaschedule"
_POLL_SECS = 0.5
_MAX_BYTES = 64 << 20  # of its database: ten thousand trials have a quarter of it
_MAX_DECISIONS = 1000  # of a trial, numbers of one, and characters of its kind


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
        _log(work_dir) as log,
        tempfile.TemporaryDirectory(prefix="dietcode-seed-", ignore_cleanup_errors=True) as temporary,
    ):
        own = {"TVM_NUM_THREADS": threads, "TVM_BIND_THREADS": "0", "TMPDIR": temporary}
        process = subprocess.Popen(
            python_command("dietcode.confinement.start", str(os.getpid()), _MODULE, str(work_dir.absolute())),
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


def _log(work_dir: Path) -> BinaryIO:
    """Open the log; what an earlier run left in its place is removed."""
    path = work_dir / "metaschedule.log"
    try:
        return open_left(path, "ab")
    except OSError:
        path.unlink(missing_ok=True)
        return open_left(path, "ab")


def _lines(work_dir: Path) -> list[bytes]:
    """Return the whole lines of MetaSchedule's database, which generated code may have written."""
    try:
        with open_left(work_dir / "database_tuning_record.json") as stream:
            return stream.read(_MAX_BYTES).splitlines(keepends=True)
    except OSError:
        return []


def _num_finished(work_dir: Path) -> int:
    """Return the number of trials on disk, failed ones included."""
    return sum(line.endswith(b"\n") for line in _lines(work_dir))


def _records(work_dir: Path) -> list[tuple[float, list[Any]]]:
    """Return ``(seconds, sampled decisions)`` of the finished trials in MetaSchedule's JSON database."""
    found = []
    for line in _lines(work_dir):
        try:
            _, (trace, run_secs, *_rest) = json.loads(line)
            instructions, decisions = trace
            times = [float(s) for s in run_secs or []]
            chosen = [_decision(instructions[index][0], value) for index, value in decisions]
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            continue  # the last line of a run that was stopped while writing
        if times and 0 < min(times) < 1e9 and len(chosen) <= _MAX_DECISIONS:
            found.append((min(times), chosen))
    return found


def _decision(kind: Any, value: Any) -> list[Any]:
    """Return what was drawn, for the report: a number, or the extents of a tile.

    Raises
    ------
    ValueError
        It is neither.
    """
    numbers = value if isinstance(value, list) else [value]
    is_tile = kind == "SamplePerfectTile"
    if (
        not isinstance(kind, str)
        or len(kind) > _MAX_DECISIONS
        or is_tile != isinstance(value, list)
        or not 0 < len(numbers) <= _MAX_DECISIONS
        or not all(type(one) is int and abs(one) < 1 << 31 for one in numbers)
    ):
        raise ValueError("no decision")
    return [kind, value]


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
