"""From micro-kernels to ``library.so``: machine code for each architecture, and the host part around it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_ffi.libinfo

from dietcode.errors import TuningError
from dietcode.library.cuda.host import Image, host_text
from dietcode.library.files import find_linker
from dietcode.measure.apart import call_apart
from dietcode.search_space.cuda.forms import device_problem, functions_of
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import AnyProblem
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin, compile_ptx, nvrtc_version

# Machine code of one major version of CUDA runs under any driver for it (minor version compatibility).
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")


@dataclass(frozen=True)
class CudaCode:
    """A compiled library.

    Attributes
    ----------
    library : bytes
        ``library.so``.
    kernels : dict
        Facts of each function by architecture and symbol.
    ptx_arch : str
        Architecture of the PTX for newer GPUs.
    left_out : dict of str to str
        Architectures without code, and why one of the micro-kernels cannot run there.
    """

    library: bytes
    kernels: dict[str, dict[str, KernelFacts]]
    ptx_arch: str
    left_out: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the report: resources of each kernel, and whether it spills."""
        return {
            arch: {name: facts.to_json() | {"spills": facts.stack_bytes > 0} for name, facts in known.items()}
            for arch, known in self.kernels.items()
        }


def compile_library(
    problem: AnyProblem,
    tiles: Sequence[CudaMicroKernel],
    tree: DispatchTree,
    variables: Sequence[str],
    targets: Sequence[CudaTarget],
) -> CudaCode:
    """Compile a library; the same arguments give the same bytes. Needs neither a GPU nor a toolkit.

    Parameters
    ----------
    tiles, tree, variables
        As `dietcode.library.cuda.host.host_text` has them.
    targets : sequence of CudaTarget
        Architectures to hold machine code for; PTX of the newest is added for GPUs that are newer still. All
        but the first are left out where one of the micro-kernels cannot run.

    Raises
    ------
    TargetError
        The compiler is not installed, or does not know one of the architectures.
    TuningError
        A micro-kernel cannot run on the first architecture, the text is refused, the result is not machine
        code or lacks a kernel, or nothing can be linked.
    """
    distinct = list(dict.fromkeys(tiles))
    left_out = _left_out(problem, distinct, targets)
    targets = [target for target in targets if target.arch not in left_out]
    needed = {f.symbol for tile in distinct for f in functions_of(problem, tile)}
    newest = CudaTarget(f"sm_{max(target.number for target in targets)}")  # without a suffix, for later ones
    texts = call_apart(_texts, problem, distinct, [*targets, newest])
    files: dict[str, bytes] = {}
    kernels, images = {}, []
    for target, text in zip(targets, texts, strict=False):
        name = f"{target.arch}.cubin"
        files[name] = compile_cubin(text, target, reproducible=True)
        kernels[target.arch] = facts_of(files[name], problem, distinct, target.arch, target)
        lacking = needed - set(kernels[target.arch])
        if lacking:
            raise TuningError(f"{target.arch}: the machine code lacks {sorted(lacking)[0]}")
        images.append(Image(target, False, name))
    ptx = f"{newest.arch}.ptx"
    files[ptx] = compile_ptx(texts[-1], newest, reproducible=True)
    images.append(Image(newest, True, ptx))
    major = int(nvrtc_version().partition(".")[0])
    text = host_text(problem, tiles, tree, variables, images, 1000 * major)
    return CudaCode(call_apart(_link, text, files), kernels, newest.arch, left_out)


def _texts(problem: AnyProblem, tiles: Sequence[CudaMicroKernel], targets: Sequence[CudaTarget]) -> list[str]:
    """Return what NVRTC is given for each architecture."""
    return [cuda_text(problem, tiles, target) for target in targets]


def _left_out(
    problem: AnyProblem, tiles: Sequence[CudaMicroKernel], targets: Sequence[CudaTarget]
) -> dict[str, str]:
    """Return architectures that cannot run one of the micro-kernels, and why not."""
    found = {}
    for target in targets:
        reasons = [CudaLimits.of(target).why_never(device_problem(problem), tile) for tile in tiles]
        first = next((reason for reason in reasons if reason is not None), None)
        if first is not None:
            found[target.arch] = first
    if targets[0].arch in found:
        raise TuningError(f"{targets[0].arch}: {found[targets[0].arch]}")
    return found


def _link(text: str, files: dict[str, bytes]) -> bytes:
    """Compile the host part with the images beside it, by names that are the same on every machine."""
    includes = {tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()}
    with tempfile.TemporaryDirectory(prefix="dietcode-") as temporary:
        folder = Path(temporary)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        (folder / "library.c").write_text(text, encoding="utf-8")
        command = [
            find_linker(),
            *_FLAGS,
            *(f"-I{path}" for path in sorted(includes)),
            "-x",
            "c",
            "library.c",
        ]
        done = subprocess.run(
            [*command, "-o", "library.so", "-ldl", "-lpthread"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[-200:]]
            raise TuningError(f"the library could not be linked: {lines[0][:200]}")
        return (folder / "library.so").read_bytes()
