"""A problem's tensors in generated code: flat buffers and the expressions that address them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, ZERO, Group, Size, View, size_of, view_of
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import TirOps, i64


class Memory:
    """The tensors of one function.

    Attributes
    ----------
    buffers : dict of str to Buffer
        One-dimensional, on the pointers that the function was given.
    views : dict of str to View
        How each is addressed; a packed column operand is not.
    panels_view : View
        Of the batch indices of a packed column operand.
    reduction : int64 expression
        Flattened extent.
    """

    def __init__(
        self,
        problem: Problem,
        extents: Mapping[str, Any],
        pointers: Mapping[str, Any],
        lanes: int,
        panels: Any,
        ops: TirOps,
    ) -> None:
        self.problem, self.extents, self.lanes, self.panels, self.ops = problem, extents, lanes, panels, ops
        self.views = {name: view_of(problem, name) for name in pointers}
        self.reduction = self.value(size_of(problem, problem.reduction))
        own_batch = [k for k in problem.batch if k in problem.subscripts[problem.column_operand]]
        self.panels_view = view_of(problem, problem.column_operand, "".join(own_batch))
        self.buffers = {name: self._declare(name, pointer) for name, pointer in pointers.items()}

    def _declare(self, name: str, pointer: Any) -> Any:
        size = self.value(self.views[name].size)
        if name == self.problem.column_operand and self.problem.column_operand_constant:
            size = self.value(self.panels_view.size) * self.panels * self.reduction * self.lanes
        # Tensors of callers are rarely aligned; unaligned vector loads cost nothing where they are.
        storage = self.problem.storage(name)
        return T.decl_buffer((size,), str(storage), data=pointer, align=storage.itemsize)

    def value(self, size: Size) -> Any:
        """A size as an int64 expression."""
        return i64(size.factor) if size.is_fixed else size.value(self.extents)

    def indices(
        self, view: View, letters: tuple[str, ...], index: Any, apart: str = ""
    ) -> list[tuple[Group, Any]]:
        """The groups of a role, inner first, and the index of each at a flattened index of the role.

        An int32 index is divided by int32 numbers: the role's extents must be fixed then.
        """
        result: list[tuple[Group, Any]] = []
        groups = view.groups(letters, apart)
        for place in reversed(range(len(groups))):
            group, own = groups[place], index
            if place:
                extent = self.value(group.extent).astype(str(index.ty))
                own, index = tirx.truncmod(index, extent), tirx.truncdiv(index, extent)
            result.append((group, own))
        return result

    def offset(self, view: View, letters: tuple[str, ...], index: Any) -> Any:
        """Elements from the tensor's beginning to a flattened index of a role."""
        result: Any = i64(0)
        for group, own in self.indices(view, letters, index):
            if group.stride != ZERO:
                result = result + (own if group.stride == ONE else own * self.value(group.stride))
        return result

    def place(self, tensor: str, batch: Any, row: Any, column: Any) -> Any:
        """Index of one element of an output-like tensor."""
        view, problem = self.views[tensor], self.problem
        leading = self.offset(view, problem.batch, batch) + self.offset(view, problem.rows, row)
        return leading + self.offset(view, problem.columns, column)

    @property
    def whole_vectors(self) -> bool:
        """Whether consecutive columns are consecutive in the output, and so or the same in what it reads."""
        names = [stage.tensor for stage in self.problem.stages if stage.tensor is not None]
        steps = [self.views[name].stride(self.problem.columns) for name in names]
        output = self.views[self.problem.output].stride(self.problem.columns)
        return output == ONE and all(step in {ONE, ZERO} for step in steps)
