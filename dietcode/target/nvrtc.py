"""Compiling CUDA text by NVRTC, with neither a GPU nor a toolkit; needs the extra ``cuda``."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dietcode import extras
from dietcode.confinement import kept_environment
from dietcode.errors import CandidateError, TargetError, TuningError
from dietcode.lean import python_command
from dietcode.target.cubin import check_machine_code
from dietcode.target.cuda import CudaTarget

_MAX_MESSAGE = 300
_TIMEOUT_SECS = 600.0


@functools.cache
def missing_packages() -> tuple[str, ...]:
    """Return the packages of the extra ``cuda`` that are not installed; empty where code can be compiled."""
    return extras.missing_packages("cuda")


def check_compiler() -> None:
    """Refuse early where no code for CUDA can be compiled.

    Raises
    ------
    TargetError
        A package is missing.
    """
    if missing_packages():
        raise TargetError(extras.what_to_install("target.kind: cuda", "cuda", missing_packages()))


def include_folders() -> list[Path]:
    """Return the folders of the wheels' headers.

    Raises
    ------
    TargetError
        They are not installed.
    """
    check_compiler()
    spec = importlib.util.find_spec("nvidia.cu13")
    roots = [Path(folder) / "include" for folder in (spec and spec.submodule_search_locations) or ()]
    return [path for root in roots for path in (root, root / "cccl") if path.is_dir()]


def nvrtc_version() -> str:
    """Return the version of NVRTC, as in ``13.0``.

    Raises
    ------
    TargetError
        It is not installed.
    """
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def compile_cubin(
    text: str, target: CudaTarget, *, reproducible: bool = False, max_secs: float = _TIMEOUT_SECS
) -> bytes:
    """Compile a text to machine code for one architecture.

    Parameters
    ----------
    reproducible : bool
        Give the same bytes for the same text; takes a confined process of its own, and half a second.
    max_secs : float
        When that process is ended.

    Raises
    ------
    TargetError
        The compiler is not installed, or knows no such architecture.
    CandidateError
        The text is refused; the first error is in the message. Or products on tensor cores were serialized.
    TuningError
        The result is not machine code, or took longer than `max_secs`.
    """
    cubin = _compile(text, target.arch, "CUBIN", reproducible, max_secs)
    check_machine_code(cubin, target.arch)
    return cubin


def compile_ptx(text: str, target: CudaTarget, *, reproducible: bool = False) -> bytes:
    """Compile a text to PTX, which drivers of GPUs newer than a library's architectures compile on loading.

    Raises
    ------
    TargetError, CandidateError
        As for `compile_cubin`.
    """
    return _compile(text, target.arch.replace("sm_", "compute_"), "PTX", reproducible)


def _nvrtc() -> Any:
    check_compiler()
    from cuda.bindings import nvrtc

    return nvrtc


def _compile(text: str, arch: str, form: str, reproducible: bool, max_secs: float = _TIMEOUT_SECS) -> bytes:
    # Division and square roots stay exact, and nothing is flushed: results are compared with float64.
    flags = [f"--gpu-architecture={arch}", "--std=c++17"]
    flags += [f"--include-path={folder}" for folder in include_folders()]
    if not reproducible:
        return compile_here(text, flags, form)
    try:
        done = subprocess.run(
            python_command("dietcode.target.nvrtc_child"),
            input=json.dumps({"text": text, "flags": flags, "form": form}).encode(),
            capture_output=True,
            env=kept_environment(os.environ) | {"PYTHONHASHSEED": "0"},
            timeout=max_secs,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TuningError(f"nvrtc: {arch}: took longer than {max_secs:.0f} s") from error
    if done.returncode == 0:
        return done.stdout
    try:
        answer = json.loads(done.stderr)
        kind = {"TargetError": TargetError, "CandidateError": CandidateError}[answer["kind"]]
    except (ValueError, KeyError) as error:
        last = done.stderr.decode(errors="replace").strip()[-_MAX_MESSAGE:]
        raise TuningError(f"nvrtc ended with {done.returncode}: {last}") from error
    raise kind(answer["message"])


def compile_here(text: str, flags: Sequence[str], form: str) -> bytes:
    """Compile in this process; `form` is CUBIN or PTX.

    Raises
    ------
    TargetError, CandidateError
        As for `compile_cubin`.
    """
    nvrtc = _nvrtc()
    ok = nvrtc.nvrtcResult.NVRTC_SUCCESS
    result, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    if result != ok:
        raise TargetError(f"nvrtc: {result.name}; install again: {extras.install_command('cuda')}")
    try:
        encoded = [flag.encode() for flag in flags]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if result == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise TargetError(
                f"nvrtc: {flags[0]} is not known to this version; install a newer nvidia-cuda-nvrtc"
            )
        if result != ok:
            raise CandidateError(f"nvrtc: {_first_error(_log(nvrtc, program))}")
        _refuse_serialized(_log(nvrtc, program))
        _, size = getattr(nvrtc, f"nvrtcGet{form}Size")(program)
        return _filled(size, lambda buffer: getattr(nvrtc, f"nvrtcGet{form}")(program, buffer))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = _filled(size, lambda buffer: nvrtc.nvrtcGetProgramLog(program, buffer))
    return log.decode(errors="replace").rstrip("\0")


def _filled(size: int, write: Callable[[bytes], Any]) -> bytes:
    """Return what NVRTC writes to a buffer of `size` bytes.

    It writes to the object itself, which has to be of this call alone: Python has one object for all bytes of
    length 1, and an empty log, its zero, would be written to every ``b" "`` of the process.
    """
    buffer = bytes(size + 2)
    write(buffer)
    return buffer[:size]


def _refuse_serialized(log: str) -> None:
    """Refuse code whose products on tensor cores wait for each other, which the assembler says in the log.

    Its remarks C7510 to C7519 are about that: instructions are serialized, or it has injected waits of its
    own. They are no errors, but such code is wrong about when its accumulators may be used.

    Raises
    ------
    CandidateError
        One of them is in the log.
    """
    lines = [line for line in log.splitlines() if re.search(r"\(C751\d\)", line)]
    if lines:
        raise CandidateError(f"nvrtc: {lines[0].strip()[:_MAX_MESSAGE]}")


def _first_error(log: str) -> str:
    lines = [line for line in log.splitlines() if "error" in line] or log.splitlines() or ["no message"]
    return lines[0][:_MAX_MESSAGE]
