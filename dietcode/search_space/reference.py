"""What a problem computes, in float64 NumPy: what compiled code is compared with. Imports no TVM."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dietcode.search_space.problem import IntArray, Problem
from dietcode.workload.dtypes import widened

FloatArray = npt.NDArray[np.float64]
Positions = Mapping[str, IntArray]
"""Positions along some letters of the output, ascending; all of a letter that it lacks."""


def reference(problem: Problem, arrays: Mapping[str, Any], positions: Positions | None = None) -> FloatArray:
    """Compute a problem, or a part of its output.

    Parameters
    ----------
    problem : Problem
        Any: broadcast operands, windows, split axes, every epilogue stage.
    arrays : mapping of str to array
        The inputs by tensor name, in the shapes that callers see, a bfloat16 as its bits; others are ignored.
    positions : Positions, optional
        Which part: what lies at these positions of every letter; all of the output by default.

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
    output = problem.subscripts[problem.output]
    sizes = _sizes(extents, positions)
    value = np.zeros([sizes[letter] for letter in output])
    kernels = [window.kernel for window in problem.windows]
    # One place of the windows after another: all at once would take as many copies of the operand.
    for places in itertools.product(*(range(extents[letter]) for letter in kernels)):
        at = dict(zip(kernels, places, strict=True))
        (first, a), (second, b) = (
            _seen(problem, n, arrays[n], extents, at, positions) for n in problem.inputs[:2]
        )
        value += np.einsum(f"{first},{second}->{output}", a, b, optimize=True)
    added = {name: part(problem, name, arrays[name], extents, positions) for name in problem.inputs[2:]}
    return finish(problem, value.reshape(problem.shape(problem.output, sizes)), added)


def part(
    problem: Problem, name: str, array: Any, extents: Mapping[str, int], positions: Positions
) -> npt.NDArray[Any]:
    """What lies at some positions of the output, of the output itself or of a tensor of the epilogue.

    Parameters
    ----------
    array : array
        In the shape that callers see.
    extents : mapping of str to int
        Of every letter, without `positions`.

    Returns
    -------
    array
        In the shape that callers see, less what is left out; its bits are the same.
    """
    letters = problem.subscripts[name]
    value = np.asarray(array).reshape([extents[letter] for letter in letters])
    for axis, letter in enumerate(letters):
        if letter in positions:
            value = np.take(value, positions[letter], axis=axis)
    return value.reshape(problem.shape(name, _sizes(extents, positions)))


def _sizes(extents: Mapping[str, int], positions: Positions) -> dict[str, int]:
    """Extent of every letter where only `positions` of them are there."""
    return {**extents, **{letter: len(chosen) for letter, chosen in positions.items()}}


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
        elif stage.kind == "scale":
            value = value * float(np.float32(stage.value or 0.0))
        elif stage.kind == "relu":
            value = np.maximum(value, 0)
        else:
            value = value * _gate(stage.kind, value)
    return value


def _gate(kind: str, value: FloatArray) -> FloatArray:
    """What silu and gelu multiply `value` by."""
    if kind == "gelu-erf":
        return np.asarray(_erfc()(-value / math.sqrt(2)), dtype=np.float64) / 2
    if kind == "silu":
        log_odds = value
    elif kind == "gelu-tanh":  # (1 + tanh u)/2 is the logistic function of 2u
        log_odds = 2 * math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
    else:
        raise ValueError(f"stage {kind} has no reference")
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-log_odds)))


def _erfc() -> Any:
    """SciPy comes with what tunes; where a library only runs, the slow way will do."""
    try:
        from scipy.special import erfc
    except ImportError:
        return np.frompyfunc(math.erfc, 1, 1)
    return erfc


def _along_output(problem: Problem, tensor: str, array: Any) -> FloatArray:
    """A tensor of some of the output's axes, with an axis of extent 1 for each of the others."""
    own, axes = problem.axes(tensor), problem.axes(problem.output)
    value = _wide(problem, tensor, array)
    value = value.transpose([own.index(letters) for letters in axes if letters in own])
    return value[tuple(slice(None) if letters in own else None for letters in axes)]


def _wide(problem: Problem, tensor: str, array: Any) -> FloatArray:
    """The values of a tensor."""
    if problem.dtype(tensor) == "bfloat16":
        array = widened(np.asarray(array), "bfloat16")
    return np.asarray(array, dtype=np.float64)


def _extents(problem: Problem, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Extent of every letter, from the shapes of the two operands."""
    extents = {letter: extent for letter, extent in problem.extents.items() if extent is not None}
    for name in problem.inputs[:2]:
        axes, shape = problem.axes(name), np.shape(arrays[name])
        if len(axes) != len(shape):
            raise ValueError(f"{name}: shape {shape}; allowed: {len(axes)} dimensions")
        for letters, extent in zip(axes, shape, strict=True):
            unknown = [letter for letter in letters if letter not in extents]
            rest = problem.product(tuple(k for k in letters if k in extents), extents)
            if len(unknown) == 1:
                extents[unknown[0]] = extent // rest
            if len(unknown) > 1 or problem.product(tuple(letters), extents) != extent:
                raise ValueError(f"{name}: shape {shape}, extent {extent} of {letters}, known: {extents}")
    for window in problem.windows:
        extents[window.output] = window.num_positions(extents[window.axis], extents[window.kernel])
    return extents


def _seen(
    problem: Problem,
    name: str,
    array: Any,
    extents: Mapping[str, int],
    at: Mapping[str, int],
    positions: Positions,
) -> tuple[str, FloatArray]:
    """What one place of the windows sees of an operand, zero outside; with the letters of its axes.

    Parameters
    ----------
    at : mapping of str to int
        Place in the window, by kernel letter.
    """
    letters = problem.subscripts[name]
    value = np.asarray(array).reshape([extents[letter] for letter in letters])
    for axis, letter in reversed(list(enumerate(letters))):  # from the last, so that no axis moves
        window = problem.window_over(letter)
        if window is not None:
            start = at[window.kernel] * window.dilation - window.padding
            outputs = positions.get(window.output, np.arange(extents[window.output]))
            places = start + outputs * window.stride
            inside = (places >= 0) & (places < extents[letter])
            value = np.take(value, np.where(inside, places, 0), axis=axis)
            value[(slice(None),) * axis + (~inside,)] = 0
            letters = letters.replace(letter, window.output)
        elif letter in at:
            value = np.take(value, np.asarray(at[letter]), axis=axis)
            letters = letters.replace(letter, "")
        elif letter in positions:
            value = np.take(value, positions[letter], axis=axis)
    return letters, _wide(problem, name, value)  # the last step: what is left out is not widened
