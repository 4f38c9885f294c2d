"""What expressions of a program's functions give while samples run."""

from __future__ import annotations

import ast
import copy
import random
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinMethodType, CodeType, FrameType, MethodType, MethodWrapperType, ModuleType
from typing import Any

from dietcode.runtime.recorded.units import Replacement, SourceUnit, placeholder, preorder, unit_of

_MOST_KINDS, _MOST_ITEMS, _MOST_DEPTH, _MOST_OBJECTS = 64, 64, 6, 9
_SCALARS = (int, float, bool, type(None))


@dataclass
class Fact:
    """What an expression gave.

    Attributes
    ----------
    kinds : set
        As `kind_of` returns them.
    objects : dict
        Modules, functions and objects of classes, by what tells them apart.
    is_wild : bool
        Whether it gave more kinds or objects than are looked at.
    """

    kinds: set[Any] = field(default_factory=set)
    objects: dict[Any, Any] = field(default_factory=dict)
    is_wild: bool = False


def kind_of(value: Any, depth: int = 0) -> Any:
    """Return what a value is: a tuple that begins with a word.

    ``("tensor", dtype, shape)``, ``("scalar", type)``, ``("text", itself)``, ``("object",)`` of modules,
    functions and what else is compared by identity, ``("tuple" or "list", items)``,
    ``("record", class, items)`` of a named tuple, ``("slice", parts)``, or ``("other", type)``.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return _kind_of_tensor(value)
    if isinstance(value, str):
        return ("text", value) if type(value) is str and len(value) <= _MOST_ITEMS else ("other", type(value))
    if type(value) in _SCALARS:
        return ("scalar", type(value))
    if isinstance(value, torch.nn.Module | torch.dtype | torch.device | ModuleType) or callable(value):
        return ("object",)
    if type(value) is slice:
        return ("slice", tuple(kind_of(one) for one in (value.start, value.stop, value.step)))
    return _kind_of_items(value, depth)


def _kind_of_tensor(value: Any) -> Any:
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return ("other", type(value))
    return ("tensor", str(value.dtype).removeprefix("torch."), tuple(value.shape))


def _kind_of_items(value: Any, depth: int) -> Any:
    if isinstance(value, tuple | list) and depth < _MOST_DEPTH and len(value) <= _MOST_ITEMS:
        items = tuple(kind_of(one, depth + 1) for one in value)
        if type(value) in (tuple, list):
            return (type(value).__name__, items)
        if isinstance(value, tuple):
            return ("record", type(value), items)
    return ("other", type(value))


def identity_of(value: Any) -> tuple[Any, Any]:
    """Return what tells an object from others, and what it is known by: methods are made anew each time.

    A method of a tensor is known by its name.
    """
    import torch

    if isinstance(value, BuiltinMethodType | MethodWrapperType) and isinstance(value.__self__, torch.Tensor):
        return ("method", value.__name__), ("method", value.__name__)
    if isinstance(value, MethodType):
        return (id(value.__func__), id(value.__self__)), value
    return id(value), value


class Facts:
    """What is known of the expressions of units.

    Attributes
    ----------
    of : dict of (int, int) to Fact
        By unit and the position of the node.
    changed : set of int
        Addresses of storages that are changed in place: by an assignment to items, ``+=`` or a method whose
        name ends with ``_``.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], Fact] = defaultdict(Fact)
        self.changed: set[int] = set()
        self.shared = SharedState()

    def see(self, unit: int, number: int, value: Any) -> Any:
        """Note what an expression gave, and return it."""
        fact = self.of[unit, number]
        if fact.is_wild:
            return value
        kind = kind_of(value)
        fact.kinds.add(kind)
        if kind[0] == "object" or (kind[0] == "other" and hasattr(value, "__dict__")):
            key, known = identity_of(value)
            if len(fact.objects) < _MOST_OBJECTS:
                fact.objects[key] = known
        fact.is_wild = len(fact.kinds) > _MOST_KINDS
        return value

    def see_changed(self, value: Any, *passed: Any) -> Any:
        """Note that what is before an assignment in place is changed; return it, or what is passed."""
        import torch

        if isinstance(value, torch.Tensor):
            self.changed.add(value.untyped_storage().data_ptr())
        return passed[0] if passed else value


@dataclass
class _Access:
    """How an attribute of one object is used: by instance, what came first."""

    value: Any
    first: dict[int, str] = field(default_factory=dict)
    is_read: bool = False


class SharedState:
    """Attributes that functions set of objects which instances share, as ``self.hidden`` of a module.

    Instances that wait let others run, which must not see what they set.
    """

    def __init__(self) -> None:
        self.instance = 0
        self._known: dict[tuple[int, str], _Access] = {}

    def see(self, value: Any, name: str, kind: str) -> Any:
        """Note that an attribute is read ("load"), set ("store"), or both ("add"); return the object."""
        access = self._known.setdefault((id(value), name), _Access(value))
        access.first.setdefault(self.instance, kind)
        access.is_read |= kind == "load"
        return value

    def _of_all(self) -> Iterator[tuple[str, _Access]]:
        import torch

        for (_, name), one in self._known.items():
            is_shared = isinstance(one.value, torch.nn.Module | type | ModuleType) or len(one.first) > 1
            if is_shared and any(kind != "load" for kind in one.first.values()):
                yield name, one

    @property
    def own(self) -> set[str]:
        """Attributes that each instance sets before it reads them: it may have its own."""
        return {name for name, one in self._of_all() if all(kind == "store" for kind in one.first.values())}

    @property
    def passed_on(self) -> set[str]:
        """Attributes that an instance reads as the one before left them; not what is only counted up."""
        return {
            name
            for name, one in self._of_all()
            if one.is_read and any(kind != "store" for kind in one.first.values())
        }


# Of these nodes, only what these fields have is seen: defaults, annotations and patterns stay as they are.
_SEEN_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), ("body",)),
    ast.AnnAssign: ("value", "target"),
    ast.match_case: ("guard", "body"),
}


class _Observing(ast.NodeTransformer):
    """Makes the tree of a unit whose expressions are seen."""

    def __init__(self, numbers: dict[int, int], assigned: Collection[str]) -> None:
        self._numbers, self._assigned = numbers, assigned

    def visit(self, node: ast.AST) -> Any:
        number = self._numbers.get(id(node), -1)
        if type(node) in _SEEN_FIELDS:
            self._visit_fields(node, _SEEN_FIELDS[type(node)])
            return node
        if isinstance(node, ast.JoinedStr | ast.Constant | ast.pattern):
            return node
        is_changing = is_in_place(node)
        target = node.target if isinstance(node, ast.AugAssign) else None
        adds = isinstance(target, ast.Attribute) and target.attr in self._assigned
        found: Any = self.generic_visit(node)
        if is_changing:
            self._see_changed(found)
        if isinstance(node, ast.Attribute) and node.attr in self._assigned:
            word = "load" if isinstance(node.ctx, ast.Load) else "store"
            names: list[ast.expr] = [ast.Constant(node.attr), ast.Constant(word)]
            found.value = ast.copy_location(ast.Call(placeholder(2), [found.value, *names], []), node)
        if adds:
            found.target.value.args[2] = ast.Constant("add")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            return found
        is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if not isinstance(node, ast.expr) or not is_read or isinstance(node, ast.Starred | ast.Slice):
            return found
        return ast.copy_location(ast.Call(placeholder(0), [ast.Constant(number), found], []), node)

    def _visit_fields(self, node: ast.AST, names: Sequence[str]) -> None:
        for name in names:
            value = getattr(node, name)
            if isinstance(value, list):
                setattr(node, name, [self.visit(one) for one in value])
            elif value is not None:
                setattr(node, name, self.visit(value))

    def _see_changed(self, node: Any) -> None:
        if isinstance(node, ast.AugAssign):
            target: Any = node.target
            before: ast.expr = ast.Name(target.id, ast.Load())
            node.value = ast.copy_location(ast.Call(placeholder(1), [before, node.value], []), node.value)
        elif isinstance(node, ast.Subscript):
            node.value = ast.copy_location(ast.Call(placeholder(1), [node.value], []), node.value)
        else:  # a method; its expression was wrapped
            method = node.func.args[1]
            method.value = ast.copy_location(ast.Call(placeholder(1), [method.value], []), method.value)


def is_in_place(node: ast.AST) -> bool:
    """Whether a node changes a tensor in place, if it has one: ``x += 1``, ``x[i] = 1``, ``x.add_(1)``."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name)
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr.endswith("_") and not node.func.attr.endswith("__")
    return False


def assigned_attributes(units: Iterable[SourceUnit]) -> set[str]:
    """Return the names of attributes that functions set, other than where an object is made."""
    found: set[str] = set()
    for unit in units:
        if unit.qualname.rpartition(".")[2] in ("__init__", "__post_init__", "__new__"):
            continue
        for one in unit.nodes:
            if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load):
                found.add(one.attr)
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "setattr":
                found |= {str(arg.value) for arg in one.args[1:2] if isinstance(arg, ast.Constant)}
    return found


def observed_tree(unit: SourceUnit, assigned: Collection[str]) -> Any:
    """Return the tree of a unit whose expressions call a function with their position and their value."""
    tree = copy.deepcopy(unit.node)
    numbers = {id(node): number for number, node in enumerate(preorder(tree))}
    return _Observing(numbers, assigned).visit(tree)


def is_of_user(code: CodeType) -> bool:
    """Whether code is of the program, rather than of Python, PyTorch, NumPy or DietCode."""
    name = code.co_filename
    return not name.startswith(_OTHERS) and not name.startswith("<")


def _others() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    sites = {paths["purelib"], paths["platlib"]}
    packages = ("torch", "numpy", "greenlet", "_pytest", "pluggy", "xdist", "execnet", "tvm", "tvm_ffi")
    found = [str(Path(site) / one) + "/" for site in sites for one in packages]
    found.append(str(Path(__file__).parents[2]) + "/")
    standard = paths["stdlib"]
    found += [f"{one}" for one in (str(Path(standard)) + "/",) if not any(s.startswith(one) for s in sites)]
    if len(found) == len(packages) * len(sites) + 1:  # site-packages lies in the standard library's folder
        found += [str(one) for one in Path(standard).iterdir() if one.name != "site-packages"]
    return tuple(found)


_OTHERS = _others()


def codes_run(run: Callable[[], Any]) -> dict[CodeType, dict[str, Any]]:
    """Return the code of the program's functions that run, each with its global variables."""
    found: dict[CodeType, dict[str, Any]] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code not in found and is_of_user(frame.f_code):
            found[frame.f_code] = frame.f_globals

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Restore the states of random generators, so that each pass over samples draws the same numbers."""
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


class Observation:
    """The units of a program, and what their expressions gave.

    Parameters
    ----------
    run : callable
        Runs all samples, as often as it is called; calls what it is given with the number of each before.
    """

    def __init__(self, run: Callable[..., Any]) -> None:
        with same_random_numbers():
            codes = codes_run(run)
        self._numbers: dict[SourceUnit, int] = {}
        self.flags: dict[str, int] = {}
        self.globals: dict[str, dict[str, Any]] = {}
        for code, names in codes.items():
            unit = unit_of(code)
            if unit is not None:
                self._numbers.setdefault(unit, len(self._numbers))
                self.flags[unit.file] = code.co_flags
                self.globals[unit.file] = names
        self.units = list(self._numbers)
        self.facts = Facts()
        assigned = assigned_attributes(self.units)
        changed = []
        for at, unit in enumerate(self.units):
            seers = [self._seer(at), self.facts.see_changed, self.facts.shared.see]
            changed.append((unit, observed_tree(unit, assigned), seers))
        replacement = Replacement(changed, self.flags, self.globals)
        replacement.install()
        try:
            with same_random_numbers():
                run(self._begin)
        finally:
            replacement.uninstall()

    def _begin(self, instance: int) -> None:
        self.facts.shared.instance = instance

    def _seer(self, unit: int) -> Callable[[int, Any], Any]:
        see = self.facts.see
        return lambda number, value: see(unit, number, value)

    def fact(self, unit: SourceUnit, node: ast.AST) -> Fact | None:
        """Return what an expression gave; None where it never ran."""
        return self.facts.of.get((self._numbers.get(unit, -1), unit.numbers[node]))
