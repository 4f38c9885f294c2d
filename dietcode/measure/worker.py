"""What runs in the child processes: building one candidate, timing one library.

Every function here takes and returns plain data, because it crosses a process boundary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.confinement import confine
from dietcode.lifeline import die_with_parent
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled

SAFE_ERROR = 1e-5  # of float32, relative to the output's scale
_POISON = np.float32("nan")
_RESOURCES: dict[str, Any] = {}


def start_child(max_bytes: int, temporary: str) -> None:
    """First thing in each child: end with the parent, confined, so that a runaway candidate fails alone.

    Parameters
    ----------
    max_bytes, temporary
        As `dietcode.confinement.confine` takes them.
    """
    die_with_parent()
    confine(max_bytes, temporary)


def get_ready() -> None:
    """Import what every function here needs."""
    import tvm  # noqa: F401


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Compile one micro-kernel to a shared library.

    Returns ``{"path", "object_bytes", "secs"}``.
    """
    import tvm
    from tvm.support.cc import create_shared

    from dietcode.search_space.cpu.host import build_module

    sizes: list[int] = []

    def link(output: str, objects: list[str], **options: Any) -> None:
        sizes.extend(Path(name).stat().st_size for name in objects)
        create_shared(output, objects, **options)

    started = time.perf_counter()
    module = build_module(
        request["problem"], request["micro_kernels"], request["tree"], request["variables"], request["limits"]
    )
    path = request["path"]
    tvm.compile(module, target=request["target"].tvm_target()).export_library(path, fcompile=link)
    return {"path": path, "object_bytes": sum(sizes), "secs": time.perf_counter() - started}


def _functions(path: str) -> Any:
    if path not in _RESOURCES:
        import tvm

        _RESOURCES[path] = tvm.runtime.load_module(path)
    return _RESOURCES[path]


def layouts(problem: Any, extents: dict[str, int], lanes: int) -> list[tuple[str, list[int]]]:
    """Arguments of ``run`` with their shapes, in its order; a constant column operand is packed."""
    found = []
    for name in (*problem.inputs, problem.output):
        shape = [int(extent) for extent in problem.shape(name, extents)]
        if name == problem.column_operand and problem.column_operand_constant:
            batch, _, columns, reduction = problem.sizes(extents)
            shape = [int(batch), -(-int(columns) // lanes), int(reduction), lanes]
        found.append((name, shape))
    return found


def random_array(problem: Any, name: str, shape: list[int], rng: np.random.Generator) -> Any:
    """Random numbers for an input, NaN for the output."""
    if name == problem.output:
        return nan_filled(shape, problem.output_dtype)
    return rng.standard_normal(shape, dtype=np.float32)


def _tensors(problem: Any, extents: dict[str, int], lanes: int) -> list[Any]:
    """Fresh arguments of ``run``; the last ones are kept."""
    import tvm

    key = (str(problem), tuple(sorted(extents.items())), lanes)
    if _RESOURCES.get("tensors_key") != key:
        rng = np.random.default_rng(0)
        _RESOURCES["tensors"] = [
            tvm.runtime.tensor(random_array(problem, name, shape, rng))
            for name, shape in layouts(problem, extents, lanes)
        ]
        _RESOURCES["tensors_key"] = key
    return list(_RESOURCES["tensors"])


def _time(call: Any, min_secs: float, repeats: int) -> float:
    """Lower quartile of the seconds of one call over `repeats` batches of at least `min_secs` each."""
    call()
    started = time.perf_counter()
    call()
    once = max(time.perf_counter() - started, 1e-7)
    number = max(1, int(np.ceil(min_secs / once)))
    readings = []
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(number):
            call()
        readings.append((time.perf_counter() - started) / number)
    return lower_quartile(readings)


def lower_quartile(readings: Sequence[float]) -> float:
    """What counts of several readings: on a shared machine disturbances only ever add time."""
    return float(np.percentile(readings, 25))


def bindings_of(request: dict[str, Any]) -> list[tuple[dict[str, int], list[int]]]:
    """Points to time with the values of the shape variables, zeros by default."""
    points = request["points"]
    values = request.get("values") or [[0] * len(request["variables"])] * len(points)
    return list(zip(points, values, strict=True))


def time_library(request: dict[str, Any]) -> dict[str, Any]:
    """Time ``run`` of one library at several extents; ``values`` gives the shape variables, zeros by default.

    Returns ``{"secs": [float for each point]}``.
    """
    problem, lanes = request["problem"], request["limits"].lanes
    run = _functions(request["path"])["run"]
    secs = []
    for extents, values in bindings_of(request):
        arguments = [*_tensors(problem, extents, lanes), *values]
        secs.append(_time(lambda a=arguments: run(*a), request["min_secs"], request["repeats"]))
    if not request.get("keep"):
        _RESOURCES.pop(request["path"], None)
    return {"secs": secs}


def check_library(request: dict[str, Any]) -> dict[str, Any]:
    """`check` on a library in this process."""
    module = _functions(request["path"])
    return check(request, lambda name, *arguments: module[name](*arguments))


def check(request: dict[str, Any], call: Callable[..., Any]) -> dict[str, Any]:
    """Compare ``run`` with float64 NumPy at one instance, output poisoned beforehand.

    `request` holds ``problem``, ``limits``, ``extents``, ``values`` (of the shape variables), and may hold
    ``seed`` and ``max_checked_flops``: where an instance takes more, a sample of its rows is compared.

    Parameters
    ----------
    call : callable
        Takes a function's name and its arguments: NumPy arrays, of which the last is written, then integers.

    Returns ``{"max_error"}``, relative to the output's scale.

    Raises
    ------
    ValueError
        The error is above 1e-5 and what rounding the output to its dtype costs.
    """
    from dietcode.search_space.expected import expect

    problem, extents = request["problem"], request["extents"]
    rng = np.random.default_rng(request.get("seed", 0))
    inputs = {
        name: rng.standard_normal(problem.shape(name, extents), dtype=np.float32) for name in problem.inputs
    }
    output = nan_filled(problem.shape(problem.output, extents), problem.output_dtype)
    expected = expect(problem, inputs, extents, request.get("max_checked_flops", math.inf))
    arguments = dict(inputs)
    if problem.column_operand_constant:
        shapes = dict(layouts(problem, extents, request["limits"].lanes))
        packed = np.full(shapes[problem.column_operand], _POISON)
        call("pack", inputs[problem.column_operand], packed)
        arguments[problem.column_operand] = packed
    call("run", *(arguments[n] for n in problem.inputs), output, *request["values"])
    error = expected.error_of(output)
    if not error <= SAFE_ERROR + UNIT_ROUNDOFF[problem.output_dtype]:
        raise ValueError(f"wrong result: error {error:.3g} of the output's scale at {extents}")
    return {"max_error": error}
