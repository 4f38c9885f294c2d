"""Weights of a model in a file of safetensors; those in half precision become float32."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dietcode.errors import LibraryError
from dietcode.graph.tensor_type import TensorType
from dietcode.workload.text import one_line

Array = np.ndarray[Any, Any]
_HALVES = ("F16", "BF16")


def read_weights(path: Path, types: Mapping[str, TensorType]) -> dict[str, Array]:
    """Return the weights of a model, contiguous arrays.

    A weight that the model has in float32 may be float16 or bfloat16 in the file: it is widened, exactly.

    Raises
    ------
    LibraryError
        The file cannot be read, or a weight is missing, or has another dtype or shape.
    """
    if not types:
        return {}
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise LibraryError(
            f"{path}: no such file; pass weights= with the model's weights, a .safetensors file "
            "(to a command: --weights)"
        )
    found = {}
    try:
        # One file, whatever is moved to its place meanwhile: the path is that of what is open.
        with path.open("rb") as stream, safe_open(_opened(stream), framework="numpy") as file:
            names, header = set(file.keys()), _header(stream)
            for name, type_ in types.items():
                if name not in names:
                    raise LibraryError(f"{path}: lacks {name}, {type_}; allowed: all weights of the model")
                is_half = type_.dtype == "float32" and header[name]["dtype"] in _HALVES
                array = _widened(stream, header[name]) if is_half else file.get_tensor(name)
                shape = [extent.constant for extent in type_.shape]
                if str(array.dtype) != type_.dtype or list(array.shape) != shape:
                    given = f"{array.dtype}{list(array.shape)}"
                    is_odd = type_.dtype == "float32" != str(array.dtype)
                    also = ", or the same in half precision" if is_odd else ""
                    raise LibraryError(f"{path}: {name} is {given}; allowed: {type_}{also}")
                found[name] = np.ascontiguousarray(array).reshape(shape)
    except (SafetensorError, OSError, TypeError, ValueError, AttributeError) as error:  # odd dtypes, shapes
        raise LibraryError(f"{path}: cannot be read: {one_line(str(error))}") from error
    return found


def _opened(stream: BinaryIO) -> str:
    return f"/proc/self/fd/{stream.fileno()}"


def _header(stream: BinaryIO) -> dict[str, Any]:
    """Return what a file that was opened says of its tensors; offsets are of the file."""
    length = int.from_bytes(stream.read(8), "little")
    header: dict[str, Any] = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    for facts in header.values():
        facts["data_offsets"] = [8 + length + one for one in facts["data_offsets"]]
    return header


def _widened(stream: BinaryIO, facts: Mapping[str, Any]) -> Array:
    """Return a tensor in half precision as float32.

    Its bytes are read here, since NumPy has a bfloat16 where ml_dtypes is installed alone: these bits are the
    upper half of a float32.
    """
    first, last = facts["data_offsets"]
    stream.seek(first)
    content = stream.read(last - first)
    if facts["dtype"] == "F16":
        return np.frombuffer(content, "<f2").astype(np.float32).reshape(facts["shape"])
    bits = np.frombuffer(content, "<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(facts["shape"])
