"""A model as a module of PyTorch: in eager code, under ``torch.compile`` and in ``torch.export``.

All models are one operator, ``dietcode::model``: text that names the model, and the tensors of its inputs in
order. `Model.torch_module` imports it when it is asked for, since it imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from dietcode.errors import ShapeError, TensorError
from dietcode.graph.extent import Extent
from dietcode.graph.signature import built_output, called_inputs, called_outputs, flatten_arguments
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.executable import Executable
from dietcode.runtime.models.guard import ShapeGuard
from dietcode.runtime.torch_registry import (  # first: it says what to install where PyTorch is missing
    NAMESPACE,
    REGISTRY,
    is_plain_call,
    refuse_gradients,
    refuse_several_devices,
    refuse_vmap,
)

import torch  # isort: skip

_NAME = "model"


class RunnableModel(Protocol):
    """What the operator calls: a `dietcode.runtime.models.model.Model`."""

    executable: Executable
    guard: ShapeGuard

    @property
    def identity(self) -> str:
        """What no model that computes something else has."""

    def flat_call(self, values: Sequence[Any]) -> list[Any]:
        """Return the outputs in order, for inputs in order."""


_models: WeakValueDictionary[str, RunnableModel] = WeakValueDictionary()


def model_operator(model: RunnableModel) -> str:
    """Let the operator find a model, and return the text that names it."""
    key = model.identity
    _models[key] = model
    return key


def _model(key: str) -> RunnableModel:
    model = _models.get(key)
    if model is None:
        raise TensorError(
            f"{NAMESPACE}::{_NAME}: {key} is not loaded; call dietcode.load(…).torch_module() first"
        )
    return model


def _named(model: RunnableModel, tensors: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(model.executable.inputs, tensors, strict=True))


def _computed(key: str, tensors: Sequence[Any]) -> list[Any]:
    plain = [tensor.detach().resolve_neg() for tensor in tensors]
    return _model(key).flat_call(plain)


def _below_autograd(key: str, tensors: Sequence[Any]) -> Any:
    refuse_gradients(key, _named(_model(key), tensors))
    with torch._C._AutoDispatchBelowAutograd():
        return _overload(key, tensors)


def _under_vmap(key: str, tensors: Sequence[Any]) -> Any:
    refuse_vmap(key)


def _fake(key: str, tensors: Sequence[Any]) -> list[Any]:
    """The outputs' shapes, of symbols where the inputs' are; a shape that no call may have is refused."""
    model = _model(key)
    refuse_several_devices(_named(model, tensors))
    executable = model.executable
    called = called_inputs(executable.signature, executable.inputs)
    for (name, type_), tensor in zip(executable.inputs.items(), tensors, strict=True):
        allowed = [called[name].dtype] + [type_.dtype] * (called[name] != type_)
        if tensor.dtype not in [getattr(torch, one) for one in allowed]:
            raise TensorError(f"{name}: dtype {tensor.dtype}; allowed: {', or '.join(allowed)}")
        if tensor.dim() != type_.rank:
            raise ShapeError(f"{name}: shape {list(tensor.shape)}; allowed: {model.guard.described(type_)}")
    values: dict[str, Any] = {}
    for dimension, number, axis, extent in model.guard.order:
        at_zero = _value(extent, {**values, dimension: 0})
        slope = _value(extent, {**values, dimension: 1}) - at_zero
        values[dimension] = (tensors[number].shape[axis] - at_zero) // slope
    for dimension, value in values.items():
        low, high = executable.ranges[dimension]
        said = f"{dimension}: outside {low}…{high}, for which {key} was compiled"
        torch._check(value >= low, lambda said=said: said)
        torch._check(value <= high, lambda said=said: said)
    for (name, type_), tensor in zip(executable.inputs.items(), tensors, strict=True):
        for axis, extent in enumerate(type_.shape):
            said = f"{name}: extent {tensor.shape[axis]} of axis {axis}; allowed: {extent}"
            torch._check(tensor.shape[axis] == _value(extent, values), lambda said=said: said)
    types = [executable.type_of(name) for name in executable.outputs]
    return [
        tensors[0].new_empty([_value(extent, values) for extent in type_.shape], dtype=_dtype(type_))
        for type_ in called_outputs(executable.signature, types)
    ]


_FUNCTIONS = {"min": torch.sym_min, "max": torch.sym_max}


def _value(extent: Extent, values: dict[str, Any]) -> Any:
    """Return the value of an extent, a symbol where those of its dimensions are."""
    return extent.evaluate(values, _FUNCTIONS)


def _dtype(type_: TensorType) -> torch.dtype:
    return getattr(torch, type_.dtype)


REGISTRY.define(f"{_NAME}(str name, Tensor[] inputs) -> Tensor[]")
REGISTRY.impl(_NAME, _computed, "CPU")
REGISTRY.impl(_NAME, _below_autograd, "Autograd")
REGISTRY.impl(_NAME, _under_vmap, "FuncTorchBatched")
torch.library.register_fake(f"{NAMESPACE}::{_NAME}", _fake, lib=REGISTRY)
_overload = getattr(getattr(torch.ops, NAMESPACE), _NAME).default


class ModelModule(torch.nn.Module):
    """A compiled model, called as the exported program is: tensors in, the same tree of tensors out.

    Nothing is copied but a tensor that is not contiguous. It has no parameters and no buffers: the weights
    are the model's. What `torch.export.save` wrote runs where the same model was loaded, and
    `Model.torch_module` called before.

    Parameters
    ----------
    model : RunnableModel
        Of one input at least.

    Raises
    ------
    TensorError
        It has no input.
    """

    def __init__(self, model: RunnableModel) -> None:
        super().__init__()
        if not model.executable.inputs:
            raise TensorError("torch_module: given a model without inputs; allowed: one at least")
        self._model, self._key = model, model_operator(model)
        self._signature = model.executable.signature
        self._names = list(model.executable.inputs)
        self._dtypes = [_dtype(type_) for type_ in model.executable.inputs.values()]

    def forward(self, *positional: Any, **keyword: Any) -> Any:
        """Run the model.

        Raises
        ------
        TensorError
            An input is missing or no tensor, has another dtype or device, or requires grad where gradients
            are recorded.
        ShapeError
            A shape, a relation between shapes or a range is not the model's.
        """
        given = flatten_arguments(self._signature, positional, keyword)
        tensors = []
        for name, dtype in zip(self._names, self._dtypes, strict=True):
            value = given[name]
            if isinstance(value, bool | int | float):
                value = torch.as_tensor(value, dtype=dtype, device="cpu")
            if not isinstance(value, torch.Tensor):
                raise TensorError(f"{name}: {type(value).__name__}; allowed: a torch tensor")
            tensors.append(value)
        if is_plain_call() and torch._C._get_tracing_state() is None:
            refuse_gradients(self._key, dict(zip(self._names, tensors, strict=True)))
            outputs = _computed(self._key, tensors)
        else:
            outputs = _overload(self._key, tensors)
        return built_output(self._signature["output"], iter(outputs))

    def extra_repr(self) -> str:
        """Return the model's name, for PyTorch's own printing."""
        return self._key
