"""Modules of `host.build_module` to machine code."""

from __future__ import annotations

from typing import Any

import tvm
import tvm.s_tir  # has the passes that schedules need; else Relax would import it

from dietcode.target.cpu import CpuTarget

# This pass makes buffers as small as their use; those of generated code are so from the start. On blocks it
# takes up to half the time of compiling, and the code is the same (tests/search_space/test_compiling.py).
WITHOUT_EFFECT = ("s_tir.CompactBufferAllocation",)


def compile_module(module: tvm.IRModule, target: CpuTarget) -> Any:
    """Return the executable of a module whose functions this package generated.

    As `tvm.compile` does, which imports Relax to find that there is none of it in the module.
    """
    with tvm.transform.PassContext(disabled_pass=list(WITHOUT_EFFECT)):
        built = tvm.tirx.build(module, target=target.tvm_target(), pipeline="default")
    return tvm.runtime.Executable(built)
