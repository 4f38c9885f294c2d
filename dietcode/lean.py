"""Processes that start quickly: where PyTorch is installed, TVM imports it, longer than all of TVM itself."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_LATER = "tvm.relax"
_PLACE = str(Path(__file__).with_name("without_torch"))  # its `torch` cannot be imported


def python_command(module: str, *arguments: str) -> list[str]:
    """The command of a process that runs a module of this installation.

    Not of the folder in which a command was given: that may be a clone of another version.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def without_torch(environment: Mapping[str, str]) -> dict[str, str]:
    """These variables for a Python process that finds no PyTorch, nor do those that it starts.

    Nothing that builds or measures uses it, and one tuning run has ten processes or more.
    """
    return {**environment, "PYTHONPATH": os.pathsep.join([_PLACE, *_other_paths(environment)])}


def with_torch(environment: Mapping[str, str]) -> dict[str, str]:
    """These variables for a process that finds PyTorch again, where it is installed."""
    return {**environment, "PYTHONPATH": os.pathsep.join(_other_paths(environment))}


@contextlib.contextmanager
def children_without_torch() -> Iterator[None]:
    """Processes that are started meanwhile, by whatever means, find no PyTorch."""
    before = os.environ.get("PYTHONPATH")
    os.environ.update(without_torch(os.environ))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before


def leave_torch_out() -> None:
    """This process finds no PyTorch from now on, unless it has it already."""
    import_less_of_tvm()
    if "torch" not in sys.modules and _PLACE not in sys.path:
        sys.path.insert(0, _PLACE)


def import_less_of_tvm() -> None:
    """This process imports a third less for TVM, unless it has it already.

    TVM tries to import its distributed runtime, which it does not have; finding that out takes a quarter of a
    second, since the error has a backtrace through all of the compiler. Relax, its language of whole models,
    is imported once anything looks into it: nothing that builds or measures does.
    """
    sys.modules.setdefault("tvm.runtime.disco", None)  # type: ignore[arg-type] # it cannot be imported
    if _LATER not in sys.modules and _FindLater not in sys.meta_path:
        sys.meta_path.insert(0, _FindLater)


@contextlib.contextmanager
def left_out(name: str) -> Iterator[None]:
    """What is imported meanwhile for the first time finds no module of this name.

    For a package that imports another where it is installed, and is asked for nothing that needs it.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # it cannot be imported
    try:
        yield
    finally:
        del sys.modules[name]


def collect_seldom() -> None:
    """This process looks for garbage less often, which takes a tenth of the time of exports and imports.

    What imports and graphs leave behind is hardly ever garbage.
    """
    gc.set_threshold(20_000, 50, 100)


class _FindLater:
    """Finds `_LATER` as a package that runs when it is looked into, or when a module of it is imported."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the path has, loaded later; None for all other modules."""
        spec = PathFinder.find_spec(name, path, target) if name == _LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LoadLater(spec.loader)
        return spec


class _LoadLater(Loader):
    """As `importlib.util.LazyLoader`, but several threads may look, and asking for the file is no look.

    What goes through all modules, as Hypothesis and `inspect` do, asks for that.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader, self._lock, self._runs = loader, threading.RLock(), False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader itself does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Have the module run when a name is looked up that it does not have yet."""
        path = module.__path__
        del module.__path__  # the import of a module in it asks for this first

        def __getattr__(name: str) -> Any:  # noqa: N807 - the module's
            if name.startswith("__") and name not in {"__path__", "__all__"}:
                raise AttributeError(name)
            with self._lock:  # of several threads one runs it, and the others wait
                if self._runs:  # it looks for what it has not made yet
                    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
                if "__getattr__" in vars(module):
                    self._runs, module.__path__ = True, path
                    try:
                        self._loader.exec_module(module)
                        del module.__getattr__
                    finally:
                        self._runs = False
            return getattr(module, name)

        module.__getattr__ = __getattr__  # type: ignore[method-assign]


def has_torch() -> bool:
    """Whether it is installed, also in a process that does not find it."""
    return PathFinder.find_spec("torch", [path for path in sys.path if path != _PLACE]) is not None


def _other_paths(environment: Mapping[str, str]) -> list[str]:
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and path != _PLACE]
