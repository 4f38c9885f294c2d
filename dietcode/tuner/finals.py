"""Reading the candidates that could win somewhere again.

One reading of many candidates favours the lucky ones; a few more of the leaders mend that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dietcode.cost_model.fitting import fit_all
from dietcode.measure.measurer import Measurer
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.search_space.problem import IntArray, Problem
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.events import Event, Listener

_READINGS = 3
_MARGIN = 0.04
_MAX_FINALISTS = 10


def read_again(
    todo: list[Measurement],
    store: RecordsStore,
    measurer: Measurer,
    listener: Listener,
    out_of_time: Callable[[], bool],
) -> None:
    """Read in turns until each has three readings; the median of all counts."""
    built = measurer.build(
        [measurer.build_request([m.micro_kernel], f"final_{m.micro_kernel.name}") for m in todo]
    )
    readings = [[m.secs] for m in todo]
    for reading in range(1, _READINGS):
        for index, (measurement, library) in enumerate(zip(todo, built, strict=True)):
            if library.path is None or out_of_time():
                continue
            result = measurer.time(library.path, measurement.points)
            if result.error is None:
                readings[index].append(result.secs)
        listener(Event("measure", f"{len(todo)} finalists again", reading, _READINGS - 1))
    for measurement, rows in zip(todo, readings, strict=True):
        secs = tuple(float(s) for s in np.median(rows, axis=0))
        store.append(replace(measurement, secs=secs, num_readings=len(rows)).to_json())


def finalists(
    problem: Problem, target: CpuTarget, extents: dict[str, IntArray], records: Records
) -> list[Measurement]:
    """Micro-kernels within a few percent of the best for some instance, that have too few readings."""
    fitted = fit_all(problem, target, records, extents)
    best = fitted.throughput.max(axis=1, keepdims=True)
    shortfall = (1.0 - fitted.throughput / best).min(axis=0)
    order = [int(i) for i in np.argsort(shortfall, kind="stable") if shortfall[i] <= _MARGIN]
    leaders = [records.measurements[fitted.models[i].micro_kernel] for i in order[:_MAX_FINALISTS]]
    return [leader for leader in leaders if leader.num_readings < _READINGS]
