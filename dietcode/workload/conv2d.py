"""A two-dimensional convolution: its fields; and the indices of the axes of any convolution.

The layouts determine which index is which axis; the indices of the output's positions, and those that
grouped channels are split into, are made up here.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import BeforeValidator, Field, StrictInt

from dietcode.errors import SpecError
from dietcode.workload.expr import DimExpr
from dietcode.workload.quotient import Dim, window_positions
from dietcode.workload.text import clip
from dietcode.workload.variables import SpecModel

MAX_STRIDE = 2**15  # of strides, dilation and padding, in elements


def _pair(given: Any, low: int) -> object:
    """Return two integers, given as two or as one for both; errors name the field as a whole."""
    both = [given, given] if isinstance(given, int) else given
    are_integers = isinstance(both, list | tuple) and [type(number) for number in both] == [int, int]
    if are_integers and low <= min(both) and max(both) <= MAX_STRIDE:
        return tuple(both)
    allowed = f"an integer from {low} to {MAX_STRIDE}, or two of them, [height, width]"
    raise ValueError(f"given {clip(given)}; allowed: {allowed}")


def are_sizes(given: object, count: int, low: int) -> bool:
    """Whether these are `count` integers of strides, dilation or padding."""
    if not isinstance(given, list | tuple) or [type(number) for number in given] != [int] * count:
        return False
    return all(low <= number <= MAX_STRIDE for number in given)


def _borders(given: Any) -> object:
    """Return padding as two integers, or as four where the sides differ."""
    if are_sizes(given, 4, 0):
        top, bottom, left, right = given
        return (top, left) if (top, left) == (bottom, right) else (top, bottom, left, right)
    if isinstance(given, list | tuple) and not are_sizes(given, 2, 0):
        allowed = f"[height, width] or [top, bottom, left, right], integers from 0 to {MAX_STRIDE}"
        raise ValueError(f"given {clip(given)}; allowed: {allowed}")
    return _pair(given, low=0)


Strides = Annotated[tuple[StrictInt, StrictInt], BeforeValidator(partial(_pair, low=1))]
Borders = Annotated[
    tuple[StrictInt, StrictInt] | tuple[StrictInt, StrictInt, StrictInt, StrictInt],
    BeforeValidator(_borders),
]


class Sliding(NamedTuple):
    """How a window slides along one axis of the data, in elements."""

    stride: int
    dilation: int
    padding: int
    padding_after: int


class ConvolutionOptions(Protocol):
    """What the indices of a convolution follow from."""

    kind: ClassVar[str]
    groups: int

    @property
    def data_layout(self) -> str:
        """A capital for each axis of the data: batch N, channels C, and the others."""

    @property
    def kernel_layout(self) -> str:
        """A capital for each axis of the kernel: O, I, and those of the data that are neither N nor C."""

    @property
    def sliding(self) -> dict[str, Sliding]:
        """How the window slides along each axis that is neither N nor C, by its capital, outer first."""


class Conv2d(SpecModel):
    """The options of a convolution.

    Parameters
    ----------
    strides, dilation : tuple of int
        ``(height, width)``, in elements; a spec may give one number for both.
    padding : tuple of int
        Zeros on both sides, as the strides are given; or ``(top, bottom, left, right)`` where sides differ.
    groups : int
        Number of groups of channels, each convolved by itself.
    data_layout : str
        Order of batch N, height H, width W and channels C, of the data and of the output.
    kernel_layout : str
        Order of output channels O, input channels of one group I, height H and width W.
    """

    strides: Strides = (1, 1)
    padding: Borders = (0, 0)
    dilation: Strides = (1, 1)
    groups: Annotated[StrictInt, Field(ge=1, le=2**31)] = 1
    data_layout: Literal["NHWC", "NCHW"] = "NHWC"
    kernel_layout: Literal["OIHW", "OHWI", "HWIO"] = "OIHW"

    kind: ClassVar[str] = "conv2d"

    @property
    def sliding(self) -> dict[str, Sliding]:
        """How the window slides along height and width, by their capitals."""
        sides = self.padding
        high, wide = (
            ((sides[0], sides[0]), (sides[1], sides[1])) if len(sides) == 2 else (sides[:2], sides[2:])
        )
        return {
            "H": Sliding(self.strides[0], self.dilation[0], *high),
            "W": Sliding(self.strides[1], self.dilation[1], *wide),
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return self.model_dump(mode="json")


class Slide(NamedTuple):
    """A window over an axis: indices of the axis, of the output's axis and of the kernel's; see `Sliding`."""

    axis: str
    output: str
    kernel: str
    stride: int
    dilation: int
    padding: int
    padding_after: int


@dataclass(frozen=True)
class ConvolutionIndices:
    """The indices of a convolution.

    Attributes
    ----------
    op : ConvolutionOptions
    data, kernel, output : dict of str to str
        Index of each axis as callers see it, by its capital in the layout, in the order of the layout. The
        output's have the capitals of the data's.
    group, within : str
        Indices of the group and of an output channel within it; empty without groups.
    slides : tuple of Slide
        Of height and width; without those whose window is a single element of stride 1, whose output axis is
        the data's.
    """

    op: ConvolutionOptions
    data: dict[str, str]
    kernel: dict[str, str]
    output: dict[str, str]
    group: str
    within: str
    slides: tuple[Slide, ...]

    @classmethod
    def of(
        cls, op: ConvolutionOptions, data_dims: str, kernel_dims: str, dims: Mapping[str, DimExpr]
    ) -> ConvolutionIndices:
        """Name every axis.

        Parameters
        ----------
        op : ConvolutionOptions
            Its layouts and options.
        data_dims, kernel_dims : str
            The operands' indices, as `check_indices` accepts them.
        dims : mapping of str to DimExpr
            Extents; an index that has none counts as varying.
        """
        data = dict(zip(op.data_layout, data_dims, strict=True))
        kernel = dict(zip(op.kernel_layout, kernel_dims, strict=True))
        fresh = _Fresh(data_dims + kernel_dims)
        output, slides = {**data, "C": kernel["O"]}, []
        for axis, window in op.sliding.items():
            is_padded = window.padding or window.padding_after
            if window.stride == 1 and not is_padded and _is_one(dims.get(kernel[axis])):
                continue
            output[axis] = fresh.take(_PREFERRED[axis])
            slides.append(Slide(data[axis], output[axis], kernel[axis], *window))
        group, within = (fresh.take("g"), fresh.take("u")) if op.groups > 1 else ("", "")
        return cls(op, data, kernel, output, group, within, tuple(slides))

    @property
    def output_indices(self) -> str:
        """Indices of the output's axes, as callers see them."""
        return "".join(self.output[axis] for axis in self.op.data_layout)

    @property
    def is_channels_last(self) -> bool:
        """Whether channels are the last axis of the data and of the output."""
        return self.op.data_layout.endswith("C")

    @property
    def splits(self) -> dict[str, str]:
        """Indices of an axis that callers see as one: those it is split in, outer first."""
        if not self.group:
            return {}
        return {
            self.data["C"]: self.group + self.kernel["I"],
            self.kernel["O"]: self.group + self.within,
        }

    def roles(self) -> dict[str, tuple[str, ...]]:
        """Return the indices of batch, rows, columns and reduction; with NCHW positions are the columns."""
        batch, *positions = (self.output[axis] for axis in ("N", *self.op.sliding))
        inner, channel = self.kernel["I"], self.within or self.kernel["O"]
        window = tuple(self.kernel[axis] for axis in self.op.sliding)
        groups = (self.group,) if self.group else ()
        if self.is_channels_last:
            return {
                "batch": groups,
                "rows": (batch, *positions),
                "columns": (channel,),
                "reduction": (*window, inner),
            }
        return {
            "batch": (batch, *groups),
            "rows": (channel,),
            "columns": tuple(positions),
            "reduction": (inner, *window),
        }

    def derived(self, dims: Mapping[str, DimExpr]) -> dict[str, Dim]:
        """Return the extents of indices that specs do not give: positions, groups, channels within a group.

        Raises
        ------
        SpecError
            Numbers in an extent exceed the limits of dimensions.
        """
        result: dict[str, Dim] = {
            s.output: window_positions(
                dims[s.axis],
                dims[s.kernel],
                s.stride,
                s.dilation,
                s.padding + s.padding_after,
                f"dims.{s.axis}",
            )
            for s in self.slides
        }
        if self.group:
            channels = dims[self.kernel["O"]].constant_value() // self.op.groups
            result[self.group] = DimExpr.parse(self.op.groups, f"op.{self.op.kind}.groups")
            result[self.within] = DimExpr.parse(channels, f"op.{self.op.kind}.groups")
        return result


_PREFERRED = {"H": "p", "W": "q"}  # indices of the output's positions


class _Fresh:
    """Makes up indices that are not taken: the preferred one, or the first of the alphabet."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def take(self, preferred: str) -> str:
        index = next(k for k in preferred + string.ascii_letters if k not in self._taken)
        self._taken.add(index)
        return index


def _is_one(dim: DimExpr | None) -> bool:
    return dim is not None and dim.is_constant and dim.constant_value() == 1


def check_indices(op: ConvolutionOptions, tensors: Mapping[str, str]) -> None:
    """Refuse operands whose indices are not those of a convolution.

    Parameters
    ----------
    tensors : mapping of str to str
        Indices by name: the data's, then the kernel's.

    Raises
    ------
    SpecError
        With the path of the indices to change.
    """
    (data_name, data_dims), (kernel_name, kernel_dims) = tensors.items()
    for name, indices, layout in (
        (data_name, data_dims, op.data_layout),
        (kernel_name, kernel_dims, op.kernel_layout),
    ):
        fits = indices.isascii() and indices.isalpha() and len(set(indices)) == len(indices) == len(layout)
        if not fits:
            allowed = f"a letter for each axis of {layout}, each once, like {layout.lower()}"
            raise SpecError(f"tensors.{name}.dims", f"given {clip(indices)}; allowed: {allowed}")
    channels = data_dims[op.data_layout.index("C")]
    inner = kernel_dims[op.kernel_layout.index("I")]
    path, shared = f"tensors.{kernel_name}.dims", set(data_dims) & set(kernel_dims)
    if op.groups == 1 and inner != channels:
        problem = f"given {clip(kernel_dims)}; allowed: {channels!r} for I, the channels of {data_name}"
        raise SpecError(path, problem)
    if op.groups > 1 and inner == channels:
        problem = f"given {inner!r} for I; allowed: a letter of its own, of extent {channels}/{op.groups}"
        raise SpecError(path, problem)
    extra = sorted(shared - {channels} if op.groups == 1 else shared)
    if extra:
        problem = f"given {clip(kernel_dims)}; allowed: letters that are not {data_name}'s, not {extra[0]!r}"
        raise SpecError(path, problem)


def check_groups(conv: ConvolutionIndices, dims: Mapping[str, DimExpr]) -> None:
    """Refuse groups whose channels vary or do not divide.

    Raises
    ------
    SpecError
        With the path of the extent to change.
    """
    op = conv.op
    if op.groups == 1:
        return
    for index in (conv.data["C"], *conv.kernel.values()):
        if not dims[index].is_constant:
            problem = f"given {clip(str(dims[index]))}; allowed with groups: a constant"
            raise SpecError(f"dims.{index}", problem)
    inner, outer, channels = conv.kernel["I"], conv.kernel["O"], conv.data["C"]
    given = {index: dims[index].constant_value() for index in (inner, outer, channels)}
    if given[channels] != op.groups * given[inner]:
        problem = f"given {given[inner]}; allowed: {channels}/groups, {given[channels]}/{op.groups}"
        raise SpecError(f"dims.{inner}", problem)
    if given[outer] % op.groups:
        raise SpecError(f"dims.{outer}", f"given {given[outer]}; allowed: a multiple of {op.groups} groups")
