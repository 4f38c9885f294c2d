"""CUDA text of micro-kernels, by TVM's code generator."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi.registry import remove_global_func

from dietcode.search_space.cuda.instructions import helpers_for
from dietcode.search_space.cuda.lowering import (
    block_arguments,
    device_problem,
    lower_block,
    lower_copy,
    lower_sum,
    sum_arguments,
)
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import Copy, copies_of, writes_parts
from dietcode.search_space.cuda.shape import SUM_THREADS
from dietcode.search_space.problem import Problem
from dietcode.target.cubin import KernelFacts, read_kernels
from dietcode.target.cuda import CudaTarget

_COMPILE = "tvm_callback_cuda_compile"
_LOCK = threading.Lock()  # TVM's functions are the process's
_BEGIN = 'extern "C" __global__'
# In the place of TVM's, which includes a hundred headers that these functions do not need.
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
# No more than code generation needs: loops stay loops, and what reads shared memory waits where it says so.
_PASSES = tvm.ir.transform.Sequential(
    [
        tirx.transform.FlattenBuffer(),
        tirx.transform.VectorizeLoop(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        tirx.transform.LowerIntrin(),
    ]
)


@dataclass(frozen=True)
class Function:
    """One ``__global__`` function of a text.

    Attributes
    ----------
    symbol : str
    arguments : tuple of str
        Tensors, or regions of the workspace as `regions_of` names them, whose addresses it takes, before an
        int64 for each letter of the problem that is not fixed.
    threads : int
        Of a block.
    shared_bytes : int
        Shared memory of a block that its launch asks for.
    """

    symbol: str
    arguments: tuple[str, ...]
    threads: int
    shared_bytes: int = 0


def functions_of(problem: Problem, tile: CudaMicroKernel) -> tuple[Function, ...]:
    """The functions of a micro-kernel, in the order in which a call launches them; see `grids_of`."""
    copies = [
        Function(_copy_symbol(tile, copy), (copy.operand, copy.name), SUM_THREADS)
        for copy in copies_of(problem, tile)
    ]
    block = Function(tile.symbol, block_arguments(problem, tile), tile.threads, tile.dynamic_bytes)
    sums = [Function(f"{tile.symbol}_sum", sum_arguments(problem), SUM_THREADS)]
    return (*copies, block, *(sums if writes_parts(problem, tile) else []))


def _copy_symbol(tile: CudaMicroKernel, copy: Copy) -> str:
    return f"{tile.symbol}_{copy.name}"


def facts_of(
    cubin: bytes, problem: Problem, tiles: Sequence[CudaMicroKernel], what: str
) -> dict[str, KernelFacts]:
    """What all functions of some micro-kernels take, by their symbols, with what their launches ask for.

    Raises
    ------
    TuningError
        As `dietcode.target.cubin.read_kernels` has it.
    """
    functions = [function for tile in tiles for function in functions_of(problem, tile)]
    return read_kernels(cubin, what, {f.symbol: f.shared_bytes for f in functions})


def cuda_text(problem: Problem, tiles: Sequence[CudaMicroKernel], target: CudaTarget) -> str:
    """CUDA C++ of all functions of some micro-kernels; the same arguments give the same text.

    Raises
    ------
    ValueError
        The problem is none that code is generated for.
    """
    problem, kind = device_problem(problem), target.tvm_target()
    texts = []
    for tile in tiles:
        copies = {_copy_symbol(tile, copy): copy for copy in copies_of(problem, tile)}
        for symbol in (function.symbol for function in functions_of(problem, tile)):
            if symbol in copies:
                lowered = lower_copy(problem, tile, copies[symbol], symbol)
            else:
                lowered = (lower_block if symbol == tile.symbol else lower_sum)(problem, tile, symbol)
            # One by one: the order of the functions of a module is not the same each time.
            module = _PASSES(tvm.IRModule({symbol: lowered.with_attr("target", kind)}))
            texts.append(_functions_only(_generate(module, kind)))
    half = _HALF if any(re.search(r"\bhalf[24]?\b", text) for text in texts) else ""
    return "\n\n".join([_PREAMBLE + half + helpers_for(texts), *texts]) + "\n"


def _generate(module: Any, kind: Any) -> str:
    """Text of a module of device functions, without compiling it."""
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
    """Without TVM's preamble, declarations ahead, and what constants are in decimal."""
    functions = text[text.index(_BEGIN) :]
    functions = re.sub(r"^extern .*\);\n", "", functions, flags=re.MULTILINE)
    functions = re.sub(r"/\*[-+.e\d]+\*/", "", functions)
    return re.sub(r"[ \t]+\n", "\n", functions).strip()
