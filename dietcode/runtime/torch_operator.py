"""A library as an operator of PyTorch: in eager code, under ``torch.compile``, in ``torch.export``.

`Library.torch_op` imports it when it is asked for, since it imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dietcode.errors import ShapeError, TensorError
from dietcode.runtime.compiled import CalledInC
from dietcode.runtime.lean_call import Bound, Callee, check_bound
from dietcode.runtime.registered_operator import operator_of  # first: it says what to install
from dietcode.runtime.tensors import Packed
from dietcode.runtime.torch_registry import LOOKING, is_plain_call
from dietcode.workload.text import clip

import torch  # isort: skip

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(
    hooks
    for name, hooks in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and isinstance(hooks, dict)
)


class TorchOp(CalledInC, torch.nn.Module):
    """A library with some of its tensors bound; called with the others, in the order of the spec.

    What is bound is a buffer: constants packed, others as they are. A tensor that is not contiguous is copied
    first, but for a table whose rows are written, which is refused. What `torch.export.save` wrote finds its
    operator where the same library was loaded and `Library.torch_op` called before.

    Parameters
    ----------
    library : Callee
        On a CPU, or on a GPU.
    bound : mapping of str to tensor or Packed
        Tensors by name; every constant, as it is or as `Library.pack` returned it.

    Raises
    ------
    TensorError
        A constant is not given, a tensor is unknown, or it has the wrong dtype or layout.
    ShapeError
        The shape of a constant does not fit.
    """

    def __init__(self, library: Callee, bound: Mapping[str, Any]) -> None:
        super().__init__()
        self._operator = operator = operator_of(library)
        check_bound("torch_op", bound, operator.order, operator.constants)
        self._library, self._overload = library, operator.overload
        self._shapes: dict[str, list[int]] = {}
        self._eager: Callable[..., Any] | None = None
        self._kept: dict[str, tuple[torch.Tensor, int]] = {}  # what `_eager` binds, and its address
        for name, value in bound.items():
            kept, shape = bound_buffer(library, name, value)
            if shape is not None:
                self._shapes[name] = shape
            self.register_buffer(f"bound_{name}", kept)
        self._free = [name for name in operator.order if name not in bound]

    __call__ = torch.nn.Module.__call__  # where `compiled` is not set, or declines

    def forward(self, *tensors: torch.Tensor, **named: Any) -> Any:
        """Compute the operator: one output, or a tuple of several, as a call of the library returns them.

        Parameters
        ----------
        *tensors : torch.Tensor
            Those that are not bound, in the order of the spec.
        **named
            The same by name, and the shape variables that no tensor's shape determines.

        Raises
        ------
        TensorError
            A tensor is missing, unknown, of the wrong dtype or device; or requires grad where gradients are
            recorded.
        ShapeError
            Shapes do not fit together, or a shape variable is outside its range.
        """
        if is_plain_call():  # of a trace the short way knows
            eager = self._eager or self._bind()
            result = eager(tensors, named)
            if result is not NotImplemented:
                return result
            if self._has_other_buffers():
                self._unbind()
        given = dict(zip(self._free, tensors, strict=False)) | named
        wanted = (*self._free, *self._operator.keywords)
        if len(given) != len(tensors) + len(named) or set(given) != set(wanted):
            raise TensorError(
                f"{self._operator.name}: given {len(tensors)} tensors and {list(named) or 'no names'}; "
                f"allowed: {', '.join(wanted)}"
            )
        if not torch.compiler.is_compiling():
            for name, value in given.items():
                _check_kind(name, value, name in self._free)
        bound = {name: getattr(self, f"bound_{name}") for name in self._operator.order if name not in given}
        returned = self._overload(*self._operator.arguments(bound | given, self._shapes, given))
        return self._operator.results(returned, bound | given)

    def _bind(self) -> Callable[..., Any]:
        """Bind the buffers' memory, for calls while they are the same."""
        buffers = self._buffers
        others = any(kept.requires_grad or kept.is_meta for kept in buffers.values())
        if others or torch._C._get_tracing_state() is not None:
            return lambda tensors, named: NotImplemented
        named = {name: buffers[f"bound_{name}"] for name in self._operator.order if name not in self._free}
        bound = {
            name: self._operator.packed(name, kept, self._shapes.get(name)) for name, kept in named.items()
        }
        self._kept = {key: (kept, kept.data_ptr()) for key, kept in buffers.items()}
        self._eager = self._attempt_of(lambda: self._library.bind(**bound))
        return self._eager

    def _unbind(self) -> None:
        self._eager = self.compiled = None

    def _attempt_of(self, bind: Callable[[], Bound]) -> Callable[..., Any]:
        bound = bind()
        if bound.compiled is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            return lambda tensors, named: (
                NotImplemented if self._has_other_buffers() else bound.attempt_in_python(tensors, named)
            )
        bound.compiled.watch(self._buffers, self._kept, (), ())
        whole = bind().compiled  # PyTorch's own way to `forward` takes a third of a tiny call
        if whole is not None and self._compiled_call_impl is None:
            hooks = tuple(getattr(self, name) for name in _HOOKS) + _GLOBAL_HOOKS
            whole.watch(self._buffers, self._kept, hooks, LOOKING)
            self.compiled = whole
        return bound.attempt

    def _has_other_buffers(self) -> bool:
        """Whether buffers were replaced since they were bound, as `torch.func.functional_call` does."""
        return any(
            self._buffers[key] is not kept or kept.data_ptr() != address
            for key, (kept, address) in self._kept.items()
        )

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        """Move or convert the buffers; constants stay compact, whatever memory format is asked for."""
        self._unbind()
        super()._apply(*arguments, **options)
        for name in self._shapes:
            self._buffers[f"bound_{name}"] = self.get_buffer(f"bound_{name}").contiguous()
        return self

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Compile `forward` from its next call on."""
        self._unbind()
        super().compile(*arguments, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Copies bind buffers of their own, and find the operator by the library; so does what is pickled."""
        others = {"_operator", "_overload", "_eager", "_kept"}
        return {name: value for name, value in self.__dict__.items() if name not in others}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` returned."""
        super().__setstate__(state)
        self._operator = operator_of(self._library)
        self._overload, self._eager, self._kept = self._operator.overload, None, {}

    def extra_repr(self) -> str:
        """Return the operator's name, for PyTorch's own printing."""
        return self._operator.name


def bound_buffer(library: Callee, name: str, value: Any) -> tuple[torch.Tensor, list[int] | None]:
    """Return the buffer for a tensor that is bound, and its shape before it was packed, None for others."""
    if name not in library.manifest["packed"]:
        return _detached(value), None
    kept = value if isinstance(value, Packed) else library.pack(**{name: _detached(value)})
    shape = list(getattr(kept, "shape", ()))
    return _detached(kept.data if isinstance(kept, Packed) else kept), shape


def _check_kind(name: str, value: Any, is_tensor: bool) -> None:
    """Check what PyTorch's dispatcher would refuse in several lines."""
    if is_tensor and not isinstance(value, torch.Tensor):
        raise TensorError(f"{name}: {type(value).__name__}; allowed: a torch tensor")
    if not is_tensor and (isinstance(value, bool) or not isinstance(value, int | np.integer | torch.SymInt)):
        raise ShapeError(f"{name}: {clip(value)}; allowed: an integer")


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(value, device="cpu")
