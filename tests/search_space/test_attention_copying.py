"""Blocks of keys that attention copies: what the lanes of keys that do not exist hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import IRModule, ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.attention.copying import KeyRows, transpose_keys
from dietcode.search_space.cpu.attention.micro_kernel import BLOCK
from dietcode.search_space.tir import as_int64, i64
from dietcode.target.cpu import CpuTarget

DEPTH, LANES = 12, 8


def copying(step: int, target: CpuTarget) -> Any:
    """``run(keys [count, DEPTH], to [DEPTH, BLOCK])``."""
    kernel = ir.GlobalVar("kernel")
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name("kernel")
        T.func_attr({"tirx.noalias": True})
        pointers = [T.arg(name, T.ptr("float32")) for name in ("keys", "to")]
        count = T.arg("count", T.int64())
        T.func_ret(ir.PrimType("int32"))
        sizes = (count * DEPTH, i64(DEPTH * BLOCK))
        keys, to = (
            T.decl_buffer((size,), "float32", data=pointer, align=4)
            for size, pointer in zip(sizes, pointers, strict=True)
        )
        transpose_keys(KeyRows(keys, i64(0), i64(DEPTH)), as_int64(count), DEPTH, to, LANES, step, None)
        T.Return(tirx.IntImm("int32", 0))
    function = builder.get()
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("run")
        T.func_attr({"global_symbol": "run"})
        handles = [T.arg(name, T.handle()) for name in ("keys", "to")]
        count = T.int64()
        buffers = [
            T.match_buffer(handle, (size, i64(width)), "float32", align=4)
            for handle, size, width in zip(handles, (count, i64(DEPTH)), (DEPTH, BLOCK), strict=True)
        ]
        T.evaluate(ir.Call(kernel, [*(b.data for b in buffers), count], ret_ty=ir.PrimType("int32")))
    module = IRModule({kernel: function, "run": builder.get()})
    return tvm.compile(module, target=target.tvm_target()).mod["run"]


@pytest.mark.parametrize("step", [LANES, 4 * LANES])
def test_lanes_past_the_last_key_are_zero_up_to_a_step(step: int, avx2: CpuTarget) -> None:
    """What memory held before may be subnormal numbers, which take a processor ten times as long."""
    run = copying(step, avx2)
    for count in (1, LANES - 1, LANES, LANES + 1, 3 * LANES, 4 * LANES, 4 * LANES + 3, BLOCK - 1, BLOCK):
        keys = np.random.default_rng(count).standard_normal((count, DEPTH), dtype=np.float32)
        to = np.full((DEPTH, BLOCK), np.nan, np.float32)
        run(keys, to)
        assert np.array_equal(to[:, :count], keys.T)
        whole, end = -(-count // LANES) * LANES, -(-count // step) * step
        assert np.array_equal(to[:, count:whole], np.repeat(keys[-1:].T, whole - count, axis=1))
        assert not to[:, whole:end].any(), (count, step)
        assert np.isnan(to[:, end:]).all()
