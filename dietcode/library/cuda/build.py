"""From chosen micro-kernels and a dispatch rule to the files of a library for CUDA."""

from __future__ import annotations

from typing import Any

from dietcode.library.cuda.code import compile_library
from dietcode.library.files import VERSIONS, dispatch_tree, folder_files
from dietcode.library.parts import Parts
from dietcode.search_space.cuda.forms import call_shape, classes_of, cuda_form
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.packing import permutations
from dietcode.search_space.problem import AnyProblem, Problem, problem_from_spec
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import nvrtc_version


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
    problem, archs = parts.task.problem, list(code.kernels)
    needed = [cuda_form(problem).alignments(problem, tile) for tile in parts.micro_kernels]
    shapes = [call_shape(problem, tile, parts.task.largest) for tile in parts.micro_kernels]
    workspaces = [4 * shape.workspace_elements for shape in shapes]
    driver = f"{nvrtc_version().partition('.')[0]}.0"
    own = {
        "versions": VERSIONS | {"nvrtc": nvrtc_version()},
        "num_threads": 1,
        "packed": _packed(parts, problem),
        "alignment_bytes": {name: max(of_tile[name] for of_tile in needed) for name in needed[0]},
        # Which categories get memory from their caller; the library says how much.
        "has_workspace": [need > 0 for need in workspaces],
        "workspace_bytes": max(workspaces),
        # Of each category, the widest first: what a call's extents and addresses are multiples of.
        "alignment_classes": [_classes(problem, tile) for tile in parts.micro_kernels],
        "runtime": {},
    }
    facts = {"machine_code": code.to_json(), "ptx": code.ptx_arch, "left_out": code.left_out}
    requires = {"cpu_features": [], "cuda": {"archs": archs, "ptx": code.ptx_arch, "driver": driver}}
    return folder_files(parts, code.library, parts.report | facts, requires, own)


def _packed(parts: Parts, problem: AnyProblem) -> dict[str, Any]:
    """Return how constants are packed, as the manifest has it."""
    if not isinstance(problem, Problem):
        return {}
    known = permutations(problem_from_spec(parts.task.spec), problem)
    return {name: own.to_json() for name, own in known.items()}


def _classes(problem: AnyProblem, tile: CudaMicroKernel) -> list[dict[str, Any]]:
    """Return the alignment classes of a category as the manifest has them."""
    return [
        {
            "multiple": own.multiple,
            "dims": "".join(own.indices),
            "alignment_bytes": cuda_form(problem).alignments(own.problem(problem), tile),
        }
        for own in classes_of(problem, tile)
    ]
