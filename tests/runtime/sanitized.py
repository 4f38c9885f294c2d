"""The runtime's C code under a sanitizer, compiled once for all tests that run it."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest
import tvm_ffi.libinfo
from compile_cache import shared_library

_OPTIONS = ("-std=c11", "-g", "-O1", "-fPIC", "-pthread", "-fno-sanitize-recover=undefined")
_STRICT = ("-Wall", "-Wextra", "-Werror")


def tame() -> None:
    """Addresses that are drawn from too far apart are more than older sanitizers can take."""
    ctypes.CDLL(None).personality(0x0040000)  # ADDR_NO_RANDOMIZE; where it is refused it may go well still


def run_sanitized(folder: Path, sanitizer: str, sources: Path, main: Path, options: list[str]) -> None:
    """Compile a program with the C code of a folder and a sanitizer, and run it."""
    objects, program = sanitized_objects(folder, sources, sanitizer), folder / "stress"
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    flags = [*_flags(sanitizer), *_STRICT, f"-I{sources}", f"-Wl,-rpath,{library.parent}"]
    subprocess.run(["cc", *flags, main, objects, library, "-o", program, "-ldl", "-lm"], check=True)
    command = [program, *options]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120, preexec_fn=tame)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-3000:]


def sanitized_library(folder: Path, sources: Path | Sequence[Path], name: str) -> tuple[Path, dict[str, str]]:
    """The C code of a folder, or of files, as a shared library that has its addresses checked.

    Returns
    -------
    Path
        The library, of that name.
    dict of str to str
        Variables of a Python process that can load it. The sanitizer has to know exceptions of C++.
    """
    sanitizer, made = "address,undefined", folder / name
    objects = sanitized_objects(folder, sources, sanitizer)
    subprocess.run(["cc", *_flags(sanitizer), "-shared", objects, "-o", made, "-lm"], check=True)
    preloaded = " ".join(_file_of(library) for library in ("libasan.so", "libstdc++.so.6"))
    return made, {"LD_PRELOAD": preloaded, "ASAN_OPTIONS": "detect_leaks=0"}


def sanitizer_runs(folder: Path, sanitizer: str) -> bool:
    """Whether a program that the compiler makes with a sanitizer runs here; it is written to a folder."""
    flags, probe = _flags(sanitizer), folder / "probe"
    (folder / "probe.c").write_text("int main(void) { return 0; }")
    built = subprocess.run(["cc", *flags, f"{probe}.c", "-o", probe], capture_output=True, check=False)
    return built.returncode == 0 and subprocess.run([probe], preexec_fn=tame, check=False).returncode == 0


def sanitized_objects(folder: Path, sources: Path | Sequence[Path], sanitizer: str) -> Path:
    """The C code of a folder, or of files, as one object file; skips where the sanitizer does not run."""
    flags = _flags(sanitizer)
    if not sanitizer_runs(folder, sanitizer):
        pytest.skip(f"this machine's compiler has no -fsanitize={sanitizer}")
    files = sorted(sources.glob("*.c")) if isinstance(sources, Path) else sources
    headers = sorted({header for path in files for header in path.parent.glob("*.h")})
    texts = b"\0".join(path.read_bytes() for path in [*files, *headers])
    version = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout

    def make(path: Path) -> None:
        subprocess.run(["cc", *flags, *_STRICT, f"-I{files[0].parent}", "-r", *files, "-o", path], check=True)

    return shared_library((hashlib.sha256(texts).hexdigest(), version, *flags, *_STRICT, "-r"), make)


def _flags(sanitizer: str) -> list[str]:
    includes = [sysconfig.get_path("include"), *tvm_ffi.libinfo.include_paths()]
    return [*_OPTIONS, f"-fsanitize={sanitizer}", *(f"-I{path}" for path in includes)]


def _file_of(library: str) -> str:
    """Where the compiler has a library."""
    command = ["cc", f"-print-file-name={library}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
