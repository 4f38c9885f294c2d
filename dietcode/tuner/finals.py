"""Reading the candidates that could win somewhere again.

One reading of many candidates favours the lucky ones; more readings of the leaders correct that. Leaders are
also read between the anchors, where the device's model interpolates: a library's predictions are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dietcode.backends.protocol import Domain, MeasuringDevice
from dietcode.cost_model.model import Extents
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.measure.requests import Point
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.tuner.events import Event, OnEvent

_READINGS = 3
_MARGIN = 0.04
_MAX_FINALISTS = 10


def read_leaders(
    domain: Domain,
    extents: Extents,
    store: RecordsStore,
    device: MeasuringDevice,
    on_event: OnEvent,
    out_of_time: Callable[[], bool],
    between: Sequence[Point] = (),
) -> None:
    """Read the finalists again, then those that lead instead, until all that lead were.

    Parameters
    ----------
    domain, extents
        As of `finalists`.
    between : sequence of mapping of str to int
        Further instances to read them at.
    out_of_time : callable
        Whether reading is to end.
    """
    tried: set[AnyMicroKernel] = set()
    while not out_of_time():
        todo = [m for m in finalists(domain, extents, store.records) if m.micro_kernel not in tried]
        if not todo:
            break
        tried |= {m.micro_kernel for m in todo}
        _read_again(todo, store, device, on_event, out_of_time, between)


def _read_again(
    todo: list[Measurement],
    store: RecordsStore,
    device: MeasuringDevice,
    on_event: OnEvent,
    out_of_time: Callable[[], bool],
    between: Sequence[Point],
) -> None:
    """Read in turns until each has three readings, and record the median."""
    built = device.build([m.micro_kernel for m in todo], "final")
    points = [(*m.points, *(dict(p) for p in between if p not in m.points)) for m in todo]
    readings = [[m.secs] for m in todo]
    for reading in range(1, _READINGS):
        for index, (measurement, library) in enumerate(zip(todo, built, strict=True)):
            if library.path is None or out_of_time():
                continue
            result = device.time(measurement.micro_kernel, library, points[index])
            if result.error is None:
                readings[index].append(result.secs)
        on_event(Event("measure", f"{len(todo)} finalists again", reading, _READINGS - 1))
    for measurement, read_at, (first, *again) in zip(todo, points, readings, strict=True):
        line = replace(measurement, num_readings=1 + len(again))
        if again:
            unread = (float("nan"),) * (len(read_at) - len(first))
            secs = np.nanmedian([(*first, *unread), *again], axis=0)
            line = replace(line, points=read_at, secs=tuple(float(s) for s in secs))
        store.append(line.to_json())


def finalists(domain: Domain, extents: Extents, records: Records) -> list[Measurement]:
    """Return micro-kernels within a few percent of the best for some instance that have too few readings."""
    fitted = domain.fit(records, extents)
    best = fitted.throughput.max(axis=1, keepdims=True)
    shortfall = (1.0 - fitted.throughput / best).min(axis=0)
    order = [int(i) for i in np.argsort(shortfall, kind="stable") if shortfall[i] <= _MARGIN]
    leaders = [records.measurements[fitted.models[i].micro_kernel] for i in order[:_MAX_FINALISTS]]
    return [leader for leader in leaders if leader.num_readings < _READINGS]
