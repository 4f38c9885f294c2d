"""Runs of tensor code as graphs of one instance, by ``torch.export``, with the weights that they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dietcode.errors import ModelError
from dietcode.graph.graph import Graph
from dietcode.models.exporting import export
from dietcode.models.importing.exported import import_exported
from dietcode.models.nested import renamed
from dietcode.programs.kinds import NUMBERS, Kind, is_tensor_kind, words
from dietcode.programs.sources import is_module, is_tensor
from dietcode.programs.values import KnownValue, OperationGroup, Pending, arguments_of, leaves_of, resolved

Type = tuple[str, tuple[int, ...]]
ADVICE = (
    "tensor code has fixed shapes and does not depend on values; what does is plain Python of the program"
)


class WeightNames:
    """Weights by name, each array once."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._known: dict[Any, str] = {}

    def name_of(self, array: np.ndarray[Any, Any], wanted: str) -> str:
        """Return the name of an array; the same memory has the same name."""
        key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
        if key not in self._known:
            name, number = wanted, 1
            while name in self.arrays:
                number += 1
                name = f"{wanted}.{number}"
            self._known[key] = name
            self.arrays[name] = array
        return self._known[key]


def type_of(kind: Kind) -> Type:
    """Return the type of what a block is given or gives: dtype and shape.

    Raises
    ------
    ModelError
        A table cannot have such rows.
    """
    if kind in ("int", "bool"):
        return "int32", ()
    if kind in ("float", "number"):
        return "float32", ()
    if is_tensor_kind(kind) and kind[1] in ("float32", "bool", "int32"):  # tables have numbers
        return "float32", kind[2]
    raise ModelError(f"{words(kind)} goes from one block to another; allowed: float32, and whole numbers")


def result_type_of(kind: Kind) -> Type:
    """Return the type of what a block gives: a whole number is float32, exact up to 2²⁴."""
    return ("float32", ()) if kind == "int" else type_of(kind)


def export_group(group: OperationGroup, weights: WeightNames) -> Graph:
    """Return the graph of a block, of one instance: its inputs are ``a0``, ``a1``, … as the operands.

    Raises
    ------
    ModelError
        It cannot be exported, or has an unknown operator.
    """
    import torch

    module = _module_of(group)
    examples = [_example(one.kind, group) for one in group.operands]
    try:
        program = export(module, tuple(examples))
        with torch.no_grad():
            graph, arrays = import_exported(program, "block", {})
    except ModelError as error:
        raise ModelError(f"{group.where}: {error}; {ADVICE}") from error
    names = {one: f"v/{one}" for one in graph.types}
    names |= dict(zip(graph.inputs, (f"a{at}" for at in range(len(examples))), strict=True))
    for name, array in arrays.items():
        words_of = name.split(".", 1)
        root = module.names.get(words_of[0], words_of[0])
        names[name] = weights.name_of(array, ".".join([root, *words_of[1:]]))
    found = renamed(graph, names)
    leaves = "*" if len(found.outputs) == 1 else {"tuple": ["*"] * len(found.outputs)}
    found.signature = {"positional": list(found.inputs), "keyword": {}, "output": leaves}
    found.nodes = [
        node
        if node.source and not node.source.startswith(("exporting.py", "tensor_calls.py"))
        else replace(node, source=group.where)
        for node in found.nodes
    ]
    return found


def _example(kind: Kind, group: OperationGroup) -> Any:
    import torch

    if kind in ("int", "bool"):
        return torch.zeros((), dtype=torch.int64)
    if kind in NUMBERS or kind == "number":
        return torch.zeros(())
    if not is_tensor_kind(kind):
        raise ModelError(f"{group.where}: is given {words(kind)}; allowed: tensors and numbers")
    if kind[1] not in ("float32", "bool", "int32"):
        raise ModelError(f"{group.where}: is given {words(kind)}; allowed: float32; convert it before")
    return torch.zeros(kind[2])


def _known_of(group: OperationGroup) -> Iterator[KnownValue]:
    for one in group.operations:
        for argument in arguments_of(one):
            yield from (leaf for leaf in leaves_of(argument) if isinstance(leaf, KnownValue))


def _module_of(group: OperationGroup) -> Any:
    """Return a module whose ``forward`` takes the operands and returns the results."""
    import torch

    class Run(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.names: dict[str, str] = {}
            self._places: dict[int, str] = {}
            for known in _known_of(group):
                self._keep(known.value, known.name)
            for one in group.operations:
                owner = one.function if is_module(one.function) else getattr(one.function, "__self__", None)
                if is_module(owner):
                    self._keep(owner, one.name)
                for value in globals_of(one.function):
                    self._keep(value[1], value[0])
            self.training = False

        def _keep(self, value: Any, name: str) -> None:
            if id(value) in self._places or not (is_module(value) or is_tensor(value)):
                return
            place = f"part{len(self._places)}"
            self._places[id(value)] = place
            self.names[place] = _as_name(name)
            if is_module(value):
                if differs_in_training(value):
                    raise ModelError(f"{group.where}: {name} is in training mode; call {name}.eval()")
                self.add_module(place, value)
            elif isinstance(value, torch.nn.Parameter):
                self.register_parameter(place, value)
            else:
                self.register_buffer(place, value.detach())

        def forward(self, *operands: Any) -> Any:
            given = {one.number: value for one, value in zip(group.operands, operands, strict=True)}
            return run_group(group, given, self._of)

        def _of(self, known: KnownValue) -> Any:
            return getattr(self, self._places[id(known.value)]) if is_tensor(known.value) else known.value

    return Run()


def run_group(
    group: OperationGroup, given: dict[int, Any], known: Any = lambda one: one.value
) -> tuple[Any, ...]:
    """Compute a group's results.

    Parameters
    ----------
    group : OperationGroup
    given : dict of int to tensor
        The operands by their registers.
    known : callable
        What a `KnownValue` stands for.
    """
    made: dict[int, Any] = {}

    def find(leaf: Any) -> Any:
        if isinstance(leaf, Pending):
            found = made[id(leaf.operation)]
            for at in leaf.path:
                found = found[at]
            return found
        if isinstance(leaf, KnownValue):
            return known(leaf)
        own, dtype = given[leaf.number], leaf.kind[1] if is_tensor_kind(leaf.kind) else ""
        return own != 0 if dtype == "bool" else own.long() if dtype == "int32" else own

    for one in group.operations:
        made[id(one)] = one.function(
            *(resolved(argument, find) for argument in one.args),
            **{name: resolved(argument, find) for name, argument in one.kwargs.items()},
        )
    results = (find(one) for one in group.results)
    return tuple(one if one.is_floating_point() else one.float() for one in results)


def globals_of(function: Any) -> list[tuple[str, Any]]:
    """Return the modules and weights that a plain function names, with their names."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    space = function.__globals__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    pairs = [(name, space[name]) for name in code.co_names if name in space]
    pairs += [(name, cell.cell_contents) for name, cell in cells]
    found = [(name, value) for name, value in pairs if is_module(value) or is_tensor(value)]
    for _, value in pairs:
        inner = getattr(value, "function", value)
        if inner is not function and hasattr(inner, "__code__") and inner.__module__ == function.__module__:
            found += globals_of(inner)
    return found


def _as_name(text: str) -> str:
    plain = "".join(one if one.isalnum() or one in "._" else "_" for one in text)
    return plain.strip("._")[:60] or "constant"


def signature_of(graph: Graph, types: Sequence[Type]) -> str:
    """Return what is the same for two blocks that compute the same with the same weights."""
    import json

    names: dict[str, str] = {name: name for name in (*graph.inputs, *graph.weights)}
    for node in graph.nodes:
        for result in node.results:
            names[result] = f"r{len(names)}"
    own = renamed(graph, names)
    own.nodes = [replace(node, source="") for node in own.nodes]
    return json.dumps([own.to_json(), list(types)], sort_keys=True, default=str)


_ALIKE = (
    "linear",
    "sparse",
    "container",
    "conv",
    "normalization",
    "flatten",
    "pooling",
    "padding",
    "distance",
)


def differs_in_training(module: Any) -> bool:
    """Whether a module in training mode may compute something else than in evaluation.

    Layers of PyTorch's that are the same in both do not, nor does what is made of them alone; a class of the
    user's own may, and so may a hook, as that of `torch.nn.utils.spectral_norm`.
    """
    if not module.training:
        return False
    for one in module.modules():
        package, _, name = type(one).__module__.rpartition(".")
        is_alike = name in _ALIKE or (name == "activation" and type(one).__name__ not in _UNLIKE)
        is_alike |= name == "rnn" and not getattr(one, "dropout", 0)
        is_alike &= not one._forward_pre_hooks and not one._forward_hooks
        if one.training and not (package == "torch.nn.modules" and is_alike):
            return True
    return False


_UNLIKE = ("RReLU", "MultiheadAttention")
