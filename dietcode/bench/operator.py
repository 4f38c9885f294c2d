"""The operator of a library for other software: enough to generate data for it and to run it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dietcode.search_space.forms import problem_of
from dietcode.search_space.problem import AnyProblem, Problem, extents_of
from dietcode.workload.parse import spec_of
from dietcode.workload.spec import Spec

Call: TypeAlias = Callable[[], Any]
# Makes a call of arrays by tensor name; whatever can be prepared is prepared outside of the call.
Binder: TypeAlias = Callable[[Mapping[str, Any]], Call]


@dataclass(frozen=True)
class Operator:
    """One workload.

    Attributes
    ----------
    spec : Spec
    problem : AnyProblem
        Its tensors; of a contraction its roles, windows and splits too.
    """

    spec: Spec
    problem: AnyProblem

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Operator:
        """Return the operator of a library's manifest.

        Raises
        ------
        LibraryError
            It holds no workload.
        """
        return cls.of_spec(spec_of(manifest))

    @classmethod
    def of_spec(cls, spec: Spec) -> Operator:
        """Return the operator of a spec."""
        return cls(spec, problem_of(spec))

    @property
    def inputs(self) -> dict[str, str]:
        """Indices of each input, in the order of a call's arguments: operands first."""
        return {name: self.problem.indices[name] for name in self.problem.inputs}

    @property
    def output(self) -> str:
        """Indices of the output."""
        return str(self.problem.indices[self.problem.output])

    @property
    def constants(self) -> tuple[str, ...]:
        """Inputs that stay the same from call to call."""
        return self.spec.constants

    @property
    def epilogue(self) -> tuple[Any, ...]:
        """Epilogue steps of the spec: `kind`, `value`, and `tensor` where it reads one."""
        return self.spec.op.epilogue

    @property
    def operands(self) -> tuple[str, str]:
        """The two tensors of the contraction."""
        return self.problem.row_operand, self.problem.column_operand

    @property
    def equation(self) -> str:
        """Equation for ``einsum``."""
        first, second = self.operands
        return f"{self.inputs[first]},{self.inputs[second]}->{self.output}"

    @property
    def convolution(self) -> Convolution | None:
        """The convolution that it is, if it is one."""
        return Convolution.of(self.problem) if self.problem.windows else None

    def extents(self, binding: Mapping[str, int]) -> dict[str, int]:
        """Return the extent of every index at one instance."""
        return extents_of(self.spec, binding)

    def shapes(self, binding: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input and output, as callers see them."""
        extents = self.extents(binding)
        names = (*self.problem.inputs, *self.problem.outputs)
        return {name: tuple(int(n) for n in self.problem.shape(name, extents)) for name in names}


def matmul_plan(operator: Operator) -> bool | None:
    """Return whether ``matmul`` needs its second operand transposed; None for anything but a plain matmul."""
    first, second = (operator.inputs[name] for name in operator.operands)
    if len(first) < 2 or first[:-2] != second[:-2] or operator.output[:-2] != first[:-2]:
        return None
    rows, reduction = first[-2], first[-1]
    for transposed, column, inner in ((True, second[-2], second[-1]), (False, second[-1], second[-2])):
        if inner == reduction and operator.output[-2:] == rows + column:
            return transposed
    return None


@dataclass(frozen=True)
class Convolution:
    """A two-dimensional convolution: how its tensors are turned into NCHW and OIHW.

    Attributes
    ----------
    data, kernel : str
        Tensors.
    data_axes, kernel_axes, output_axes : tuple of int
        Axis of the caller's tensor for each of N, C, H, W; of O, I, H, W; and of N, O, H, W.
    bias_axes : tuple of int or None
        Axes of the caller's output that the bias has; None without bias.
    strides, padding, dilation : tuple of int
        For H and W.
    group_indices : tuple of str
        The product of their extents is the number of groups.
    """

    data: str
    kernel: str
    data_axes: tuple[int, ...]
    kernel_axes: tuple[int, ...]
    output_axes: tuple[int, ...]
    bias_axes: tuple[int, ...] | None
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    group_indices: tuple[str, ...]

    @classmethod
    def of(cls, problem: Problem) -> Convolution:
        """Return the convolution of a problem with two windows over one operand."""
        windows = problem.windows
        operands = (problem.row_operand, problem.column_operand)
        data = next(name for name in operands if windows[0].axis in problem.indices[name])
        kernel = next(name for name in operands if name != data)
        reduction = set(problem.reduction)
        axes = {name: problem.axes(name) for name in (data, kernel, problem.output)}

        def order(name: str, spatial: list[str], is_inner: Any) -> tuple[int, ...]:
            """Return the axes: first the remaining one, then the inner one, then the spatial ones."""
            spatial_axes = [axes[name].index(index) for index in spatial]
            inner = [i for i in range(len(axes[name])) if i not in spatial_axes and is_inner(axes[name][i])]
            outer = [i for i in range(len(axes[name])) if i not in spatial_axes and i not in inner]
            return (*outer, *inner, *spatial_axes)

        data_axes = order(data, [w.axis for w in windows], lambda indices: reduction & set(indices))
        kernel_axes = order(kernel, [w.kernel for w in windows], lambda indices: reduction & set(indices))
        channels = set(axes[kernel][kernel_axes[0]])
        output_axes = order(
            problem.output, [w.output for w in windows], lambda indices: channels & set(indices)
        )
        bias = problem.indices.get("bias")
        return cls(
            data,
            kernel,
            data_axes,
            kernel_axes,
            output_axes,
            None if bias is None else tuple(i for i, k in enumerate(axes[problem.output]) if k[0] in bias),
            tuple(w.stride for w in windows),
            tuple(w.padding for w in windows),
            tuple(w.dilation for w in windows),
            problem.batch,
        )
