"""What runs in the child processes: building one candidate, timing one library.

Every function here takes and returns plain data, because it crosses a process boundary.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.confinement import confine
from dietcode.lifeline import die_with_parent
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled, widened

_SAFE_ERROR = 1e-5
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

    from dietcode.search_space.host import build_module

    started = time.perf_counter()
    module = build_module(
        request["problem"], request["micro_kernels"], request["tree"], request["variables"], request["limits"]
    )
    executable = tvm.compile(module, target=request["target"].tvm_target())
    path = Path(request["path"])
    object_path = path.with_suffix(".o")
    executable.mod.write_to_file(str(object_path), "o")
    object_bytes = object_path.stat().st_size
    object_path.unlink()
    executable.export_library(str(path))
    return {"path": str(path), "object_bytes": object_bytes, "secs": time.perf_counter() - started}


def _functions(path: str) -> Any:
    if path not in _RESOURCES:
        import tvm

        _RESOURCES[path] = tvm.runtime.load_module(path)
    return _RESOURCES[path]


def _tensors(problem: Any, extents: dict[str, int], lanes: int) -> list[Any]:
    """Fresh random inputs in the order of ``run``, the column operand packed where it is constant."""
    import tvm

    key = (str(problem), tuple(sorted(extents.items())), lanes)
    if _RESOURCES.get("tensors_key") != key:
        rng = np.random.default_rng(0)
        arrays = []
        for name in (*problem.inputs, problem.output):
            shape = problem.shape(name, extents)
            if name == problem.column_operand and problem.column_operand_constant:
                batch, _, columns, reduction = problem.sizes(extents)
                shape = [int(batch), -(-int(columns) // lanes), int(reduction), lanes]
            if name == problem.output:
                arrays.append(tvm.runtime.tensor(nan_filled(shape, problem.output_dtype)))
            else:
                arrays.append(tvm.runtime.tensor(rng.standard_normal(shape, dtype=np.float32)))
        _RESOURCES["tensors"], _RESOURCES["tensors_key"] = arrays, key
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
    return float(np.percentile(readings, 25))


def time_library(request: dict[str, Any]) -> dict[str, Any]:
    """Time ``run`` of one library at several extents; ``values`` gives the shape variables, zeros by default.

    Returns ``{"secs": [float for each point]}``.
    """
    problem, lanes = request["problem"], request["limits"].lanes
    run = _functions(request["path"])["run"]
    points = request["points"]
    bindings = request.get("values") or [[0] * len(request["variables"])] * len(points)
    secs = []
    for extents, values in zip(points, bindings, strict=True):
        arguments = [*_tensors(problem, extents, lanes), *values]
        secs.append(_time(lambda a=arguments: run(*a), request["min_secs"], request["repeats"]))
    if not request.get("keep"):
        _RESOURCES.pop(request["path"], None)
    return {"secs": secs}


def check_library(request: dict[str, Any]) -> dict[str, Any]:
    """Compare ``run`` with float64 NumPy at one instance, output poisoned beforehand.

    Returns ``{"max_error"}``, relative to the output's scale.

    Raises
    ------
    ValueError
        The error is above 1e-5 and what rounding the output to its dtype costs.
    """
    from dietcode.search_space.reference import reference

    problem, extents = request["problem"], request["extents"]
    module = _functions(request["path"])
    rng = np.random.default_rng(request.get("seed", 0))
    inputs = {
        name: rng.standard_normal(problem.shape(name, extents), dtype=np.float32) for name in problem.inputs
    }
    output = nan_filled(problem.shape(problem.output, extents), problem.output_dtype)
    expected = reference(problem, inputs)
    arguments = dict(inputs)
    if problem.column_operand_constant:
        lanes = request["limits"].lanes
        batch, _, columns, reduction = (int(size) for size in problem.sizes(extents))
        packed = np.full((batch, -(-columns // lanes), reduction, lanes), _POISON)
        module["pack"](inputs[problem.column_operand], packed)
        arguments[problem.column_operand] = packed
    module["run"](*(arguments[n] for n in problem.inputs), output, *request["values"])
    scale = float(np.abs(expected).max()) or 1.0
    error = float(np.abs(widened(output, problem.output_dtype) - expected).max()) / scale
    if not error <= _SAFE_ERROR + UNIT_ROUNDOFF[problem.output_dtype]:
        raise ValueError(f"wrong result: error {error:.3g} of the output's scale at {extents}")
    return {"max_error": error}
