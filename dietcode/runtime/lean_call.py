"""The short way of a call: what came before in these shapes is looked up, not checked again.

`dietcode.runtime.compiled` has it in C for what is most common; this is its reference, and takes the rest.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from dietcode.errors import TensorError
from dietcode.runtime.compiled import CalledInC, CompiledCall
from dietcode.runtime.tensors import BFLOAT16, DTYPES, Packed, aligned_empty, ends_in_storage, note_written

_SMALL_BYTES = 1 << 14  # below it an output's alignment does not matter
Shapes = Mapping[Any, tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]]


class Callee(Protocol):
    """What is called: a `dietcode.runtime.library.Library`."""

    manifest: dict[str, Any]
    lean: Callable[[Sequence[Any], tuple[Any, ...], Any], Any]
    compiled: CompiledCall | None

    def __call__(self, *, out: Any = None, **arguments: Any) -> Any: ...

    def call_checked(self, out: Any, arguments: dict[str, Any]) -> Any: ...

    def pack(self, **constants: Any) -> Any: ...

    def packed_tensor(self, name: str, shape: Sequence[int], data: Any) -> Packed: ...

    def bind(self, **bound: Any) -> Bound: ...


def _is_looked_at(torch: Any) -> bool:
    """Whether calls are recorded, or tensors may carry tangents."""
    return torch._C._get_tracing_state() is not None or torch.autograd.forward_ad._current_level >= 0


class NotLeanError(Exception):
    """A call for the long way, which knows what is wrong with it, if anything is."""


class LeanCall:
    """Calls of one library that check only what its generated code does not.

    Generated code refuses a wrong dtype, device, layout or extent. What it takes without a word is looked at
    here: gradients, classes that give an operation another meaning, views that stand for other values,
    storages that were made shorter, a trace that would record nothing, values of shape variables, and an
    output that overlaps another tensor.

    Parameters
    ----------
    runs : (callable, callable)
        The library's function, of tensors, outputs and values of the shape variables; first for calls without
        PyTorch's tensors, then for those with some.
    packed : sequence of (str, str) or None
        Of each tensor, its name and the layout that it has to be packed in.
    dtypes : sequence of str
        Of each tensor, and of each output.
    shapes : mapping
        Filled by the long way: values of the shape variables and shapes of the outputs, by shapes and
        keywords.
    into : sequence of int
        Of each output, the number of the tensor that it is written to; -1 for one of its own.
    """

    def __init__(
        self,
        runs: tuple[Callable[..., Any], Callable[..., Any]],
        packed: Sequence[tuple[str, str] | None],
        dtypes: Sequence[str],
        shapes: Shapes,
        into: Sequence[int],
    ) -> None:
        self._run, self._run_beside_torch = runs
        self._packed = tuple(packed)
        self._shapes = {} if BFLOAT16 in dtypes else shapes  # whose bits have to be taken out
        self._outputs = [(dtype, DTYPES[dtype]) for dtype in dtypes[len(self._packed) :]]
        self._is_one = len(self._outputs) == 1
        self._into = tuple(into) if max(into) >= 0 else None
        self._has_one_dtype = len(set(dtypes)) == 1

    def __call__(self, tensors: Sequence[Any], keywords: tuple[Any, ...], out: Any) -> Any:
        """Return the result, a tuple of several; raises anything at all where it is for the long way."""
        torch = sys.modules.get("torch")
        torch_tensor = None if torch is None else torch.Tensor
        natives, key, some_torch = [], [], None
        for tensor, packed in zip(tensors, self._packed):  # noqa: B905 - as long: both are of one order
            kind = type(tensor)
            if kind is Packed:
                if (tensor.name, tensor.layout) != packed:
                    raise NotLeanError
                natives.append(tensor.native)
            elif packed is not None:
                raise NotLeanError
            else:
                if kind is torch_tensor:
                    if tensor.requires_grad or tensor.is_neg():
                        raise NotLeanError
                    some_torch = tensor
                elif kind is not np.ndarray:
                    raise NotLeanError
                natives.append(tensor)
            key.append(tensor.shape)
        if keywords and any(type(value) is not int for value in keywords):
            raise NotLeanError
        if some_torch is not None and (
            _is_looked_at(torch)
            or not all(ends_in_storage(tensor) for tensor in tensors if type(tensor) is torch_tensor)
        ):
            raise NotLeanError
        key.append(keywords)
        values, shapes = self._shapes[tuple(key)]
        if out is None and self._into is None:
            outputs = [self._new(*facts, torch, some_torch) for facts in zip(shapes, self._outputs)]  # noqa: B905
        else:
            outputs = self._settled(out, (torch, some_torch), tensors, shapes)
            note_written(outputs)
        run = self._run if some_torch is None else self._run_beside_torch
        run(*natives, *outputs, *values)
        return outputs[0] if self._is_one else tuple(outputs)

    def _settled(
        self, out: Any, torch: tuple[Any, Any], inputs: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> list[Any]:
        """Return the outputs, some of which are given, or are inputs.

        Parameters
        ----------
        torch : (module, tensor)
            PyTorch, and one of its tensors among the inputs; None for each that is not there.
        """
        torch_tensor = None if torch[0] is None else torch[0].Tensor
        into = self._into or (-1,) * len(self._outputs)
        given = [None] * len(into) if out is None else [out] if self._is_one else self._listed(out)
        outputs: list[Any] = []
        for one, number, shape, facts in zip(given, into, shapes, self._outputs, strict=True):
            output = inputs[number] if number >= 0 else one
            if output is None and out is None:
                outputs.append(self._new(shape, facts, *torch))
                continue
            others = [tensor for i, tensor in enumerate(inputs) if i != number] + outputs
            is_same = out is None or output is one
            if not is_same or not _may_be_written(output, torch_tensor, others):
                raise NotLeanError
            outputs.append(output)
        return outputs

    def _listed(self, out: Any) -> list[Any]:
        if type(out) not in (tuple, list) or len(out) != len(self._outputs):
            raise NotLeanError
        return list(out)

    def _new(self, shape: tuple[int, ...], facts: tuple[str, Any], torch: Any, like: Any) -> Any:
        dtype, kind = facts
        if like is not None:
            return like.new_empty(shape, dtype=None if self._has_one_dtype else getattr(torch, dtype))
        if math.prod(shape) * kind.itemsize > _SMALL_BYTES:
            return aligned_empty(shape, dtype=dtype)
        return np.empty(shape, kind)


def _may_be_written(out: Any, torch_tensor: Any, inputs: Sequence[Any]) -> bool:
    """Whether `out` is a plain tensor that shares no memory with an input; False for mixed kinds, too."""
    if type(out) is np.ndarray:
        for tensor in inputs:
            array = tensor.data if type(tensor) is Packed else tensor
            if type(array) is not np.ndarray or np.may_share_memory(out, array):
                return False
        return True
    if type(out) is not torch_tensor or out.requires_grad or out.is_neg() or not ends_in_storage(out):
        return False
    first = out.data_ptr()
    end = first + out.nbytes
    for tensor in inputs:
        if type(tensor) is torch_tensor:
            low, num_bytes = tensor.data_ptr(), tensor.nbytes
        elif type(tensor) is Packed:
            low, high = tensor.span
            num_bytes = high - low
        else:
            return False
        if low < end and first < low + num_bytes:
            return False
    return True


def check_bound(what: str, bound: Iterable[str], order: Sequence[str], constants: Iterable[str]) -> None:
    """Check that every constant is bound, and nothing that is no tensor of the library.

    Parameters
    ----------
    what : str
        The function that binds, for the message.
    bound, order, constants : iterable of str
        What is given; all tensors; those that have to be given.

    Raises
    ------
    TensorError
        Otherwise.
    """
    unknown, missing = set(bound) - set(order), set(constants) - set(bound)
    if unknown or missing:
        wrong = f"{min(unknown)}: unknown" if unknown else f"{min(missing)}: a constant, and missing"
        raise TensorError(f"{what}: {wrong}; allowed: {', '.join(order)}")


class Bound(CalledInC):
    """A library with some tensors bound: ``f(X, out=Y)``, the others by position, in the order of the spec.

    Made by `Library.bind`. What is bound is not copied, but for constants, which are packed.

    Attributes
    ----------
    attempt : callable
        The short way alone, of a tuple of tensors and a dict of what is named; it returns NotImplemented for
        a call that is for the long way.
    """

    def __init__(self, library: Callee, bound: Mapping[str, Any]) -> None:
        self._library, self._call = library, library.lean
        order: list[str] = library.manifest["argument_order"]
        packed = library.manifest["packed"]
        check_bound("bind", bound, order, packed)
        self._bound = {
            name: library.pack(**{name: value}) if name in packed and not isinstance(value, Packed) else value
            for name, value in bound.items()
        }
        self._free = [name for name in order if name not in bound]
        self._keywords: list[str] = library.manifest["binding"]["keywords"]
        self._template = [self._bound.get(name) for name in order]
        self._positions = [order.index(name) for name in self._free]
        self.compiled = None if library.compiled is None else library.compiled.bind(self._bound)
        self.attempt: Callable[[tuple[Any, ...], dict[str, Any]], Any] = (
            self.attempt_in_python if self.compiled is None else self.compiled.attempt
        )

    def __reduce__(self) -> tuple[type[Bound], tuple[Any, ...]]:
        """Return what `pickle` keeps: the library, by its folder, and what is bound."""
        return type(self), (self._library, self._bound)

    def __call__(self, *tensors: Any, out: Any = None, **variables: int) -> Any:
        """Compute the operator.

        Parameters
        ----------
        *tensors : tensor
            Those that are not bound, in the order of the spec.
        out : tensor, optional
            As for a call of the library.
        **variables : int
            Shape variables that no tensor's shape determines.

        Raises
        ------
        TensorError, ShapeError
            As a call of the library.
        """
        result = self.attempt_in_python(tensors, variables, out)
        if result is not NotImplemented:
            return result
        if len(tensors) != len(self._free):
            raise TensorError(
                f"given {len(tensors)} tensors; allowed: {', '.join(self._free) or 'none'}, in this order"
            )
        named = dict(zip(self._free, tensors, strict=True))
        return self._library.call_checked(out, {**self._bound, **named, **variables})

    def __copy__(self) -> Bound:
        """Return itself: nothing in it changes."""
        return self

    def attempt_in_python(self, tensors: Sequence[Any], variables: Mapping[str, int], out: Any = None) -> Any:
        """Compute the operator the short way; NotImplemented for a call that is for the long way."""
        if len(tensors) != len(self._free) or len(variables) != len(self._keywords):
            return NotImplemented
        arguments = self._template.copy()
        for position, tensor in zip(self._positions, tensors):  # noqa: B905 - as long
            arguments[position] = tensor
        try:
            return self._call(arguments, tuple([variables[name] for name in self._keywords]), out)
        except Exception:
            return NotImplemented
