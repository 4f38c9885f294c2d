"""Measuring what a workload's records lack, alone on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from dietcode.errors import TuningError
from dietcode.measure.measurer import Children, Measurer
from dietcode.measure.records import Records, RecordsStore
from dietcode.runtime.cache import cache_dir
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget, device_record
from dietcode.tuner.events import Event, Listener
from dietcode.tuner.exploration import Exploration
from dietcode.tuner.search import Search
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import Instances
from dietcode.workload.spec import Spec


class Keeper(Protocol):
    """Where records are kept between runs; `dietcode.measure.store.FileKeeper` is the command line's."""

    def open(self, workload: str, device: Mapping[str, Any]) -> RecordsStore:
        """The records of a workload on a device."""

    def others(self, workload: str, device: Mapping[str, Any]) -> list[Records]:
        """What is known of other workloads on a device, the oldest first."""

    def work_dir(self, workload: str, device: Mapping[str, Any]) -> Path:
        """Folder for MetaSchedule's database of them."""


@dataclass(frozen=True)
class Kept:
    """What was kept for a workload on this device, and of its other workloads."""

    store: RecordsStore
    others: list[Records]
    work_dir: Path


def open_records(spec: Spec, target: CpuTarget, keeper: Keeper, force: bool) -> Kept:
    """Open the records; empty where everything is to be measured again.

    Raises
    ------
    TuningError
        Nothing can be measured for the target on this machine.
    """
    if not target.measurable_here:
        lacks = f"has no {target.num_cores} cores" if target.runs_here else f"does not run {target.mcpu} code"
        raise TuningError(
            f"this machine {lacks}, so nothing can be measured for it here; "
            "measure on such a machine and build with --records"
        )
    device, workload = device_record(target), workload_digest(spec)
    store, work_dir = keeper.open(workload, device), keeper.work_dir(workload, device)
    if force:
        store.clear()
        for old in work_dir.glob("*.json"):
            old.unlink()
    others = [] if force else keeper.others(workload, device)  # measured again: nothing is taken over
    return Kept(store, others, work_dir)


def explore(
    spec: Spec,
    problem: Problem,
    target: CpuTarget,
    instances: Instances,
    kept: Kept,
    started: float,
    listener: Listener,
    children: Children,
    search: Search,
) -> tuple[Records, int]:
    """Measure what is missing; the records, and how many micro-kernels are new."""
    store = kept.store
    before = len(store.records.measurements)
    deadline = started + spec.budget.seconds
    with Measurer(children, problem, spec.variables, target) as measurer:
        Exploration(
            spec,
            problem,
            target,
            instances,
            store,
            measurer,
            kept.work_dir,
            deadline,
            listener,
            kept.others,
            search,
        ).run()
        _measure_fixed_bytes(store, measurer)
    return store.records, len(store.records.measurements) - before


def _measure_fixed_bytes(store: RecordsStore, measurer: Measurer) -> None:
    """Bytes that any library has: s(a) + s(b) − s(a and b), by building the pair."""
    if store.records.fixed_bytes is not None:
        return
    working = [m for m in store.records.measurements.values() if m.error is None][:2]
    fixed = 0
    if len(working) == 2:
        kernels = [m.micro_kernel for m in working]
        request = measurer.build_request(kernels, "pair") | {"tree": ("", 0, 0, 1)}
        if measurer.variables:
            request["tree"] = (measurer.variables[0], 0, 0, 1)
        (pair,) = measurer.build([request])
        if pair.error is None:
            fixed = max(0, sum(m.object_bytes for m in working) - pair.object_bytes)
    store.append({"kind": "fixed_bytes", "bytes": fixed})


class measuring_slot:  # noqa: N801 - reads as a statement
    """One tuning run works on this machine at a time: a build beside a timing would disturb it."""

    def __init__(self, listener: Listener) -> None:
        place = cache_dir() / "locks"
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TuningError(f"{place}: cannot be written: {error.strerror}; set DIETCODE_CACHE") from error
        self._lock = FileLock(place / "measure.lock")
        self._listener = listener

    def __enter__(self) -> None:
        try:
            self._lock.acquire(timeout=0.1)
        except Timeout:
            self._listener(Event("calibrate", "another tuning run works on this machine; waiting for it"))
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
