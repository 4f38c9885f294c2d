"""The bandwidth of a CPU: a copy by all cores, of more and more bytes, timed as candidates are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dietcode.measure.requests import BuildRequest, BuildResult, Point
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.workload.block import BlockNode

# Of both tensors; close where the last cache of most machines ends.
_BYTES = (*(1 << exponent for exponent in range(16, 24)), *(n << 20 for n in (12, 16, 24, 32, 48, 64)))
_BYTES_OF_ELEMENT = 8  # read, and written


def copy_problem() -> RowProblem:
    """Return ``Y[n] = X[n]`` with a dynamic n."""
    return RowProblem(
        inputs=("X",),
        outputs=("Y",),
        indices={"X": "n", "Y": "n"},
        nodes={"Y": BlockNode("mul", ("X", 1.0))},
        rows=(),
        columns=("n",),
        extents={"n": None},
    )


def measure_bandwidth(
    build: Callable[[list[RowKernel], str, AnyProblem], BuildRequest],
    run: Callable[[list[BuildRequest]], list[BuildResult]],
    time: Callable[[AnyProblem, str, list[Point]], list[float]],
    limits: Limits,
) -> dict[str, Any]:
    """Return the ``bandwidth`` of a calibration line: bytes of both tensors, and bytes a second at each.

    Parameters
    ----------
    build : callable
        ``(micro_kernels, name, problem) -> BuildRequest``.
    run : callable
        Builds requests.
    time : callable
        ``(problem, path, points) -> seconds``.
    limits : Limits
        Of the target.

    Returns
    -------
    dict
        Empty where the copies cannot be built: plain, and ``streamed``, written past the caches.
    """
    problem, plain = copy_problem(), RowKernel(1, 8 * limits.lanes)
    kernels = {"bytes_per_sec": plain, "streamed_bytes_per_sec": replace(plain, stream=True)}
    results = run([build([kernel], f"copy_{kernel.name}", problem) for kernel in kernels.values()])
    points: list[Point] = [{"n": size // _BYTES_OF_ELEMENT} for size in _BYTES]
    found: dict[str, Any] = {"bytes": list(_BYTES)}
    for name, built in zip(kernels, results, strict=True):
        if built.path is None:
            return {}
        secs = time(problem, built.path, points)
        found[name] = [size / value for size, value in zip(_BYTES, secs, strict=True)]
    return {"bandwidth": found}
