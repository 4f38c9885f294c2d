"""The files that every library folder has, whatever kind of device it is for."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm.support.cc import get_cc

from dietcode._version import __version__
from dietcode.dispatcher.tree import Leaf, Modulus, Node
from dietcode.errors import TuningError
from dietcode.library.parts import Parts
from dietcode.runtime.manifest import CODE, DISPATCH, FORMAT, MANIFEST, REPORT, file_facts, pretty_json
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.workload.binding import plan_bindings
from dietcode.workload.identity import job_digest
from dietcode.workload.spec import Spec

VERSIONS = {"dietcode": __version__, "tvm": str(tvm.__version__), "tvm_ffi": str(tvm_ffi.__version__)}


def find_linker() -> str:
    """Return the path of the C compiler that links.

    Raises
    ------
    TuningError
        There is no C compiler.
    """
    compiler = get_cc()
    if compiler is None:
        raise TuningError("no C compiler found to link with; install cc, gcc or clang, or set CC")
    return str(compiler)


def dispatch_tree(node: Node) -> DispatchTree:
    """Return a rule as the code generator takes it."""
    if isinstance(node, Leaf):
        return node.category
    if isinstance(node, Modulus):
        return (node.variable, "%", node.divisor, dispatch_tree(node.multiples), dispatch_tree(node.others))
    return (node.variable, node.threshold, dispatch_tree(node.below), dispatch_tree(node.above))


def folder_files(
    parts: Parts,
    code: bytes,
    report: Mapping[str, Any],
    requires: Mapping[str, Any],
    own: Mapping[str, Any],
) -> dict[str, bytes]:
    """Put code, dispatch, report and manifest together, by relative path.

    Parameters
    ----------
    code : bytes
        ``library.so``.
    requires : mapping
        What the code needs of a machine beside its system.
    own : mapping
        Fields of the manifest that this kind of device fills by itself.
    """
    dispatch = {
        "categories": [
            {"category": index, "micro_kernel": kernel.name, **kernel.to_json()}
            for index, kernel in enumerate(parts.micro_kernels)
        ],
        "rule": parts.rule.to_json(),
        "table": parts.table,
    }
    files = {CODE: code, DISPATCH: pretty_json(dispatch), REPORT: pretty_json(dict(report))}
    return {**files, MANIFEST: pretty_json(manifest_of(parts, files, requires, own))}


def manifest_of(
    parts: Parts, files: Mapping[str, bytes], requires: Mapping[str, Any], own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a library's manifest.

    Parameters
    ----------
    files : mapping of str to bytes
        Those that it lists.
    requires, own : mapping
        As `folder_files` has them.
    """
    spec, problem, target = parts.task.spec, parts.task.problem, parts.target.to_json()
    # As callers see the tensors: the problem may have split an axis in several indices.
    seen = spec.operand_indices | spec.epilogue_tensors
    inputs = {name: seen[name] for name in problem.arguments}
    outputs = [
        {"name": name, "dims": dims, "dtype": problem.dtype(name)}
        | ({"into": problem.into[name][0]} if name in problem.into else {})
        for name, dims in spec.outputs.items()
    ]
    return {
        "format": FORMAT,
        "name": spec.name,
        "workload": spec.to_json(),
        "tensor_order": list(spec.tensors),  # of the operator's operands; JSON's keys are sorted
        "workload_digest": parts.task.digest,
        "job_digest": job_digest(spec, target),
        "target": target,
        "requires": {"system": platform.system(), "machine": platform.machine(), **requires},
        "versions": VERSIONS,
        "argument_order": list(problem.arguments),
        "inputs": {name: {"dims": dims, "dtype": problem.dtype(name)} for name, dims in inputs.items()},
        "output": outputs[0],
        **({"outputs": outputs} if len(outputs) > 1 else {}),
        "dims": {index: str(dim) for index, dim in spec.dims_parsed.items()},
        "variables": {name: _variable(spec, name) for name in spec.variables},
        "variable_order": list(spec.variables),  # of the code's arguments; JSON's keys are sorted
        "binding": plan_bindings(inputs, spec.dims_parsed, spec.variables).to_json(),
        "files": {name: file_facts(data) for name, data in files.items()},
        "signature": None,
        **own,
    }


def _variable(spec: Spec, name: str) -> dict[str, Any]:
    variable = spec.shape_vars[name]
    values = getattr(variable, "values", None)
    return {
        "min": int(variable.min),
        "max": int(variable.max),
        "values": None if values is None else [int(v) for v in values],
    }
