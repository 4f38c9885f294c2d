"""Reading the candidates that could win somewhere again.

One reading of many candidates favours the lucky ones; more readings of the leaders correct that. Leaders are
also read between the anchors, where the device's model interpolates: a library's predictions are theirs.
Three readings are enough where they agree; where they do not, as on a machine that others share, the best of
many is still lucky, so that those that lead at many instances are read until the medians are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dietcode.backends.protocol import Domain, MeasuringDevice
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.measure.requests import BuildResult, Point
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.tuner.events import Event, OnEvent

_READINGS = 3
_MOST_READINGS = 9
_KNOWN = 0.015  # the standard error of a median, as a share of it
_MANY = 0.05  # of all instances, at which a leader is the best
_MARGIN = 0.04
_MAX_FINALISTS = 10


@dataclass
class _Final:
    """A finalist.

    Attributes
    ----------
    points : tuple of mapping of str to int
        The first reading's, and those that the others have beside them.
    readings : list of tuple of float
        Seconds at each of the points, NaN where the first has none.
    asked : int
        How often it was to be read, with readings that failed.
    """

    measurement: Measurement
    built: BuildResult
    points: tuple[dict[str, int], ...]
    readings: list[tuple[float, ...]]
    asked: int = 1

    @property
    def medians(self) -> npt.NDArray[np.float64]:
        """Seconds at each of the points."""
        found: npt.NDArray[np.float64] = np.nanmedian(self.readings, axis=0)
        return found

    @property
    def spread(self) -> float:
        """Standard deviation, over its readings, of what all points of one have in common."""
        levels = np.nanmedian(np.log(self.readings) - np.log(self.medians), axis=1)
        return float(levels.std(ddof=1))


def read_leaders(
    domain: Domain,
    extents: Extents,
    store: RecordsStore,
    device: MeasuringDevice,
    between: Sequence[Point],
    *,
    on_event: OnEvent,
    out_of_time: Callable[[], bool],
    had_enough: Callable[[], bool],
) -> None:
    """Read the finalists again, then those that lead instead, until all that lead were, and often enough.

    Parameters
    ----------
    domain, extents
        What fits the records, and the instances it predicts.
    between : sequence of mapping of str to int
        Further instances to read them at.
    out_of_time : callable
        Whether reading is to end.
    had_enough : callable
        Whether more than three readings of one are no longer worth their time.
    """
    finals: dict[AnyMicroKernel, _Final] = {}
    while not out_of_time():
        fitted = domain.fit(store.records, extents)
        new = [m for m in finalists(fitted, store.records) if m.micro_kernel not in finals]
        if new:
            assert store.records.calibration is not None
            device.attach(store.records.calibration)
            built = device.build([m.micro_kernel for m in new], "final")
            for measurement, library in zip(new, built, strict=True):
                finals[measurement.micro_kernel] = _final(measurement, library, between)
            todo = [finals[m.micro_kernel] for m in new]
        elif had_enough():
            break
        else:
            enough = _enough_readings(list(finals.values()))
            todo = [finals[k] for k in _leaders(fitted) if k in finals and finals[k].asked < enough]
        if not todo:
            break
        _read_again(todo, device, on_event, out_of_time)
        for final in todo:
            store.append(_line(final).to_json())


def _enough_readings(finals: list[_Final]) -> int:
    """How many readings of one are enough, by how far those of one finalist are mostly from each other.

    The standard error of a median of n is √(π/2n) of their deviation.
    """
    spreads = [final.spread for final in finals if len(final.readings) > 1]
    number = np.pi / 2 * (np.median(spreads) / _KNOWN) ** 2 if spreads else 0.0
    return int(np.clip(np.ceil(number), _READINGS, _MOST_READINGS))


def _final(measurement: Measurement, built: BuildResult, between: Sequence[Point]) -> _Final:
    """A finalist with the reading that there is."""
    added = tuple(dict(p) for p in between if p not in measurement.points)
    first = (*measurement.secs, *(float("nan") for _ in added))
    return _Final(measurement, built, (*measurement.points, *added), [first])


def _read_again(
    todo: list[_Final], device: MeasuringDevice, on_event: OnEvent, out_of_time: Callable[[], bool]
) -> None:
    """Read in turns, two more times each."""
    for reading in range(1, _READINGS):
        for final in todo:
            final.asked += 1
            if final.built.path is None or out_of_time():
                continue
            waves = len(final.measurement.points)
            results = [
                device.time(final.measurement.micro_kernel, final.built, points)
                for points in (final.points[:waves], final.points[waves:])
                if points
            ]
            if all(result.error is None for result in results):
                final.readings.append(tuple(secs for result in results for secs in result.secs))
        on_event(Event("measure", f"{len(todo)} finalists again", reading, _READINGS - 1))


def _line(final: _Final) -> Measurement:
    """The medians of a finalist, or its first reading where it has no other."""
    line = replace(final.measurement, num_readings=len(final.readings))
    if len(final.readings) == 1:
        return line
    return replace(line, points=final.points, secs=tuple(float(s) for s in final.medians))


def finalists(fitted: Fitted, records: Records) -> list[Measurement]:
    """Return micro-kernels with too few readings, of those within some percent of the best for an instance.

    The best ones are all taken, of the others as many as make ten.
    """
    best = fitted.throughput.max(axis=1, keepdims=True)
    shortfall = (1.0 - fitted.throughput / best).min(axis=0)
    order = [int(i) for i in np.argsort(shortfall, kind="stable") if shortfall[i] <= _MARGIN]
    closest = [i for number, i in enumerate(order) if number < _MAX_FINALISTS or shortfall[i] <= 0]
    leaders = [records.measurements[fitted.models[i].micro_kernel] for i in closest]
    return [leader for leader in leaders if leader.num_readings < _READINGS]


def _leaders(fitted: Fitted) -> list[AnyMicroKernel]:
    """Return micro-kernels that are the best at many instances."""
    best = fitted.throughput.argmax(axis=1)
    share = np.bincount(best, minlength=len(fitted.models)) / len(best)
    return [model.micro_kernel for model, s in zip(fitted.models, share, strict=True) if s >= _MANY]
