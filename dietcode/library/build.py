"""From chosen micro-kernels and a dispatch rule to the files of a library for a CPU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from dietcode.errors import TuningError
from dietcode.library.files import dispatch_tree, find_linker, folder_files
from dietcode.library.parts import Parts
from dietcode.measure.apart import call_apart
from dietcode.runtime.manifest import CODE
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.compiling import compile_module
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import CHUNKS, Limits
from dietcode.search_space.cpu.spaces import CPU_SPACES
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import AnyProblem
from dietcode.target.cpu import CpuTarget


def compile_code(parts: Parts) -> bytes:
    """Compile host dispatch and kernels to one shared library, in a confined process.

    Raises
    ------
    TuningError
        There is no C compiler to link with.
    """
    find_linker()
    code = call_apart(
        _compile,
        parts.task.problem,
        parts.micro_kernels,
        dispatch_tree(parts.rule.root),
        parts.task.variables,
        parts.target,
    )
    if not isinstance(code, bytes):
        raise TuningError("the process that compiles gave no code")
    return code


def _compile(
    problem: AnyProblem,
    micro_kernels: tuple[AnyMicroKernel, ...],
    tree: DispatchTree,
    variables: tuple[str, ...],
    target: CpuTarget,
) -> bytes:
    """Return the bytes of the shared library; what it takes is as `build_module` has it."""
    module = build_module(problem, micro_kernels, tree, variables, Limits.of(target))
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        path = Path(folder) / CODE
        try:
            compile_module(module, target).export_library(str(path))
        except (RuntimeError, OSError) as error:
            last = str(error).strip().splitlines()[-1][:200]
            raise TuningError(
                f"the library could not be linked; is a C compiler (cc) installed? {last}"
            ) from error
        return path.read_bytes()


def library_files(parts: Parts) -> dict[str, bytes]:
    """Return all files of the folder by relative path; the same parts give the same bytes."""
    requires = {"cpu_features": list(parts.target.needed_features)}
    return folder_files(parts, compile_code(parts), parts.report, requires, own_fields(parts))


def own_fields(parts: Parts) -> dict[str, Any]:
    """Return the fields of a manifest that a CPU fills by itself."""
    problem, limits = parts.task.problem, Limits.of(parts.target)
    workspace_bytes = CPU_SPACES[problem.form].workspace_bytes
    largest = (workspace_bytes(problem, kernel, limits, parts.task.largest) for kernel in parts.micro_kernels)
    return {
        "num_threads": parts.target.num_cores,
        "num_parts": parts.target.num_cores * CHUNKS,  # iterations of its loops, at most
        "packed": _packed(problem, limits.lanes),
        "workspace_bytes": max(largest),  # of a call at the largest instance
        "runtime": {},  # the launcher runs its loops, which is no file of the library's
    }


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
