"""Fourier transforms over constant extents, as products with constant matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import GraphError, TensorType, axis_of
from dietcode.models.importing.complex_numbers import ComplexPair, complex_rule, pair_of, tensor_of
from dietcode.models.importing.context import Importer

# Its matrix has 16 million elements at most; from there on a true FFT of a library is far faster.
MOST_POINTS = 2048

_ROUNDED = 1e-14  # what is left of the sine of a whole half turn, which is 0


def _length(m: Importer, x: str, axis: int) -> int:
    extent = m.type(x).shape[axis]
    if not extent.is_constant or extent.constant > MOST_POINTS:
        raise GraphError(f"a Fourier transform over {extent}; allowed: constant extents up to {MOST_POINTS}")
    return extent.constant


def _scale(normalization: int, num_points: int) -> float:
    """Return the factor of one axis: PyTorch says 0 for none, 1 for orthogonal, 2 for 1/n."""
    return (1.0, num_points**-0.5, 1.0 / num_points)[normalization]


def _weight(m: Importer, name: str, matrix: np.ndarray[Any, Any]) -> str:
    """Return a constant matrix, one for all transforms that are alike."""
    if name not in m.constants:
        m.graph.add_weight(name, TensorType(str(matrix.dtype), tuple(map(Extent.of, matrix.shape))))
        m.constants[name] = matrix
    return name


def _angles(rows: int, columns: int, num_points: int) -> np.ndarray[Any, Any]:
    # The product is reduced first: the sine of a large angle would lose digits.
    return 2 * math.pi * (np.outer(np.arange(rows), np.arange(columns)) % num_points) / num_points


def _applied(m: Importer, parts: list[str], axis: int, name: str, matrix: np.ndarray[Any, Any]) -> str:
    """Return a matrix times the parts, one behind the other along an axis that comes last."""
    last = [k for k in range(m.rank(parts[0])) if k != axis] + [axis]
    moved = [m.transpose(one, last) for one in parts]
    rows = moved[0] if len(moved) == 1 else m.add("concat", *moved, axis=len(last) - 1)
    dtype = m.type(rows).dtype
    matrix = np.where(np.abs(matrix) < _ROUNDED, 0.0, matrix)
    own = f"{name}.{matrix.shape[0]}x{matrix.shape[1]}.{dtype}"
    return m.add("linear", rows, _weight(m, own, matrix.astype(dtype)))


def _parts(m: Importer, rows: str, axis: int, num_out: int) -> ComplexPair:
    """Return the two halves of the last axis, brought back to where it was."""
    last = [k for k in range(m.rank(rows)) if k != axis] + [axis]
    back = [last.index(k) for k in range(len(last))]
    end = m.rank(rows) - 1
    halves = (m.slice(rows, end, 0, num_out), m.slice(rows, end, num_out, 2 * num_out))
    return ComplexPair(*(m.transpose(one, back) for one in halves))


def _from_real(m: Importer, x: str, axis: int, normalization: int, half: bool) -> ComplexPair:
    """Return the transform of real numbers along an axis, its first half or all of it."""
    n = _length(m, x, axis)
    num_out = n // 2 + 1 if half else n
    angles = _angles(num_out, n, n)
    matrix = np.concatenate([np.cos(angles), -np.sin(angles)]) * _scale(normalization, n)
    return _parts(m, _applied(m, [x], axis, f"fourier.real.{normalization}", matrix), axis, num_out)


def _of_complex(m: Importer, x: ComplexPair, axis: int, normalization: int, forward: bool) -> ComplexPair:
    n = _length(m, str(x.real), axis)
    cos, sin = np.cos(_angles(n, n, n)), np.sin(_angles(n, n, n)) * (1 if forward else -1)
    matrix = np.block([[cos, sin], [-sin, cos]]) * _scale(normalization, n)
    name = f"fourier.{'forward' if forward else 'backward'}.{normalization}"
    return _parts(m, _applied(m, [str(x.real), str(x.imaginary)], axis, name, matrix), axis, n)


def _to_real(m: Importer, x: ComplexPair, axis: int, normalization: int, n: int) -> str:
    """Return the n real numbers whose first half of a transform is given."""
    num_in = _length(m, str(x.real), axis)
    if num_in != n // 2 + 1 or n > MOST_POINTS:
        raise GraphError(
            f"{num_in} points for a transform of {n}; allowed: {n // 2 + 1}, of up to {MOST_POINTS}"
        )
    point = np.arange(num_in)  # the first, and the middle one of an even number, stand for themselves alone
    times = np.where((point == 0) | (2 * point == n), 1.0, 2.0)
    angles = _angles(n, num_in, n)
    matrix = np.concatenate([np.cos(angles) * times, -np.sin(angles) * times], axis=1)
    matrix = matrix * _scale(normalization, n)
    real = _applied(m, [str(x.real), str(x.imaginary)], axis, f"fourier.to_real.{normalization}", matrix)
    last = [k for k in range(m.rank(real)) if k != axis] + [axis]
    return m.transpose(real, [last.index(k) for k in range(len(last))])


@complex_rule("_fft_r2c.default")
def _fft_r2c(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    x = m.tensor(a["self"])
    axes = [axis_of(one, m.rank(x)) for one in a["dim"]]
    found = _from_real(m, x, axes[-1], a["normalization"], a["onesided"])
    for axis in axes[:-1]:
        found = _of_complex(m, found, axis, a["normalization"], forward=True)
    return found


@complex_rule("_fft_c2c.default")
def _fft_c2c(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    found = pair_of(m, a["self"])
    found = ComplexPair(tensor_of(m, found.real, fake), tensor_of(m, found.imaginary, fake))
    for axis in a["dim"]:
        own = axis_of(axis, m.rank(found.real))
        found = _of_complex(m, found, own, a["normalization"], a["forward"])
    return found


@complex_rule("_fft_c2r.default")
def _fft_c2r(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    found = pair_of(m, a["self"])
    axes = [axis_of(one, m.rank(found.real)) for one in a["dim"]]
    for axis in axes[:-1]:
        found = _of_complex(m, found, axis, a["normalization"], forward=False)
    length = m.extent(a["last_dim_size"])
    if not length.is_constant:
        raise GraphError(f"a Fourier transform to {length}; allowed: constant extents up to {MOST_POINTS}")
    return _to_real(m, found, axes[-1], a["normalization"], length.constant)
