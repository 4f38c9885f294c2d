"""The reference that compiled code is compared with: a problem in float64 NumPy. Imports no TVM."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dietcode.search_space.problem import IntArray, Problem
from dietcode.workload.dtypes import widened

FloatArray = npt.NDArray[np.float64]
Positions = Mapping[str, IntArray]
"""Positions along some indices of the output, ascending; all positions of an index that is not in it."""


def reference(problem: Problem, arrays: Mapping[str, Any], positions: Positions | None = None) -> FloatArray:
    """Compute a problem, or a part of its output.

    Parameters
    ----------
    problem : Problem
        Any: broadcast operands, windows, split axes, every epilogue stage.
    arrays : mapping of str to array
        The inputs by tensor name, in the shapes that callers see, a bfloat16 as its bits; others are ignored.
    positions : Positions, optional
        The part to compute: these positions of every index; all of the output by default.

    Returns
    -------
    float64 array
        The output, in the shape that callers see; the same as `part` of the whole one.

    Raises
    ------
    ValueError
        The shapes do not fit the problem or each other.
    """
    extents, positions = _extents(problem, arrays), positions or {}
    output = problem.indices[problem.output]
    sizes = _sizes(extents, positions)
    value = np.zeros([sizes[index] for index in output])
    kernels = [window.kernel for window in problem.windows]
    # One position in the windows after another: all at once would take as many copies of the operand.
    for values in itertools.product(*(range(extents[index]) for index in kernels)):
        at = dict(zip(kernels, values, strict=True))
        (first, a), (second, b) = (
            _under_windows(problem, n, arrays[n], extents, at, positions) for n in problem.inputs[:2]
        )
        value += np.einsum(f"{first},{second}->{output}", a, b, optimize=True)
    added = {name: part(problem, name, arrays[name], extents, positions) for name in problem.inputs[2:]}
    return finish(problem, value.reshape(problem.shape(problem.output, sizes)), added)


def part(
    problem: Problem, name: str, array: Any, extents: Mapping[str, int], positions: Positions
) -> npt.NDArray[Any]:
    """Return the elements at some positions of the output, or of a tensor of the epilogue.

    Parameters
    ----------
    name : str
        The tensor.
    array : array
        It, in the shape that callers see.
    extents : mapping of str to int
        Of every index, without `positions`.

    Returns
    -------
    array
        In the shape that callers see, less what is left out; the bits do not change.
    """
    indices = problem.indices[name]
    value = np.asarray(array).reshape([extents[index] for index in indices])
    for axis, index in enumerate(indices):
        if index in positions:
            value = np.take(value, positions[index], axis=axis)
    return value.reshape(problem.shape(name, _sizes(extents, positions)))


def _sizes(extents: Mapping[str, int], positions: Positions) -> dict[str, int]:
    """Return the extent of every index, `positions` taken into account."""
    return {**extents, **{index: len(chosen) for index, chosen in positions.items()}}


def finish(problem: Problem, value: FloatArray, arrays: Mapping[str, Any]) -> FloatArray:
    """Apply the epilogue stages to a contraction's result.

    Parameters
    ----------
    value : float64 array
        In the output's shape as callers see it.
    arrays : mapping of str to array
        The tensors that stages read, at least, in the shapes that callers see.

    Returns
    -------
    float64 array, of the same shape
    """
    for stage in problem.stages:
        if stage.tensor is not None:
            value = value + _along_output(problem, stage.tensor, arrays[stage.tensor])
        elif isinstance(stage.value, tuple):  # clip
            low, high = (float(np.float32(bound)) for bound in stage.value)
            value = np.clip(value, low, high)
        elif stage.value is not None:  # scale
            value = value * float(np.float32(stage.value))
        elif stage.kind in _SIMPLE:
            value = _SIMPLE[stage.kind](value)
        else:
            value = value * _gate(stage.kind, value)
    return value


def _logistic(value: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-value)))


def _ramp(value: FloatArray) -> FloatArray:
    return np.clip(value / 6 + 0.5, 0, 1)


_SIMPLE: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda value: np.maximum(value, 0),
    "tanh": np.tanh,
    "sigmoid": _logistic,
    "hardsigmoid": _ramp,
    "hardswish": lambda value: np.maximum(value, -3) * _ramp(value),  # 0 for -inf
}


def _gate(kind: str, value: FloatArray) -> FloatArray:
    """Return the factor that silu and gelu multiply `value` by."""
    if kind == "gelu-erf":
        return np.asarray(_erfc()(-value / math.sqrt(2)), dtype=np.float64) / 2
    if kind == "silu":
        log_odds = value
    elif kind == "gelu-tanh":  # (1 + tanh u)/2 is the logistic function of 2u
        log_odds = 2 * math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
    else:
        raise ValueError(f"stage {kind} has no reference")
    return _logistic(log_odds)


def _erfc() -> Any:
    """Return SciPy's erfc, which tuning requires, or a slower one where a library only runs."""
    try:
        from scipy.special import erfc
    except ImportError:
        return np.frompyfunc(math.erfc, 1, 1)
    return erfc


def _along_output(problem: Problem, tensor: str, array: Any) -> FloatArray:
    """Return a tensor of some of the output's axes with an axis of extent 1 for each of the others."""
    own, axes = problem.axes(tensor), problem.axes(problem.output)
    value = _wide(problem, tensor, array)
    value = value.transpose([own.index(indices) for indices in axes if indices in own])
    return value[tuple(slice(None) if indices in own else None for indices in axes)]


def _wide(problem: Problem, tensor: str, array: Any) -> FloatArray:
    """Return the values of a tensor in float64."""
    if problem.dtype(tensor) == "bfloat16":
        array = widened(np.asarray(array), "bfloat16")
    return np.asarray(array, dtype=np.float64)


def _extents(problem: Problem, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the extent of every index, from the shapes of the two operands."""
    extents = {index: extent for index, extent in problem.extents.items() if extent is not None}
    for name in problem.inputs[:2]:
        axes, shape = problem.axes(name), np.shape(arrays[name])
        if len(axes) != len(shape):
            raise ValueError(f"{name}: shape {shape}; allowed: {len(axes)} dimensions")
        for indices, extent in zip(axes, shape, strict=True):
            unknown = [index for index in indices if index not in extents]
            rest = problem.product(tuple(k for k in indices if k in extents), extents)
            if len(unknown) == 1:
                extents[unknown[0]] = extent // rest
            if len(unknown) > 1 or problem.product(tuple(indices), extents) != extent:
                raise ValueError(f"{name}: shape {shape}, extent {extent} of {indices}, known: {extents}")
    for window in problem.windows:
        extents[window.output] = window.num_positions(extents[window.axis], extents[window.kernel])
    return extents


def _under_windows(
    problem: Problem,
    name: str,
    array: Any,
    extents: Mapping[str, int],
    at: Mapping[str, int],
    positions: Positions,
) -> tuple[str, FloatArray]:
    """Return the indices and the elements of an operand under one position in the windows, zero outside.

    Parameters
    ----------
    at : mapping of str to int
        Position in the window, by kernel index.
    """
    indices = problem.indices[name]
    value = np.asarray(array).reshape([extents[index] for index in indices])
    for axis, index in reversed(list(enumerate(indices))):  # from the last, so that no axis moves
        window = problem.window_over(index)
        if window is not None:
            start = at[window.kernel] * window.dilation - window.padding
            outputs = positions.get(window.output, np.arange(extents[window.output]))
            read = start + outputs * window.stride
            inside = (read >= 0) & (read < extents[index])
            value = np.take(value, np.where(inside, read, 0), axis=axis)
            value[(slice(None),) * axis + (~inside,)] = 0
            indices = indices.replace(index, window.output)
        elif index in at:
            value = np.take(value, np.asarray(at[index]), axis=axis)
            indices = indices.replace(index, "")
        elif index in positions:
            value = np.take(value, positions[index], axis=axis)
    return indices, _wide(problem, name, value)  # last, so that what is left out is not widened
