"""Programs beside eager PyTorch: `check_case` compares what a compiled program returns.

`natural_cases` has the programs of ``natural/``, `tested_programs.tested_cases` those of other tests.

A file in ``natural/`` has ``PROGRAMS``, a list of ``(program, samples, others)``: two functions without
arguments that return instances, those that a program is compiled with and others that it has not seen.
A file without ``PROGRAMS`` has programs by any name, ``samples`` and perhaps ``others``, for all of them.
Its source is in natural style: nothing is adapted to a compiler, or to a formatter.

Each case is made anew from its file for the eager results, and again for the compiled ones, so that neither
sees what the other left in modules or globals.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib.util
import inspect
import itertools
import math
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dietcode

HERE = Path(__file__).parent
TOLERANCE = 1e-4  # of the largest element
# Which samples belong to which program, where a file does not say it.
_SAMPLES = {"tensor_of_numbers": {"c": "sc", "c1": "s1", "c2": "s2", "c3": "sc"}}
_numbers = itertools.count()

Run = Callable[[Sequence[Any]], list[Any]]
Load = Callable[[dietcode.Program, list[Any]], Run]
Made = tuple[dietcode.Program, list[Any], list[Any]]


@dataclasses.dataclass(frozen=True)
class Case:
    """A program with its instances.

    Attributes
    ----------
    name : str
    make : Callable
        Returns the program, samples and other instances, made anew.
    """

    name: str
    make: Callable[[], Made]


def check_case(load: Load, case: Case) -> None:
    """Compare all that a case returns, compiled, with eager results."""
    program, samples, others = case.make()
    wanted = eager_results(program, [*samples, *others])
    check(load, *case.make(), wanted)


def check(
    load: Load,
    program: dietcode.Program,
    samples: list[Any],
    others: list[Any],
    wanted: list[Any] | None = None,
) -> None:
    """Compare what a compiled program returns with eager results, for all instances and for few of them.

    Parameters
    ----------
    load : Callable
        From a program and its samples to a callable that takes instances, and returns a result or an
        exception of each.
    program : Program
    samples, others : list
        Instances.
    wanted : list or None
        Results of samples and others; None computes them.
    """
    instances = [*samples, *others]
    if wanted is None:
        wanted = eager_results(program, instances)
    run = load(program, copy.deepcopy(samples))
    everything = list(range(len(instances)))
    for chosen in (everything, everything[::-1], everything[-1:], everything[: len(instances) // 2]):
        found = run(copy.deepcopy([instances[at] for at in chosen]))
        assert isinstance(found, list) and len(found) == len(chosen), found
        for at, own in zip(chosen, found, strict=True):
            compare(own, wanted[at], f"instance {at} of {len(chosen)}")


def eager_results(program: dietcode.Program, instances: Sequence[Any]) -> list[Any]:
    """Return the result of each instance, or the exception that it ends with."""
    return [eager_result(program, one) for one in copy.deepcopy(list(instances))]


def eager_result(program: dietcode.Program, instance: Any) -> Any:
    """Return the result of an instance, which it may change, or the exception that it ends with."""
    try:
        return program.eager(*arguments(program, instance))
    except Exception as error:
        return error


def arguments(program: dietcode.Program, instance: Any) -> tuple[Any, ...]:
    """Return the arguments of an instance: itself, or the items of a plain tuple where several are taken."""
    parameters = list(inspect.signature(program.function).parameters.values())[len(program.bound) :]
    known = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    least = sum(one.default is one.empty for one in known)
    is_several = len(known) > 1 and type(instance) is tuple and max(2, least) <= len(instance) <= len(known)
    return instance if is_several else (instance,)


# ---- Comparison ----


def compare(found: Any, wanted: Any, path: str = "result") -> None:
    """Raise AssertionError where two results differ, with the path to the difference.

    Types, structure, integers, strings and the identity of shared objects are compared exactly;
    floating-point values within `TOLERANCE` of the largest.
    """
    _Comparison().compare(found, wanted, path)


class _Comparison:
    def __init__(self) -> None:
        self._known: dict[int, int] = {}  # from objects of wanted results to those found, by id
        self._kept: list[Any] = []  # so that ids stay theirs

    def compare(self, found: Any, wanted: Any, path: str) -> None:
        assert _class(found) == _class(wanted), f"{path}: {found!r}, a {_class(found)}, and not {wanted!r}"
        if isinstance(wanted, torch.Tensor | np.ndarray):
            self._arrays(found, wanted, path)
            self._identity(found, wanted, path)
        elif isinstance(wanted, bool | int | str | bytes | complex | types.NoneType | range | slice):
            assert found == wanted, f"{path}: {found!r}, and not {wanted!r}"
        elif isinstance(wanted, float | np.number):
            assert _is_close(float(found), float(wanted)), f"{path}: {found!r}, and not {wanted!r}"
        elif isinstance(wanted, enum.Enum):
            assert found.name == wanted.name, f"{path}: {found!r}, and not {wanted!r}"
        elif isinstance(wanted, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            assert found.__name__ == wanted.__name__, f"{path}: {found!r}, and not {wanted!r}"
        elif isinstance(wanted, tuple) or self._identity(found, wanted, path):
            self._containers(found, wanted, path)

    def _identity(self, found: Any, wanted: Any, path: str) -> bool:
        """Whether an object comes for the first time; later it has to be the one that was found then."""
        is_new = id(wanted) not in self._known
        self._kept += [found, wanted]
        known = self._known.setdefault(id(wanted), id(found))
        assert known == id(found), f"{path}: an object of its own, and not a shared one"
        return is_new

    def _containers(self, found: Any, wanted: Any, path: str) -> None:
        if isinstance(wanted, list | tuple | deque):
            assert len(found) == len(wanted), f"{path}: {len(found)} items, and not {len(wanted)}"
            for at, (own, right) in enumerate(zip(found, wanted, strict=True)):
                self.compare(own, right, f"{path}[{at}]")
        elif isinstance(wanted, set | frozenset):
            self.compare(sorted(found, key=repr), sorted(wanted, key=repr), path)
        elif isinstance(wanted, Mapping):
            self.compare(list(found), list(wanted), f"{path}, keys")
            for key, own, right in zip(wanted, found.values(), wanted.values(), strict=True):
                self.compare(own, right, f"{path}[{key!r}]")
        elif isinstance(wanted, BaseException):
            if not isinstance(wanted, RecursionError):  # its message depends on where the stack ends
                self.compare(str(found), str(wanted), path)
        elif isinstance(wanted, Iterator):
            self.compare(list(copy.copy(found)), list(copy.copy(wanted)), path)
        self._fields(found, wanted, path)

    def _fields(self, found: Any, wanted: Any, path: str) -> None:
        names = [*getattr(wanted, "__dict__", ())]
        for base in type(wanted).__mro__:
            slots = (
                base.__dict__.get("__slots__", ())
                if base.__module__ not in ("builtins", "collections")
                else ()
            )
            names += [slots] if isinstance(slots, str) else slots
        assert list(getattr(found, "__dict__", ())) == names[: len(getattr(wanted, "__dict__", ()))], path
        for name in names:
            if name in ("__dict__", "__weakref__") or not hasattr(wanted, name):
                continue
            self.compare(getattr(found, name), getattr(wanted, name), f"{path}.{name}")

    def _arrays(self, found: Any, wanted: Any, path: str) -> None:
        assert type(found) is type(wanted), f"{path}: a {type(found)}, and not a {type(wanted)}"
        own, right = (one.detach() if isinstance(one, torch.Tensor) else one for one in (found, wanted))
        assert own.dtype == right.dtype, f"{path}: {own.dtype}, and not {right.dtype}"
        assert tuple(own.shape) == tuple(right.shape), f"{path}: {own.shape}, and not {right.shape}"
        own, right = np.asarray(own), np.asarray(right)
        if not np.issubdtype(right.dtype, np.floating):
            assert np.array_equal(own, right), f"{path}: {own}, and not {right}"
            return
        largest = np.abs(right[np.isfinite(right)]).max(initial=0)
        is_close = np.isclose(own, right, rtol=0, atol=TOLERANCE * max(largest, 1e-6), equal_nan=True)
        assert is_close.all(), f"{path}: {own}, and not {right}"


def _class(value: Any) -> str:
    """Return the name of a class, which another import of its file has as well."""
    return type(value).__qualname__


def _is_close(found: float, wanted: float) -> bool:
    if not math.isfinite(wanted):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    return abs(found - wanted) <= TOLERANCE * max(1.0, abs(wanted))


# ---- Where programs are ----


def natural_cases() -> list[Case]:
    """Return the programs of ``natural/``."""
    found = []
    for path in sorted((HERE / "natural").glob("*.py")):
        several = _programs_of(fresh(path))
        found += [Case(name, _made_from(path, at)) for at, name in enumerate(several)]
    return found


def fresh(path: Path) -> types.ModuleType:
    """Return the module of a file, imported once more, by a name that no other import has."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_{next(_numbers)}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        spec.loader.exec_module(module)
    return module


def _made_from(path: Path, at: int) -> Callable[[], Made]:
    def make() -> Made:
        program, samples, others = list(_programs_of(fresh(path)).values())[at]
        return program, list(samples()), list(others())

    return make


def _programs_of(module: types.ModuleType) -> dict[str, tuple[dietcode.Program, Any, Any]]:
    stem = Path(str(module.__file__)).stem
    if hasattr(module, "PROGRAMS"):
        named = [(one[0].__name__, one) for one in module.PROGRAMS]
    else:
        attributes = _SAMPLES.get(stem, {})
        named = [
            (name, (one, getattr(module, attributes.get(name, "samples")), getattr(module, "others", list)))
            for name, one in vars(module).items()
            if isinstance(one, dietcode.Program)
        ]
    return {f"{stem}.{name}.{at}": one for at, (name, one) in enumerate(named)}
