"""A one-dimensional convolution: its fields."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictInt

from dietcode.workload.conv2d import MAX_STRIDE, Sliding, are_sizes
from dietcode.workload.text import clip
from dietcode.workload.variables import SpecModel


def _borders(given: Any) -> object:
    """Return padding as one integer, or as two where the sides differ; errors name the field as a whole."""
    if are_sizes([given], 1, 0):
        return given
    if are_sizes(given, 2, 0):
        return given[0] if given[0] == given[1] else tuple(given)
    raise ValueError(
        f"given {clip(given)}; allowed: an integer from 0 to {MAX_STRIDE}, or two, [left, right]"
    )


Stride = Annotated[StrictInt, Field(ge=1, le=MAX_STRIDE)]
Borders = Annotated[StrictInt | tuple[StrictInt, StrictInt], BeforeValidator(_borders)]


class Conv1d(SpecModel):
    """The options of a convolution along one axis.

    Parameters
    ----------
    stride, dilation : int
        In elements.
    padding : int or tuple of int
        Zeros on both sides, or ``(left, right)`` where sides differ.
    groups : int
        Number of groups of channels, each convolved by itself.
    data_layout : str
        Order of batch N, width W and channels C, of the data and of the output.
    kernel_layout : str
        Order of output channels O, input channels of one group I, and width W.
    """

    stride: Stride = 1
    padding: Borders = 0
    dilation: Stride = 1
    groups: Annotated[StrictInt, Field(ge=1, le=2**31)] = 1
    data_layout: Literal["NWC", "NCW"] = "NWC"
    kernel_layout: Literal["OIW", "OWI", "WIO"] = "OIW"

    kind: ClassVar[str] = "conv1d"

    @property
    def sliding(self) -> dict[str, Sliding]:
        """How the window slides along the width, by its capital."""
        sides = (self.padding, self.padding) if isinstance(self.padding, int) else self.padding
        return {"W": Sliding(self.stride, self.dilation, *sides)}

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return self.model_dump(mode="json")
