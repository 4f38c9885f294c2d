"""PyTorch eager, and ``torch.compile(dynamic=True)`` with freezing, which prepacks constants for oneDNN.

Convolutions also get channels-last tensors, made outside of the timed call: oneDNN is fastest with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
import torch._inductor.exc
from torch.nn import functional

from dietcode.bench.attention import torch_attention
from dietcode.bench.blocks import torch_block
from dietcode.bench.operator import Binder, Call, Convolution, Operator, matmul_plan
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.problem import Problem

EAGER, COMPILED, CHANNELS_LAST, SDPA = "torch-eager", "torch-compile-freezing", "-channels-last", "-sdpa"


def torch_paths(operator: Operator) -> dict[str, Binder]:
    """Return every path by name; eager ones start with ``torch-eager``."""
    torch._inductor.config.freezing = True  # as an option of `torch.compile` it packs nothing
    return _PATHS.get(operator.problem.form, _block_paths)(operator)


def _block_paths(operator: Operator) -> dict[str, Binder]:
    form = _TorchBlock(operator)
    return {EAGER: _binder(form, compiled=False), COMPILED: _binder(form, compiled=True)}


def _attention_paths(operator: Operator) -> dict[str, Binder]:
    if operator.problem.plan.functions:  # of the scores, which PyTorch's function has not
        return _block_paths(operator)
    form = _Attention(operator)
    return {EAGER + SDPA: _binder(form, compiled=False), COMPILED + SDPA: _binder(form, compiled=True)}


def _contraction_paths(operator: Operator) -> dict[str, Binder]:
    if operator.convolution is None:
        return {
            EAGER: _binder(_Einsum(operator), compiled=False),
            COMPILED: _binder(_Einsum(operator), compiled=True),
        }
    plain = _Convolution(operator, operator.convolution, torch.contiguous_format)
    if len(operator.convolution.sliding) == 1:  # three axes have one memory format
        return {EAGER: _binder(plain, compiled=False), COMPILED: _binder(plain, compiled=True)}
    last = _Convolution(operator, operator.convolution, torch.channels_last)
    return {
        EAGER: _binder(plain, compiled=False),
        EAGER + CHANNELS_LAST: _binder(last, compiled=False),
        COMPILED: _binder(plain, compiled=True),
        COMPILED + CHANNELS_LAST: _binder(last, compiled=True),
    }


# Blocks of other forms are computed node by node.
_PATHS = {Problem.form: _contraction_paths, AttentionProblem.form: _attention_paths}


def _binder(form: _Form, compiled: bool) -> Binder:
    modules: dict[Any, Any] = {}

    def bind(arrays: Mapping[str, Any]) -> Call:
        tensors = {name: form.prepare(name, arrays[name]) for name in form.operator.inputs}
        constants = {name: tensors[name] for name in form.operator.constants}
        key = tuple(arrays[name].__array_interface__["data"][0] for name in constants)
        varying = [tensors[name] for name in form.operator.inputs if name not in constants]
        if key not in modules:  # which keeps the memory of its constants, so that no other gets the address
            module = _module(form, constants)
            modules[key] = (
                _Compiled(module) if compiled else module,
                [arrays[name] for name in constants],
            )
        module = modules[key][0]

        def run() -> Any:
            with torch.no_grad():
                return module(*varying)

        return run

    return bind


def _module(form: _Form, constants: Mapping[str, Any]) -> Any:
    """Return a module with these constants and code of its own.

    A compiled function is cached by its code, with a check of each specialisation at every call and a limit
    on their number, in which modules with other constants would count.
    """
    order = [name for name in form.operator.inputs if name not in constants]

    class WithConstants(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name, value in constants.items():
                self.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))

        def forward(self, *varying: Any) -> Any:
            values = dict(zip(order, varying, strict=True))
            values |= {name: getattr(self, name) for name in constants}
            return form.compute(values)

    WithConstants.forward.__code__ = WithConstants.forward.__code__.replace()
    return WithConstants().eval()


class _Compiled:
    """A module compiled for any extents.

    PyTorch 2.13 cannot compile some convolutions like that (``sym_max`` of None, an invalid range of a
    stride), and tells so at the first call or at one with other extents. Then only the extents that vary are
    dynamic, which `_Form.prepare` marks; where that fails as well, each shape is compiled by itself; and
    what cannot be compiled at all runs as it is.
    """

    def __init__(self, module: Any) -> None:
        self._module, self._others = module, [None, False]
        self._call = torch.compile(module, dynamic=True)

    def __call__(self, *tensors: Any) -> Any:
        while True:
            try:
                return self._call(*tensors)
            except (torch._dynamo.exc.BackendCompilerFailed, torch._inductor.exc.InductorError):
                if self._call is self._module:
                    raise
                self._call = (
                    torch.compile(self._module, dynamic=self._others.pop(0)) if self._others else self._module
                )


class _Form(ABC):
    """How PyTorch computes an operator."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.epilogue = operator.epilogue
        # linear and conv2d add it themselves
        self.fuses_bias = bool(self.epilogue) and self.epilogue[0].kind == "bias"

    def prepare(self, name: str, array: Any) -> Any:
        """Return the tensor for an array."""
        return torch.from_numpy(array)

    @abstractmethod
    def compute(self, values: Mapping[str, Any]) -> Any:
        """Compute the operator."""

    def finish(self, value: Any, values: Mapping[str, Any]) -> Any:
        """Apply the epilogue steps that remain."""
        for step in self.epilogue[1:] if self.fuses_bias else self.epilogue:
            value = _finish(step.kind, step.value, value, values.get(step.tensor))
        return value


def _finish(kind: str, parameter: Any, value: Any, tensor: Any) -> Any:
    if tensor is not None:
        return value + tensor
    if kind == "scale":
        return value * parameter
    if kind == "gelu":
        return functional.gelu(value, approximate="none" if parameter == "erf" else parameter)
    if kind == "clip":
        return torch.clamp(value, *parameter)
    simple: dict[str, Callable[[Any], Any]] = {
        "relu": torch.relu,
        "silu": functional.silu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "hardswish": functional.hardswish,
        "hardsigmoid": functional.hardsigmoid,
    }
    return simple[kind](value)


class _Einsum(_Form):
    """A linear layer, a matmul, or else an einsum."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        self.plan = matmul_plan(operator)
        first, _ = operator.operands
        self.is_linear = self.plan is True and len(operator.inputs[first]) == 2
        self.fuses_bias = self.fuses_bias and self.is_linear

    def compute(self, values: Mapping[str, Any]) -> Any:
        first, second = self.operator.operands
        a, b = values[first], values[second]
        if self.is_linear:
            value = functional.linear(a, b, values["bias"] if self.fuses_bias else None)
        elif self.plan is None:
            value = torch.einsum(self.operator.equation, a, b)
        else:
            value = torch.matmul(a, b.transpose(-1, -2) if self.plan else b)
        return self.finish(value, values)


class _TorchBlock(_Form):
    """The nodes of a block one by one, with PyTorch's own softmax and norms."""

    def compute(self, values: Mapping[str, Any]) -> Any:
        return torch_block(torch, self.operator, values)


class _Attention(_Form):
    """``scaled_dot_product_attention``."""

    def compute(self, values: Mapping[str, Any]) -> Any:
        return torch_attention(torch, self.operator.problem, values)


class _Convolution(_Form):
    """``conv2d`` or ``conv1d`` on tensors with channels as second axis, in one memory format.

    Its result has the axes of the caller's output.
    """

    def __init__(self, operator: Operator, convolution: Convolution, layout: Any) -> None:
        super().__init__(operator)
        self.convolution, self.layout = convolution, layout
        channel_axis = convolution.output_axes[1]
        self.fuses_bias = self.fuses_bias and convolution.bias_axes == (channel_axis,)
        self.back = tuple(
            convolution.output_axes.index(axis) for axis in range(len(self.convolution.data_axes))
        )
        self.function = functional.conv2d if len(convolution.sliding) > 1 else functional.conv1d
        self.sides = [one[2:] for one in convolution.sliding]
        self.is_even = all(before == after for before, after in self.sides)

    def prepare(self, name: str, array: Any) -> Any:
        form, tensor = self.convolution, torch.from_numpy(array)
        if name == "bias":
            if self.fuses_bias:
                return tensor
            assert form.bias_axes is not None
            sizes = dict(zip(form.bias_axes, tensor.shape, strict=True))
            return tensor.reshape([sizes.get(axis, 1) for axis in form.output_axes])
        axes = {form.data: form.data_axes, form.kernel: form.kernel_axes}.get(name, form.output_axes)
        tensor = tensor.permute(axes).contiguous(memory_format=self.layout)
        own, extents = self.operator.problem.axes(name), self.operator.problem.extents
        for position, axis in enumerate(axes):
            if any(extents[index] is None for index in own[axis]):
                torch._dynamo.maybe_mark_dynamic(tensor, position)
        return tensor

    def compute(self, values: Mapping[str, Any]) -> Any:
        form = self.convolution
        data = values[form.data]
        if not self.is_even:  # which PyTorch's operators do not take
            data = functional.pad(data, [side for sides in reversed(self.sides) for side in sides])
        value = self.function(
            data,
            values[form.kernel],
            values["bias"] if self.fuses_bias else None,
            [one.stride for one in form.sliding],
            [before if self.is_even else 0 for before, _ in self.sides],
            [one.dilation for one in form.sliding],
            form.groups,
        )
        return self.finish(value, values).permute(self.back)
