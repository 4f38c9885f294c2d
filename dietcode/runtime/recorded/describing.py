"""What a region is given, as data: its variants are told apart by it."""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import Any

from dietcode.runtime import recorder

Handle = recorder.Handle
Spec = Any  # nested lists of texts and numbers, as JSON has them
DTYPES = ("float32", "bool", "int64", "int32")
_MOST_DEPTH, _MOST_LEAVES, _MOST_LETTERS = 8, 64, 200
_MISSING = object()
_SCALARS = (int, float, bool, str, type(None))


class UndescribedError(Exception):
    """An argument that no variant may have."""


@dataclass
class DescribedArguments:
    """The arguments of a region.

    Attributes
    ----------
    specs : list of Spec
        Of each ``["root", name]``, ``["equal", type, text]``, ``["dtype", name]``,
        ``["tensor", dtype, shape]``, ``["int"]``, ``["float"]``, ``["tuple" or "list", [specs]]``,
        ``["record", class, [specs]]`` or ``["slice", [specs]]``; at the end ``["own", name]``, of what the
        region itself reads.
    leaves : list of object
        Tensors and numbers, in order.
    roots : list of object
        What specs call ``root`` or ``dtype``, and classes of records, in order.
    """

    specs: list[Spec] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)
    roots: list[Any] = field(default_factory=list)


def describe(
    args: Sequence[Any], fixed: Callable[[int], bool], name_of: Callable[[Any], str], function: Any
) -> DescribedArguments:
    """Return the arguments of a region as data.

    Parameters
    ----------
    args : sequence
    fixed : callable
        Whether the whole number at a position among the leaves stands for itself, as a size does.
    name_of : callable
        ``(root) -> str``: what tells apart what is computed with a root; the same for two modules of one
        class and of the same sizes.
    function : function
        The region's.

    Raises
    ------
    UndescribedError
        One of them is of another kind.
    """
    describing = _Describing(fixed, name_of)
    found = describing.found
    found.specs = [describing.spec(one, 0) for one in args]
    found.specs.append(["own", name_of(function)])
    if len(found.leaves) > _MOST_LEAVES:
        raise UndescribedError("more tensors and numbers than a block takes")
    return found


class _Describing:
    """Describes arguments one after the other."""

    def __init__(self, fixed: Callable[[int], bool], name_of: Callable[[Any], str]) -> None:
        self.found = DescribedArguments()
        self._fixed, self._name_of = fixed, name_of

    def spec(self, value: Any, depth: int) -> Spec:
        """Return a value as data."""
        import torch

        if type(value) is Handle and value.tensor is None:  # whose class would be asked of its value
            return self._tensor(value, DTYPES[value.dtype_code], list(value.type_shape), ("int64",))
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype not in DTYPES or value.device.type != "cpu" or value.layout is not torch.strided:
                raise UndescribedError(f"a tensor {dtype} on {value.device}")
            return self._tensor(value, dtype, list(value.shape), ("int64", "int32"))
        if type(value) in (int, float):
            return self._number(value)
        if value is None or type(value) in (bool, str):
            return ["equal", type(value).__name__, str(value)]
        if isinstance(value, torch.dtype | torch.device):
            return self._root("dtype", value, str(value))
        return self._composed(value, depth)

    def _tensor(self, value: Any, dtype: str, shape: list[int], whole: Sequence[str]) -> Spec:
        self.found.leaves.append(value)
        return ["int"] if dtype in whole and not shape else ["tensor", dtype, shape]

    def _number(self, value: float) -> Spec:
        word = type(value).__name__
        if self._fixed(len(self.found.leaves)):
            return ["equal", word, value.hex() if isinstance(value, float) else str(value)]
        self.found.leaves.append(value)
        return [word]

    def _root(self, word: str, value: Any, name: str) -> Spec:
        self.found.roots.append(value)
        return [word, name]

    def _composed(self, value: Any, depth: int) -> Spec:
        """Return a value that has others, or is a module or a function."""
        if depth > _MOST_DEPTH:
            raise UndescribedError("values that are nested deeply")
        if type(value) in (tuple, list):
            return [type(value).__name__, self._inner(value, depth)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [*self._root("record", type(value), _class_name(type(value))), self._inner(value, depth)]
        if type(value) is slice:
            return ["slice", self._inner((value.start, value.stop, value.step), depth)]
        if callable(value):
            return self._root("root", value, self._name_of(value))
        raise UndescribedError(f"an object {type(value).__name__}")

    def _inner(self, values: Sequence[Any], depth: int) -> list[Spec]:
        return [self.spec(one, depth + 1) for one in values]


def _class_name(cls: type) -> str:
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__qualname__}"


class _OuterVariables:
    """What a function reads of outer functions, as a mapping."""

    def __init__(self, function: FunctionType) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def get(self, name: str, default: Any) -> Any:
        """Return the value of a variable, or a default where it has none yet."""
        try:
            return self._cells[name].cell_contents
        except ValueError:
            return default


class Names:
    """Names of roots, which are the same where what is computed is the same but for weights.

    They hold as long as nothing that they are made of has another value: fields of modules, methods of their
    classes, what functions read of their files and of outer functions.

    Parameters
    ----------
    assigned : collection of str
        Attributes that functions set: no region reads them.
    """

    def __init__(self, assigned: Collection[str]) -> None:
        self._assigned = assigned
        self._known: dict[int, tuple[Any, str]] = {}
        self._reads: list[tuple[Any, str, Any]] = []

    def __call__(self, value: Any) -> str:
        """Return the name of a root."""
        known = self._known.get(id(value))
        if known is None:
            self._known[id(value)] = value, "itself"  # where it reads itself
            known = self._known[id(value)] = value, self._name(value)
        return known[1]

    def are_valid(self) -> bool:
        """Whether all that they are made of is as it was."""
        return all(one.get(name, _MISSING) is value for one, name, value in self._reads)

    def _read(self, place: Any, name: str) -> Any:
        value = place.get(name, _MISSING)
        self._reads.append((place, name, value))
        return value

    def _name(self, value: Any) -> str:
        import torch

        if isinstance(value, torch.nn.Module):
            return _short("; ".join(self._parts_of_module(value)))
        if isinstance(value, MethodType):
            return f"{self(value.__func__)} of {self(value.__self__)}"
        inner = getattr(value, "function", None)
        if inner is not None and not hasattr(value, "eager") and isinstance(inner, FunctionType):
            return f"block {self(inner)}"
        if isinstance(value, FunctionType):
            return f"{value.__qualname__}({_short(', '.join(self._parts_of_function(value)))})"
        return self._value_name(value)

    def _value_name(self, value: Any) -> str:
        import torch

        if isinstance(value, torch.Tensor):
            return f"{value.dtype}{list(value.shape)}"
        qualname = type(value).__qualname__
        if hasattr(value, "__dict__") and not callable(value):
            fields = (f"{name}={self(self._read(vars(value), name))}" for name in sorted(vars(value)))
            return f"{qualname}({', '.join(fields)})"
        if _is_plain(value):
            return _plain(value)
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', qualname)}"

    def _parts_of_module(self, module: Any) -> Iterator[str]:
        for path, one in module.named_modules():
            yield f"{path}:{type(one).__qualname__}"
            own = vars(one)
            for name in sorted(own):
                if name not in self._assigned and not name.startswith("_"):
                    value = self._read(own, name)
                    if _is_plain(value):
                        yield f"{name}={_plain(value)}"
            for group in (one._parameters, one._buffers, one._modules):
                for name in group:
                    value = self._read(group, name)
                    yield f"{name}:{getattr(value, 'dtype', None)}{list(getattr(value, 'shape', ()))}"
            yield from self._parts_of_class(type(one))

    def _parts_of_class(self, cls: type) -> Iterator[str]:
        for one in cls.__mro__:
            if one.__module__.startswith(("torch.", "builtins")):
                continue
            for name in sorted(vars(one)):
                value = vars(one)[name]
                if isinstance(value, FunctionType) and name != "__init__":
                    yield f"{name}={self(self._read(vars(one), name))}"
                elif _is_plain(value) and not name.startswith("__") and name not in self._assigned:
                    yield f"{name}={_plain(self._read(vars(one), name))}"

    def _parts_of_function(self, function: FunctionType) -> Iterator[str]:
        import torch

        code = function.__code__
        for place, names in (
            (_OuterVariables(function), code.co_freevars),
            (function.__globals__, code.co_names),
        ):
            for name in names:
                if place is function.__globals__ and name not in function.__globals__:
                    continue  # an attribute, or one of Python's own
                value = self._read(place, name)
                if isinstance(value, ModuleType) and not _is_installed(value):
                    yield from self._parts_of_file(value, code.co_names)
                elif isinstance(value, torch.nn.Module | torch.Tensor | FunctionType) or _is_plain(value):
                    yield f"{name}={self(value)}"

    def _parts_of_file(self, module: ModuleType, names: Sequence[str]) -> Iterator[str]:
        import torch

        for name in names:
            value = vars(module).get(name)
            if isinstance(value, torch.nn.Module | FunctionType) or (value is not None and _is_plain(value)):
                yield f"{module.__name__}.{name}={self(self._read(vars(module), name))}"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_installed(module: ModuleType) -> bool:
    """Whether a module is of Python, or of a package that is installed: these do not change."""
    file = getattr(module, "__file__", None)
    return file is None or "site-packages" in file or file.startswith(sys.base_prefix)


def _is_plain(value: Any) -> bool:
    """Whether a value is a number or text, or has such alone, whose words are the same in every process."""
    if type(value) in (tuple, list):
        return len(value) <= _MOST_LEAVES and all(map(_is_plain, value))
    return type(value) in _SCALARS


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return struct.pack("d", value).hex()
    return repr(value)[:200]


def captured(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the modules, functions and tensors that a function reads of outer functions, with names."""
    import torch

    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if value is not function and isinstance(value, torch.nn.Module | torch.Tensor | FunctionType):
            yield name, value


def tensors_of(root: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the tensors that a root has: weights of a module, and what a function reads of outer ones.

    Yields
    ------
    (str, torch.Tensor)
        The way from the root to it.
    """
    import torch

    if isinstance(root, torch.Tensor):
        yield "", root
    elif isinstance(root, torch.nn.Module):
        yield from root.named_parameters(remove_duplicate=False)
        yield from root.named_buffers(remove_duplicate=False)
    elif isinstance(root, MethodType):
        yield from ((f"self.{name}", one) for name, one in tensors_of(root.__self__, depth))
        yield from tensors_of(root.__func__, depth)
    elif isinstance(root, FunctionType) and depth < 4:
        for name, value in [*captured(root), *read_globals(root)]:
            yield from ((f"{name}.{inner}".rstrip("."), one) for inner, one in tensors_of(value, depth + 1))
    elif isinstance(getattr(root, "function", None), FunctionType) and depth < 4:
        yield from tensors_of(root.function, depth + 1)
    elif hasattr(root, "__dict__") and not isinstance(root, type | ModuleType | FunctionType) and depth < 4:
        for name, value in sorted(vars(root).items()):
            if isinstance(value, torch.nn.Module | torch.Tensor):
                yield from (
                    (f"{name}.{inner}".rstrip("."), one) for inner, one in tensors_of(value, depth + 1)
                )


def read_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the modules, functions and tensors of its file that a function reads."""
    import torch

    space = function.__globals__
    for name in function.__code__.co_names:
        value = space.get(name)
        is_own = isinstance(value, FunctionType) and value.__globals__ is space and value is not function
        if isinstance(value, torch.nn.Module | torch.Tensor) or is_own:
            yield name, value
