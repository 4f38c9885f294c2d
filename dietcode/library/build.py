"""From chosen micro-kernels and a dispatch rule to the files of a library for a CPU."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import tvm

from dietcode.errors import TuningError
from dietcode.library.files import dispatch_tree, find_linker, folder_files
from dietcode.library.parts import Parts
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import BLOBS, CODE, blob_name, file_facts
from dietcode.search_space.cpu.compiling import compile_module
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.spaces import CPU_SPACES
from dietcode.search_space.problem import AnyProblem


def compile_code(parts: Parts) -> bytes:
    """Compile host dispatch and kernels to one shared library.

    Raises
    ------
    TuningError
        There is no C compiler to link with.
    """
    find_linker()
    module = build_module(
        parts.task.problem,
        parts.micro_kernels,
        dispatch_tree(parts.rule.root),
        parts.task.variables,
        Limits.of(parts.target),
    )
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        path = Path(folder) / CODE
        try:
            compile_module(module, parts.target).export_library(str(path))
        except (RuntimeError, OSError) as error:
            last = str(error).strip().splitlines()[-1][:200]
            raise TuningError(
                f"the library could not be linked; is a C compiler (cc) installed? {last}"
            ) from error
        return path.read_bytes()


def library_files(parts: Parts) -> dict[str, bytes]:
    """Return all files of the folder by relative path; the same parts give the same bytes."""
    runtime = _runtime_bytes()
    facts = file_facts(runtime)
    requires = {"cpu_features": list(parts.target.features)}
    own = own_fields(parts) | {"runtime": facts}
    files = folder_files(parts, compile_code(parts), parts.report, requires, own)
    return files | {f"{BLOBS}/{blob_name(facts['sha256'])}": runtime}


def own_fields(parts: Parts) -> dict[str, Any]:
    """Return the fields of a manifest that a CPU fills by itself, but for the runtime."""
    problem, limits = parts.task.problem, Limits.of(parts.target)
    workspace_bytes = CPU_SPACES[problem.form].workspace_bytes
    largest = (workspace_bytes(problem, kernel, limits, parts.task.largest) for kernel in parts.micro_kernels)
    return {
        "num_threads": parts.target.num_cores,
        "packed": _packed(problem, limits.lanes),
        "workspace_bytes": max(largest),  # of a call at the largest instance
    }


def _runtime_bytes() -> bytes:
    path = Path(tvm.__file__).parent / "lib" / "libtvm_runtime.so"
    if not path.is_file():
        raise TuningError(f"{path}: the TVM runtime is missing; reinstall apache-tvm")
    return path.read_bytes()


def cache_runtime(folder: Path) -> None:
    """Keep the TVM runtime in the cache too, for libraries that arrive without it."""
    with contextlib.suppress(OSError):  # the library works without it
        for blob in (folder / BLOBS).iterdir():
            kept = cache_dir() / BLOBS / blob.name
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                partial = kept.with_name(f"{kept.name}.{os.getpid()}.partial")
                partial.write_bytes(blob.read_bytes())
                partial.replace(kept)


def _packed(problem: AnyProblem, lanes: int) -> dict[str, Any]:
    """Return the layouts of the constants that are packed ahead."""
    packed = {}
    for name, layout in problem.packed.items():
        columns, reduction, batch = ("".join(r) for r in (layout.columns, layout.reduction, layout.batch))
        axes = problem.axes(name)  # one that is split shows its indices: (gu)irs
        source = "".join(indices if len(indices) == 1 else f"({indices})" for indices in axes)
        panels = f"{batch + ', ' if batch else ''}{columns}/{lanes}, {reduction}, {columns}%{lanes}"
        packed[name] = {
            "layout": f"{source} -> [{panels}]",
            "batch": list(batch),
            "columns": list(columns),
            "reduction": list(reduction),
            "lanes": lanes,
            "alignment_bytes": 64,
        } | ({} if layout.function == "pack" else {"function": layout.function})
    return packed
