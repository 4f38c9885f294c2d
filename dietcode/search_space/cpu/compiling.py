"""Modules of `host.build_module` to machine code."""

from __future__ import annotations

from typing import Any

import tvm
import tvm.s_tir  # has the passes that schedules need; else Relax would import it

from dietcode.target.cpu import CpuTarget

# Without these the code is the same (tests/search_space/test_compiling.py), and they take time to find that
# out. The first makes buffers as small as their use, which those of generated code are from the start: on
# blocks it takes up to half the time of compiling. The others are for threads and memory of GPUs, and for
# pipelines and edges of loops that a schedule asks for.
WITHOUT_EFFECT = (
    "s_tir.CompactBufferAllocation",
    "s_tir.InferFragment",
    "s_tir.InjectDoubleBuffer",
    "s_tir.InjectPermutedLayout",
    "s_tir.InjectSoftwarePipeline",
    "s_tir.InjectVirtualThread",
    "s_tir.LiftThreadBinding",
    "s_tir.LoopPartition",
    "s_tir.LowerAutoCopy",
    "s_tir.LowerThreadAllreduce",
    "s_tir.LowerVtcmAlloc",
    "s_tir.MergeSharedMemoryAllocations",
    "s_tir.PlanAndUpdateBufferAllocationLocation",
    "s_tir.ThreadSync",
    "s_tir.TransformMmaBufferLayout",
    "s_tir.UnifyThreadBinding",
)


def compile_module(module: tvm.IRModule, target: CpuTarget) -> Any:
    """Return the executable of a module whose functions this package generated.

    As `tvm.compile` does, which imports Relax to find that there is none of it in the module.
    """
    with tvm.transform.PassContext(disabled_pass=list(WITHOUT_EFFECT)):
        built = tvm.tirx.build(module, target=target.tvm_target(), pipeline="default")
    return tvm.runtime.Executable(built)
