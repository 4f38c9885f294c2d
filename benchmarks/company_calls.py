"""What a tiny call costs, for `benchmarks.company`: the ways into a library beside PyTorch's own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.company_rounds import Case
from dietcode.runtime.loading import load

_CALLS, _READINGS = 1000, 41


def tiny_calls(folder: Path, size: int) -> dict[str, float]:
    """Median microseconds of a call at one value of the first shape variable, each way in turns.

    Parameters
    ----------
    folder : path
        Of a library of one constant, X and no more.
    """
    import torch

    case = Case(load(folder), size)
    case.check()
    library = case.library
    ((constant, packed),) = case.packed.items()
    arrays, tensors = case.arguments(False), case.arguments(True)
    (name,) = set(arrays) - {constant}
    x, weights = tensors[name], torch.from_numpy(case.arrays[constant].copy())
    array, out = arrays[name], case.output(True)
    bound, array_out = library.bind(**{constant: packed}), case.output(False)
    operator, linear = library.torch_op(**{constant: packed}), torch.nn.functional.linear
    found = _in_batches(
        {
            "torch": lambda: library(**tensors),
            "numpy": lambda: library(**arrays),
            "bound": lambda: bound(x, out=out),
            "bound_numpy": lambda: bound(array, out=array_out),
            "operator": lambda: operator(x),
            "linear": lambda: linear(x, weights),
            "nothing": lambda: None,
        }
    )
    nothing = found.pop("nothing")  # what measuring itself takes
    found = {way: each - nothing for way, each in found.items()}
    return found | {"operator_of_linear": found["operator"] / found["linear"]}


def _in_batches(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    readings: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_READINGS):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(_CALLS):
                call()
            readings[name].append((time.perf_counter() - started) / _CALLS * 1e6)
    return {name: statistics.median(found) for name, found in readings.items()}
