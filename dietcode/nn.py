"""Layers of PyTorch on tuned libraries: drop-in modules for inference.

layer = dietcode.nn.Linear.from_torch(linear, library)
dietcode.nn.replace(model, library, another)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dietcode.errors import ShapeError, TensorError
from dietcode.runtime.library import Library
from dietcode.runtime.tensors import check_storage
from dietcode.runtime.torch_operator import TorchOp, bound_buffer  # first: it says what to install
from dietcode.workload.text import clip

import torch  # isort: skip

__all__ = ["Linear", "replace"]

_BIAS = "bias"
_NUM_OPERANDS = 2
_READS_WEIGHTS = torch.nn.TransformerEncoderLayer  # in evaluation, where one kernel computes all of it


class Linear(torch.nn.Module):
    """``y = x · Wᵀ + bias`` on a library for ``Y[m, n] = X[m, k] · W[n, k]ᵀ``; made by `from_torch`.

    It takes what `torch.nn.Linear` takes, [..., in_features]: the product of the leading extents is the
    number of rows, which the library's range must hold. It records no gradient. A checkpoint of the module
    that it replaces can be loaded into it: the weight is packed then, and what is done to the original weight
    later is not seen. Its own checkpoint has the weight as it is packed.
    """

    def __init__(self, library: Library, weight: Any, bias: Any) -> None:
        super().__init__()
        rows, columns, epilogue = _roles(library)
        self.out_features, self.in_features = weight.shape
        self._library, self._rows, self._columns = library, rows, columns
        self._has_bias, self._binds_bias = bias is not None, epilogue
        bound = {columns: weight}
        if epilogue:
            bound[_BIAS] = weight.new_zeros(self.out_features) if bias is None else bias
            self.bias = None  # no buffer, which `torch.func.functional_call` would set
        else:
            self.register_buffer(_BIAS, None if bias is None else bias.detach())
        self.op = TorchOp(library, bound)

    @classmethod
    def from_torch(cls, linear: torch.nn.Linear, library: Library) -> Linear:
        """Return a layer with the weights of `linear`.

        Raises
        ------
        TensorError
            The library computes something else, for another device, or has another dtype; or `linear` is no
            such layer, or has hooks, which compute something beside it, or a `forward` of its own.
        ShapeError
            It was tuned for other features.
        """
        _check_fits(linear, library)
        weight, bias = (
            None if one is None else one.detach().resolve_neg().contiguous()
            for one in (linear.weight, linear.bias)
        )
        layer = cls(library, weight, bias)
        layer.training = linear.training
        return layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute [..., in_features] to [..., out_features].

        Raises
        ------
        TensorError
            It is not a tensor, has the wrong dtype or device, or requires grad where gradients are recorded.
        ShapeError
            The last extent is another, or the number of rows is outside the library's range.
        """
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            given = "a tensor without an axis" if isinstance(x, torch.Tensor) else type(x).__name__
            raise TensorError(f"{self._rows}: {given}; allowed: a torch tensor [..., {self.in_features}]")
        is_matrix = x.dim() == 2  # as it is: reshaping takes as long as a small product
        result = self.op(x if is_matrix else x.reshape(-1, x.shape[-1]))
        if self.bias is not None:
            result = result + self.bias
        return result if is_matrix else result.reshape(*x.shape[:-1], self.out_features)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Take the weight and bias of a `torch.nn.Linear`, too."""
        weight, bound_bias = state_dict.pop(f"{prefix}weight", None), f"{prefix}op.bound_{_BIAS}"
        if weight is not None:
            try:
                packed = self._packed(weight)
            except (TensorError, ShapeError) as error:  # PyTorch collects what does not fit, and raises it
                others[-1].append(f"{prefix}weight: {error}")
                packed = self.op.get_buffer(f"bound_{self._columns}")
            state_dict[f"{prefix}op.bound_{self._columns}"] = packed
        if self._binds_bias and self._has_bias and f"{prefix}{_BIAS}" in state_dict:
            state_dict[bound_bias] = state_dict.pop(f"{prefix}{_BIAS}")
        if self._binds_bias and not self._has_bias:
            state_dict.setdefault(bound_bias, self.op.get_buffer(f"bound_{_BIAS}"))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _packed(self, weight: Any) -> torch.Tensor:
        """Return the buffer for a weight of a checkpoint.

        Raises
        ------
        TensorError, ShapeError
            It is no tensor with values on the library's device, or has another shape.
        """
        if not isinstance(weight, torch.Tensor):
            raise TensorError(f"{self._columns}: {type(weight).__name__}; allowed: a torch tensor")
        check_storage(self._columns, weight)
        dtype = getattr(torch, self._library.manifest["inputs"][self._columns]["dtype"])
        return bound_buffer(self._library, self._columns, weight.detach().to(dtype).contiguous())[0]

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse what would not be computed with: the weight is packed, and a bias may be bound with it."""
        if value is not None and (name == "weight" or (name == _BIAS and self.__dict__.get("_binds_bias"))):
            raise TensorError(
                f"{name}: set on a layer of dietcode.nn, which reads a packed copy; "
                f"allowed: load_state_dict, or a new layer by from_torch"
            )
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        """Return the features, as `torch.nn.Linear` prints them."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def replace(model: torch.nn.Module, *libraries: Library) -> list[str]:
    """Replace each `torch.nn.Linear` that a library was tuned for, in place; the first that fits is taken.

    A layer that stands in several places of the model is replaced by one. Layers with hooks or a `forward` of
    their own are left alone, and so are subclasses and parametrized layers: they compute something else. So
    are those of a `torch.nn.TransformerEncoderLayer`, which reads their weights and does not call them, and
    layers whose weights are on another device, or on none yet.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place; a layer alone is replaced by `Linear.from_torch`.
    *libraries : Library
        For dense layers.

    Returns
    -------
    list of str
        Names of the modules that were replaced, as `torch.nn.Module.named_modules` has them.

    Raises
    ------
    TensorError
        `model` is not a module, or one of `libraries` is not a library.
    """
    if not isinstance(model, torch.nn.Module):
        raise TensorError(f"replace: given {clip(model)}; allowed: a torch.nn.Module")
    for library in libraries:
        _check_library(library)
    replaced, made = [], dict[torch.nn.Linear, Linear]()
    for name, linear in list(_linears(model)):
        fitting = next((library for library in libraries if _fits(linear, library)), None)
        if fitting is not None:
            parent, _, last = name.rpartition(".")
            made[linear] = made.get(linear) or Linear.from_torch(linear, fitting)
            setattr(model.get_submodule(parent), last, made[linear])
            replaced.append(name)
    return replaced


def _linears(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Linear]]:
    """Not subclasses: they may compute something else."""
    for name, module in model.named_modules(remove_duplicate=False):
        parent = model.get_submodule(name.rpartition(".")[0])
        if type(module) is torch.nn.Linear and name and not isinstance(parent, _READS_WEIGHTS):
            yield name, module


def _check_library(given: Any) -> None:
    if not isinstance(given, Library):
        raise TensorError(f"given {clip(given)}; allowed: a library of one operator, from dietcode.load")


def _roles(library: Library) -> tuple[str, str, bool]:
    """Names of the rows' and columns' tensors of a dense library, and whether it adds a bias.

    Raises
    ------
    TensorError
        It computes something else.
    """
    _check_library(library)
    inputs: Mapping[str, Any] = library.manifest["inputs"]
    output = library.manifest["output"]["dims"]
    names = [name for name in library.manifest["argument_order"] if name != _BIAS]
    names.sort(key=lambda name: output[:1] not in inputs[name]["dims"])  # a spec may list the weight first
    epilogue = library.manifest["workload"]["op"].get("epilogue", [])
    if len(names) == _NUM_OPERANDS and "einsum" in library.manifest["workload"]["op"]:
        rows, columns = names
        m, k = (inputs[rows]["dims"] + "  ")[:2]
        n = inputs[columns]["dims"][:1]
        is_dense = (inputs[rows]["dims"], inputs[columns]["dims"]) == (m + k, n + k)
        if is_dense and output == m + n and epilogue in ([], [_BIAS]):
            return rows, columns, bool(epilogue)
    raise TensorError(
        f"{library.manifest['name']}: computes {library.manifest['workload']['op']}; "
        "allowed: Y[m, n] = X[m, k] · W[n, k]ᵀ, with a bias or without an epilogue"
    )


def _check_fits(linear: torch.nn.Linear, library: Library) -> None:
    """Check whether a library can take a layer's place; raises TensorError or ShapeError where it cannot."""
    rows, columns, _ = _roles(library)
    name = library.manifest["name"]
    wrong = _unlike(linear, library.manifest["inputs"][rows]["dtype"], library.device_type)
    if wrong is not None:
        raise TensorError(f"{name}: {wrong}")
    check_storage(f"{name}: the layer's weight", linear.weight)
    try:
        library.check_shape(columns, tuple(linear.weight.shape))
    except ShapeError as error:
        raise ShapeError(f"{name}: {error}") from error


def _unlike(linear: torch.nn.Linear, dtype: str, device: str) -> str | None:
    """Say how a layer differs from one that is computed by a library of this dtype on this device."""
    if not isinstance(linear, torch.nn.Linear):
        return f"given {type(linear).__name__}; allowed: a torch.nn.Linear"
    if linear._forward_hooks or linear._forward_pre_hooks or "forward" in vars(linear):
        return "the layer has hooks, or a forward of its own; remove them, and set them on the new layer"
    weight = linear.weight
    if type(weight) not in (torch.Tensor, torch.nn.Parameter):
        return f"the layer's weight is a {type(weight).__name__}; allowed: a plain tensor"
    if weight.dtype is not getattr(torch, dtype):
        return f"the layer's weight is of {weight.dtype}; allowed: {dtype}"
    if weight.device.type != device:
        return f"the layer's weight is on {weight.device}; this library runs on {device}"
    return None


def _fits(linear: torch.nn.Linear, library: Library) -> bool:
    try:
        _check_fits(linear, library)
    except (TensorError, ShapeError):
        return False
    return True
