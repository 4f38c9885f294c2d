"""Outputs of float16 and bfloat16 from NumPy, torch and DLPack."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
from dlpack_tensors import DlpackOnly
from needs import of_extra

from dietcode.errors import TensorError
from dietcode.runtime.tensors import accept, new_output, span, stored


def test_numpy() -> None:
    half = new_output((3, 5), "float16", ())
    assert half.dtype == np.float16 and half.ctypes.data % 64 == 0
    assert stored(accept("out", half, "float16")[0], "float16") is half
    brain = new_output((3, 5), "bfloat16", ())
    assert brain.dtype == ml_dtypes.bfloat16 and brain.shape == (3, 5) and brain.ctypes.data % 64 == 0
    bits = stored(accept("out", brain, "bfloat16")[0], "bfloat16")
    bits[...] = 0x3F80
    assert bits.dtype == np.uint16 and (brain == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint16", "int16"])
def test_another_dtype_for_bfloat16(dtype: str) -> None:
    with pytest.raises(TensorError, match=f"^out: dtype {dtype}; allowed: bfloat16"):
        accept("out", np.zeros(3, dtype), "bfloat16")


def test_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TensorError, match=r"^out: NumPy has no bfloat16; pass torch tensors.*ml_dtypes"):
        new_output((3,), "bfloat16", [np.zeros(3, np.float32)])


def test_torch_and_dlpack() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    for dtype in ("float16", "bfloat16"):
        made = new_output((2, 3), dtype, [np.zeros(1), torch.zeros(1)])
        assert made.dtype is getattr(torch, dtype) and made.shape == (2, 3)
        tensor, shape = accept("out", made, dtype)
        assert shape == (2, 3)
        first, end = span(tensor)
        assert end - first == 12
    memory = torch.zeros(2, 3, dtype=torch.bfloat16)
    assert stored(memory, "bfloat16").dtype is torch.uint16
    tensor, shape = accept("out", DlpackOnly(memory), "bfloat16")
    first, end = span(tensor)
    assert shape == (2, 3) and end - first == 12
    stored(tensor, "bfloat16")[...] = 0x3F80
    assert (memory == 1).all()
