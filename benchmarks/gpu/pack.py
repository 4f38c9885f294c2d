"""Pack a workload for a GPU's machine: micro-kernels with machine code, and instances. Needs no GPU."""

from __future__ import annotations

import argparse
import json
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import DietCodeError
from dietcode.search_space.cuda.candidates import starting_candidates
from dietcode.search_space.cuda.forms import device_problem, functions_of
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.seeds import cuda_seeds
from dietcode.search_space.cuda.shape import CallShape
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.problem import Problem, extents_of, problem_from_spec
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import largest_instance, make_instances
from dietcode.workload.parse import load_spec, spec_from_data
from dietcode.workload.spec import Spec

FORMAT = "dietcode-gpu-pack/1"
_NUM_POINTS = 6
_MAX_INSTANCES = 128
_SWEEP_ROWS = 64
_MAX_SWEPT = 8  # candidates that the sweep may be of: the first of them that works


def spec_for(path: Path, arch: str) -> Spec:
    """An example's spec, for a GPU."""
    return spec_from_data(load_spec(path).to_json() | {"target": {"kind": "cuda", "arch": arch}})


def candidates_of(
    problem: Problem, spec: Spec, target: CudaTarget, most: int, num_samples: int
) -> list[tuple[CudaMicroKernel, str]]:
    """What to measure, as `starting_candidates` has it."""
    limits, largest = CudaLimits.of(target), extents_of(spec, largest_instance(spec))
    seeds = cuda_seeds(problem, target, largest, num_samples=num_samples)
    found = starting_candidates(problem, seeds, limits, largest)
    return [(candidate.micro_kernel, candidate.provenance) for candidate in found][:most]


def instances_of(spec: Spec, problem: Problem) -> list[dict[str, Any]]:
    """Up to `_MAX_INSTANCES`, evenly spread, each with extents and shapes."""
    instances = make_instances(spec)
    picked = np.unique(np.linspace(0, len(instances) - 1, min(len(instances), _MAX_INSTANCES)).astype(int))
    return [
        instance_facts(problem, extents_of(spec, binding), index) | {"shape_vars": binding}
        for index, binding in enumerate(
            dict(zip(spec.variables, map(int, instances.bindings[row]), strict=True)) for row in picked
        )
    ]


def instance_facts(problem: Problem, extents: dict[str, int], index: int) -> dict[str, Any]:
    """Extents and shapes of one instance."""
    own = {letter: int(extents[letter]) for letter in problem.extents}
    shapes = {name: [int(n) for n in problem.shape(name, own)] for name in (*problem.inputs, problem.output)}
    return {"index": index, "extents": own, "shapes": shapes}


def sweep_of(problem: Problem, spec: Spec, tile: CudaMicroKernel) -> list[dict[str, Any]]:
    """Up to `_SWEEP_ROWS` instances of more and more blocks, by one dynamic letter: in steps of whole tiles,
    or of what its next value adds where that is more.
    """
    largest = extents_of(spec, largest_instance(spec))
    windows = {window.output: window for window in problem.windows}
    for role, extent in (("rows", tile.rows), ("batch", 1), ("columns", tile.columns)):
        letters = getattr(problem, role)
        # Positions of a window come last: they change with the axis that it slides over.
        dynamic = sorted((k for k in letters if problem.extents[k] is None), key=lambda k: k not in windows)
        if not dynamic:
            continue
        letter, window = dynamic[-1], windows.get(dynamic[-1])
        step = max(1, -(-extent * largest[letter] // problem.product(letters, largest)))
        found: list[dict[str, Any]] = []
        for count in range(1, _SWEEP_ROWS + 1):
            extents = largest | {letter: step * count}
            if window is not None:
                span = window.dilation * (extents[window.kernel] - 1) + 1 - 2 * window.padding
                extents[window.axis] = max(1, (extents[letter] - 1) * window.stride + span)
                extents[letter] = window.num_positions(extents[window.axis], extents[window.kernel])
            found.append(instance_facts(problem, extents, len(found)) | {"shape_vars": {}})
        return found
    return []


def launches(problem: Problem, tile: CudaMicroKernel, instances: Sequence[dict[str, Any]]) -> list[Any]:
    """Grids and workspace of a micro-kernel at each instance; where its regions begin, in float32s."""
    rows = []
    for instance in instances:
        extents = instance["extents"]
        shape = CallShape(problem, tile, extents)
        rows.append(
            {
                "grids": [[int(x), y] for x, y in shape.grids],
                "workspace": shape.workspace_elements,
                "regions": {name: int(region.first) for name, region in shape.regions.items()},
            }
        )
    return rows


def candidate_facts(
    problem: Problem,
    tile: CudaMicroKernel,
    provenance: str,
    number: int,
    sets: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    """What the GPU's machine needs to know of one micro-kernel."""
    functions = functions_of(problem, tile)
    return {
        "name": tile.name,
        "tile": tile.to_json(),
        "provenance": provenance,
        "file": f"k{number:04d}",
        "functions": [
            {
                "symbol": f.symbol,
                "arguments": list(f.arguments),
                "threads": f.threads,
                "shared_bytes": f.shared_bytes,
            }
            for f in functions
        ],
        "block": [f.symbol for f in functions].index(tile.symbol),
        "grids": {name: launches(problem, tile, instances) for name, instances in sets.items()},
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
    more: dict[str, Any],
) -> Iterator[str]:
    """Compile all and write ``pack.json`` and ``kernels.zip``; yields a line for each that is left out."""
    problem = device_problem(problem_from_spec(spec))
    instances, sweep = instances_of(spec, problem), sweep_of(problem, spec, tiles[0][0])
    points = np.unique(np.geomspace(1, len(instances), _NUM_POINTS).round().astype(int) - 1)
    texts = [cuda_text(problem, [tile], target) for tile, _ in tiles]

    def compiled(text: str) -> bytes | DietCodeError:
        try:
            return compile_cubin(text, target)
        except DietCodeError as error:
            return error

    with ThreadPoolExecutor() as pool:
        cubins = list(pool.map(compiled, texts))
    candidates = []
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "kernels.zip", "w", zipfile.ZIP_DEFLATED) as kernels:
        for (tile, provenance), text, cubin in zip(tiles, texts, cubins, strict=True):
            if isinstance(cubin, DietCodeError):
                yield f"{tile.name}: {cubin}"
                continue
            known = facts_of(cubin, problem, [tile], tile.name)
            if any(facts.stack_bytes for facts in known.values()) and not more:
                yield f"{tile.name}: spills"
                continue
            sets = {"instances": instances} | ({"sweep": sweep} if len(candidates) < _MAX_SWEPT else {})
            facts = candidate_facts(problem, tile, provenance, len(candidates), sets)
            sizes = {
                "shared_bytes": known[tile.symbol].shared_bytes,
                "code_bytes": sum(f.code_bytes for f in known.values()),
            }
            candidates.append(facts | sizes)
            kernels.writestr(f"{facts['file']}.cubin", cubin)
            kernels.writestr(f"{facts['file']}.cu", text)
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
        "dtypes": {name: problem.dtype(name) for name in (*problem.inputs, problem.output)},
        "output": problem.output,
        "stages": [{"kind": s.kind, "tensor": s.tensor, "value": s.value} for s in problem.stages],
        "dynamic": list(problem.dynamic),
        "instances": instances,
        "points": [int(i) for i in points],
        "sweep": sweep,
        "candidates": candidates,
    }
    (folder / "pack.json").write_text(json.dumps(pack | more) + "\n")


def main() -> None:
    """Pack what is to be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--most", type=int, default=400, help="micro-kernels")
    parser.add_argument("--samples", type=int, default=4, help="seeds from MetaSchedule")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    try:
        target, spec = CudaTarget(given.arch), spec_for(given.spec, given.arch)
        problem = device_problem(problem_from_spec(spec))
        tiles = candidates_of(problem, spec, target, given.most, given.samples)
        for line in write_pack(given.output, spec, target, tiles, {}):
            print(line)
    except (DietCodeError, ValueError) as error:
        raise SystemExit(str(error)) from error
    sizes = ", ".join(f"{p.name} {p.stat().st_size} bytes" for p in sorted(given.output.iterdir()))
    packed = len(json.loads((given.output / "pack.json").read_text())["candidates"])
    print(f"{given.output}: {packed} micro-kernels for {target.arch}; {sizes}")


if __name__ == "__main__":
    main()
