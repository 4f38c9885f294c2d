"""One library in PyTorch's dispatcher, whoever calls it: a kernel, a fake, and what is refused.

Imported where an operator is asked for, since it imports PyTorch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import ShapeError, TensorError
from dietcode.runtime.lean_call import Callee
from dietcode.runtime.manifest import CODE
from dietcode.runtime.tensors import check_storage
from dietcode.runtime.torch_registry import (  # first: it says what to install where PyTorch is missing
    NAMESPACE,
    REGISTRY,
    refuse_gradients,
    refuse_several_devices,
    refuse_vmap,
)
from dietcode.workload.quotient import Dim, QuotientDim, parse_dim

import torch  # isort: skip

_NUM_DIGEST_CHARS = 16
# What a manifest says of how a library is called; equal code may be of different names and ranges.
_FACTS = (
    *("argument_order", "binding", "dims", "inputs", "output", "outputs"),
    *("packed", "variable_order", "variables"),
)
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)
_operators: dict[str, RegisteredOperator] = {}


class RegisteredOperator:
    """One library in PyTorch's dispatcher, with a kernel, a fake and refusals.

    Its arguments are the tensors in the library's order, a constant followed by its shape before it was
    packed, then the shape variables that no tensor's shape determines. It returns the outputs that have
    memory of their own; those that are written to rows of a table change that argument.

    Attributes
    ----------
    name : str
        ``dietcode::NAME_DIGEST``, by the digest of the library's code and of how it is called.
    order : list of str
        All tensors.
    overload : torch._ops.OpOverload
        What is called.
    """

    def __init__(self, name: str, library: Callee) -> None:
        self.name = f"{NAMESPACE}::{name}"
        self.library = library
        manifest = library.manifest
        self.order: list[str] = manifest["argument_order"]
        self.keywords: tuple[str, ...] = tuple(manifest["binding"]["keywords"])
        self.constants = frozenset(manifest["packed"])
        self._dims: dict[str, Dim] = {k: parse_dim(text, f"dims.{k}") for k, text in manifest["dims"].items()}
        outputs: list[dict[str, Any]] = manifest.get("outputs", [manifest["output"]])
        # Of each output, the tensor whose rows it is written to; None for one of its own.
        self.tables: list[str | None] = [facts.get("into") for facts in outputs]
        self._new = [facts for facts in outputs if "into" not in facts]
        written = dict.fromkeys(table for table in self.tables if table is not None)
        mutable = {table: f"Tensor({chr(ord('a') + number)}!)" for number, table in enumerate(written)}
        parameters = []
        for tensor in self.order:
            parameters.append(f"{mutable.get(tensor, 'Tensor')} {tensor}")
            if tensor in self.constants:
                parameters.append(f"SymInt[] {self._shape_name(tensor)}")
        parameters += [f"SymInt {variable}" for variable in self.keywords]
        returned = "Tensor" if len(self._new) == 1 else f"({', '.join(['Tensor'] * len(self._new))})"
        REGISTRY.define(f"{name}({', '.join(parameters)}) -> {returned}")
        REGISTRY.impl(name, self._run, "CUDA" if "cuda" in manifest["requires"] else "CPU")
        REGISTRY.impl(name, self._refuse_gradients, "Autograd")
        for device in ("CPU", "CUDA"):
            REGISTRY.impl(name, self._cast, f"Autocast{device}")
        REGISTRY.impl(name, self._refuse_vmap, "FuncTorchBatched")
        torch.library.register_fake(self.name, self._fake, lib=REGISTRY)
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default

    def arguments(
        self, tensors: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], values: Mapping[str, Any]
    ) -> list[Any]:
        """Return the operator's arguments.

        Parameters
        ----------
        tensors : mapping of str to torch.Tensor
            All, constants packed.
        shapes : mapping of str to sequence of int
            Of each constant, before it was packed.
        values : mapping of str to int
            Of the shape variables that no tensor's shape determines.
        """
        given: list[Any] = []
        for name in self.order:
            given.append(tensors[name])
            if name in self.constants:
                given.append(shapes[name])
        return given + [values[name] for name in self.keywords]

    def _shape_name(self, constant: str) -> str:
        """Return the name of the parameter for a constant's shape, which is no other one's."""
        name = f"{constant}_shape"
        while name in self.order or name in self.keywords:
            name += "_"
        return name

    def _split(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any], Sequence[Any]]:
        """Return tensors, their shapes before packing, and values of the keywords."""
        rest = iter(arguments)
        tensors, shapes = [], []
        for name in self.order:
            tensors.append(next(rest))
            shapes.append(tuple(next(rest)) if name in self.constants else tensors[-1].shape)
        return tensors, shapes, list(rest)

    def packed(self, name: str, tensor: torch.Tensor, shape: Sequence[int] | None) -> Any:
        """Return a tensor as the library takes it: a constant's buffer as a `Packed` of that memory."""
        if name not in self.constants:
            return tensor
        dtype = self.library.manifest["inputs"][name]["dtype"]
        if tensor.dtype is not getattr(torch, dtype):
            raise TensorError(
                f"{name}: packed for {self.name}, and then converted to {tensor.dtype}; allowed: {dtype}"
            )
        check_storage(name, tensor)
        return self.library.packed_tensor(name, shape or (), tensor)

    def __deepcopy__(self, memo: dict[int, Any]) -> RegisteredOperator:
        """Return itself: there is one of each in PyTorch's dispatcher."""
        return self

    def results(self, returned: Any, tensors: Mapping[str, Any]) -> Any:
        """Return what the library would: one output, or a tuple of several, tables among them.

        Parameters
        ----------
        returned : torch.Tensor or sequence of torch.Tensor
            By the operator.
        tensors : mapping of str to torch.Tensor
            The arguments.
        """
        new = iter([returned] if len(self._new) == 1 else returned or ())
        found = tuple(next(new) if table is None else tensors[table] for table in self.tables)
        return found[0] if len(found) == 1 else found

    def _run(self, *arguments: Any) -> Any:
        tensors, shapes, keywords = self._split(arguments)
        named: dict[str, Any] = dict(zip(self.keywords, keywords, strict=True))
        for name, tensor, shape in zip(self.order, tensors, shapes, strict=True):
            plain = tensor.detach()
            if name not in self.tables:
                check_storage(name, plain)
                plain = plain.resolve_neg().contiguous()
            named[name] = self.packed(name, plain, shape)
        results = self.library(**named)
        each = results if isinstance(results, tuple) else (results,)
        own = [one for one, table in zip(each, self.tables, strict=True) if table is None]
        # Where all tensors are constants, or none is torch's, the library returns arrays.
        found = tuple(one if isinstance(one, torch.Tensor) else torch.from_numpy(one) for one in own)
        return None if not found else found[0] if len(found) == 1 else found

    def _refuse_gradients(self, *arguments: Any) -> Any:
        tensors = dict(zip(self.order, self._split(arguments)[0], strict=True))
        refuse_gradients(self.name, tensors)
        with torch._C._AutoDispatchBelowAutograd():
            returned = self.overload(*arguments)
        for table in {table for table in self.tables if table is not None}:
            if not tensors[table].is_inference():
                torch.autograd.graph.increment_version(tensors[table])
        return returned

    def _cast(self, *arguments: Any) -> Any:
        """Under `torch.autocast` inputs of another floating dtype are converted; no constant, no table."""
        rest, given = iter(arguments), list[Any]()
        for name in self.order:
            tensor = next(rest)
            dtype = getattr(torch, self.library.manifest["inputs"][name]["dtype"])
            is_free = name not in self.constants and name not in self.tables
            casts = is_free and tensor.is_floating_point() and dtype.is_floating_point
            given.append(tensor.to(dtype) if casts else tensor)
            if name in self.constants:
                given.append(next(rest))
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return self.overload(*given, *rest)

    def _refuse_vmap(self, *arguments: Any) -> Any:
        refuse_vmap(self.name)

    def _fake(self, *arguments: Any) -> Any:
        """Each output of its own, its shape of symbols where the inputs' are.

        A shape that no call may have is refused.
        """
        tensors, shapes, keywords = self._split(arguments)
        refuse_several_devices(dict(zip(self.order, tensors, strict=True)))
        manifest = self.library.manifest
        by_name = dict(zip(self.order, shapes, strict=True))
        values = dict(zip(self.keywords, keywords, strict=True))
        for name, shape in by_name.items():
            indices = manifest["inputs"][name]["dims"]
            if len(shape) != len(indices):
                raise ShapeError(
                    f"{name}: shape {list(shape)}; allowed: {len(indices)} dimensions ({indices})"
                )
        for step in manifest["binding"]["steps"]:
            dim = parse_dim(step["dim"], "dims")
            at_zero = _extent(dim, values | {step["variable"]: 0})
            slope = _extent(dim, values | {step["variable"]: 1}) - at_zero
            values[step["variable"]] = (by_name[step["tensor"]][step["axis"]] - at_zero) // slope
        for name, facts in manifest["variables"].items():
            said = f"{name}: outside {facts['min']}…{facts['max']}, for which {self.name} was tuned"
            torch._check(values[name] >= facts["min"], lambda said=said: said)
            torch._check(values[name] <= facts["max"], lambda said=said: said)
        for name, shape in by_name.items():
            for axis, index in enumerate(manifest["inputs"][name]["dims"]):
                said = f"{name}: extent {shape[axis]} of axis {axis}; allowed: {self._dims[index]}"
                torch._check(shape[axis] == _extent(self._dims[index], values), lambda said=said: said)
        found = tuple(
            tensors[0].new_empty(
                [_extent(self._dims[index], values) for index in facts["dims"]],
                dtype=getattr(torch, facts["dtype"]),
            )
            for facts in self._new
        )
        return None if not found else found[0] if len(found) == 1 else found


def _extent(dim: Dim, values: Mapping[str, Any]) -> Any:
    """The value of a dimension, a symbol where those of its variables are."""
    if isinstance(dim, QuotientDim):
        return (_extent(dim.plus, values) - _extent(dim.minus, values)) // dim.divisor
    total: Any = 0
    for coefficient, monomial in dim.terms:
        product: Any = coefficient
        for name, power in monomial:
            product = product * values[name] ** power
        total = total + product
    return total


def operator_of(library: Callee) -> RegisteredOperator:
    """The operator of a library, entered into PyTorch's dispatcher the first time.

    Libraries of the same code are of one operator only where they are called alike.
    """
    manifest = library.manifest
    facts = {"code": manifest["files"][CODE]["sha256"]} | {key: manifest.get(key) for key in _FACTS}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:_NUM_DIGEST_CHARS]
    name = f"{re.sub('[^A-Za-z0-9]', '_', manifest['name'])}_{digest}"
    name = name if name[0].isalpha() else f"library_{name}"
    if name not in _operators:
        _operators[name] = RegisteredOperator(name, library)
    return _operators[name]
