"""Libraries that tests compile, kept in ``build/`` by all that they are made of: later ones load them.

DIETCODE_TEST_CACHE is another folder. Products never read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

_KEPT_SECS = 14 * 86400.0
_ROOT = Path(__file__).parents[1]


def folder() -> Path:
    """Where they are."""
    given = os.environ.get("DIETCODE_TEST_CACHE")
    return Path(given) if given else _ROOT / "build" / "test-cache"


def shared_library(made_of: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    """A library that lies where `made_of` says, or that `make` writes to the path given to it."""
    return _kept(made_of, ".so", make)


def object_file(made_of: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    """What a compiler has made of one file, to be linked, as `shared_library`."""
    return _kept(made_of, ".o", make)


def precompiled_header(made_of: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    """What a compiler has read of a header, as `shared_library`; without its suffix it can be included."""
    return _kept(made_of, ".h.gch", make)


def library_files(made_of: tuple[str, ...], make: Callable[[], Mapping[str, bytes]]) -> dict[str, bytes]:
    """The files of a library by relative path, as today's sources of the product build them here.

    Parameters
    ----------
    made_of : tuple of str
        What it is made of besides these: the spec, and what chooses its micro-kernels.
    """

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in make().items():
                archive.writestr(name, data)

    with zipfile.ZipFile(_kept((*made_of, *_builder()), ".zip", write)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _kept(made_of: tuple[str, ...], suffix: str, make: Callable[[Path], None]) -> Path:
    """The file that lies where `made_of` says, or that `make` writes to the path given to it.

    Of several processes that want the same one at once, one makes it, and the others wait.
    """
    digest = hashlib.sha256("\0".join((platform.machine(), *made_of)).encode()).hexdigest()
    kept = folder() / f"{digest[:32]}{suffix}"
    if not kept.exists():
        folder().mkdir(parents=True, exist_ok=True)
        with _alone(kept.with_suffix(".lock")):
            if not kept.exists():
                with tempfile.TemporaryDirectory(dir=folder()) as partial:
                    made = Path(partial) / f"made{suffix}"
                    make(made)
                    made.replace(kept)
    os.utime(kept)
    return kept


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock that a file stands for; it ends with its process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _builder() -> tuple[str, ...]:
    """What a library depends on besides its spec: this processor, and what `_tools` has."""
    from dietcode.runtime.cpu import available_cores, cache_bytes, cpu_model

    return (*_tools(), cpu_model(), str((available_cores(), cache_bytes(1, 0), cache_bytes(2, 0))))


@functools.cache
def _tools() -> tuple[str, ...]:
    """The product's sources, TVM, and the compiler that links."""
    sources = sorted((_ROOT / "dietcode").rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    compiler = shutil.which(os.environ.get("CC", "cc"))
    said = (
        subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
        if compiler
        else ""
    )
    versions = (importlib.metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi"))
    return (digest, said, *versions)


def load_compiled(module: tvm.IRModule, target: Any) -> Any:
    """The module's code for a `CpuTarget`, loaded from a shared library."""
    import tvm

    return tvm.runtime.load_module(str(compiled_file(module, target)))


def compiled_file(module: tvm.IRModule, target: Any) -> Path:
    """The shared library that `load_compiled` loads.

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
    return shared_library(made_of, make)


def forget_old() -> None:
    """Remove what no test has loaded for two weeks."""
    for path in (
        one for suffix in (".so", ".o", ".zip", ".gch", ".lock") for one in folder().glob(f"*{suffix}")
    ):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _KEPT_SECS:
                path.unlink()


def parts() -> Path:
    """The cache of parts of models, kept as long as nothing that makes code is changed."""
    root = _ROOT / "dietcode"
    made_by = ("search_space", "library", "graph", "models", "recursion", "runtime")
    files = sorted(path for one in made_by for path in (root / one).rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    place = folder() / "models" / digest
    if not place.exists():
        shutil.rmtree(place.parent, ignore_errors=True)
        place.mkdir(parents=True)
    return place
