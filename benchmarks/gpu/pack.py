"""Pack a workload for a GPU's machine: micro-kernels with machine code, and instances. Needs no GPU."""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.block_graph import OPERATORS
from benchmarks.gpu.lines import read_facts
from benchmarks.gpu.next_round import next_candidates
from benchmarks.gpu.order import MOST_COMPARED, picked
from benchmarks.gpu.points import instance_facts, points_of, sweep_of
from benchmarks.gpu.shape_alone import NUM_SHAPES, can_be_alone, write_alone
from dietcode.cost_model.cuda.model import count
from dietcode.errors import DietCodeError
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.block_space import block_micro_kernels, block_seeds
from dietcode.search_space.cuda.candidates import starting_candidates
from dietcode.search_space.cuda.forms import classes_of, cuda_form, device_problem, functions_of
from dietcode.search_space.cuda.launches import call_of
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.packing import permutations
from dietcode.search_space.cuda.seeds import cuda_seeds
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.forms import problem_of
from dietcode.search_space.problem import AnyProblem, Problem, extents_of, instance_extents
from dietcode.search_space.products.problem import ProductProblem
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import Instances, largest_instance, make_instances
from dietcode.workload.operators import OPERATORS as WORKLOAD_OPERATORS
from dietcode.workload.parse import load_spec, spec_from_data
from dietcode.workload.spec import Spec

FORMAT = "dietcode-gpu-pack/10"
COUNTS = "counts.npz"
COUNTED = ("padded_flops", "blocks", "num_steps", "elements", "vectors", "num_bytes")
"""What the cost model counts, [num_micro_kernels, num_instances], beside the FLOPs of the instances."""
_MAX_INSTANCES = 128
_MAX_SWEPT = 8  # candidates that the sweep may be of: the first of them that works


def spec_for(path: Path, arch: str) -> Spec:
    """An example's spec, for a GPU."""
    return spec_from_data(load_spec(path).to_json() | {"target": {"kind": "cuda", "arch": arch}})


def candidates_of(
    problem: AnyProblem,
    spec: Spec,
    target: CudaTarget,
    most: int,
    num_samples: int,
    earlier: Sequence[tuple[Spec, Path]] = (),
) -> list[tuple[CudaMicroKernel, str]]:
    """What to measure, as `starting_candidates` has it, or `next_candidates` where there are records."""
    limits, largest = CudaLimits.of(target), extents_of(spec, largest_instance(spec))
    if isinstance(problem, BlockProblem):
        seeds = [seed.micro_kernel for seed in block_seeds(problem, limits)]
        every = dict.fromkeys((*seeds, *block_micro_kernels(problem, limits)))
        return [(one, "hardware") for one in every][:most]
    assert isinstance(problem, Problem)
    seeds = cuda_seeds(problem, target, largest, num_samples=num_samples)
    found = starting_candidates(problem, seeds, limits, largest)
    if earlier:
        found = next_candidates(spec, earlier, found, most)
    return [(candidate.micro_kernel, candidate.provenance) for candidate in found][:most]


def packed_rows(instances: Instances) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Which instances are packed: up to `_MAX_INSTANCES`, evenly spread."""
    most = min(len(instances), _MAX_INSTANCES)
    return np.unique(np.linspace(0, len(instances) - 1, most).astype(np.int64))


def instances_of(spec: Spec, problem: AnyProblem, instances: Instances) -> list[dict[str, Any]]:
    """Those of `packed_rows`, each with extents and shapes."""
    return [
        instance_facts(problem, extents_of(spec, binding), index) | {"shape_vars": binding}
        for index, binding in enumerate(
            dict(zip(spec.variables, map(int, instances.bindings[row]), strict=True))
            for row in packed_rows(instances)
        )
    ]


def launches(problem: AnyProblem, tile: CudaMicroKernel, instances: Sequence[dict[str, Any]]) -> list[Any]:
    """What a call launches at each instance: functions by their number, grids, and the workspace's regions.

    Sizes of the workspace and the beginnings of its regions are in float32s.
    """
    symbols, rows = [f.symbol for f in functions_of(problem, tile)], []
    for instance in instances:
        call = call_of(problem, tile, instance["extents"])
        rows.append(
            {
                "functions": [symbols.index(launch.symbol) for launch in call.launches],
                "grids": [list(launch.grid) for launch in call.launches],
                "maps": [[one.to_json() for one in launch.maps] for launch in call.launches],
                "workspace": call.workspace_bytes // 4,
                "regions": {name: first // 4 for name, first in call.regions.items()},
            }
        )
    return rows


def write_counts(
    path: Path,
    problem: AnyProblem,
    spec: Spec,
    instances: Instances,
    tiles: Sequence[CudaMicroKernel],
    points: Sequence[dict[str, Any]],
) -> None:
    """Write what choosing counts: for every micro-kernel at every instance, and at the points to be measured.

    The GPU's machine fits and predicts from these, without this project's problems and micro-kernels.
    """
    at_points = {k: np.asarray([one["extents"][k] for one in points]) for k in problem.extents}
    arrays: dict[str, Any] = {
        "bindings": instances.bindings,
        "weights": instances.weights,
        "packed": packed_rows(instances),
    }
    for prefix, extents in (("", instance_extents(spec, instances.columns())), ("point_", at_points)):
        given = {k: extents[k] for k in problem.extents}
        counts = [count(problem, tile, 1, given) for tile in tiles]
        arrays[f"{prefix}flops"] = counts[0].flops
        for name in COUNTED:
            arrays[prefix + name] = np.stack([getattr(one, name) for one in counts])
    np.savez_compressed(path, **arrays)


def candidate_facts(
    problem: AnyProblem,
    tile: CudaMicroKernel,
    provenance: str,
    number: int,
    sets: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    """What the GPU's machine needs to know of one micro-kernel."""
    functions = functions_of(problem, tile)
    symbols = [f.symbol for f in functions]
    return {
        "name": tile.name,
        "tile": tile.to_json(),
        "order": list(tile.order),
        "sum_order": list(cuda_form(problem).sum_order(tile)),
        "provenance": provenance,
        "file": f"k{number:04d}",
        "functions": [
            {
                "symbol": f.symbol,
                "arguments": list(f.arguments),
                "threads": f.threads,
                "shared_bytes": f.shared_bytes,
                "overlaps": f.overlaps,
                "cluster": f.cluster,
                "persistent": f.persistent,
            }
            for f in functions
        ],
        "multiples": [one.multiple for one in classes_of(problem, tile)[:-1]],
        "blocks": [symbols.index(one.symbol(tile)) for one in classes_of(problem, tile)],
        "grids": {name: launches(problem, tile, instances) for name, instances in sets.items()},
    }


def stages_of(problem: AnyProblem) -> list[dict[str, Any]]:
    """The epilogue of a contraction; a block has none."""
    stages = problem.stages if isinstance(problem, Problem) else ()
    return [{"kind": s.kind, "tensor": s.tensor, "value": s.value} for s in stages]


def block_facts(problem: BlockProblem) -> dict[str, Any]:
    """A block as `graph` computes it, and by how much operands are scaled so that sums are of the size of 1.

    Raises
    ------
    ValueError
        PyTorch computes none such there.
    """
    unknown = sorted({node.operator for node in problem.nodes.values()} - set(OPERATORS))
    if unknown or len(problem.outputs) != 1 or problem.into or problem.tables:
        given = ", ".join(unknown) or f"{len(problem.outputs)} outputs, {len(problem.tables)} tables"
        raise ValueError(f"a block with {given}; allowed: one output, of {', '.join(OPERATORS)}")
    scales = {}
    if isinstance(problem, ProductProblem):
        for term, _ in problem.plan.terms:
            depth = [problem.extents[index] or 1 for index in term.reduction]
            scales[term.columns] = float(np.prod(depth)) ** -0.5
    return {
        "nodes": {
            name: {
                "operator": node.operator,
                "operands": list(node.operands),
                "attributes": {k: node.attribute(k) for k in WORKLOAD_OPERATORS[node.operator].attributes},
            }
            for name, node in problem.nodes.items()
        },
        "indices": dict(problem.indices),
        "output": problem.outputs[0],
        "attention": asdict(problem.plan) if isinstance(problem, AttentionProblem) else None,
        "scales": scales,
    }


def commit() -> str | None:
    """The commit that the generated code is of, with a plus where there are changes; None if unknown."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def write_pack(
    folder: Path,
    spec: Spec,
    target: CudaTarget,
    tiles: Sequence[tuple[CudaMicroKernel, str]],
) -> Iterator[str]:
    """Compile all and write the files of a pack; yields a line for each micro-kernel that is left out."""
    seen, all_instances = problem_of(spec), make_instances(spec)
    problem = device_problem(seen)
    constants = permutations(seen, problem) if isinstance(problem, Problem) else {}
    instances, sweep = instances_of(spec, problem, all_instances), sweep_of(problem, spec, tiles[0][0])
    for instance in (*instances, *sweep):  # as callers have them; the GPU's machine packs them
        instance["shapes"] |= {name: seen.shape(name, instance["extents"]) for name in constants}
    points = points_of(problem, tiles[0][0], instances)
    texts = [cuda_text(problem, [tile], target) for tile, _ in tiles]

    def compiled(text: str) -> bytes | DietCodeError:
        try:
            return compile_cubin(text, target)
        except DietCodeError as error:
            return error

    with ThreadPoolExecutor() as pool:
        cubins = list(pool.map(compiled, texts))
    candidates: list[dict[str, Any]] = []
    kept: list[CudaMicroKernel] = []
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "kernels.zip", "w", zipfile.ZIP_DEFLATED) as kernels:
        for (tile, provenance), text, cubin in zip(tiles, texts, cubins, strict=True):
            if isinstance(cubin, DietCodeError):
                yield f"{tile.name}: {cubin}"
                continue
            known = facts_of(cubin, problem, [tile], tile.name, target)
            if any(facts.stack_bytes for facts in known.values()):
                yield f"{tile.name}: spills"
                continue
            is_swept = sum("sweep" in one["grids"] for one in candidates) < _MAX_SWEPT
            is_swept &= tile.is_alone and tile.splits == 1  # κ is of grids of waves, of one function
            sets = {"instances": instances} | ({"sweep": sweep} if is_swept else {})
            facts = candidate_facts(problem, tile, provenance, len(candidates), sets)
            sizes = {
                "shared_bytes": known[tile.symbol].shared_bytes,
                "code_bytes": sum(f.code_bytes for f in known.values()),
            }
            candidates.append(facts | sizes)
            kept.append(tile)
            kernels.writestr(f"{facts['file']}.cubin", cubin)
            kernels.writestr(f"{facts['file']}.cu", text)
    if not kept:
        raise ValueError(f"{spec.name}: no micro-kernel could be packed")
    write_counts(folder / COUNTS, problem, spec, all_instances, kept, [instances[i] for i in points])
    operands = list(spec.tensors)
    pack = {
        "format": FORMAT,
        "name": spec.name,
        "workload": workload_digest(spec),
        "arch": target.arch,
        "commit": commit(),
        "einsum": spec.op.einsum,
        "conv2d": None if spec.op.conv2d is None else spec.op.conv2d.to_json(),
        "operands": operands,
        "dtypes": {name: problem.dtype(name) for name in (*problem.inputs, *problem.outputs)},
        "output": problem.outputs[0],
        "packed": {name: one.to_json() for name, one in constants.items()},
        "stages": stages_of(problem),
        "block": block_facts(problem) if isinstance(problem, BlockProblem) else None,
        "dynamic": list(problem.dynamic),
        "variables": list(spec.variables),
        "exhaustive": all_instances.exhaustive,
        "objective": spec.objective.model_dump(mode="json"),
        "multiprocessor": asdict(target.sm),
        "instances": instances,
        "points": points,
        "sweep": sweep,
        "candidates": candidates,
    }
    text = json.dumps(pack, separators=(",", ":"), default=_plain) + "\n"
    (folder / "pack.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _plain(value: Any) -> int:
    """What JSON has for NumPy's integers, which extents that were counted are.

    Raises
    ------
    TypeError
        It is none.
    """
    if isinstance(value, np.integer):
        return int(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def pack_alone(folder: Path, spec: Spec, target: CudaTarget, num_shapes: int, num_trials: int) -> None:
    """Add MetaSchedule's kernels of the shapes that are compared first, where it has rules for them."""
    problem = device_problem(problem_of(spec))
    if not num_trials or not isinstance(problem, Problem) or not can_be_alone(problem):
        return
    instances = read_facts(folder)["instances"]
    picks = [instances[index] for index in picked(len(instances), MOST_COMPARED)[:num_shapes]]
    write_alone(folder, problem, target, picks, num_trials)


def main() -> None:
    """Pack what is to be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--most", type=int, default=400, help="micro-kernels")
    parser.add_argument("--samples", type=int, default=4, help="seeds from MetaSchedule")
    parser.add_argument("--trials", type=int, default=0, help="of MetaSchedule for one shape alone")
    parser.add_argument("--shapes", type=int, default=NUM_SHAPES, help="that it has trials for")
    parser.add_argument(
        "--records", type=Path, nargs=2, action="append", default=[], metavar=("SPEC", "RECORDS"),
        help="of a first pack, of this workload or of others: by these is chosen what is packed",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    try:
        target, spec = CudaTarget(given.arch), spec_for(given.spec, given.arch)
        problem = device_problem(problem_of(spec))
        earlier = [(spec_for(path, given.arch), records) for path, records in given.records]
        tiles = candidates_of(problem, spec, target, given.most, given.samples, earlier)
        for line in write_pack(given.output, spec, target, tiles):
            print(line)
        pack_alone(given.output, spec, target, given.shapes, given.trials)
    except (DietCodeError, ValueError) as error:
        raise SystemExit(str(error)) from error
    sizes = ", ".join(f"{p.name} {p.stat().st_size} bytes" for p in sorted(given.output.iterdir()))
    packed = len(read_facts(given.output)["candidates"])
    print(f"{given.output}: {packed} micro-kernels for {target.arch}; {sizes}")


if __name__ == "__main__":
    main()
