"""From chosen micro-kernels and a dispatch rule to the files of a library."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.support.cc import get_cc

from dietcode._version import __version__
from dietcode.dispatcher.rule import Branch, Leaf
from dietcode.errors import TuningError
from dietcode.library.parts import Parts
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import (
    BLOBS,
    CODE,
    DISPATCH,
    FORMAT,
    MANIFEST,
    REPORT,
    blob_name,
    file_facts,
    pretty_json,
)
from dietcode.search_space.cpu.axes import workspace_bytes
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget
from dietcode.workload.binding import plan_bindings
from dietcode.workload.identity import job_digest
from dietcode.workload.spec import Spec


def dispatch_tree(node: Leaf | Branch) -> DispatchTree:
    """A rule as the code generator takes it."""
    if isinstance(node, Leaf):
        return node.category
    return (node.variable, node.threshold, dispatch_tree(node.below), dispatch_tree(node.above))


def check_linker() -> None:
    """Refuse early a machine that cannot link.

    Raises
    ------
    TuningError
        There is no C compiler.
    """
    if get_cc() is None:
        raise TuningError("no C compiler found to link with; install cc, gcc or clang, or set CC")


def compile_code(parts: Parts) -> bytes:
    """Host dispatch and kernels as one shared library.

    Raises
    ------
    TuningError
        There is no C compiler to link with.
    """
    check_linker()
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
            tvm.compile(module, target=parts.target.tvm_target()).export_library(str(path))
        except (RuntimeError, OSError, FileNotFoundError) as error:
            last = str(error).strip().splitlines()[-1][:200]
            raise TuningError(
                f"the library could not be linked; is a C compiler (cc) installed? {last}"
            ) from error
        return path.read_bytes()


def library_files(parts: Parts) -> dict[str, bytes]:
    """All files of the folder by relative path; the same parts give the same bytes."""
    runtime = _runtime_bytes()
    files = {
        CODE: compile_code(parts),
        DISPATCH: pretty_json(_dispatch(parts)),
        REPORT: pretty_json(parts.report),
    }
    manifest = _manifest(parts, files, runtime)
    blob = f"{BLOBS}/{blob_name(manifest['runtime']['sha256'])}"
    return {**files, MANIFEST: pretty_json(manifest), blob: runtime}


def _runtime_bytes() -> bytes:
    path = Path(tvm.__file__).parent / "lib" / "libtvm_runtime.so"
    if not path.is_file():
        raise TuningError(f"{path}: the TVM runtime is missing; reinstall apache-tvm")
    return path.read_bytes()


def cache_runtime(folder: Path) -> None:
    """Keep the TVM runtime in the cache too, for libraries that arrive without it."""
    with contextlib.suppress(OSError):  # the library is whole without it
        for blob in (folder / BLOBS).iterdir():
            kept = cache_dir() / BLOBS / blob.name
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                partial = kept.with_name(f"{kept.name}.{os.getpid()}.partial")
                partial.write_bytes(blob.read_bytes())
                partial.replace(kept)


def _dispatch(parts: Parts) -> dict[str, Any]:
    return {
        "categories": [
            {"category": index, "micro_kernel": kernel.name, **kernel.to_json()}
            for index, kernel in enumerate(parts.micro_kernels)
        ],
        "rule": parts.rule.to_json(),
        "table": parts.table,
    }


def _manifest(parts: Parts, files: Mapping[str, bytes], runtime: bytes) -> dict[str, Any]:
    spec, target, problem = parts.task.spec, parts.target, parts.task.problem
    # As callers see the tensors: the problem may have split an axis in several letters.
    seen = spec.subscripts | spec.epilogue_tensors
    subscripts = {name: seen[name] for name in problem.inputs}
    binding = plan_bindings(subscripts, spec.dims_parsed, spec.variables)
    inputs = {name: {"dims": letters, "dtype": problem.dtype(name)} for name, letters in subscripts.items()}
    return {
        "format": FORMAT,
        "name": spec.name,
        "workload": spec.to_json(),
        "tensor_order": list(spec.tensors),  # of the operator's operands; JSON's keys are sorted
        "workload_digest": parts.task.digest,
        "job_digest": job_digest(spec, target.to_json()),
        "target": target.to_json(),
        "requires": {
            "system": platform.system(),
            "machine": platform.machine(),
            "cpu_features": list(target.features),
        },
        "versions": {
            "dietcode": __version__,
            "tvm": str(tvm.__version__),
            "tvm_ffi": str(tvm_ffi.__version__),
        },
        "num_threads": target.num_cores,
        "argument_order": list(problem.inputs),
        "inputs": inputs,
        "output": {"name": problem.output, "dims": spec.output_subscripts, "dtype": problem.output_dtype},
        "dims": {letter: str(dim) for letter, dim in spec.dims_parsed.items()},
        "variables": {name: variable_facts(spec, name) for name in spec.variables},
        "variable_order": list(spec.variables),  # of the code's arguments; JSON's keys are sorted
        "binding": binding.to_json(),
        "packed": _packed(problem, target),
        "workspace_bytes": _workspace_bytes(parts),
        "runtime": file_facts(runtime),
        "files": {name: file_facts(data) for name, data in files.items()},
        "signature": None,
    }


def variable_facts(spec: Spec, name: str) -> dict[str, Any]:
    variable = spec.shape_vars[name]
    values = getattr(variable, "values", None)
    return {
        "min": int(variable.min),
        "max": int(variable.max),
        "values": None if values is None else [int(v) for v in values],
    }


def _packed(problem: Problem, target: CpuTarget) -> dict[str, Any]:
    if not problem.column_operand_constant:
        return {}
    lanes = target.lanes()
    columns, reduction = "".join(problem.columns), "".join(problem.reduction)
    batch = "".join(k for k in problem.batch if k in problem.subscripts[problem.column_operand])
    axes = problem.axes(problem.column_operand)  # one that is split shows its letters: (gu)irs
    source = "".join(letters if len(letters) == 1 else f"({letters})" for letters in axes)
    panels = f"{batch + ', ' if batch else ''}{columns}/{lanes}, {reduction}, {columns}%{lanes}"
    return {
        problem.column_operand: {
            "layout": f"{source} -> [{panels}]",
            "batch": list(batch),
            "columns": list(problem.columns),
            "reduction": list(problem.reduction),
            "lanes": lanes,
            "alignment_bytes": 64,
        }
    }


def _workspace_bytes(parts: Parts) -> int:
    """Bytes that a call takes at the largest instance, with the micro-kernel that needs most."""
    problem, limits = parts.task.problem, Limits.of(parts.target)
    return max(workspace_bytes(problem, kernel, limits, parts.task.largest) for kernel in parts.micro_kernels)
