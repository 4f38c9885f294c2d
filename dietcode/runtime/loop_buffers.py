"""The numbers of a native program's buffers, and where those lie that are constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dietcode.runtime.models.executable import KernelStep
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.native_loops import LoopTensor, address_of


class LoopBuffers:
    """What recursions and programs number alike.

    Parameters
    ----------
    kernels : Kernels
        Which hold the constants.
    num_given : int
        Buffers that a call gives; they have the first numbers.
    """

    def __init__(self, kernels: Kernels, num_given: int = 0) -> None:
        self._kernels = kernels
        self._num_buffers = num_given
        self._fixed: dict[int, int] = {}  # addresses of constants

    def _held(self, step: KernelStep, name: str) -> LoopTensor | None:
        """Return an argument that is packed, or a constant; None for one that is computed."""
        read = step.arguments[name]
        packed = self._kernels.packed.get((step.digest, name, read.value))
        if packed is not None:
            dtype = np.dtype(str(packed.dtype))
            return self._constant(int(packed.data_ptr()), dtype, tuple(packed.shape))
        constant = self._kernels.constants.get(read.value)
        if constant is None:
            return None
        shape = tuple(extent.constant for extent in read.shape)
        return self._constant(address_of(constant.reshape(shape)), constant.dtype, shape)

    def _constant(self, address: int, dtype: np.dtype[Any], shape: Sequence[int]) -> LoopTensor:
        number = self._num_buffers
        self._num_buffers += 1
        self._fixed[number] = address
        return LoopTensor(number, dtype, tuple((int(extent), 0, 0) for extent in shape))
