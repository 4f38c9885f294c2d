"""What a line of tuning records must hold; checked once, where the line is read.

Each check raises one of `WRONG` where the line does not hold it. Unknown keys are ignored: a later version
may add some.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dietcode.workload.text import clip, one_line

WRONG = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Exceptions that reading a malformed line raises."""

MAX_PROVENANCE = 64  # characters
MAX_MESSAGE = 4000  # characters
MAX_TILE = 65_536
MAX_EXTENT = 1 << 40
STOPS = ("converged", "stalled", "exhausted", "trials", "seconds")  # as in `dietcode.tuner.decisions`
ReadsTile = Callable[[Mapping[str, Any]], Any]

_DIGEST = re.compile(r"[0-9a-f]{16,64}")
_JOB = re.compile(r"[0-9a-f]{16}")


def check_seed(body: Mapping[str, Any], micro_kernel: ReadsTile) -> None:
    """Refuse a seed without a tile, or without its provenance."""
    tile = array(body["tile"], "tile")
    for extent in tile:
        whole(extent, "tile", most=MAX_TILE)
    if len(tile) != 2:
        raise ValueError(f"tile {clip(tile)}; allowed: two extents")
    if "micro_kernel" in body:
        micro_kernel(body["micro_kernel"])
    whole(body["trials"], "trials", least=0)
    if body["best_gflops"] is not None:
        real(body["best_gflops"], "best_gflops", least=0.0)
    if body.get("from_workload") is not None:
        line(body["from_workload"], "from_workload")
    if body.get("from_workload") is not None or "reason" in body:
        line(body["reason"], "reason")


def check_fixed_bytes(body: Mapping[str, Any]) -> None:
    """Refuse anything but a number of bytes."""
    whole(body["bytes"], "bytes", least=0)


def check_measurement(
    body: Mapping[str, Any], indices: frozenset[str] | None, micro_kernel: ReadsTile
) -> None:
    """Refuse a measurement whose micro-kernel, points or times are malformed; a failed one has no times.

    Parameters
    ----------
    indices : frozenset of str or None
        Those of the problem; None for those of the first point.
    micro_kernel : callable
        As `dietcode.measure.formats.RecordFormat` has it.
    """
    _check_tile(body, micro_kernel)
    _provenance(body)
    points, secs = array(body["points"], "points"), array(body["secs"], "secs")
    if len(points) != len(secs):
        raise ValueError(f"{len(secs)} times for {len(points)} points")
    for point in points:
        for index, extent in point.items():
            whole(extent, f"extent of {clip(index)}", most=MAX_EXTENT)
    if points:
        check_indices(points, frozenset(points[0]) if indices is None else indices)
    for value in secs:
        real(value, "secs", above=0.0)
    whole(body["object_bytes"], "object_bytes", least=0)
    real(body["build_secs"], "build_secs", least=0.0)
    real(body["drift"], "drift", above=0.0)
    whole(body["attempts"], "attempts")
    whole(body["num_readings"], "num_readings")
    if body["error"] is not None and not isinstance(body["error"], str):
        raise TypeError(f"error {clip(body['error'])}; allowed: a text or null")
    for key in ("code", "generator"):
        if body.get(key) is not None:
            _check_digest(body[key], key)
    if not isinstance(body.get("pruned", False), bool):
        raise TypeError(f"pruned {clip(body['pruned'])}; allowed: true or false")
    if (body["error"] is None) != bool(points):
        raise ValueError(f"error {clip(body['error'])} with {len(points)} points; allowed: one of them")


def check_generator(body: Mapping[str, Any]) -> None:
    """Refuse anything but a generator's digest, and names of micro-kernels that it writes differently."""
    _check_digest(body["digest"], "digest")
    for name in array(body["stale"], "stale"):
        line(name, "stale")


def _check_digest(value: Any, what: str) -> None:
    if not (isinstance(value, str) and _DIGEST.fullmatch(value)):
        raise ValueError(f"{what} {clip(value)}; allowed: 16 to 64 hexadecimal digits")


def check_indices(points: Sequence[Mapping[str, int]], indices: frozenset[str]) -> None:
    """Refuse points that lack the extent of an index, or have one more."""
    for point in points:
        if point.keys() != indices or not indices:
            raise ValueError(f"a point {clip(point)}; allowed: extents of {clip(sorted(indices))}")


def check_round(body: Mapping[str, Any], micro_kernel: ReadsTile) -> None:
    """Refuse a round that is not as `dietcode.tuner.decisions.round_line` writes it, with a message."""
    whole(body["number"], "number")
    line(body["message"], "message")
    if body["stop"] is not None and body["stop"] not in STOPS:
        raise ValueError(f"stop {clip(body['stop'])}; allowed: {', '.join(STOPS)} or null")
    for key in ("gain", "promise"):
        if body[key] is not None:
            real(body[key], key)
    for key in ("measured", "pruned", "failed", "dropped"):
        for name in array(body[key], key):
            line(name, key)
    if body["model"] is not None and body["model"]["missed"] is not None:
        real(body["model"]["missed"], "model.missed", least=0.0)
    for expansion in array(body["expansions"], "expansions"):
        _check_expansion(expansion)
    for added in array(body["added"], "added"):
        _check_tile(added, micro_kernel)
        _provenance(added)
    job = body.get("job")
    if job is not None and not (isinstance(job, str) and _JOB.fullmatch(job)):
        raise ValueError(f"job {clip(job)}; allowed: 16 hexadecimal digits")


def _check_expansion(facts: Mapping[str, Any]) -> None:
    for index, extent in facts["shape"].items():
        whole(extent, f"extent of {clip(index)}", most=MAX_EXTENT)
    line(facts["cause"], "cause")
    real(facts["served"], "served")
    for name in array(facts["micro_kernels"], "micro_kernels"):
        line(name, "micro_kernels")


def _check_tile(body: Mapping[str, Any], micro_kernel: ReadsTile) -> None:
    for key in ("rows", "columns"):
        whole(body[key], key, most=MAX_TILE)
    micro_kernel(body)


def _provenance(body: Mapping[str, Any]) -> None:
    line(body["provenance"], "provenance", MAX_PROVENANCE)


def array(value: Any, what: str) -> list[Any]:
    """Return `value` where it is a list."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{what} {clip(value)}; allowed: a list")
    return list(value)


def whole(value: Any, what: str, least: int = 1, most: int | None = None) -> None:
    """Refuse anything but an integer in ``least…most``.

    Parameters
    ----------
    what : str
        Name of the value in the message.
    least, most : int
        Bounds, included; None for no upper one.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} {clip(value)}; allowed: an integer")
    if value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{what} {clip(value)}; allowed: {allowed}")


def real(
    value: Any,
    what: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Refuse anything but a finite number.

    Parameters
    ----------
    what : str
        Name of the value in the message.
    above : float
        Bound, excluded.
    least, most : float
        Bounds, included.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} {clip(value)}; allowed: a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and above < number and least <= number <= most):
        bounds = [f"above {above:g}"] if above > -math.inf else []
        bounds += [f"at least {least:g}"] if least > -math.inf else []
        bounds += [f"at most {most:g}"] if most < math.inf else []
        raise ValueError(f"{what} {clip(value)}; allowed: a finite number {', '.join(bounds)}".rstrip())


def line(value: Any, what: str, most: int = MAX_MESSAGE) -> None:
    """Refuse anything but a text on one line, of at most `most` characters."""
    if not isinstance(value, str):
        raise TypeError(f"{what} {clip(value)}; allowed: a text")
    if len(value) > most or value.splitlines() not in ([], [value]):
        raise ValueError(f"{what} {clip(value)}; allowed: one line of at most {most} characters")


def reason(error: Exception) -> str:
    """Return what is wrong with a line, from an error of `WRONG`."""
    said = one_line(str(error.args[0] if error.args else error))
    return f"{said} is missing" if isinstance(error, KeyError) else said
