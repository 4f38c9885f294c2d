"""``dietcode.export``: torch.export with what it cannot take over dynamic dimensions replaced first."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.signature import children_of, record_keys
from dietcode.models.importing.decomposing import sizes_of_one_alike, windows_of_all_sizes
from dietcode.models.importing.dimensions import name_dimensions, program_sizes
from dietcode.models.importing.examples import with_own_examples
from dietcode.models.own_thread import OthersStream, is_own_thread
from dietcode.models.replacing import replaced
from dietcode.models.size_branches import SizeBranch, recorded_branches, refuse_branches
from dietcode.models.size_constants import no_constants_of_sizes
from dietcode.models.sources import at, source_in
from dietcode.workload.text import one_line

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
    length, packed sequences stay padded, ``torch.cdist`` takes any number of rows, ``affine_grid`` any sizes,
    ``linspace`` any steps, and ``split``, ``chunk``, ``tensor_split``, ``one_hot`` and ``math.sqrt`` sizes,
    fused attention is taken apart and takes a scale that follows from sizes, sizes are instances of ``int``
    to the module's Python, one tensor may be the example of several inputs, and the program remembers the
    names of its `Dim`s. Records among inputs and outputs, as a ``ModelOutput`` or a registered dataclass,
    are dictionaries. The module itself, and the names in its ``state_dict``, stay as they are, and so does
    what other threads call meanwhile; exports of several threads follow each other.

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
        number that follows from sizes, or a text of one that is no message, became a constant; or the
        module's Python has a branch on sizes, both ways of which are in the ranges.
    """
    import torch

    if module.training:
        raise ModelError("the model is in training mode; call model.eval() before the export")
    args, kwargs = with_own_examples((tuple(args), dict(kwargs or {})))
    branches: list[SizeBranch] = []
    try:
        with (
            replaced(module),
            no_constants_of_sizes(),
            recorded_branches(module, branches),
            sizes_of_one_alike(),
            windows_of_all_sizes(),
            torch.no_grad(),  # loops of whole numbers have no gradients, which PyTorch would look for
            _quiet(),
        ):
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
        raise ModelError(f"torch.export: {_reason(error, branches)}") from error
    names = _dimension_names(program, module, args, kwargs, dynamic_shapes)
    _begin_at_one(program, names)
    refuse_branches(branches, program, names)
    name_dimensions(program, names)
    _without_classes(program)
    return program


def _without_classes(program: Any) -> None:
    """Make dictionaries of records in a program's inputs and outputs, whose classes readers may not have."""
    from torch.utils import _pytree as trees

    signature = program.module_call_graph[0].signature
    signature.in_spec, signature.out_spec = _plain_tree(signature.in_spec), _plain_tree(signature.out_spec)
    if program.example_inputs is not None:
        leaves = trees.tree_leaves(program.example_inputs)
        program.example_inputs = trees.tree_unflatten(leaves, signature.in_spec)


def _plain_tree(spec: Any) -> Any:
    if spec.is_leaf():
        return spec
    children = [_plain_tree(one) for one in children_of(spec)]
    if spec.type in (tuple, list, dict, OrderedDict):
        return type(spec)(spec.type, spec.context, children)
    keys = record_keys(spec)
    return type(spec)(*((tuple, None) if keys is None else (dict, keys)), children)


def _begin_at_one(program: Any, names: Mapping[str, str]) -> None:
    """Let dimensions that have no name, and so no range, begin at 1."""
    for label, size in program_sizes(program):
        if label in names or isinstance(size, int) or not size.node.expr.is_Symbol:
            continue
        found = program.range_constraints.get(size.node.expr)
        if found is not None and found.lower == 0:
            program.range_constraints[size.node.expr] = type(found)(1, found.upper)


def _reason(error: Exception, branches: Sequence[SizeBranch]) -> str:
    """Return the line of PyTorch's message that says most, and the line of the model's source.

    Where PyTorch found after the export that a size became a constant, that is the first line that made one.
    """
    place = source_in("".join(traceback.format_tb(error.__traceback__))) or source_in(str(error))
    where = at(place or next((one.where for one in branches if one.is_constant), ""))
    if type(error).__name__ in _OF_VALUES:
        return (
            f"a branch or a size depends on values of tensors{where}; allowed: torch.where, torch.cond, and "
            "sizes that torch._check bounds"
        )
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "specialized" in line or "guard" in line]
    reason = (telling or lines or [type(error).__name__])[0]
    if "Suggested fixes:" in lines[:-1]:
        suggested = lines[lines.index("Suggested fixes:") + 1]
        reason += f"; PyTorch suggests {suggested}"
        name, _, size = suggested.partition(" = ")
        if size == "1":
            reason += f", as in the example; try one where {name} is 2 or more"
    return one_line(reason, 360) + where


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
    with warnings.catch_warnings(), redirect_stderr(OthersStream(sys.stderr)):
        warnings.simplefilter("ignore")
        for handler in handlers:
            handler.addFilter(_drops)
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(_drops)


def _drops(record: logging.LogRecord) -> bool:
    return not is_own_thread()


def _dimension_names(
    program: Any, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
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
