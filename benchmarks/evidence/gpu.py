"""What was measured on a GPU, read from its records: ``benchmarks/records/<device>/``.

Records (``.jsonl``, of `benchmarks/gpu/measure.py` or ``dietcode tune``), comparisons (``.json``, of
`benchmarks/gpu/compare.py`) and what calls cost (``.calls``, of `benchmarks/gpu/overhead.py`) may have any
names there: what they are of, and which device measured them, they say themselves. ``why.yaml`` beside them
may hold a sentence for each figure's name: why it differs from the paper's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.evidence.shop import Row
from benchmarks.evidence.versions import ROOT, code, generator_at
from dietcode.cost_model.cuda.fitting import fit_cuda
from dietcode.cost_model.model import Fitted
from dietcode.errors import RecordsError
from dietcode.measure.records import FORMAT, Measurement, Records, read_records
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.problem import Problem
from dietcode.search_space.task import Task
from dietcode.tuner.assembly import Choice, choose
from dietcode.tuner.size_cap import FileSize
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import Instances
from dietcode.workload.parse import load_spec, spec_from_data
from dietcode.workload.spec import Spec

RECORDS = ROOT / "benchmarks" / "records"
EXAMPLES = ROOT / "examples"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Measured:
    """One workload's records on a GPU, and what the cost model makes of them.

    Attributes
    ----------
    made : dict
        What the file says of its making: commit, date, versions; empty where it says nothing.
    wall_secs : float or None
        Seconds that measuring took; None where they were not written down.
    """

    spec: Spec
    records: Records
    made: Row
    wall_secs: float | None

    @property
    def name(self) -> str:
        """Of the workload."""
        return self.spec.name

    @cached_property
    def task(self) -> Task:
        """What follows from the spec."""
        return Task.of(self.spec, device_problem)

    @property
    def problem(self) -> Problem:
        """As device code sees it."""
        return self.task.problem

    @property
    def instances(self) -> Instances:
        """Those that a library is made for."""
        return self.task.instances

    @cached_property
    def fitted(self) -> Fitted:
        """Every usable micro-kernel, fitted, at every instance."""
        return fit_cuda(self.problem, self.records, self.task.extents)

    @cached_property
    def choice(self) -> Choice:
        """The categories that a library would hold."""
        return choose(self.task, self.fitted, FileSize(0))

    @cached_property
    def measured_points(self) -> set[tuple[tuple[str, int], ...]]:
        """Where any micro-kernel was measured, as `point_key` has it."""
        return {point_key(point) for one in self.records.measurements.values() for point in one.points}

    def gflops(self, measurement: Measurement) -> dict[tuple[tuple[str, int], ...], float]:
        """Measured GFLOP/s of a micro-kernel by the extents that it was measured at."""
        pairs = zip(measurement.points, measurement.secs, strict=True)
        return {point_key(p): self.problem.flops(dict(p)) / secs / 1e9 for p, secs in pairs}

    def shown(self, key: tuple[tuple[str, int], ...]) -> dict[str, int]:
        """Of a point, the extents that differ from instance to instance."""
        return {letter: extent for letter, extent in key if letter in self.problem.dynamic}


def point_key(point: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Extents as what a dict can be keyed by."""
    return tuple(sorted(point.items()))


@dataclass(frozen=True)
class Device:
    """A GPU and all that was measured on it.

    Attributes
    ----------
    workloads : dict of str to Measured
        By name.
    compared : dict of str to dict
        What `benchmarks/gpu/compare.py` wrote, by the workload's name.
    why : dict of str to str
        A sentence for a figure, by its name.
    calls : list of dict
        What `benchmarks/gpu/overhead.py` wrote, a library each.
    """

    name: str
    num_sms: int
    synthetic: bool
    workloads: dict[str, Measured]
    compared: dict[str, Row]
    why: dict[str, str] = field(default_factory=dict)
    calls: list[Row] = field(default_factory=list)

    def facts(self, names: list[str]) -> Row:
        """What a figure from some workloads says of where it comes from."""
        made = [self.workloads[name].made for name in names if name in self.workloads]
        made += [self.compared[name] for name in names if name in self.compared]

        def latest(key: str) -> Any:
            known = [row[key] for row in made if row.get(key)]
            return max(known, default=None) if key == "date" else next(iter(known), None)

        return {
            "device": self.name,
            "num_sms": self.num_sms,
            "synthetic": self.synthetic,
            "commit": latest("commit"),
            "date": latest("date"),
            "versions": latest("versions"),
            "workloads": names,
            "measured_with": self.versions(names),
        }

    def versions(self, names: list[str]) -> dict[str, str]:
        """What the figure's data depends on, as it was when it was measured."""
        found = [self.workloads[name] for name in names if name in self.workloads]
        generators = {generator_at(one.made.get("commit"), "cuda_") or UNKNOWN for one in found}
        return {
            "spec": ", ".join(one.records.workload for one in found),
            "features": FORMAT,
            "generator": ", ".join(sorted(generators)),
        }


def todays_versions(names: list[str]) -> dict[str, str]:
    """The same of today's specs and generator; a workload that is gone is of no digest."""
    digests = {name: digest for digest, (name, _) in reversed(list(_examples().items()))}
    return {
        "spec": ", ".join(digests.get(name, "gone") for name in names),
        **code("cuda_"),
    }


def read_device(folder: Path) -> Device:
    """Everything below a folder of records.

    Raises
    ------
    RecordsError
        A file is none of the three kinds, of another device than the others, or of no workload in examples/.
    """
    workloads = [_measured(path) for path in sorted(folder.rglob("*.jsonl"))]
    if not workloads:
        raise RecordsError(f"{folder}: no records (.jsonl) in it; write them with benchmarks/gpu/measure.py")
    first = workloads[0].records.device
    compared = {}
    for path in sorted(folder.rglob("*.json")):
        row = _comparison(path)
        if row["device"] != first["name"]:
            raise RecordsError(
                f"{path}: of {row['device']!r}; the records beside it are of {first['name']!r}"
            )
        compared[row["workload"]] = row
    if alone := sorted(set(compared) - {one.name for one in workloads}):
        raise RecordsError(f"{folder}: a comparison of {alone[0]!r} without its records; put them beside it")
    others = {one.records.device["name"] for one in workloads} - {first["name"]}
    if others:
        raise RecordsError(
            f"{folder}: records of {first['name']!r} and {others.pop()!r}; allowed: one device"
        )
    why = folder / "why.yaml"
    sentences = yaml.safe_load(why.read_text()) if why.exists() else {}
    synthetic = any(one.records.is_synthetic for one in workloads)
    synthetic |= any(str(row["standing"]).startswith("synthetic") for row in compared.values())
    by_name = {one.name: one for one in workloads}
    calls = [_calls(path) for path in sorted(folder.rglob("*.calls"))]
    if strange := [one["device"] for one in calls if one["device"] != first["name"]]:
        raise RecordsError(
            f"{folder}: calls on {strange[0]!r} and records of {first['name']!r}; allowed: one device"
        )
    known = by_name, compared, sentences or {}, calls
    return Device(first["name"], int(first["num_sms"]), synthetic, *known)


def _measured(path: Path) -> Measured:
    records = read_records(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    known = _examples().get(records.workload)
    if known is None:
        raise RecordsError(f"{path}: of {records.workload[:23]}…, which is no workload of examples/ any more")
    data = load_spec(known[1]).to_json() | {"target": records.device["target"]}
    walls = [line["wall_secs"] for line in lines if "wall_secs" in line]
    made = dict(lines[0].get("made") or {})
    return Measured(spec_from_data(data), records, made, float(np.sum(walls)) if walls else None)


def _comparison(path: Path) -> Row:
    try:
        row: Row = json.loads(path.read_text())
        missing = {"workload", "device", "standing", "instances", "summary"} - set(row)
    except (ValueError, TypeError) as error:
        raise RecordsError(f"{path}: no comparison of benchmarks/gpu/compare.py: {error}") from error
    if missing:
        raise RecordsError(f"{path}: no comparison of benchmarks/gpu/compare.py: lacks {min(missing)}")
    return row


def _calls(path: Path) -> Row:
    try:
        row: Row = json.loads(path.read_text())
        missing = {"device", "library", "target_microseconds", "shapes"} - set(row)
    except (ValueError, TypeError) as error:
        raise RecordsError(f"{path}: nothing of benchmarks/gpu/overhead.py: {error}") from error
    if missing:
        raise RecordsError(f"{path}: nothing of benchmarks/gpu/overhead.py: lacks {min(missing)}")
    return row


def _examples() -> dict[str, tuple[str, Path]]:
    """Name and path of each example by the digest of its workload; of two alike the first."""
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        spec = load_spec(path)
        found.setdefault(workload_digest(spec), (spec.name, path))
    return found
