"""The beginning of a device function of a block: its pointers and extents."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as T

from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.tir import DTYPE, TirOps, i64


class DeviceOps(TirOps):
    """Operations in a device function, whose compiler keeps values in registers."""

    def bind(self, value: Any) -> Any:
        """Return the value itself."""
        return value


def begin_function(
    problem: BlockProblem, name: str, arguments: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Begin a function; return the pointers of tensors and set-aside values, and all extents."""
    T.func_name(name)
    T.func_attr({"tirx.noalias": True, "global_symbol": name, "calling_conv": 2, "tirx.is_global_func": True})
    pointers = {}
    for number, tensor in enumerate(arguments):
        kind = str(problem.storage(tensor)) if tensor in (*problem.inputs, *problem.outputs) else DTYPE
        pointers[tensor] = T.arg(f"arg_{number}", T.ptr(kind))
    sizes = {index: T.arg(f"extent_{index}", T.int64()) for index in problem.dynamic}
    return pointers, {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
