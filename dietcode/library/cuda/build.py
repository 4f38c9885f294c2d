"""From chosen micro-kernels and a dispatch rule to the files of a library for CUDA."""

from __future__ import annotations

import platform
from typing import Any

import tvm
import tvm_ffi

from dietcode._version import __version__
from dietcode.library.build import dispatch_tree, variable_facts
from dietcode.library.cuda.code import CudaCode, compile_library
from dietcode.library.parts import Parts
from dietcode.runtime.manifest import CODE, DISPATCH, FORMAT, MANIFEST, REPORT, file_facts, pretty_json
from dietcode.search_space.cuda.shape import alignments, workspace_elements
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import nvrtc_version
from dietcode.workload.binding import plan_bindings
from dietcode.workload.identity import job_digest


def cuda_library_files(parts: Parts) -> dict[str, bytes]:
    """All files of the folder by relative path; the same parts give the same bytes.

    Raises
    ------
    TargetError, TuningError
        As `compile_library` has them.
    """
    code = compile_library(
        parts.task.problem,
        parts.micro_kernels,
        dispatch_tree(parts.rule.root),
        parts.task.variables,
        tuple(CudaTarget(arch) for arch in dict.fromkeys([parts.target.arch, *parts.archs])),
    )
    dispatch = {
        "categories": [
            {"category": index, "micro_kernel": kernel.name, **kernel.to_json()}
            for index, kernel in enumerate(parts.micro_kernels)
        ],
        "rule": parts.rule.to_json(),
        "table": parts.table,
    }
    files = {
        CODE: code.library,
        DISPATCH: pretty_json(dispatch),
        REPORT: pretty_json(
            parts.report | {"machine_code": code.to_json(), "ptx": code.ptx_arch, "left_out": code.left_out}
        ),
    }
    return {**files, MANIFEST: pretty_json(_manifest(parts, code, files))}


def _manifest(parts: Parts, code: CudaCode, files: dict[str, bytes]) -> dict[str, Any]:
    spec, problem = parts.task.spec, parts.task.problem
    seen = spec.subscripts | spec.epilogue_tensors
    subscripts = {name: seen[name] for name in problem.inputs}
    needed = [alignments(problem, tile) for tile in parts.micro_kernels]
    workspaces = [4 * workspace_elements(problem, tile, parts.task.largest) for tile in parts.micro_kernels]
    target = parts.target.to_json()
    return {
        "format": FORMAT,
        "name": spec.name,
        "workload": spec.to_json(),
        "tensor_order": list(spec.tensors),
        "workload_digest": parts.task.digest,
        "job_digest": job_digest(spec, target),
        "target": target,
        "requires": {
            "system": platform.system(),
            "machine": platform.machine(),
            "cpu_features": [],
            "cuda": {
                "archs": list(code.kernels),
                "ptx": code.ptx_arch,
                "driver": f"{nvrtc_version().partition('.')[0]}.0",
            },
        },
        "versions": {
            "dietcode": __version__,
            "tvm": str(tvm.__version__),
            "tvm_ffi": str(tvm_ffi.__version__),
            "nvrtc": nvrtc_version(),
        },
        "num_threads": 1,
        "argument_order": list(problem.inputs),
        "inputs": {
            name: {"dims": letters, "dtype": problem.dtype(name)} for name, letters in subscripts.items()
        },
        "output": {"name": problem.output, "dims": spec.output_subscripts, "dtype": problem.output_dtype},
        "dims": {letter: str(dim) for letter, dim in spec.dims_parsed.items()},
        "variables": {name: variable_facts(spec, name) for name in spec.variables},
        "variable_order": list(spec.variables),
        "binding": plan_bindings(subscripts, spec.dims_parsed, spec.variables).to_json(),
        "packed": {},
        "alignment_bytes": {name: max(of_tile[name] for of_tile in needed) for name in needed[0]},
        # Which categories get memory from their caller; the library says how much.
        "has_workspace": [need > 0 for need in workspaces],
        "workspace_bytes": max(workspaces),
        "runtime": {},
        "files": {name: file_facts(data) for name, data in files.items()},
        "signature": None,
    }
