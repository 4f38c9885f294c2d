"""Images read at points of a grid, as spatial transformers and deformable attention do."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.builder import GraphBuilder
from dietcode.models.importing.context import Imported, Importer, rule

_LINEAR, _NEAREST = 0, 1
BEYOND = ("zeros", "border", "reflection")
"""What may lie beyond an image, in PyTorch's order and ONNX's words."""
_ZEROS, _, _REFLECTION = range(3)


@dataclass(frozen=True)
class _GridAxis:
    """One spatial axis of an image, and where a grid reads it.

    Attributes
    ----------
    at : str
        Coordinates in elements, ``[n, 1…, out…]``.
    last : str
        The last position, an int64.
    """

    b: GraphBuilder
    at: str
    last: str

    def position(self, at: str) -> str:
        """Return whole coordinates as positions that exist."""
        b = self.b
        at = b.add("maximum", b.add("minimum", at, b.cast(self.last, b.type(at).dtype)), 0.0)
        # Coordinates that are no number become any int64.
        return b.add("maximum", b.add("minimum", b.add("cast", at, dtype="int64"), self.last), 0)

    def inside(self, at: str) -> str:
        """Return whether whole coordinates lie on the image."""
        b = self.b
        last = b.cast(self.last, b.type(at).dtype)
        return b.add("and", b.add("less_equal", 0.0, at), b.add("less_equal", at, last))


def grid_sample(b: GraphBuilder, x: str, grid: str, nearest: bool, beyond: int, aligned: bool) -> str:
    """Return an image at points, linear between its elements or the nearest one.

    Parameters
    ----------
    x : str
        ``[n, c, spatial…]``.
    grid : str
        ``[n, out…, axes]``, from -1 to 1 over the image, its last axis first.
    nearest : bool
    beyond : int
        What lies beyond the image: its number in `BEYOND`.
    aligned : bool
        Whether -1 and 1 are the centres of the corners' elements; else they are the corners themselves.
    """
    shape, points, dtype = b.type(x).shape, b.type(grid).shape, b.type(x).dtype
    rank = len(shape) - 2
    axes = [
        _axis(b, b.select(grid, len(points) - 1, rank - 1 - k), shape[2 + k], beyond, aligned)
        for k in range(rank)
    ]
    batch = b.reshape(b.add("arange", stop=shape[0]), (shape[0], *[ONE] * (len(points) - 2)))
    rows = b.transpose(x, (0, *range(2, rank + 2), 1))

    def read(corner: Sequence[str]) -> str:
        positions = [axis.position(at) for axis, at in zip(axes, corner, strict=True)]
        found = b.add("take_points", rows, batch, *positions)
        if beyond != _ZEROS:
            return found
        inside = axes[0].inside(corner[0])
        for axis, at in zip(axes[1:], corner[1:], strict=True):
            inside = b.add("and", inside, axis.inside(at))
        return b.add("where", b.reshape(inside, (*b.type(inside).shape, ONE)), found, 0.0)

    if nearest:
        total = read([b.add("round", axis.at) for axis in axes])
    else:
        below = [b.add("floor", axis.at) for axis in axes]
        shares = [b.add("sub", axis.at, low) for axis, low in zip(axes, below, strict=True)]
        total = ""
        for sides in itertools.product((0, 1), repeat=rank):
            corner = [b.add("add", low, 1.0) if side else low for low, side in zip(below, sides, strict=True)]
            weights = [
                share if side else b.add("sub", 1.0, share) for share, side in zip(shares, sides, strict=True)
            ]
            weight = weights[0]
            for one in weights[1:]:
                weight = b.add("mul", weight, one)
            term = b.add("mul", read(corner), b.reshape(weight, (*b.type(weight).shape, ONE)))
            total = b.add("add", total, term) if total else term
    assert b.type(total).dtype == dtype
    last = b.rank(total) - 1
    return b.transpose(total, (0, last, *range(1, last)))


def _axis(b: GraphBuilder, at: str, size: Extent, beyond: int, aligned: bool) -> _GridAxis:
    """Return coordinates from -1 to 1 as those in elements, moved onto the image where that is asked."""
    dtype = b.type(at).dtype
    last = b.add("extent", value=size - 1)
    whole, most = (b.cast(one, dtype) for one in (b.add("extent", value=size), last))
    at = b.add("add", at, 1.0)
    if aligned:
        at = b.add("mul", at, b.add("mul", most, 0.5))
    else:
        at = b.add("mul", b.add("sub", b.add("mul", at, whole), 1.0), 0.5)
    if beyond == _REFLECTION:
        at = _reflected(b, at, 0.0, most) if aligned else _reflected(b, at, -0.5, whole)
    if beyond != _ZEROS:
        at = b.add("maximum", b.add("minimum", at, most), 0.0)
    return _GridAxis(b, at, last)


def _reflected(b: GraphBuilder, at: str, low: float, span: Value) -> str:
    """Return coordinates that go to and fro between ``low`` and ``low + span``."""
    span = b.add("maximum", span, 1.0)  # one element, aligned: it is all there is
    beyond = b.add("abs", b.add("sub", at, low))
    turns = b.add("floor", b.add("div", beyond, span))
    rest = b.add("sub", beyond, b.add("mul", turns, span))
    is_back = b.add("sub", turns, b.add("mul", b.add("floor", b.add("mul", turns, 0.5)), 2.0))
    found = b.add("where", b.add("less", 0.5, is_back), b.add("sub", span, rest), rest)
    return b.add("add", found, low) if low else found


@rule("aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def _grid_sampler(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, grid, mode = m.tensor(a["input"]), m.tensor(a["grid"]), a["interpolation_mode"]
    if mode not in (_LINEAR, _NEAREST):
        raise GraphError("grid_sample with bicubic interpolation; allowed: bilinear, nearest")
    return grid_sample(m, x, grid, mode == _NEAREST, a["padding_mode"], bool(a["align_corners"]))
