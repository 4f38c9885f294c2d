"""A whole GPU in the place of none: what is compiled for it runs on the CPU, here and in child processes.

The compiler still makes machine code; beside it the same text is compiled for the CPU, where the emulated
driver looks for it.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from emulated_driver import driver_folder, load_driver

from dietcode.measure.gpu_worker import CudaRecipe
from dietcode.measure.local import LocalChildren
from dietcode.measure.requests import BuildRequest, BuildResult
from dietcode.search_space.cuda.source import cuda_text
from dietcode.target import nvrtc

sys.path.append(str(Path(__file__).parents[1] / "search_space"))
from emulation import compiled

DOES_NOTHING = "int emulate() { return 0; }"
CRASHES = "#include <stdlib.h>\nint emulate() { abort(); }"
HANGS = "#include <unistd.h>\nint emulate() { for (;;) pause(); }"


def digest_of(image: bytes) -> str:
    """FNV-1a, as the driver computes it."""
    digest = 0xCBF29CE484222325
    for byte in image:
        digest = (digest ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return f"{digest:016x}"


def place_of(image: bytes) -> Path:
    """Where the driver looks for the kernels of some machine code."""
    folder = driver_folder() / "kernels"
    folder.mkdir(exist_ok=True)
    return folder / f"{digest_of(image)}.so"


def broken_image(names: Sequence[str], body: str) -> bytes:
    """What the driver takes for the machine code of some kernels; launching any does what `body` says."""
    number = len(list(place_of(b"").parent.iterdir()))
    ends = struct.pack("<QQI6H", 0, 64, 0, 64, 0, 0, 64, 0, 0)  # no segments, no sections
    image = b"\x7fELF" + number.to_bytes(28, "little") + ends
    compile_c(body + "".join(f"\nvoid call_{name}() {{}}" for name in names) + "\n", place_of(image))
    return image


def compile_c(text: str, path: Path) -> None:
    """A shared library of some C."""
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=text.encode(), check=True)


def emulate(image: bytes, text: str) -> None:
    """Have the driver run some machine code, which was compiled from a text."""
    if not place_of(image).exists():
        shutil.copy(compiled(text)._name, place_of(image))


def building_both(build: Callable[..., Any]) -> Callable[..., Any]:
    """``build`` of children, after which the driver can run what came of it."""

    def build_both(self: Any, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        for request, result in zip(requests, build(self, requests), strict=True):
            if result.path is not None and isinstance(request.recipe, CudaRecipe):
                recipe = request.recipe
                text = cuda_text(recipe.problem, [recipe.micro_kernel], recipe.target)
                emulate(Path(result.path).read_bytes(), text)
            yield result

    return build_both


@contextmanager
def emulated_gpu() -> Iterator[pytest.MonkeyPatch]:
    """While it lasts, the driver is found by children too, and what is compiled can be run.

    What children compile is compiled for the CPU here, when it comes back from them.
    """
    load_driver()
    compile_real = nvrtc._compile

    def compile_both(text: str, arch: str, form: str, reproducible: bool, *more: float) -> bytes:
        code = compile_real(text, arch, form, reproducible, *more)
        if form == "CUBIN":
            emulate(code, text)
        return code

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", f"{driver_folder()}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        patch.setattr(nvrtc, "_compile", compile_both)
        patch.setattr(LocalChildren, "build", building_both(LocalChildren.build))
        yield patch
