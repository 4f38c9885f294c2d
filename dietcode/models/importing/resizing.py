"""Interpolation, padding, windows and transposed convolutions of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dietcode.graph.extent import Extent, floor_divide
from dietcode.graph.tensor_type import GraphError, axis_of
from dietcode.models.importing.context import Imported, Importer, rule
from dietcode.models.importing.resampled import (
    TransposedConvolution,
    cubically_interpolated,
    interpolated,
    nearest,
    padded,
    padded_by_number,
    transposed_convolution,
    windows,
)

_MODES = {"reflect": "reflect once", "replicate": "edge", "circular": "wrap"}


_linear = partial(interpolated, exact=(1,))


@rule("aten.upsample_linear1d.vec", rank=1, along=_linear)
@rule("aten.upsample_bilinear2d.vec", rank=2, along=_linear)
@rule("aten.upsample_trilinear3d.vec", rank=3, along=_linear)
@rule("aten.upsample_bicubic2d.vec", rank=2, along=cubically_interpolated)
def _interpolation(
    m: Importer, a: Mapping[str, Any], fake: Any, rank: int, along: Callable[..., str]
) -> Imported:
    x, scales = m.tensor(a["input"]), a["scale_factors"] or [None] * rank
    for axis, (size, scale) in enumerate(zip(fake.shape[2:], scales, strict=True), start=2):
        x = along(m, x, axis, m.symbols.extent(size), scale, a["align_corners"])
    return x


def _nearest(m: Importer, a: Mapping[str, Any], fake: Any, rank: int, centred: bool) -> Imported:
    scales = a["scale_factors"] or [None] * rank
    exact = (1, 2) if rank == 2 and not centred else ()
    return nearest(m, m.tensor(a["input"]), m.symbols_shape(fake.shape), scales, centred, exact)


for _rank in (1, 2, 3):
    rule(f"aten.upsample_nearest{_rank}d.vec", rank=_rank, centred=False)(_nearest)
    rule(f"aten._upsample_nearest_exact{_rank}d.vec", rank=_rank, centred=True)(_nearest)


@rule("aten.constant_pad_nd.default", "aten.pad.default")
def _pad(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, pairs = m.tensor(a["self"]), _pad_pairs(m, a["pad"])
    mode, value = a.get("mode", "constant"), a["value"] or 0
    if mode != "constant":
        return _padded_by_own(m, x, pairs, _MODES[mode])
    if all(one.is_constant for pair in pairs for one in pair):
        pads = tuple((before.constant, after.constant) for before, after in pairs)
        return m.add("pad", x, pads=((0, 0),) * (m.rank(x) - len(pairs)) + pads, value=value)
    for axis, (before, after) in enumerate(pairs, start=m.rank(x) - len(pairs)):
        x = padded_by_number(m, x, axis, before, after, value)
    return x


def _pad_pairs(m: Importer, given: Any) -> list[tuple[Extent, Extent]]:
    """Return the elements before and after of the last axes."""
    sizes = m.shape(given)
    return [(sizes[k], sizes[k + 1]) for k in range(0, len(sizes), 2)][::-1]


def _padded_by_own(m: Importer, x: str, pairs: Sequence[tuple[Extent, Extent]], mode: str) -> str:
    for axis, (before, after) in enumerate(pairs, start=m.rank(x) - len(pairs)):
        x = padded(m, x, axis, before, after, mode)
    return x


def _pad_of(m: Importer, a: Mapping[str, Any], fake: Any, mode: str) -> Imported:
    return _padded_by_own(m, m.tensor(a["self"]), _pad_pairs(m, a["padding"]), mode)


for _word, _mode in {"reflection": "reflect once", "replication": "edge"}.items():
    rule(*(f"aten.{_word}_pad{rank}d.default" for rank in (1, 2, 3)), mode=_mode)(_pad_of)


@rule("aten.unfold.default")
def _unfold(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    axis = axis_of(a["dimension"], m.rank(x))
    if not isinstance(a["size"], int) or not isinstance(a["step"], int):
        raise GraphError("unfold by a dynamic size or step; allowed: constants")
    count = floor_divide(m.type(x).shape[axis] - a["size"], Extent.of(a["step"])) + 1
    found = windows(m, x, axis, count, a["size"], a["step"])
    axes = [k for k in range(m.rank(found)) if k != axis + 1]
    return m.transpose(found, [*axes, axis + 1])


@rule("aten.im2col.default")
def _patches(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    rank, shape = m.rank(x), m.type(x).shape
    pads = ((0, 0),) * (rank - 2) + tuple((one, one) for one in a["padding"])
    x = m.add("pad", x, pads=pads, value=0) if any(a["padding"]) else x
    counts = []
    for k, axis in enumerate((rank - 2, rank)):  # the first has two axes then
        size, step, dilation = a["kernel_size"][k], a["stride"][k], a["dilation"][k]
        free = m.type(x).shape[axis] - dilation * (size - 1) - 1
        counts.append(floor_divide(free, Extent.of(step)) + 1)
        x = windows(m, x, axis, counts[k], size, step, dilation)
    rows, size_of_rows, columns, size_of_columns = range(rank - 2, rank + 2)
    x = m.transpose(x, [*range(rank - 2), size_of_rows, size_of_columns, rows, columns])
    each = shape[rank - 3] * a["kernel_size"][0] * a["kernel_size"][1]
    return m.reshape(x, (*shape[: rank - 3], each, counts[0] * counts[1]))


@rule("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def transposed(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return a transposed convolution; ``aten.convolution`` may be one, too."""
    x, w = m.tensor(a["input"]), m.tensor(a["weight"])
    rank = m.rank(w) - 2
    alone = m.rank(x) == rank + 1
    x = m.reshape(x, (1, *m.type(x).shape)) if alone else x

    def each(key: str) -> tuple[int, ...]:
        given = a[key] if isinstance(a[key], list | tuple) else [a[key]]
        return tuple(given) * (rank if len(given) == 1 else 1)

    pads = tuple((one, one) for one in each("padding"))
    how = TransposedConvolution(each("stride"), each("dilation"), pads, each("output_padding"), a["groups"])
    result = transposed_convolution(m, x, w, m.value(a["bias"]), how)
    return m.reshape(result, m.type(result).shape[1:]) if alone else result
