"""Measuring what a workload's records lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dietcode.backends.protocol import Backend
from dietcode.errors import TuningError
from dietcode.measure.children import Children
from dietcode.measure.engine import Device
from dietcode.measure.records import Records, RecordsStore
from dietcode.search_space.task import Task
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
    backend: Backend,
    device: Device,
    kept: Kept,
    deadline: float,
    listener: Listener,
    children: Children,
    search: Search,
) -> Records:
    """Measure what is missing; the records."""
    store = kept.store
    with backend.measuring(task, device, children) as measuring:
        Exploration(
            task,
            backend,
            device.target,
            store,
            kept.others,
            measuring,
            kept.work_dir,
            deadline,
            listener,
            search,
        ).run()
        if store.records.fixed_bytes is None:
            fixed = measuring.fixed_bytes(store.records)
            if fixed is not None:
                store.append({"kind": "fixed_bytes", "bytes": fixed})
    return store.records
