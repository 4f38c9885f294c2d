"""Shared libraries that tests compile, kept in ``build/`` by all that they are made of: later ones load them.

DIETCODE_TEST_CACHE is another folder. What products compile is never kept here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

_KEPT_SECS = 14 * 86400.0


def folder() -> Path:
    """Where they are."""
    given = os.environ.get("DIETCODE_TEST_CACHE")
    return Path(given) if given else Path(__file__).parents[1] / "build" / "test-cache"


def shared_library(made_of: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    """A library that lies where `made_of` says, or that `make` writes to the path given to it.

    Processes that make the same one at once do not disturb each other.
    """
    digest = hashlib.sha256("\0".join((platform.machine(), *made_of)).encode()).hexdigest()
    kept = folder() / f"{digest[:32]}.so"
    if kept.exists():
        os.utime(kept)
        return kept
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder()) as partial:
        made = Path(partial) / "made.so"
        make(made)
        made.replace(kept)
    return kept


def load_compiled(module: tvm.IRModule, target: Any) -> Any:
    """The module's code for a `CpuTarget`, loaded from a shared library.

    It is known by its structural hash, which takes a tenth of the time of its text, and the names that the
    hash leaves out: errors of a call have them.
    """
    import tvm
    import tvm_ffi

    from dietcode.search_space.cpu.compiling import WITHOUT_EFFECT, compile_module

    def make(path: Path) -> None:
        compile_module(module, target).export_library(str(path))

    functions = module.functions.items()
    names = {
        variable.name_hint: [str(param) for param in function.params] for variable, function in functions
    }
    structure = str(tvm_ffi.structural_hash(module))
    made_of = (structure, str(names), str(target.tvm_target()), str(WITHOUT_EFFECT), tvm.__version__)
    return tvm.runtime.load_module(str(shared_library(made_of, make)))


def forget_old() -> None:
    """Remove what no test has loaded for two weeks."""
    for path in folder().glob("*.so"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _KEPT_SECS:
                path.unlink()


def parts() -> Path:
    """The cache of parts of models, kept as long as nothing that makes code is changed."""
    root = Path(__file__).parents[1] / "dietcode"
    made_by = ("search_space", "library", "graph", "models", "recursion", "runtime")
    files = sorted(path for one in made_by for path in (root / one).rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    place = folder() / "models" / digest
    if not place.exists():
        shutil.rmtree(place.parent, ignore_errors=True)
        place.mkdir(parents=True)
    return place
