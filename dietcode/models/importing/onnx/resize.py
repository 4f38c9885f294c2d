"""Resize of ONNX: elements of another size along each axis, the nearest ones or those between them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dietcode.graph.extent import ONE, Extent, floor_divide, larger, smaller
from dietcode.graph.tensor_type import FLOATS, GraphError, axis_of
from dietcode.models.importing.onnx.context import OnnxImporter, OnnxNode, OnnxResult, onnx_rule
from dietcode.models.importing.resampled import cubically_between, linearly_between
from dietcode.models.importing.spelled_out import enlarged

_MODES = ("nearest", "linear", "cubic")
_PLACES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class _Places:
    """Where element i of the new size lies among the old ones: at ``(i · step + first) / unit``, exactly."""

    step: Extent
    first: Extent
    unit: Extent


@onnx_rule("Resize")
def _resize(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    n.refuse_others(antialias=0, exclude_outside=0)
    n.ignore("extrapolation_value", "cubic_coeff_a", "nearest_mode")
    n.value(1)  # the region that tf_crop_and_resize takes
    x, mode = n.tensor(0), n.attribute("mode", "nearest")
    where = n.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = n.attribute("nearest_mode", "round_prefer_floor")
    for given, allowed in ((mode, _MODES), (where, _PLACES), (rounding, _NEAREST)):
        if given not in allowed:
            raise GraphError(f"{given}; allowed: {', '.join(allowed)}")
    if mode != "nearest" and m.type(x).dtype not in FLOATS:
        raise GraphError(f"{mode} interpolation of {m.type(x)}; allowed: floating point, or nearest")
    for axis, (size, scale) in _sizes(m, n, x).items():
        own = m.type(x).shape[axis]
        if mode == "nearest" and _is_repeated(own, size, where, rounding):
            x = _repeated(m, x, axis, size)
            continue
        if own == size and scale in (None, 1):
            continue  # each element where it was
        at = _places(m, where, own, size, scale)
        if mode == "nearest":
            x = m.add("take", x, _clamped(m, _rounded(m, at, size, rounding), own), axis=axis)
            continue
        below = _floor(m, _numerators(m, at, size, 1, Extent()), at.unit)
        rest = m.add("sub", _numerators(m, at, size, 1, Extent()), m.add("mul", below, m.number(at.unit)))
        dtype = m.type(x).dtype
        far = m.add("div", m.cast(rest, dtype), m.cast(m.number(at.unit), dtype))
        if mode == "linear":
            x = linearly_between(m, x, axis, below, far)
        else:
            x = cubically_between(m, x, axis, below, far, float(n.attribute("cubic_coeff_a", -0.75)))
    return x


def _sizes(m: OnnxImporter, n: OnnxNode, x: str) -> dict[int, tuple[Extent, Fraction | None]]:
    """Return the new size of each axis, and its scale where that is not the quotient of the sizes."""
    shape, axes = m.type(x).shape, n.attribute("axes")
    numbers = list(range(len(shape))) if axes is None else [axis_of(one, len(shape)) for one in axes]
    if n.value(3) is not None:
        given = n.extents(3)
        if len(given) != len(numbers):
            raise GraphError(f"{len(given)} sizes of {m.type(x)}; allowed: {len(numbers)}")
        return {axis: (size, None) for axis, size in zip(numbers, given, strict=True)}
    scales = n.numbers(2, [])
    if len(scales) != len(numbers):
        raise GraphError(f"{len(scales)} scales of {m.type(x)}; allowed: {len(numbers)}, or sizes")
    found = {}
    for axis, scale in zip(numbers, scales, strict=True):
        if not (np.isfinite(scale) and scale > 0):
            raise GraphError(f"scale {scale}; allowed: above 0")
        exact, own = Fraction(scale), shape[axis]
        size = floor_divide(own * exact.numerator, Extent.of(exact.denominator))
        rounds = own.is_constant and int(np.float32(own.constant) * np.float32(scale)) != size.constant
        if rounds or not (own.is_constant or 1024 % exact.denominator == 0):
            raise GraphError(f"interpolation by {scales}; allowed: multiples of 1/1024, or to sizes")
        found[axis] = (size, None if own * exact.numerator == size * exact.denominator else exact)
    return found


def _is_repeated(own: Extent, size: Extent, where: str, rounding: str) -> bool:
    """Whether nearest resizing by a whole multiple repeats each element."""
    count = floor_divide(size, own)
    if not count.is_constant or own * count != size:
        return False
    if where == "asymmetric":
        return rounding == "floor"
    return where != "align_corners" and rounding.startswith("round")


def _repeated(m: OnnxImporter, x: str, axis: int, size: Extent) -> str:
    shape = m.type(x).shape
    rows = m.reshape(x, (ONE, ONE, *shape))
    return m.reshape(
        enlarged(m, rows, (ONE, ONE, *shape[:axis], size, *shape[axis + 1 :])),
        (*shape[:axis], size, *shape[axis + 1 :]),
    )


def _places(m: OnnxImporter, where: str, own: Extent, size: Extent, scale: Fraction | None) -> _Places:
    if scale is None:
        up, down = size, own
    else:
        up, down = Extent.of(scale.numerator), Extent.of(scale.denominator)
    if where == "asymmetric":
        return _Places(down, Extent(), up)
    if where == "align_corners":
        if scale is not None:
            raise GraphError(f"align_corners by {float(scale)} of {own}; allowed: scales to whole sizes")
        return _Places(own - 1, Extent(), larger(size - 1, ONE, m.graph.ranges))
    if where == "half_pixel_symmetric":
        return _Places(down * 2, own * up - size * down + down - up, up * 2)
    first = down - up
    if where == "pytorch_half_pixel":  # one element is the first
        first = first * smaller(larger(size - 1, Extent(), m.graph.ranges), ONE, m.graph.ranges)
    return _Places(down * 2, first, up * 2)


def _numerators(m: OnnxImporter, at: _Places, size: Extent, times: int, more: Extent) -> str:
    """Return the numerators of places, each multiplied, and with a number added."""
    numbers = m.add("arange", stop=size)
    return m.add("add", m.add("mul", numbers, m.number(at.step * times)), m.number(at.first * times + more))


def _floor(m: OnnxImporter, numerators: str, unit: Extent) -> str:
    return m.add("floor_divide", numerators, m.number(unit))


def _rounded(m: OnnxImporter, at: _Places, size: Extent, rounding: str) -> str:
    """Return places as whole numbers."""
    if rounding == "floor":
        return _floor(m, _numerators(m, at, size, 1, Extent()), at.unit)
    if rounding == "ceil":
        return _floor(m, _numerators(m, at, size, 1, at.unit - 1), at.unit)
    # Halves go down, or up: ceil(x - 1/2), or floor(x + 1/2).
    more = at.unit - 1 if rounding == "round_prefer_floor" else at.unit
    return _floor(m, _numerators(m, at, size, 2, more), at.unit * 2)


def _clamped(m: OnnxImporter, places: str, own: Extent) -> str:
    return m.add("minimum", m.add("maximum", places, 0), m.number(own - 1))
