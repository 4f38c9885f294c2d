"""Measuring what a workload's records lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dietcode.errors import TuningError
from dietcode.measure.children import Children
from dietcode.measure.engine import Device
from dietcode.measure.measurer import Measurer
from dietcode.measure.records import Records, RecordsStore
from dietcode.search_space.task import Task
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.events import Listener
from dietcode.tuner.exploration import Exploration
from dietcode.tuner.search import Search


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
    """What was kept for a workload on a device, and of its other workloads."""

    store: RecordsStore
    others: list[Records]
    work_dir: Path


def check_measurable(device: Device) -> None:
    """Refuse a device on which nothing can be measured for its target.

    Raises
    ------
    TuningError
        It says why.
    """
    if device.refusal is not None:
        raise TuningError(device.refusal)


def open_records(workload: str, device: Device, keeper: Keeper, force: bool) -> Kept:
    """Open the records; empty where everything is to be measured again."""
    record = device.record
    store, work_dir = keeper.open(workload, record), keeper.work_dir(workload, record)
    if force:
        store.clear()
        for old in work_dir.glob("*.json"):
            old.unlink()
    others = [] if force else keeper.others(workload, record)  # measured again: nothing is taken over
    return Kept(store, others, work_dir)


def explore(
    task: Task,
    target: CpuTarget,
    kept: Kept,
    started: float,
    listener: Listener,
    children: Children,
    search: Search,
) -> tuple[Records, int]:
    """Measure what is missing; the records, and how many micro-kernels are new."""
    store = kept.store
    before = len(store.records.measurements)
    deadline = started + task.spec.budget.seconds
    with Measurer(children, task.problem, task.variables, target) as measurer:
        Exploration(
            task,
            target,
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
        tree = (next(iter(measurer.variables), ""), 0, 0, 1)
        (pair,) = measurer.build([measurer.build_request(kernels, "pair", tree=tree)])
        if pair.error is None:
            fixed = max(0, sum(m.object_bytes for m in working) - pair.object_bytes)
    store.append({"kind": "fixed_bytes", "bytes": fixed})
