"""Values that are known before any call: constants, and sizes that follow from the dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import DTYPES, HALVES, GraphError

Array: TypeAlias = "np.ndarray[Any, Any]"
MOST_ELEMENTS = 256  # of what is computed here; larger constants are weights


@dataclass(frozen=True, eq=False)
class Known:
    """A value that is known.

    Attributes
    ----------
    array : array
        Its elements; of extents where they follow from dimensions.
    dtype : str
    weight : str
        The weight of the graph that it is; may be empty.
    divisor : int
        Of all extents, where they are fractions in floating point.
    """

    array: Array
    dtype: str
    weight: str = ""
    divisor: int = 1

    @property
    def is_constant(self) -> bool:
        """Whether it follows from no dimension."""
        return bool(self.array.dtype != object)


def known(array: Any, dtype: str = "", weight: str = "", divisor: int = 1) -> Known:
    """Return a known value; extents that are all constant become numbers.

    Raises
    ------
    GraphError
        Models do not have its dtype.
    """
    array = np.asarray(array)
    if array.dtype.name in HALVES:
        array = array.astype(np.float32)
    if array.dtype == object:
        if all(one.is_constant for one in array.flat):
            numbers = [one.constant if divisor == 1 else one.constant / divisor for one in array.flat]
            array = np.array(numbers, dtype).reshape(array.shape)
    elif not dtype:
        dtype = str(array.dtype)
    if dtype not in DTYPES:
        raise GraphError(f"dtype {dtype}; allowed: {', '.join(DTYPES)} (convert with model.float())")
    return Known(array, dtype, weight, divisor if array.dtype == object else 1)


def sizes_of(shape: Sequence[Extent]) -> Known:
    """Return a shape as a vector."""
    array = np.empty(len(shape), object)
    array[:] = list(shape)
    return known(array, "int64")


def as_extents(array: Array) -> Array:
    """Return whole numbers as extents."""
    if array.dtype == object:
        return array
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [Extent.of(int(one)) for one in array.flat]
    return found
