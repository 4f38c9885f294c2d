"""Constants of a library for GPUs in its own layout: PyTorch's tensors on their device, axes permuted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dietcode.errors import TensorError
from dietcode.runtime.lean_call import NotLeanError
from dietcode.runtime.tensors import Packed


@dataclass(frozen=True, repr=False)
class PackedOnGpu(Packed):
    """A constant tensor in a library's layout, made by ``lib.pack``.

    Attributes
    ----------
    data : torch.Tensor
        On the device of what was packed, contiguous.
    """

    data: Any

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what `pickle` keeps."""
        return type(self), (self.name, self.shape, self.layout, self.data)

    @cached_property
    def native(self) -> Any:
        """The tensor itself."""
        return self.data

    @cached_property
    def span(self) -> tuple[int, int]:
        """The memory span of the data, in addresses of its device."""
        first = self.data.data_ptr()
        return first, first + self.data.nbytes


class Permutations:
    """The constants of one library that have a layout of its own.

    Parameters
    ----------
    packed : mapping of str to dict
        As the manifest has it: of each constant ``outer``, ``axes`` and ``layout``, see
        `dietcode.search_space.cuda.packing.Permutation`.
    inputs, order
        As the manifest has them.
    alignments : mapping of str to int
        Bytes that the address of each tensor must be a multiple of.

    Raises
    ------
    KeyError, TypeError, ValueError
        They describe no permutation.
    """

    def __init__(
        self,
        packed: Mapping[str, Any],
        inputs: Mapping[str, Any],
        order: Sequence[str],
        alignments: Mapping[str, int],
    ) -> None:
        self.facts, self._alignments = packed, alignments
        for name, facts in packed.items():
            outer = [extent for extent in facts["outer"] if extent is not None]
            count = len(facts["outer"]) + len(outer)
            permuted = sorted(axis for own in facts["axes"] for axis in own)
            fits = len(facts["outer"]) == len(inputs[name]["dims"]) and permuted == list(range(count))
            if not fits or any(type(extent) is not int or extent < 1 for extent in outer):
                raise ValueError(f"packed {name}: axes {facts['axes']}")
        # Of each, its position among the arguments, its name and its layout.
        self.at = tuple((order.index(name), name, str(facts["layout"])) for name, facts in packed.items())

    def pack(self, name: str, value: Any) -> PackedOnGpu:
        """Return a constant in the library's layout: a copy, or a view where it lies so already.

        Parameters
        ----------
        value : torch.Tensor
            Of a shape that fits.
        """
        facts, extents = self.facts[name], list[int]()
        for extent, outer in zip(value.shape, facts["outer"], strict=True):
            extents += [extent] if outer is None else [outer, extent // outer]
        order = [axis for own in facts["axes"] for axis in own]
        shape = [math.prod(extents[axis] for axis in own) for own in facts["axes"]]
        data = value.reshape(extents).permute(order).reshape(shape).contiguous()
        if data.data_ptr() % self._alignments[name]:
            data = data.clone()
        return PackedOnGpu(name, tuple(value.shape), str(facts["layout"]), data)

    def checked(self, name: str, value: Any) -> PackedOnGpu:
        """Return a constant as a call got it, once it is known to be packed for this library.

        Raises
        ------
        TensorError
            It is missing, not packed, or packed as another one.
        """
        if not isinstance(value, PackedOnGpu):
            given = "missing" if value is None else type(value).__name__
            raise TensorError(f"{name}: {given}; pass what lib.pack({name}=…) returned")
        layout = self.facts[name]["layout"]
        if value.name != name or value.layout != layout:
            raise TensorError(f"{name}: packed as {value.name}, {value.layout}; allowed: {layout}")
        return value

    def natives(self, tensors: list[Any]) -> list[Any]:
        """Return tensors with constants as code takes them.

        Raises
        ------
        NotLeanError
            One is not packed for this library.
        """
        for position, name, layout in self.at:
            given = tensors[position]
            if type(given) is not PackedOnGpu or given.name != name or given.layout != layout:
                raise NotLeanError
            tensors[position] = given.data
        return tensors
