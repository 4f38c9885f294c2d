"""What operators in PyTorch's dispatcher share: their namespace, and what none of them does.

Imported where an operator is asked for, since it imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dietcode.errors import TensorError
from dietcode.extras import MissingExtraError, what_to_install

try:
    import torch
except ImportError as error:
    raise MissingExtraError(what_to_install("an operator of PyTorch", "bench", ("torch",))) from error

from torch.autograd import forward_ad

NAMESPACE = "dietcode"
REGISTRY = torch.library.Library(NAMESPACE, "FRAGMENT")
# Looked up once: every eager call asks them.
_is_compiling = torch.compiler.is_compiling
_num_modes = torch._C._len_torch_dispatch_stack
_transformation = torch._C._functorch.peek_interpreter_stack
# Each says something while somebody looks at operators of plain tensors as they are called.
LOOKING = (_num_modes, _transformation)


def is_plain_call() -> bool:
    """Whether nothing looks at operators as they are called: no trace, no mode, no transformation."""
    return not (_is_compiling() or _num_modes() or _transformation() or is_in_dual_level())


def is_in_dual_level() -> bool:
    """Whether tensors may carry tangents, of `torch.autograd.forward_ad`."""
    return bool(forward_ad._current_level >= 0)


def refuse_gradients(operator: str, tensors: Mapping[str, Any]) -> None:
    """Refuse tensors that a gradient is recorded for.

    Raises
    ------
    TensorError
        One requires grad where gradients are recorded, or carries a tangent.
    """
    if is_in_dual_level():
        for name, tensor in tensors.items():
            if forward_ad.unpack_dual(tensor).tangent is not None:
                raise TensorError(f"{name}: carries a tangent, and {operator} computes none; pass its primal")
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if tensor.requires_grad:
            raise TensorError(
                f"{name}: requires grad, and {operator} records no gradient; "
                f"call it under torch.no_grad(), or pass {name}.detach()"
            )


def refuse_several_devices(tensors: Mapping[str, Any]) -> None:
    """Refuse tensors that are not all on one device, of which some may have no values.

    Raises
    ------
    TensorError
        One is on another device than the first one.
    """
    first = next(iter(tensors), "")
    for name, tensor in tensors.items():
        if tensor.device.type != tensors[first].device.type:
            raise TensorError(
                f"{name}: on {tensor.device}, but {first} is on {tensors[first].device}; "
                "pass tensors of one device"
            )


def refuse_vmap(operator: str) -> NoReturn:
    """Refuse a call under `torch.vmap`.

    Raises
    ------
    TensorError
        Always.
    """
    raise TensorError(f"{operator}: given a tensor under torch.vmap; pass the whole batch as rows instead")
