"""The numbers of a native program's buffers, and where those lie that are constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dietcode.graph.extent import Extent
from dietcode.runtime.models.executable import KernelStep, TensorRead
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.native_loops import LoopCall, LoopMove, LoopTensor, address_of
from dietcode.runtime.recursion.moves import MoveStep
from dietcode.runtime.recursion.rows import ReadingRule, RowStep


class LoopBuffers(ABC):
    """What recursions and programs number alike.

    Parameters
    ----------
    kernels : Kernels
        Which hold the constants.
    rule : callable
        ``(phase or block, name) -> ReadingRule``: what a name stands for.
    linear : callable
        Gives an extent as a number, and what each node and each row adds to it.
    num_given : int
        Buffers that a call gives; they have the first numbers.
    """

    def __init__(
        self,
        kernels: Kernels,
        rule: Callable[[int, str], ReadingRule],
        linear: Callable[[Extent], tuple[int, int, int]],
        num_given: int = 0,
    ) -> None:
        self._kernels, self._rule, self._linear = kernels, rule, linear
        self._num_buffers = num_given
        self._fixed: dict[int, int] = {}  # addresses of constants

    @abstractmethod
    def _tensor(self, group: int, read: TensorRead) -> LoopTensor:
        """Return a value that is no constant, in a shape."""

    def _loop_step(self, group: int, step: RowStep) -> LoopCall | LoopMove:
        """Return a step of a phase or a block over numbered buffers."""
        if isinstance(step, MoveStep):
            return self._move(group, step)
        names, variables = self._kernels.orders[step.digest]
        tensors = [self._held(step, name) or self._tensor(group, step.arguments[name]) for name in names]
        tensors += [self._tensor(group, one) for one in step.results]
        values = [self._linear(step.variables[name]) for name in variables]
        return LoopCall(self._kernels.run[step.digest], tensors, values)

    def _move(self, group: int, step: MoveStep) -> LoopMove:
        source, source_bytes = None, 0
        constant = self._kernels.constants.get(step.source or "")
        if constant is not None:
            source = self._constant(address_of(constant), constant.dtype, constant.shape)
            source_bytes = constant[:1].nbytes if step.positions else 0
        elif step.source is not None:
            source, source_bytes = self._rows(group, step.source)
        positions = None if step.positions is None else self._rows(group, step.positions)[0]
        target, target_bytes = self._rows(group, step.value)
        begins, row_bytes = (step.read[0], step.written[0]), (source_bytes, target_bytes)
        return LoopMove(target, source, positions, step.axes, begins, row_bytes, step.filler)

    def _rows(self, group: int, name: str) -> tuple[LoopTensor, int]:
        """Return all of a value that is there for each row, and the bytes of a row."""
        rule = self._rule(group, name)
        return self._tensor(group, TensorRead(name, rule.whole)), rule.row_bytes

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
