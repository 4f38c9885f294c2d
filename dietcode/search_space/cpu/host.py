"""The host side of a module: entry points, dispatch rule and workspace, as TIR beside the kernels.

A module exports three packed functions:

- ``run(inputs…, outputs…, shape variables…)``: dispatches and computes; inputs come in the order of the spec,
  constant operands packed;
- ``select(shape variables…) -> int``: the category alone;
- ``pack(operand, packed)``: packs a constant column operand; a block has one for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import IRModule, ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.lowerings import lower_micro_kernel
from dietcode.search_space.cpu.packing import lower_packing, packed_shape
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.tir import as_int64, call, i64

RUN, SELECT = "run", "select"
_PANELS = "(packed)"  # no name of a tensor


def build_module(
    problem: AnyProblem,
    micro_kernels: Sequence[AnyMicroKernel],
    tree: DispatchTree,
    variables: Sequence[str],
    limits: Limits,
) -> IRModule:
    """Return all functions of a library.

    Parameters
    ----------
    problem : AnyProblem
        What is computed.
    micro_kernels : sequence of micro-kernel
        One for each category, in the order that the tree's leaves number them.
    tree : DispatchTree
        Which category serves which values of the shape variables.
    variables : sequence of str
        Shape variables, in the order of the trailing arguments of ``run`` and ``select``.
    limits : Limits
        Of the target.
    """
    functions: dict[Any, Any] = {}
    kernels: list[Any] = []
    for category, micro_kernel in enumerate(micro_kernels):
        name = function_name(category, micro_kernel)
        kernels.append(ir.GlobalVar(name))
        functions[kernels[-1]] = lower_micro_kernel(problem, micro_kernel, limits, name)
    functions[RUN] = _run_function(problem, kernels, tree, variables, limits)
    functions[SELECT] = _select_function(tree, variables)
    for operand, layout in problem.packed.items():
        name = f"panels_of_{layout.function}"  # no other tensor has such a function
        packing = ir.GlobalVar(name)
        functions[packing] = lower_packing(problem, operand, limits.lanes, name)
        functions[layout.function] = _pack_function(problem, operand, packing, limits)
    return IRModule(functions)


def function_name(category: int, micro_kernel: AnyMicroKernel) -> str:
    """Return the name of a category's function in a module: an identifier."""
    return f"micro_kernel_{category}_{micro_kernel.name}".replace("-", "_")


def _emit_tree(tree: DispatchTree, values: dict[str, Any], leaf: Callable[[int], None]) -> None:
    if isinstance(tree, int):
        leaf(tree)
        return
    condition, first, other = _condition(tree, values), *tree[-2:]
    with T.If(condition):
        with T.Then():
            _emit_tree(first, values, leaf)
        with T.Else():
            _emit_tree(other, values, leaf)


def _condition(node: Any, values: dict[str, Any]) -> Any:
    variable, *remainder, number = node[:-2]
    value = values[variable]
    return tirx.truncmod(value, i64(number)) == i64(0) if remainder else value <= i64(number)


def _variables(names: Sequence[str]) -> dict[str, Any]:
    return {name: T.arg(f"var_{name}", T.int64()) for name in names}


def _match(
    handles: dict[str, Any], shapes: dict[str, Sequence[Any]], storage: Mapping[str, np.dtype[Any]]
) -> dict[str, Any]:
    return {
        name: T.match_buffer(
            handle, tuple(as_int64(s) for s in shapes[name]), str(storage[name]), align=storage[name].itemsize
        )
        for name, handle in handles.items()
    }


def _symbolic_extents(problem: AnyProblem) -> dict[str, Any]:
    return {
        index: i64(extent) if extent is not None else T.int64() for index, extent in problem.extents.items()
    }


def _run_function(
    problem: AnyProblem,
    kernels: list[Any],
    tree: DispatchTree,
    variables: Sequence[str],
    limits: Limits,
) -> Any:
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(RUN)
        T.func_attr({"global_symbol": RUN})
        names = (*problem.inputs, *problem.outputs)  # as kernels take them
        handles = {name: T.arg(name, T.handle()) for name in (*problem.arguments, *problem.outputs)}
        values = _variables(variables)
        extents = _symbolic_extents(problem)
        shapes: dict[str, Sequence[Any]] = {name: problem.shape(name, extents) for name in names}
        for name, layout in problem.packed.items():
            # Its symbolic extents are known from the other tensors; the panels' shape follows from them.
            shapes[name] = packed_shape(problem, layout, extents, limits.lanes)
        order = sorted(names, key=lambda name: name in problem.packed)
        storage = {name: problem.storage(name) for name in names}
        buffers = _match({name: handles[name] for name in order}, shapes, storage)
        sizes = [extents[index] for index in problem.dynamic]
        pointers = [buffers[name].data for name in names]
        _emit_tree(tree, values, lambda category: call(kernels[category], [*pointers, *sizes]))
    return builder.get()


def _select_function(tree: DispatchTree, variables: Sequence[str]) -> Any:
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(SELECT)
        T.func_attr({"global_symbol": SELECT})
        values = _variables(variables)
        T.func_ret(ir.PrimType("int64"))
        _emit_tree(tree, values, lambda category: T.Return(i64(category)))
    return builder.get()


def _pack_function(problem: AnyProblem, operand: str, packing: Any, limits: Limits) -> Any:
    layout = problem.packed[operand]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(layout.function)
        T.func_attr({"global_symbol": layout.function})
        handles = {operand: T.arg(operand, T.handle()), _PANELS: T.arg("packed", T.handle())}
        extents = _symbolic_extents(problem)
        shapes: dict[str, Sequence[Any]] = {
            operand: problem.shape(operand, extents),
            _PANELS: packed_shape(problem, layout, extents, limits.lanes),
        }
        buffers = _match(handles, shapes, dict.fromkeys(handles, problem.storage(operand)))
        sizes = [
            extents[k] if k in problem.role_indices(operand) else tirx.IntImm("int64", 1)
            for k in problem.dynamic
        ]
        call(packing, [buffers[operand].data, buffers[_PANELS].data, *sizes])
    return builder.get()
