"""PyTorch's decompositions without what it prepares for devices that a program does not use.

For each program it prepares 525 composite operators for 21 keys of devices, and looks once for each of 27
namespaces for new operators: of a quarter of a second that takes all of it but a few hundredths.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dietcode.models.own_thread import alone, here

_BACKENDS, _AUTOGRAD = "_BACKEND_KEYS_TO_OVERRIDE", "_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE"
_WINDOWS = "pooling_output_shape_pad_lr"
_KIND_OF_SYMBOL = "symbol_is_type"
_CREATE_SYMBOL = "create_symbol"
_FIND_OPERATORS = "_materialize_cpp_cia_ops"


def run_decompositions(program: Any, table: Mapping[Any, Any]) -> Any:
    """Return ``program.run_decompositions(table)``, sooner."""
    with alone(), contextlib.ExitStack() as stack:
        keys = [_key_of(device) for device in _device_types(program) | {"cpu", "meta"}]  # meta: shapes alone
        if None not in keys:
            stack.enter_context(_keys_alone(keys))
        stack.enter_context(_operators_found_once())
        stack.enter_context(sizes_of_one_alike())
        stack.enter_context(windows_of_all_sizes())
        stack.enter_context(_ranges_of_expressions())
        return program.run_decompositions(dict(table))


@contextlib.contextmanager
def sizes_of_one_alike() -> Iterator[None]:
    """Let PyTorch's functions treat 0 and 1 as all sizes: an example's size of 1 may be any other one.

    Without it a size of 1 becomes a constant where a function broadcasts, as a product of matrices does, and
    the range of h, where axes are ``2*h``, begins at 2 whatever its Dim says.
    """
    from torch.fx.experimental import _config
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    own: Any = getattr(ShapeEnv, _CREATE_SYMBOL, None)

    def create_symbol(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("constraint_dim") is not None:  # of a Dim, not within a branch or a loop
            kwargs["do_not_specialize_zero_one"] = True
        return own(*args, **kwargs)

    with (
        alone(),
        _config.patch(backed_size_oblivious=True),
        _replaced(ShapeEnv, _CREATE_SYMBOL, here(create_symbol, own) if own else None),
    ):
        yield


@contextlib.contextmanager
def windows_of_all_sizes() -> Iterator[None]:
    """Let PyTorch's shapes of pooling with ``ceil_mode`` be those of all sizes.

    Its own has a branch on whether the last window would begin behind the elements and the padding before
    them, so that a program has the example's way of it.
    """
    import torch

    meta = torch._meta_registrations
    with alone():
        own = getattr(meta, _WINDOWS, None)
        replaced = here(_num_windows, own) if own else None
        with _replaced(meta, _WINDOWS, replaced):
            yield


@contextlib.contextmanager
def _ranges_of_expressions() -> Iterator[None]:
    """Let PyTorch take apart a saved program that has a range of an expression, as of ``2*h``.

    It asks of all that has a range whether it is a symbol of a certain kind, and stops at what is none.
    """
    from torch.utils._sympy import symbol

    own: Any = getattr(symbol, _KIND_OF_SYMBOL, None)

    def is_of_kind(one: Any, kinds: Any) -> bool:
        return bool(one.is_symbol) and bool(own(one, kinds))

    with _replaced(symbol, _KIND_OF_SYMBOL, here(is_of_kind, own) if own else None):
        yield


def _num_windows(
    size: Any, window: int, before: int, behind: int, stride: int, dilation: int, ceil_mode: bool
) -> Any:
    rest = behind - dilation * (window - 1)
    if ceil_mode:
        rest = min(rest + stride - 1, 0)
    return (size + before - 1 + rest) // stride + 1


def _device_types(program: Any) -> set[str]:
    """The devices of all tensors, those between operators included."""
    import torch

    found = [*program.state_dict.values(), *program.constants.values()]
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                value = node.meta.get("val")
                found += value if isinstance(value, list | tuple) else [value]
    return {one.device.type for one in found if isinstance(one, torch.Tensor)}


def _key_of(device: str) -> str | None:
    """The dispatch key of a type of devices; none where it is not called after them."""
    from torch._C import DispatchKey

    names = (device.upper(), device.capitalize())
    return next((name for name in names if {name, f"Autograd{name}"} <= DispatchKey.__members__.keys()), None)


@contextlib.contextmanager
def _keys_alone(names: Iterable[str | None]) -> Iterator[None]:
    """Prepare operators for these keys alone."""
    from torch._C import DispatchKey
    from torch.export import exported_program

    backends = [getattr(DispatchKey, str(name)) for name in names]
    autograd = [getattr(DispatchKey, f"Autograd{name}") for name in names]
    with _replaced(exported_program, _BACKENDS, backends), _replaced(exported_program, _AUTOGRAD, autograd):
        yield


@contextlib.contextmanager
def _operators_found_once() -> Iterator[None]:
    """Meanwhile nobody registers operators: those that are found once are all."""
    from torch._export import utils

    find = getattr(utils, _FIND_OPERATORS, None)
    has_found = False

    def find_once() -> None:
        nonlocal has_found
        if not has_found and find is not None:
            find()
        has_found = True

    with _replaced(utils, _FIND_OPERATORS, find_once):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another release may have no such name; then all takes as long as it does there."""
    if not hasattr(owner, name):
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
