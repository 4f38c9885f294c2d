"""Inputs and outputs of a model in half precision, which it computes in float32."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dietcode.errors import TensorError
from dietcode.graph.signature import half_inputs, half_outputs
from dietcode.runtime.tensors import BFLOAT16, check_values, numpy_bfloat16


class HalfPrecision:
    """What calls have in half precision.

    Parameters
    ----------
    signature : mapping
        See `dietcode.graph.signature`.

    Attributes
    ----------
    inputs : dict of str to str
        The dtype of each such input, by its name.
    outputs : list of str or None
        The dtype of each output, None for others; empty where there is none.
    """

    def __init__(self, signature: Mapping[str, Any]) -> None:
        self.inputs, self.outputs = half_inputs(signature), half_outputs(signature)

    def widened(self, name: str, value: Any) -> Any:
        """Return an input in float32; one that is in it stays, and so does what has another dtype altogether.

        Raises
        ------
        TensorError
            It has a dtype that is neither the input's nor float32.
        """
        dtype = self.inputs.get(name)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            given = str(value.dtype).removeprefix("torch.")
        elif isinstance(value, np.ndarray | np.generic):
            given = value.dtype.name  # ml_dtypes gives NumPy a bfloat16
        else:
            return value
        if dtype is None or given == "float32":
            return value
        if given != dtype:
            raise TensorError(f"{name}: dtype {given}; allowed: {dtype}, or float32")
        check_values(name, value)
        return value.astype(np.float32) if isinstance(value, np.ndarray | np.generic) else value.float()

    def check_numpy(self) -> None:
        """Refuse a call without PyTorch's tensors where NumPy has no dtype for an output.

        Raises
        ------
        TensorError
            It has none.
        """
        if BFLOAT16 in self.outputs:
            numpy_bfloat16()

    def narrowed(self, outputs: Sequence[Any]) -> list[Any]:
        """Return the outputs, arrays of NumPy or tensors of PyTorch, in the dtypes that calls have."""
        found = list(outputs)
        for number, dtype in enumerate(self.outputs):
            if dtype is not None:
                found[number] = _narrowed(found[number], dtype)
        return found


def _narrowed(value: Any, dtype: str) -> Any:
    if not isinstance(value, np.ndarray):
        return value.to(getattr(sys.modules["torch"], dtype))
    with np.errstate(over="ignore"):  # beyond the largest number is infinity, as PyTorch has it
        return value.astype(numpy_bfloat16() if dtype == BFLOAT16 else dtype)
