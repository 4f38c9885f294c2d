"""The vendor's kernels for the same operator: NumPy here, PyTorch in `torch_paths`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dietcode.bench.blocks import numpy_block
from dietcode.bench.operator import Binder, Call, Operator, matmul_plan
from dietcode.errors import RequestError
from dietcode.extras import MissingExtraError, what_to_install
from dietcode.search_space.problem import Problem


def numpy_paths(operator: Operator, num_threads: int) -> dict[str, Binder]:
    """Return the path of NumPy with the BLAS it was built with.

    Raises
    ------
    RequestError
        It has no kernel for this operator.
    """
    del num_threads  # OpenBLAS takes every core, as the library does
    return _NUMPY.get(operator.problem.form, numpy_block)(operator)


def _numpy_contraction(operator: Operator) -> dict[str, Binder]:
    if operator.convolution is not None:
        raise RequestError("--vs numpy: NumPy has no convolution; allowed: --vs torch")
    first, second = operator.operands
    plan = matmul_plan(operator)
    steps = [_numpy_step(step.kind, step.value, step.tensor) for step in operator.epilogue]

    def bind(arrays: Mapping[str, Any]) -> Call:
        def run() -> Any:
            a, b = arrays[first], arrays[second]
            if plan is None:
                value = np.einsum(operator.equation, a, b, optimize=True)
            else:
                value = np.matmul(a, np.swapaxes(b, -1, -2) if plan else b)
            for step in steps:
                value = step(value, arrays)
            return value

        return run

    return {"numpy": bind}


_NUMPY_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda y: np.maximum(y, 0),
    "tanh": np.tanh,
    "sigmoid": lambda y: 0.5 + 0.5 * np.tanh(0.5 * y),  # exp of a large -y overflows
    "silu": lambda y: y * (0.5 + 0.5 * np.tanh(0.5 * y)),
    "hardsigmoid": lambda y: np.clip(y + 3, 0, 6) / 6,
    "hardswish": lambda y: y * np.clip(y + 3, 0, 6) / 6,
}


def _numpy_step(kind: str, value: Any, tensor: str | None) -> Callable[[Any, Mapping[str, Any]], Any]:
    """Return a step of the epilogue; float32 stays float32."""
    if tensor is not None:
        return lambda y, arrays: y + arrays[tensor]
    if kind == "scale":
        return lambda y, arrays: y * np.float32(value)
    if kind == "clip":
        return lambda y, arrays: np.clip(y, *value)
    if kind in _NUMPY_FUNCTIONS:
        return lambda y, arrays: _NUMPY_FUNCTIONS[kind](y)
    if value == "tanh":
        inner = math.sqrt(2 / math.pi)
        return lambda y, arrays: 0.5 * y * (1 + np.tanh(inner * (y + 0.044715 * y * y * y)))
    try:
        from scipy.special import erf
    except ImportError as error:
        raise MissingExtraError(what_to_install("--vs numpy with gelu", "tune", ("scipy",))) from error
    return lambda y, arrays: 0.5 * y * (1 + erf(y * np.float32(math.sqrt(0.5))))


_NUMPY: dict[str, Callable[[Operator], dict[str, Binder]]] = {
    Problem.form: _numpy_contraction,
}


def _torch_paths(operator: Operator, num_threads: int) -> dict[str, Binder]:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(what_to_install("--vs torch", "bench", ("torch",))) from error
    from dietcode.bench.torch_paths import torch_paths

    torch.set_num_threads(num_threads)
    return torch_paths(operator)


PATHS = {"numpy": numpy_paths, "torch": _torch_paths}


def check_vendor(name: str) -> None:
    """Check that a vendor is known.

    Raises
    ------
    RequestError
        It is not.
    """
    if name not in PATHS:
        raise RequestError(f"--vs: {name!r}; allowed: {', '.join(PATHS)}")


def vendor_paths(name: str, operator: Operator, num_threads: int) -> dict[str, Binder]:
    """Return the paths of one vendor by name.

    Raises
    ------
    RequestError
        The vendor is unknown, not installed, or has no kernel for this operator.
    """
    check_vendor(name)
    return PATHS[name](operator, num_threads)
