"""``dietcode.export``: torch.export with what it cannot take over dynamic dimensions replaced first."""

from __future__ import annotations

import inspect
import io
import json
import logging
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

from dietcode.errors import ModelError
from dietcode.models.size_constants import no_constants_of_sizes
from dietcode.models.sources import at, source_in
from dietcode.workload.text import one_line

_KEY = "dietcode_dimensions"
_OF_VALUES = ("GuardOnDataDependentSymNode", "DataDependentOutputException")


def export(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> Any:
    """Return a program of a module, which ``torch.export.save`` writes and ``dietcode compile`` reads.

    It is what ``torch.export.export`` returns, but nn.LSTM, nn.GRU, nn.RNN and nn.MaxPool1d keep a dynamic
    length, packed sequences stay padded, ``torch.cdist`` takes any number of rows and ``affine_grid`` any
    sizes, fused attention is taken apart and takes a scale that follows from sizes, and the program remembers
    the names of its `Dim`s. The module itself, and the names in its ``state_dict``, stay as they are.

    Parameters
    ----------
    module : torch.nn.Module
        In inference mode, as after ``module.eval()``.
    args : sequence
        Positional arguments of an example call.
    kwargs : mapping of str to object, optional
        Keyword arguments of it.
    dynamic_shapes : optional
        As of ``torch.export.export``: a ``torch.export.Dim("L", max=512)`` for each axis that is dynamic.

    Raises
    ------
    ModelError
        The module is in training mode, or cannot be exported, whose cause is PyTorch's own exception; or a
        number that follows from sizes became a constant.
    """
    import torch

    if module.training:
        raise ModelError("the model is in training mode; call model.eval() before the export")
    args, kwargs = tuple(args), dict(kwargs or {})
    try:
        with _replaced(module), no_constants_of_sizes(), _quiet():
            program = torch.export.export(
                module,
                args,
                kwargs,
                dynamic_shapes=dynamic_shapes,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"torch.export: {_reason(error)}") from error
    name_dimensions(program, _dimension_names(program, module, args, kwargs, dynamic_shapes))
    return program


def name_dimensions(program: Any, names: Mapping[str, str]) -> None:
    """Write names of dimensions, by ``input.axis``, into a program, which keeps them when it is saved."""
    for node in program.graph.nodes:
        if names and node.op == "call_function":
            # PyTorch saves this with a node, and nothing with a whole program.
            node.meta["custom"] = {**node.meta.get("custom", {}), _KEY: json.dumps(names)}
            break


def dimension_names(program: Any) -> dict[str, str]:
    """Return the names of dimensions by ``input.axis``; none for programs that `export` did not make."""
    for node in program.graph.nodes:
        custom = node.meta.get("custom") or {}
        if _KEY in custom:
            return {str(key): str(value) for key, value in json.loads(custom[_KEY]).items()}
    return {}


def _reason(error: Exception) -> str:
    """Return the line of PyTorch's message that says most, and the line of the model's source."""
    where = at(source_in("".join(traceback.format_tb(error.__traceback__))) or source_in(str(error)))
    if type(error).__name__ in _OF_VALUES:
        return (
            f"a branch or a size depends on values of tensors{where}; allowed: torch.where, torch.cond, and "
            "sizes that torch._check bounds"
        )
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "specialized" in line or "guard" in line]
    reason = (telling or lines or [type(error).__name__])[0]
    if "Suggested fixes:" in lines[:-1]:
        reason += f"; PyTorch suggests {lines[lines.index('Suggested fixes:') + 1]}"
    return one_line(reason, 300) + where


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what PyTorch writes beside its exception off the terminal, unless ``TORCH_LOGS`` asks for it."""
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    loggers = [
        one
        for name, one in logging.root.manager.loggerDict.items()
        if name.split(".")[0] == "torch" and isinstance(one, logging.Logger)
    ]
    handlers = [handler for one in loggers for handler in one.handlers]
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for handler in handlers:
            handler.addFilter(_drops)
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(_drops)


def _drops(record: logging.LogRecord) -> bool:
    return False


def _pooled_as_image(module: Any) -> Callable[[Any], Any]:
    import torch

    def forward(input: Any) -> Any:
        numbers = [
            one[0] if isinstance(one, tuple | list) else one
            for one in (module.kernel_size, module.stride, module.padding, module.dilation)
        ]
        window, stride, padding, dilation = numbers
        return torch.nn.functional.max_pool2d(
            input.unsqueeze(-2), (1, window), (1, stride), (0, padding), (1, dilation), module.ceil_mode
        ).squeeze(-2)

    return forward


def _distances(cdist: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.cdist`` without its choice by size, over 25 rows or not, which would bound the rows."""

    def compute(
        x1: Any,
        x2: Any,
        p: float = 2.0,
        compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
    ) -> Any:
        if compute_mode == "use_mm_for_euclid_dist_if_necessary":
            compute_mode = "donot_use_mm_for_euclid_dist"
        return cdist(x1, x2, p, compute_mode)

    return compute


def _affine_grid(theta: Any, size: Sequence[Any], align_corners: bool | None = None) -> Any:
    """Return what ``torch.nn.functional.affine_grid`` does, whose own operator makes sizes constant."""
    import torch

    spatial = size[2:]
    axes = []
    for number, extent in enumerate(spatial):
        steps = 2 * torch.arange(extent, dtype=theta.dtype) + (1 - extent)
        positions = steps / (torch.sym_max(extent - 1, 1) if align_corners else extent)
        axes.append(
            positions.reshape([-1 if k == number else 1 for k in range(len(spatial))]).expand(spatial)
        )
    grid = torch.stack([*axes[::-1], torch.ones_like(axes[0])], -1)
    found = grid.reshape(1, -1, len(spatial) + 1) @ theta.transpose(1, 2)
    return found.reshape(theta.shape[0], *spatial, len(spatial))


@contextmanager
def _replaced(module: Any) -> Iterator[None]:
    """Let layers of a module do what can be exported, for as long as this lasts."""
    import torch
    from torch.nn.modules import transformer

    from dietcode.models.recurrent_operator import CELLS, pack, pad, replaced_forward

    changed = []
    fused, distances = torch.backends.mha.get_fastpath_enabled(), torch.cdist
    looks_at_mask = getattr(transformer, "_detect_is_causal_mask", None)
    validates = torch.distributions.Distribution._validate_args
    functions = torch.nn.functional
    affine_grid = functions.affine_grid
    packing = torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence
    try:
        torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence = pack, pad
        functions.affine_grid = _affine_grid
        # It looks at a mask's values; without it the mask is applied as it is.
        torch.cdist = _distances(torch.cdist)
        torch.distributions.Distribution.set_default_validate_args(False)  # it looks at values, too
        transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
        for layer in module.modules():
            if type(layer) in CELLS:
                layer.forward = replaced_forward(layer)
            elif type(layer) is torch.nn.MaxPool1d and not layer.return_indices:
                layer.forward = _pooled_as_image(layer)
            else:
                continue
            changed.append(layer)
        torch.backends.mha.set_fastpath_enabled(False)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        torch.cdist, functions.affine_grid = distances, affine_grid
        torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence = packing
        torch.distributions.Distribution.set_default_validate_args(validates)
        transformer._detect_is_causal_mask = looks_at_mask
        for layer in changed:
            del layer.forward


def _dimension_names(
    program: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> dict[str, str]:
    """Return the names of `Dim`s by ``input.axis``."""
    import torch

    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    if isinstance(dynamic_shapes, tuple | list):
        dynamic_shapes = dict(zip(bound, dynamic_shapes, strict=False))
    by_tensor: dict[int, Mapping[int, Any]] = {}
    for name, given in (dynamic_shapes or {}).items():
        _collect(bound.get(name), given, by_tensor)
    leaves = torch.utils._pytree.tree_flatten((args, kwargs))[0]
    inputs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    found = {}
    for leaf, argument in zip(leaves, inputs, strict=False):
        for axis, dim in by_tensor.get(id(leaf), {}).items():
            own = getattr(dim, "__name__", "")  # "4*L" of a Dim that is derived from another
            if own and isinstance(dim, torch.export.Dim):
                found[f"{argument.name}.{axis}"] = own
    return found


def _collect(argument: Any, given: Any, found: dict[int, Mapping[int, Any]]) -> None:
    """Add the dims of each tensor in a tree of arguments, by the tensor's id."""
    if given is None or argument is None:
        return
    if hasattr(argument, "dim") and isinstance(given, Mapping | tuple | list):
        pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
        found[id(argument)] = {int(axis): dim for axis, dim in pairs if dim is not None}
    elif isinstance(argument, Mapping) and isinstance(given, Mapping):
        for key, own in argument.items():
            _collect(own, given.get(key), found)
    elif isinstance(argument, tuple | list) and isinstance(given, tuple | list):
        for own, one in zip(argument, given, strict=False):
            _collect(own, one, found)
