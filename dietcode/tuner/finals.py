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
    between: Sequence[Point],
    *,
    on_event: OnEvent,
    out_of_time: Callable[[], bool],
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
        assert store.records.calibration is not None
        device.attach(store.records.calibration)
        tried |= {m.micro_kernel for m in todo}
        _read_again(todo, store, device, between, on_event, out_of_time)


def _read_again(
    todo: list[Measurement],
    store: RecordsStore,
    device: MeasuringDevice,
    between: Sequence[Point],
    on_event: OnEvent,
    out_of_time: Callable[[], bool],
) -> None:
    """Read in turns until each has three readings, and record the median."""
    built = device.build([m.micro_kernel for m in todo], "final")
    added = [tuple(dict(p) for p in between if p not in m.points) for m in todo]
    readings: list[list[tuple[float, ...]]] = [[] for _ in todo]
    for reading in range(1, _READINGS):
        for index, (measurement, library) in enumerate(zip(todo, built, strict=True)):
            if library.path is None or out_of_time():
                continue
            results = [
                device.time(measurement.micro_kernel, library, points)
                for points in (measurement.points, added[index])
                if points
            ]
            if all(result.error is None for result in results):
                readings[index].append(tuple(secs for result in results for secs in result.secs))
        on_event(Event("measure", f"{len(todo)} finalists again", reading, _READINGS - 1))
    for measurement, more, again in zip(todo, added, readings, strict=True):
        line = replace(measurement, num_readings=1 + len(again))
        if again:
            first = (*measurement.secs, *(float("nan") for _ in more))
            secs = np.nanmedian([first, *again], axis=0)
            line = replace(line, points=(*measurement.points, *more), secs=tuple(float(s) for s in secs))
        store.append(line.to_json())


def finalists(domain: Domain, extents: Extents, records: Records) -> list[Measurement]:
    """Return micro-kernels with too few readings, of those within some percent of the best for an instance.

    The best ones are all taken, of the others as many as make ten.
    """
    fitted = domain.fit(records, extents)
    best = fitted.throughput.max(axis=1, keepdims=True)
    shortfall = (1.0 - fitted.throughput / best).min(axis=0)
    order = [int(i) for i in np.argsort(shortfall, kind="stable") if shortfall[i] <= _MARGIN]
    closest = [i for number, i in enumerate(order) if number < _MAX_FINALISTS or shortfall[i] <= 0]
    leaders = [records.measurements[fitted.models[i].micro_kernel] for i in closest]
    return [leader for leader in leaders if leader.num_readings < _READINGS]
