"""What every result says of where it comes from."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dietcode.measure.disturbance import machine_of, undisturbed, undisturbed_of
from dietcode.runtime.cpu import available_cores, cpu_model

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
_RESAMPLES = 2000
_NUMBERS = {"cpu family": "family", "model": "model"}
T = TypeVar("T")


def between_marks(text: str, command: str, parts: Sequence[str], page: Path) -> str:
    """Return a page's text with other parts between the marks of a command.

    Parameters
    ----------
    text : str
    command : str
        As ``benchmarks.headline``.
    parts : sequence of str
        Tables and paragraphs.
    page : Path
        Which page it is, for the error.

    Raises
    ------
    SystemExit
        It has no marks, or more than one pair.
    """
    begin, end = f"<!-- {command} -->", f"<!-- end of {command} -->"
    told = "\n\n".join([begin, *parts, end])
    new, count = re.subn(f"{begin}.*?{end}", lambda _: told, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page}: given {count} pairs of {begin} and {end}; allowed: 1")
    return new


def facts() -> dict[str, Any]:
    """Device, commit, versions, threads and date."""
    commit = _git("describe", "--always") or None
    if commit and _git("status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results"):
        commit += "-dirty"
    versions: dict[str, str | None] = {}
    for package in ("dietcode", "apache-tvm", "apache-tvm-ffi", "torch", "numpy", "onnxruntime", "openvino"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "device": cpu_model(),
        "processor": processor_numbers(),
        "cores": available_cores(),
        "commit": commit,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": versions,
    }


@functools.cache
def processor_numbers() -> dict[str, int]:
    """Family and model of this machine's processor, which tell apart those of one name; empty if unknown."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    fields = (line.partition(":") for line in first.splitlines())
    given = {key.strip(): value.strip() for key, _, value in fields}
    return {name: int(given[key]) for key, name in _NUMBERS.items() if given.get(key, "").isdigit()}


def device_name(found: Mapping[str, Any]) -> str:
    """Of the machine that measured: its processor, its numbers where they were noted, and its cores."""
    numbers = [f"{name} {number}" for name, number in (found.get("processor") or {}).items()]
    return ", ".join([str(found["device"]), *numbers, f"{found['cores']} cores"])


def rows_before(path: Path) -> list[Any]:
    """Return the rows of a result's file, each with the commit and the day that it was measured at."""
    found = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return [{"commit": found["commit"], "date": found["date"]} | row for row in found["rows"]]


def withdrawn(rows: Sequence[Mapping[str, Any]]) -> str:
    """A sentence on rows that have lost a peer's time since it was wrong; empty where there are none."""
    if not any("withdrawn" in row for row in rows):
        return ""
    return (
        "Some rows have no time of DyNet's any more: this benchmark had kept it from batching, by sums of "
        "biases, zeros and reshapes of each node's own."
    )


def device_folder() -> str:
    """Of this machine, as a folder's name."""
    return slug(
        device_name({"device": cpu_model(), "processor": processor_numbers(), "cores": available_cores()})
    )


def slug(text: str) -> str:
    """A device's name as a folder's."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", text.lower())).strip("-")


def result_path(name: str) -> Path:
    """The file of a result of this device; those of several devices lie side by side."""
    return RESULTS / device_folder() / f"{name}.json"


def calm(rows: Sequence[Mapping[str, Any]], what: str) -> list[Any]:
    """Return the rows that figures are of: those without ``disturbed``, see `dietcode.measure.disturbance`.

    Raises
    ------
    SystemExit
        Half of the rows or more were disturbed: the others stand for nothing.
    """
    kept = undisturbed_of(rows, lambda row: row.get("disturbed"))
    disturbed = [row["disturbed"] for row in rows if row.get("disturbed")]
    if disturbed:
        print(f"{what}: {len(disturbed)} of {len(rows)} rows were disturbed ({disturbed[0]})", flush=True)
    if rows and not kept:
        raise SystemExit(f"{what}: no figure is written; run it again when nothing else runs")
    return kept


def says_disturbed(found: Any) -> bool:
    """Whether a result says of any reading if something disturbed it."""
    if isinstance(found, dict):
        return any(
            key in {"disturbed", "num_disturbed", "secs_disturbed"} or says_disturbed(one)
            for key, one in found.items()
        )
    return isinstance(found, list) and any(map(says_disturbed, found))


def bootstrapped(logs: npt.ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of a geometric mean, by resampling what it is the mean of.

    Parameters
    ----------
    logs : [num_rows]
        Logarithms of ratios.
    """
    values = np.asarray(logs, dtype=np.float64)
    means = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values))).mean(axis=1)
    low, high = np.exp(np.percentile(means, [2.5, 97.5]))
    return float(low), float(high)


def median_interval(values: npt.ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of a median, between two of the values; of seven or fewer, all of their range.

    Parameters
    ----------
    values : [num_values]
        In any order; their distribution does not matter: how many of them lie below the median is binomial.
    """
    known = np.sort(np.asarray(values, dtype=np.float64))
    outside = max(int((len(known) - 1.96 * len(known) ** 0.5) / 2), 0)
    return float(known[outside]), float(known[len(known) - 1 - outside])


def middle_half(flops: float, quartiles: Sequence[float]) -> list[float]:
    """Return the GFLOP/s that a quarter of the readings are below, and above, from those of their seconds."""
    slowest, fastest = max(quartiles), min(quartiles)
    return [flops / slowest / 1e9, flops / fastest / 1e9]


def done_once(work: Callable[[], T]) -> tuple[T, float, str | None]:
    """Do what takes too long to be done again, as a tuning run.

    Returns
    -------
    T
    float
        Wall seconds.
    str or None
        Why these must not become a figure, None where they may: what others did meanwhile. What this process
        and its children do is not theirs.
    """

    def timed() -> tuple[T, float]:
        started = time.monotonic()
        value = work()
        return value, time.monotonic() - started

    watched = undisturbed(timed, lambda _: 1.0, machine_of(in_children=True), repeats=False)
    return *watched.value, watched.disturbed


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write(path: Path, data: dict[str, Any]) -> None:
    """Write one result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts() | data, indent=1) + "\n")
    print(path)
