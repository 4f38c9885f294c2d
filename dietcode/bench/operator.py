"""The operator of a library for other software: enough to generate data for it and to run it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dietcode.search_space.forms import problem_of
from dietcode.search_space.problem import AnyProblem, extents_of
from dietcode.workload.conv2d import Sliding
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
        """The convolution that it is, if it is one and no plain product."""
        return Convolution.of(self.spec)

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
    """A convolution: how its tensors are turned into NC and OI, then the axes that the window slides along.

    Attributes
    ----------
    data, kernel : str
        Tensors.
    data_axes, kernel_axes, output_axes : tuple of int
        Axis of the caller's tensor for each of N, C and the others; of O, I and the others; of N, O and the
        others.
    bias_axes : tuple of int or None
        Axes of the caller's output that the bias has; None without bias.
    sliding : tuple of Sliding
        Along each of the others.
    groups : int
        Of channels.
    """

    data: str
    kernel: str
    data_axes: tuple[int, ...]
    kernel_axes: tuple[int, ...]
    output_axes: tuple[int, ...]
    bias_axes: tuple[int, ...] | None
    sliding: tuple[Sliding, ...]
    groups: int

    @classmethod
    def of(cls, spec: Spec) -> Convolution | None:
        """Return the convolution of a spec; None where it has none, or one that is a plain product."""
        conv = spec.convolution
        if conv is None or not (conv.slides or conv.group):
            return None
        data, kernel = spec.tensors
        data_layout, kernel_layout = conv.op.data_layout, conv.op.kernel_layout
        others = "".join(conv.op.sliding)
        data_axes = tuple(data_layout.index(axis) for axis in "NC" + others)
        has_bias = any(step.kind == "bias" for step in spec.op.epilogue)
        return cls(
            data,
            kernel,
            data_axes,
            tuple(kernel_layout.index(axis) for axis in "OI" + others),
            data_axes,
            (data_layout.index("C"),) if has_bias else None,
            tuple(conv.op.sliding.values()),
            conv.op.groups,
        )
