"""Measuring what a workload's records lack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from dietcode.backends.protocol import Backend
from dietcode.measure.children import Children
from dietcode.measure.engine import Device
from dietcode.measure.records import Records, RecordsStore
from dietcode.search_space.task import Task
from dietcode.tuner.events import Event, OnEvent
from dietcode.tuner.exploration import Exploration
from dietcode.tuner.search import Search
from dietcode.tuner.stale import stale_line, stale_message


class Keeper(Protocol):
    """Where records are kept between runs; `dietcode.measure.store.FileKeeper` is the command line's."""

    def open(self, workload: str, device: Mapping[str, Any]) -> RecordsStore:
        """Open the records of a workload on a device."""

    def others(self, workload: str, device: Mapping[str, Any]) -> list[Records]:
        """Return the records of other workloads on a device, the oldest first."""

    def work_dir(self, workload: str, device: Mapping[str, Any]) -> Path:
        """Return the folder of MetaSchedule's database for a workload on a device."""


def explore(
    task: Task,
    backend: Backend,
    device: Device,
    keeper: Keeper,
    children: Children,
    deadline: float,
    on_event: OnEvent,
    search: Search,
    force: bool = False,
) -> tuple[Records, int]:
    """Measure what the records lack.

    Parameters
    ----------
    keeper : Keeper
        Where the records are.
    children : Children
        Those of the device; they stay open.
    deadline : float
        Monotonic time at which measuring stops.
    search : Search
        Which parts of the search are on.
    force : bool
        Empty the records first, and learn nothing from other workloads.

    Returns
    -------
    Records, int
        All of them, and how many micro-kernels were measured now.
    """
    own = task.digest, device.record
    store, work_dir, others = keeper.open(*own), keeper.work_dir(*own), []
    if force:
        store.clear()
        for old in work_dir.glob("*.json"):
            old.unlink()
    else:
        others = keeper.others(*own)
        line = stale_line(backend, task.problem, store.records, device.target)
        if line is not None:
            store.append(line)
            if line["stale"]:
                on_event(Event("measure", stale_message(line)))
        known = store.records.measurements.values()
        if known and all(m.error is not None for m in known):
            store.clear()  # a full disk, or a mistake of an earlier version: failures are tried again
    before = len(store.records.measurements)
    with backend.measuring(task, device, children) as measuring:
        Exploration(
            task, backend, device.target, store, others, measuring, work_dir, deadline, on_event, search
        ).run()
        if store.records.fixed_bytes is None:
            fixed = measuring.fixed_bytes(store.records)
            if fixed is not None:
                store.append({"kind": "fixed_bytes", "bytes": fixed})
    return store.records, len(store.records.measurements) - before
