"""Dtypes of tensors, and their bits in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

INPUT_DTYPES = ("float32", "float16", "bfloat16")
"""Dtypes of operands; on a CPU only the first."""
INDEX_DTYPE = "int32"
"""Dtype of the positions that a block gathers."""
OUTPUT_DTYPES = ("float32", "float16", "bfloat16")
STORAGE: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
}
"""The dtype of each in generated code and NumPy, which has no bfloat16: its bits are held as integers."""
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of rounding to each."""
_BFLOAT16_NAN = 0x7FC0


def nan_filled(shape: Any, dtype: str) -> npt.NDArray[Any]:
    """Return an array of NaN, stored as in `STORAGE`."""
    return np.full(shape, _BFLOAT16_NAN if dtype == "bfloat16" else np.nan, dtype=STORAGE[dtype])


def widened(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float32]:
    """Return the float32 values of an array stored as in `STORAGE`."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def rounded(array: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """Round finite float32 values to `dtype`, stored as in `STORAGE`; to nearest, ties to even."""
    if dtype != "bfloat16":
        return array.astype(STORAGE[dtype], copy=False)
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
