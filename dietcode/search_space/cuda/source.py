"""CUDA text of micro-kernels, by TVM's code generator."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi.registry import remove_global_func

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.blocks.attention_lowering import lower_attention
from dietcode.search_space.cuda.blocks.lowering import lower_products, lower_rows
from dietcode.search_space.cuda.forms import asked_bytes, device_problem, functions_of
from dietcode.search_space.cuda.instructions import helpers_for
from dietcode.search_space.cuda.lowering import lower_contraction
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.target.cubin import KernelFacts, read_kernels
from dietcode.target.cuda import CudaTarget

_COMPILE = "tvm_callback_cuda_compile"
_LOCK = threading.Lock()  # TVM's functions are the process's
_BEGIN = 'extern "C" __global__'
# Instead of TVM's, which includes a hundred headers that these functions do not need.
_PREAMBLE = """\
#ifdef __CUDACC_RTC__
typedef int int32_t;
typedef long long int64_t;
typedef unsigned int uint32_t;
#else
#include <cstdint>
#endif
typedef unsigned int uint;
typedef unsigned short ushort;
"""
_HALF = """\
#include <cuda_fp16.h>
typedef uint2 half4;  // four are only copied
"""
_INFINITY = """\
#ifndef CUDART_INF_F
#define CUDART_INF_F __int_as_float(0x7f800000)
#endif
"""
_LOWER: dict[str, Callable[[Any, CudaMicroKernel, str, CudaMicroKernel], Any]] = {
    Problem.form: lower_contraction,
    ProductProblem.form: lambda *given: lower_products(*given[:3]),
    RowProblem.form: lambda *given: lower_rows(*given[:3]),
    AttentionProblem.form: lambda *given: lower_attention(*given[:3]),
}
# No more than code generation needs: loops stay loops, and barriers stay where they were emitted.
_PASSES = tvm.ir.transform.Sequential(
    [
        tirx.transform.FlattenBuffer(),
        tirx.transform.VectorizeLoop(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        tirx.transform.LowerIntrin(),
    ]
)


def facts_of(
    cubin: bytes,
    problem: AnyProblem,
    micro_kernels: Sequence[CudaMicroKernel],
    what: str,
    target: CudaTarget,
) -> dict[str, KernelFacts]:
    """Read the registers and shared memory that all functions of some micro-kernels take, by their symbols.

    Parameters
    ----------
    cubin : bytes
        Compiled code of all of them.
    what : str
        Names the code in errors.
    target : CudaTarget
        What it was compiled for.

    Raises
    ------
    TuningError
        As `dietcode.target.cubin.read_kernels` has it.
    """
    return read_kernels(cubin, what, asked_bytes(problem, micro_kernels, target.sm))


def cuda_text(problem: AnyProblem, micro_kernels: Sequence[CudaMicroKernel], target: CudaTarget) -> str:
    """Return CUDA C++ of all functions of some micro-kernels; the same arguments give the same text.

    Raises
    ------
    ValueError
        Code of the problem cannot be generated.
    """
    problem, kind = device_problem(problem), target.tvm_target()
    texts = []
    for micro_kernel in micro_kernels:
        for symbol in (function.symbol for function in functions_of(problem, micro_kernel)):
            lowered = _LOWER[problem.form](problem, micro_kernel, symbol, micro_kernel.on(target.sm))
            # One by one: the order of the functions of a module is not the same each time.
            module = _PASSES(tvm.IRModule({symbol: lowered.with_attr("target", kind)}))
            texts.append(_functions_only(_generate(module, kind)))
    half = _HALF if any(re.search(r"\bhalf[24]?\b", text) for text in texts) else ""
    infinity = _INFINITY if any("CUDART_INF_F" in text for text in texts) else ""
    return "\n\n".join([_PREAMBLE + half + infinity + helpers_for(texts), *texts]) + "\n"


def _generate(module: Any, kind: Any) -> str:
    """Return the text of a module of device functions, without compiling it."""
    with _LOCK:
        known = tvm_ffi.get_global_func(_COMPILE, allow_missing=True)
        tvm_ffi.register_global_func(_COMPILE, lambda code, _target: code, override=True)
        try:
            return str(tvm.get_global_func("target.build.cuda")(module, kind).inspect_source("cuda"))
        finally:
            if known is None:
                remove_global_func(_COMPILE)
            else:
                tvm_ffi.register_global_func(_COMPILE, known, override=True)


def _functions_only(text: str) -> str:
    """Return the text without TVM's preamble, forward declarations, and decimal comments of constants."""
    functions = text[text.index(_BEGIN) :]
    functions = re.sub(r"^extern .*\);\n", "", functions, flags=re.MULTILINE)
    functions = re.sub(r"/\*[-+.e\d]+\*/", "", functions)
    return re.sub(r"[ \t]+\n", "\n", functions).strip()
