"""Small libraries that tests load, from hand-chosen micro-kernels; `compile_cache` keeps what is compiled."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import compile_cache
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SAFE_ERROR = 1e-5


def spec_data(name: str = "dense", **changes: Any) -> dict[str, Any]:
    """``Y[16T, N] = X[16T, K] · W[N, K]ᵀ`` with a constant W, with whole fields replaced."""
    data: dict[str, Any] = {
        "name": name,
        "op": {"einsum": "mk,nk->mn", "epilogue": []},
        "tensors": {
            "X": {"dims": "mk", "dtype": "float32"},
            "W": {"dims": "nk", "dtype": "float32", "constant": True},
        },
        "output": {"name": "Y", "dtype": "float32"},
        "accumulate": "float32",
        "shape_vars": {"T": {"min": 1, "max": 8}},
        "dims": {"m": "16*T", "n": 64, "k": 48},
        "target": {"kind": "llvm"},
        "budget": {"trials": 12, "seconds": 60},
        "objective": {"binary_size": 0.05},
    }
    return data | changes


def _tensors(**dims: Any) -> dict[str, Any]:
    return {
        name.rstrip("_"): {"dims": letters, "dtype": "float32"}
        | ({"constant": True} if name[-1] == "_" else {})
        for name, letters in dims.items()
    }


def block_data(name: str, graph: Mapping[str, Any], outputs: list[str], **changes: Any) -> dict[str, Any]:
    """A block over M rows of 40 columns, with whole fields replaced."""
    data = spec_data(name, op={"block": {"version": 1, "graph": dict(graph), "outputs": outputs}})
    del data["output"]
    data |= {"shape_vars": {"M": {"min": 1, "max": 30}}, "dims": {"m": "M", "n": 40}}
    return data | changes


# A trailing underscore marks a constant tensor.
SPECS: dict[str, dict[str, Any]] = {
    "dense": spec_data("dense"),
    "rows": spec_data("rows", shape_vars={"M": {"min": 1, "max": 70}}, dims={"m": "M", "n": 100, "k": 37}),
    "varying": spec_data(
        "varying",
        tensors=_tensors(X="mk", W="nk"),
        shape_vars={"M": {"min": 1, "max": 20}},
        dims={"m": "M", "n": 50, "k": 21},
    ),
    "bmm": spec_data(
        "bmm",
        op={"einsum": "bmk,bkn->bmn", "epilogue": []},
        tensors=_tensors(P="bmk", V="bkn"),
        shape_vars={"T": {"min": 1, "max": 33}},
        dims={"b": 3, "m": "T", "n": 20, "k": "T"},
    ),
    "epilogue": spec_data(
        "epilogue",
        op={"einsum": "mk,nk->mn", "epilogue": ["bias", "relu", {"residual": "R"}]},
        shape_vars={"T": {"min": 1, "max": 5}},
        dims={"m": "4*T", "n": 40, "k": 24},
    ),
    "keyword": spec_data(
        "keyword",
        shape_vars={"A": {"min": 1, "max": 4}, "B": {"min": 2, "max": 6}},
        dims={"m": "A*B", "n": 32, "k": 16},
    ),
    # Declared in another order than the alphabet's, and the rule asks for the first one.
    "order": spec_data(
        "order",
        shape_vars={"Q": {"min": 1, "max": 4}, "B": {"min": 2, "max": 6}},
        dims={"m": "Q", "n": 32, "k": "8*B"},
    ),
    "values": spec_data(
        "values", shape_vars={"T": {"values": [1, 2, 4, 9]}}, dims={"m": "3*T", "n": 32, "k": 16}
    ),
}

_folder = functools.cache(lambda: Path(tempfile.mkdtemp(prefix="dietcode-tests-")))


def files_of(data: Mapping[str, Any]) -> dict[str, bytes]:
    """All files of a library of `make_parts`, by relative path."""
    from dietcode.library.build import library_files

    made_of = (json.dumps(data), Path(__file__).read_text(encoding="utf-8"))
    return compile_cache.library_files(made_of, lambda: library_files(make_parts(data)))


@functools.cache
def library_bytes(name: str) -> Mapping[str, bytes]:
    """All files of one library, by relative path."""
    return files_of(SPECS[name])


@functools.cache
def older_library_bytes(name: str) -> Mapping[str, bytes]:
    """The same as older versions wrote it, beside TVM's runtime; here that is noise."""
    files, runtime = library_bytes(name), random.Random(0).randbytes(1 << 18)
    manifest = json.loads(files["manifest.json"]) | {"runtime": facts(runtime)}
    blob = f"blobs/{facts(runtime)['sha256'].replace(':', '-')}"
    return {**files, "manifest.json": json.dumps(manifest).encode(), blob: runtime}


@functools.cache
def built(name: str) -> Path:
    """The folder of one library; do not change what is in it."""
    from dietcode.runtime.manifest import write_folder

    if not _folder().exists():
        _folder().mkdir()
    atexit.register(shutil.rmtree, _folder(), ignore_errors=True)
    write_folder(_folder() / name, library_bytes(name))
    return _folder() / name


@functools.cache
def built_of(text: str) -> Path:
    """The folder of a library for a spec that is not in `SPECS`, as JSON; do not change what is in it."""
    from dietcode.runtime.manifest import write_folder

    folder = Path(tempfile.mkdtemp(prefix="dietcode-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_folder(folder / "library", files_of(json.loads(text)))
    return folder / "library"


def make_parts(data: Mapping[str, Any]) -> Any:
    """Two micro-kernels and a rule that splits the first variable's range in the middle."""
    from dietcode.dispatcher.rule import Branch, Leaf, Rule
    from dietcode.dispatcher.table import dispatch_table
    from dietcode.library.parts import Parts
    from dietcode.search_space.cpu.attention.micro_kernel import AttentionKernel
    from dietcode.search_space.cpu.limits import Limits, MicroKernel
    from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
    from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
    from dietcode.search_space.cpu.spaces import SMALL_SPACES
    from dietcode.search_space.task import Task
    from dietcode.target.cpu import resolve_target
    from dietcode.workload.instances import make_instances
    from dietcode.workload.parse import spec_from_data

    spec = spec_from_data(dict(data))
    target, instances = resolve_target(spec.target), make_instances(spec)
    lanes = Limits.of(target).lanes
    kernels: tuple[Any, ...] = (MicroKernel(3, lanes), MicroKernel(4, 2 * lanes))
    if spec.block is not None:
        of_form: dict[str, tuple[Any, ...]] = {
            "products": (ProductKernel(2, lanes), ProductKernel(1, 2 * lanes, serial=True)),
            "rows": (RowKernel(1, 4 * lanes), RowKernel(2, 4 * lanes, "all", serial=True)),
            "attention": (AttentionKernel(1, 2 * lanes, split=True), AttentionKernel(3, 2 * lanes, 4)),
        }
        kernels = of_form[spec.block.form]
        space, task, limits = SMALL_SPACES[spec.block.form], Task.of(spec), Limits.of(target)
        if not all(space.allows(task.problem, one, limits) for one in kernels):  # rows across, or turned
            kernels = tuple(space.seeds(task.problem, limits)[:2])
    bindings = np.asarray(instances.bindings)
    middle = int(bindings[:, 0].min() + bindings[:, 0].max()) // 2
    rule = Rule(tuple(spec.variables), 2, Branch(spec.variables[0], middle, Leaf(0), Leaf(1)))
    assignment = rule.predict(bindings)
    table = dispatch_table(spec.variables, bindings, assignment, names=[k.name for k in kernels])
    report = _report(spec, target, kernels, instances, assignment)
    return Parts(Task.of(spec), target, kernels, rule, table, report)


def untuned_library(spec: Any, **_: Any) -> Any:
    """What stands for `dietcode.models.compiling.make_library` in tests: micro-kernels that nobody tuned."""
    from dietcode.tuner.result import TuneResult

    report = make_parts(spec.to_json()).report
    report |= {"rounds": [], "space": {"measured": 2, "failed": [], "pruned": []}}
    return TuneResult(files_of(spec.to_json()), report, {}, 0.0, 2)


def _report(spec: Any, target: Any, kernels: Any, instances: Any, assignment: Any) -> dict[str, Any]:
    """The fields of ``report.json`` that `inspect` and `bench` read, with made-up figures."""
    rows = []
    for binding, category in zip(np.asarray(instances.bindings).tolist(), assignment.tolist(), strict=True):
        values = dict(zip(spec.variables, binding, strict=True))
        extents = {letter: int(dim.evaluate(values)) for letter, dim in spec.dims_parsed.items()}
        rows.append(
            {
                "shape_vars": values,
                "category": category,
                "micro_kernel": kernels[category].name,
                "flops": 2.0 * float(np.prod(list(extents.values()))),
                "weight": 1.0,
                "f_local": 1e9,
                "f_spatial": 1.0,
                "f_pad": 1.0,
                "padding_ratio": 1.0,
                "predicted_gflops": 1.0,
                "best_micro_kernel": kernels[1 - category].name,
                "best_predicted_gflops": 1.25,
                "predicted_loss": 0.2,
            }
        )
    return {
        "format": "dietcode-report/1",
        "name": spec.name,
        "device": {"name": "a test", "target": target.to_json()},
        "target": target.to_json(),
        "seed": {"tile": [4, 32], "best_gflops": 1.0, "trials": 0},
        "calibration": {"kappa": 1.0},
        "space": {"measured": 2, "failed": []},
        "selection": {
            "num_free_choice": 2,
            "loss_mean": 0.0,
            "loss_worst": 0.0,
            "objective_met": True,
            "reason": "",
        },
        "rule": {"num_leaves": 2, "depth": 1, "loss_mean": 0.0, "loss_worst": 0.0},
        "micro_kernels": [
            {
                "micro_kernel": kernel.name,
                "provenance": "a test",
                "bytes": 1,
                "category": category,
                "instances_preferring": len(rows) if category == 0 else 0,
                "instances_served": int((assignment == category).sum()),
                "f_local": {"median_fit_error": 0.0},
            }
            for category, kernel in enumerate(kernels)
        ],
        "num_instances": len(rows),
        "instances": rows,
    }


def draw(name: str, seed: int = 0, **values: int) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of one library for some values of the shape variables, by tensor name."""
    manifest = json.loads(library_bytes(name)["manifest.json"])
    from dietcode.workload.expr import DimExpr

    extents = {k: int(DimExpr.parse(v, k).evaluate(values)) for k, v in manifest["dims"].items()}
    rng = np.random.default_rng(seed)
    return {
        tensor: rng.standard_normal([extents[k] for k in facts["dims"]], dtype=np.float32)
        for tensor, facts in manifest["inputs"].items()
    }


def expected(name: str, arrays: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The result in float64, written here on its own."""
    data = SPECS[name]
    first, second = (arrays[tensor].astype(np.float64) for tensor in data["tensors"])
    value = np.einsum(data["op"]["einsum"], first, second)
    for step in data["op"]["epilogue"]:
        if step == "bias":
            value = value + arrays["bias"]
        elif step == "relu":
            value = np.maximum(value, 0)
        else:
            value = value + arrays[step["residual"]]
    return value


def error(result: Any, right: np.ndarray[Any, Any]) -> float:
    """Largest error relative to the output's scale; NaN counts as infinite."""
    value = np.asarray(result, dtype=np.float64)
    assert value.shape == right.shape, (value.shape, right.shape)
    worst = float(np.abs(value - right).max() / np.abs(right).max())
    return worst if worst == worst else float("inf")  # noqa: PLR0124 - NaN


def packed_arguments(library: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call: constants packed."""
    return {
        name: library.pack(**{name: value}) if name in library.manifest["packed"] else value
        for name, value in arrays.items()
    }


def copy_of(name: str, place: Path) -> Path:
    """A copy of a library that a test may spoil; `place` must not exist."""
    shutil.copytree(built(name), place)
    return place


def rewrite_manifest(folder: Path, **changes: Any) -> None:
    """Replace top-level fields of a manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def facts(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": f"sha256:{hashlib.sha256(data).hexdigest()}"}


def as_served(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same files as a server keeps them: the manifest says that a signature goes with it."""
    from dietcode.runtime.manifest import as_published

    return {**files, "manifest.json": as_published(json.loads(files["manifest.json"]))}


def with_manifest(files: dict[str, bytes], name: str = "dense", /, **changes: Any) -> dict[str, bytes]:
    """The same files with a manifest that lists them, and the runtime."""
    runtime = b"runtime" * 1000
    manifest = {
        "format": "dietcode-library/1",
        "name": name,
        "workload": spec_data(name),
        "workload_digest": "sha256:" + "ab" * 32,
        "target": {"kind": "llvm", "mcpu": "test"},
        "variable_order": ["T"],
        "runtime": facts(runtime),
        "files": {path: facts(data) for path, data in files.items()},
    }
    blob = f"blobs/{facts(runtime)['sha256'].replace(':', '-')}"
    return {**files, "manifest.json": json.dumps(manifest | changes).encode(), blob: runtime}
