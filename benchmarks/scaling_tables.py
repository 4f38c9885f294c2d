"""The tables of docs/scaling.md, from the records that the simulation and the measurements wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.facts import RESULTS, ROOT, device_name, slug
from benchmarks.markdown import table

PAGE = ROOT / "docs" / "scaling.md"
_PART = re.compile(r"(?P<begin><!-- (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def tables(results: Path = RESULTS) -> dict[str, str]:
    """Each table by its name in the page."""
    simulated = json.loads((results / "queue-simulation.json").read_text())
    claims = json.loads((results / "claims.json").read_text())
    return {
        "measured": _measured(simulated, claims),
        "burst": table(
            ("devices that differ", *_WAITS), [(row["kinds"], *_waits(row)) for row in simulated["burst"]]
        ),
        "loads": table(
            ("load", *_WAITS), [(f"{row['load']:.0%}", *_waits(row)) for row in simulated["loads"]]
        ),
        "kinds": table(
            ("devices that differ", *_WAITS), [(row["kinds"], *_waits(row)) for row in simulated["kinds"]]
        ),
        "fleets": table(
            ("workers", *_WAITS), [(row["workers"], *_waits(row)) for row in simulated["fleets"]]
        ),
        "limits": _limits(simulated),
        "fan-out": _fan_out(results / "engines.json"),
    }


def filled(text: str, found: dict[str, str]) -> str:
    """The page with its tables in it.

    Raises
    ------
    KeyError
        The page wants a table that is not among them.
    """
    return _PART.sub(lambda part: f"{part['begin']}{found[part['name']]}{part['end']}", text)


def write_tables() -> str:
    """Put them into the page; the tables."""
    found = tables()
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    return "\n".join(found.values())


_ASKED = {
    "watch": "a worker's turn (twice a second)",
    "look": "the same, and a look for work",
    "reserve": "a reservation",
    "claim": "a claim",
    "beat": "a heartbeat (every 2 s)",
    "announce": "an announcement (every 2 s)",
}
_WAITS = (
    "median wait",
    "90 %",
    "99 %",
    "longest",
    "all done after",
    "workers busy",
    "starts too late",
    "database busy",
)


def _waits(row: dict[str, Any]) -> Iterator[str]:
    for name in ("p50_secs", "p90_secs", "p99_secs", "max_secs", "secs"):
        yield _secs(row[name])
    yield f"{row['utilisation']:.0%}"
    yield str(row["late_starts"])
    yield f"{row['database_utilisation']:.1%}"


def _measured(simulated: dict[str, Any], claims: dict[str, Any]) -> str:
    inputs = simulated["inputs"]
    durations = sorted(inputs["durations"])
    middle = f"{_secs(durations[0])} to {_secs(durations[-1])}, mean {_secs(inputs['mean_secs'])}"
    together = f"with {claims['look']['together']['clients']} clients at once"
    rows: list[Sequence[object]] = [
        (f"a job, {len(durations)} workloads", middle, "`cpu-*.json`"),
        ("a process that claims, from its start", _secs(inputs["start_secs"]), "`claims.json`"),
    ]
    for key, what in _ASKED.items():
        many = claims[key]["together"]
        one = claims[key].get("alone") or claims[key][f"alone, {many['clients']} running"]
        said = (
            f"{one['p50_ms']:.1f} ms alone, {one['database_ms']:.2f} ms of it PostgreSQL's processors; "
            f"{together} {many['per_sec']:.0f} a second, {many['p99_ms']:.0f} ms (99 %), "
            f"{many['database_ms']:.2f} ms of PostgreSQL's"
        )
        rows.append((what, said, "`claims.json`"))
    rows.append(
        (
            "jobs submitted, one after the other",
            f"{claims['submit']['per_sec']:.0f} a second",
            "`claims.json`",
        )
    )
    name = device_name(claims)
    where = (
        f"{name}: the jobs are the tunings of [its workloads](evidence/{slug(name)}/workloads.md), each of"
    )
    where += f" the commit there; all else is of commit {claims['commit']}, {claims['date']}.\n\n"
    return where + table(("what", "measured", "record"), rows)


def _limits(simulated: dict[str, Any]) -> str:
    inputs, burst = simulated["inputs"], simulated["burst"][0]
    per_hour = 3600 / inputs["mean_secs"]
    ideal = burst["jobs"] * inputs["mean_secs"] / burst["workers"]
    rows = [
        ("jobs an hour and device", f"{per_hour:.0f}"),
        (f"jobs an hour, {burst['workers']} devices", f"{per_hour * burst['workers']:.0f}"),
        (
            f"workers that all have work and keep {inputs['database_cores']} cores of PostgreSQL busy",
            f"{inputs['most_workers']:.0f}",
        ),
        ("the burst, if nothing but tuning took time and no worker waited for the last job", _secs(ideal)),
        ("the burst, if a claim needed no new process", _secs(simulated["no_start"]["secs"])),
        ("the burst, as it is", _secs(burst["secs"])),
    ]
    return table(("limit", "figure"), rows)


def _fan_out(path: Path) -> str:
    """What builds on other machines bring one job, by Amdahl's law; empty where it was not measured."""
    if not path.is_file():
        return ""
    engines = json.loads(path.read_text())
    parts = (engines["job"], *engines["local"])
    if why := next((part["disturbed"] for part in parts if part.get("disturbed")), None):
        return f"Disturbed when it was measured ({why}): no figures.\n"
    job, builds = engines["job"], engines["job"]["share"]["builds"]
    (here,) = [each["builds_per_sec"] for each in engines["local"] if each["workers"] == job["cores"]]
    rows: list[Sequence[object]] = [
        (f"none: {job['cores']} cores of the machine that measures", f"{here:.2f}", "1")
    ]
    for each in engines["ray"]:
        gain = 1 / (1 - builds + builds * here / each["builds_per_sec"])
        who = f"{each['workers']}, of one core each"
        if each["workers"] > job["cores"]:
            who = f"{each['workers']}, which shared {job['cores']} cores"
        rates = f"{each['builds_per_sec']:.2f}", f"{gain:.2f}"
        rows.append((who, *(("disturbed", "") if each.get("disturbed") else rates)))
    rows.append(("any number", "no limit", f"{1 / (1 - builds):.2f}"))
    said = ", ".join(f"{name} {share:.0%}" for name, share in job["share"].items())
    where = f"{device_name(engines)}, commit {engines['commit']}, {engines['date']}, one job"
    before = (
        " Before the rule by which MetaSchedule may be left out; without it the others' shares are larger."
        if job["share"].get("metaschedule")
        else ""
    )
    return f"A job on {job['workload']}: {said} ({where}).{before}\n\n" + table(
        ("workers that build", "builds a second", "a job is × as fast"), rows
    )


def _secs(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"
