"""What the steps of a model call, and its constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dietcode.runtime.models.copies import Copy, copy_array

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Kernels:
    """What a model calls and what it holds: its libraries, and the values of the load.

    Attributes
    ----------
    run : dict of str to callable
        The code's function of each library: tensors, outputs, values of shape variables.
    orders : dict of str to (list of str, list of str)
        The tensors and the shape variables of each library, in the order of its arguments.
    packed : dict of (str, str, str) to object
        Constants as the code takes them, by library, tensor and value.
    constants : dict of str to array
    copy : callable
        What copies a value into memory that is there, by NumPy or on the threads of the libraries.
    """

    run: Mapping[str, Callable[..., Any]]
    orders: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    packed: Mapping[tuple[str, str, str], Any]
    constants: Mapping[str, Array]
    copy: Copy = field(default=copy_array)
