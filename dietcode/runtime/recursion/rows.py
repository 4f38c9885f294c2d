"""Descriptions of steps that are run for rows, as recursions and programs have them: read, and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.executable import (
    HostStep,
    KernelStep,
    check_host_types,
    read_kernel_steps,
)
from dietcode.runtime.recursion.moves import MoveStep, read_move

RowStep: TypeAlias = KernelStep | MoveStep


@dataclass(frozen=True)
class ReadingRule:
    """What a name stands for in the steps of a phase or a block.

    Attributes
    ----------
    dtype : str
    whole : tuple of Extent
        The shape that a step may read or write.
    is_rows : bool
        Whether it is the rows of the range; otherwise all there are.
    """

    dtype: str
    whole: tuple[Extent, ...]
    is_rows: bool

    @property
    def row_type(self) -> TensorType:
        """The type of a row."""
        return TensorType(self.dtype, self.whole[1:])

    @property
    def row_elements(self) -> int:
        """The number of elements of a row."""
        return self.row_type.num_elements.constant

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return self.row_elements * np.dtype(self.dtype).itemsize


class RowDescription(ABC):
    """What follows from the steps of rows, and from the weights that they read.

    Attributes
    ----------
    weights, values : dict of str to TensorType
    load : tuple of HostStep
    """

    weights: dict[str, TensorType]
    values: dict[str, TensorType]
    load: tuple[HostStep, ...]

    @property
    @abstractmethod
    def groups(self) -> Sequence[Sequence[RowStep]]:
        """The steps of each phase or block."""

    @cached_property
    def all_steps(self) -> tuple[KernelStep, ...]:
        """The calls of kernels, of all groups."""
        return tuple(step for steps in self.groups for step in steps if isinstance(step, KernelStep))

    @cached_property
    def moves(self) -> tuple[tuple[MoveStep, ...], ...]:
        """The moves of each group."""
        return tuple(tuple(one for one in steps if isinstance(one, MoveStep)) for steps in self.groups)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The constants that are read as they lie, though no kernel does."""
        read = {name for steps in self.moves for one in steps for name in one.reads}
        return tuple(sorted(read & self.constant_names))

    @property
    def digests(self) -> list[str]:
        """The libraries that are called, each once."""
        return list(dict.fromkeys(step.digest for step in self.all_steps))

    @cached_property
    def constant_names(self) -> frozenset[str]:
        """The weights, and what follows from them alone."""
        return frozenset({*self.weights, *(name for step in self.load for name in step.results)})

    def constant_type(self, name: str) -> TensorType:
        """Return the type of a weight, or of what follows from weights."""
        return self.weights[name] if name in self.weights else self.values[name]

    def check_constants(self) -> None:
        """Refuse weights of no extent, and a load that reads what is not there yet, by a ValueError."""
        for extent in (extent for type_ in self.weights.values() for extent in type_.shape):
            if extent.constant < 0:
                raise ValueError(f"an extent of {extent.constant}")
        known = set(self.weights)
        for step in self.load:
            for name in (one for one in step.operands if isinstance(one, str)):
                if name not in known:
                    raise ValueError(f"the load reads {name[:40]!r} before it is computed")
            check_host_types(step, self.constant_type)
            known.update(step.results)


def read_row_step(data: Mapping[str, Any]) -> RowStep:
    """Return a step of rows; raises ValueError, KeyError or TypeError for what is none."""
    return read_move(data) if "move" in data else read_kernel_steps([data])[0]


def reads_by(step: RowStep) -> list[str]:
    """Return the names of what a step reads."""
    return list(step.reads) if isinstance(step, MoveStep) else [one.value for one in step.arguments.values()]


def written_by(step: RowStep) -> list[str]:
    """Return the names of what a step writes."""
    return [step.value] if isinstance(step, MoveStep) else [one.value for one in step.results]
