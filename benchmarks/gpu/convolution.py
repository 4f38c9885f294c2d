"""A convolution as PyTorch has it, in the layouts of a spec. Imports nothing of this project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DATA, _KERNEL = "NCHW", "OIHW"  # PyTorch's


def convolution(torch: Any, op: Mapping[str, Any], data: Any, kernel: Any) -> Any:
    """Of tensors in the layouts of `op`; the result is in the data's. Seen as PyTorch's, nothing is copied.

    Parameters
    ----------
    op : mapping
        Strides, padding, dilation, groups, data_layout and kernel_layout, as a spec has them.
    """
    layout = op["data_layout"]
    result = torch.nn.functional.conv2d(
        data.permute([layout.index(axis) for axis in _DATA]),
        kernel.permute([op["kernel_layout"].index(axis) for axis in _KERNEL]),
        stride=tuple(op["strides"]),
        padding=tuple(op["padding"]),
        dilation=tuple(op["dilation"]),
        groups=op["groups"],
    )
    return result.permute([_DATA.index(axis) for axis in layout])


def in_other_format(torch: Any, op: Mapping[str, Any], name: str, value: Any) -> Any:
    """A copy in the memory format that a tensor is not in, contiguous or channels last, in its own layout.

    Parameters
    ----------
    name : str
        ``data_layout`` or ``kernel_layout``: whose axes `value` has. Other ranks are returned as they are.
    """
    layout, own = op[name], _DATA if name == "data_layout" else _KERNEL
    if value.dim() != len(layout):
        return value
    other = torch.channels_last if op["data_layout"] == _DATA else torch.contiguous_format
    copy = value.permute([layout.index(axis) for axis in own]).clone(memory_format=other)
    return copy.permute([own.index(axis) for axis in layout])
