"""The tensors of a problem in generated code: flat buffers and the expressions that address them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, ZERO, Group, Size, View, size_of, view_of
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.search_space.tir import i64


class Addressing:
    """Offsets in tensors.

    Parameters
    ----------
    problem : AnyProblem
    extents : mapping of str to int64 expression
        Of every index.
    """

    def __init__(self, problem: AnyProblem, extents: Mapping[str, Any]) -> None:
        self.problem, self.extents = problem, extents

    def value(self, size: Size) -> Any:
        """Return a size as an int64 expression."""
        return i64(size.factor) if size.is_fixed else size.value(self.extents)

    def indices(
        self, view: View, indices: tuple[str, ...], index: Any, apart: str = ""
    ) -> list[tuple[Group, Any]]:
        """Return the groups of a role, inner first, each with its index at a flattened index of the role.

        Parameters
        ----------
        indices : tuple of str
            Of the role.
        index : int32 or int64 expression
            Flattened; the role's extents must be fixed where it is int32.
        apart : str
            As `View.groups` has it.
        """
        result: list[tuple[Group, Any]] = []
        groups = view.groups(indices, apart)
        for position in reversed(range(len(groups))):
            group, own = groups[position], index
            if position:
                extent = self.value(group.extent).astype(str(index.ty))
                own, index = tirx.truncmod(index, extent), tirx.truncdiv(index, extent)
            result.append((group, own))
        return result

    def offset(self, view: View, indices: tuple[str, ...], index: Any) -> Any:
        """Return the elements from the tensor's beginning to a flattened index of a role."""
        result: Any = i64(0)
        for group, own in self.indices(view, indices, index):
            if group.stride != ZERO:
                result = result + (own if group.stride == ONE else own * self.value(group.stride))
        return result


class Memory(Addressing):
    """The tensors of one function of a contraction.

    Parameters
    ----------
    extents : mapping of str to int64 expression
        Of every index.
    pointers : mapping of str to pointer
        By tensor name, as the function was given them.
    lanes, panels
        Of a packed column operand: columns of a panel, and the number of panels.

    Attributes
    ----------
    buffers : dict of str to Buffer
        One-dimensional, on the pointers that the function was given.
    views : dict of str to View
        Layout of each; not that of a packed column operand.
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
        lanes: int = 1,
        panels: Any = 0,
    ) -> None:
        super().__init__(problem, extents)
        self.lanes, self.panels = lanes, panels
        self.views = {name: view_of(problem, name) for name in pointers}
        self.reduction = self.value(size_of(problem, problem.reduction))
        own_batch = [k for k in problem.batch if k in problem.indices[problem.column_operand]]
        self.panels_view = view_of(problem, problem.column_operand, "".join(own_batch))
        self.buffers = {name: self._declare(name, pointer) for name, pointer in pointers.items()}

    def _declare(self, name: str, pointer: Any) -> Any:
        size = self.value(self.views[name].size)
        if name == self.problem.column_operand and self.problem.column_operand_constant:
            size = self.value(self.panels_view.size) * self.panels * self.reduction * self.lanes
        # Tensors of callers are rarely aligned; unaligned vector loads cost nothing where they are.
        storage = self.problem.storage(name)
        return T.decl_buffer((size,), str(storage), data=pointer, align=storage.itemsize)

    def element_offset(self, tensor: str, batch: Any, row: Any, column: Any) -> Any:
        """Return the offset of one element of the output, or of a tensor of the epilogue.

        Parameters
        ----------
        batch, row, column : int64 expressions
            Flattened.
        """
        view, problem = self.views[tensor], self.problem
        leading = self.offset(view, problem.batch, batch) + self.offset(view, problem.rows, row)
        return leading + self.offset(view, problem.columns, column)

    @property
    def whole_vectors(self) -> bool:
        """Whether columns are contiguous in the output, and contiguous or alike in the epilogue's tensors."""
        names = [stage.tensor for stage in self.problem.stages if stage.tensor is not None]
        strides = [self.views[name].stride(self.problem.columns) for name in names]
        output = self.views[self.problem.output].stride(self.problem.columns)
        return output == ONE and all(stride in {ONE, ZERO} for stride in strides)
