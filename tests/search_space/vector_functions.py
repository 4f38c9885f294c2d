"""Functions of one vector, compiled by themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.tir import i64, load, store
from dietcode.workload.dtypes import STORAGE

FLOATS = ("float32", "float32")
LIBM = re.compile(
    r"\b(expf?|exp2f?|erff?|tanhf?|logf?|powf?|sinf?|cosf?|floorf?|ceilf?|nearbyintf?|rintf?)\b"
)


def module(emit: Callable[[Any, Any], Any], lanes: int, dtype: str = "float32") -> IRModule:
    """``run(X, R, Y)``: emits for each vector of X, and R, what is stored to Y."""
    kernel = ir.GlobalVar("kernel")
    storage = str(STORAGE[dtype])
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name("kernel")
        T.func_attr({"tirx.noalias": True})
        pointers = [T.arg(name, T.ptr(kind)) for name, kind in zip("XRY", (*FLOATS, storage), strict=True)]
        size = T.arg("n", T.int64())
        T.func_ret(ir.PrimType("int32"))
        x, r, y = (
            T.decl_buffer((size,), kind, data=pointer, align=2)
            for kind, pointer in zip((*FLOATS, storage), pointers, strict=True)
        )
        with T.serial(i64(0), tirx.truncdiv(size, i64(lanes))) as i:
            place = [i * i64(lanes)]
            store(y, emit(load(x, place, lanes), lambda _: load(r, place, lanes)), place, lanes)
        T.Return(tirx.IntImm("int32", 0))
    function = builder.get()
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("run")
        T.func_attr({"global_symbol": "run"})
        handles = [T.arg(name, T.handle()) for name in "XRY"]
        size = T.int64()
        buffers = [
            T.match_buffer(handle, (size,), kind, align=2)
            for kind, handle in zip((*FLOATS, storage), handles, strict=True)
        ]
        T.evaluate(ir.Call(kernel, [*(b.data for b in buffers), size], ret_ty=ir.PrimType("int32")))
    return IRModule({kernel: function, "run": builder.get()})


def compiled(emit: Callable[[Any, Any], Any], lanes: int, target: Any, dtype: str = "float32") -> Any:
    return tvm.compile(module(emit, lanes, dtype), target=target.tvm_target()).mod


def run(built: Any, x: Any, r: Any = None, dtype: str = "float32") -> Any:
    """The output, for any number of elements; `x` is repeated to a whole number of vectors."""
    padded = np.resize(x, -(-len(x) // 16) * 16)
    other = np.zeros_like(padded) if r is None else np.resize(r, len(padded))
    output = np.zeros(len(padded), STORAGE[dtype])
    built["run"](padded, other, output)
    return output[: len(x)]
