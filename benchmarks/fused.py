"""What a fused epilogue costs: the same operator with and without it, in turns in one process.

    python -m benchmarks.cpu --workloads bert-dense-ffn1,bert-dense-ffn1-gelu,…   # tunes them, see `PAIRS`
    python -m benchmarks.fused [--instances 10] [--rounds 3] [--passes 3]

Both libraries are those of `benchmarks.cpu`, each with the micro-kernels that its own search chose. The bytes
that only the epilogue reads are taken off at the bandwidth that is read beside them. Writes
``fused.json`` of this device in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import dietcode
from benchmarks.cpu import BUILD
from benchmarks.facts import calm, result_path, write
from dietcode.bench.compare import spread
from dietcode.bench.operator import Operator
from dietcode.bench.roofline import Roofline
from dietcode.measure.turns import interleave
from dietcode.measure.tvm_threads import set_num_threads
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.library import Library
from dietcode.runtime.tensors import aligned_empty

PAIRS = (("bert-dense-ffn1", "bert-dense-ffn1-gelu"), ("bert-dense-proj", "bert-dense-proj-residual"))
Row = dict[str, Any]


def main() -> None:
    """Parse arguments, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3, help="over all instances; their medians count")
    arguments = parser.parse_args()
    set_num_threads(available_cores())
    roofline = Roofline(available_cores())
    results = []
    for plain, fused in PAIRS:
        sweeps = [
            compare(plain, fused, roofline, arguments.instances, arguments.rounds)
            for _ in range(arguments.passes)
        ]
        rows = [middle(rows) for rows in zip(*sweeps, strict=True)]
        geomean = float(np.exp(np.mean([np.log(row["kept"]) for row in calm(rows, fused)])))
        results.append({"plain": plain, "fused": fused, "kept": geomean, "instances": rows})
        print(f"{fused}: {geomean:.3f} of the throughput of {plain}, extra bytes taken off", flush=True)
    write(result_path("fused"), {"pairs": results})


def compare(plain: str, fused: str, roofline: Roofline, num_instances: int, rounds: int) -> list[Row]:
    """Seconds of both at some instances, and the share of the throughput that the fused one keeps."""
    libraries = [dietcode.load(BUILD / name, num_threads=available_cores()) for name in (plain, fused)]
    bindings = [row["shape_vars"] for row in libraries[0].report["instances"]]
    rows = []
    for index in spread(len(bindings), num_instances):
        binding = bindings[index]
        calls = {"plain": call(libraries[0], binding), "fused": call(libraries[1], binding)}
        extra = bytes_of(libraries[1], binding) - bytes_of(libraries[0], binding)
        working_set = float(bytes_of(libraries[1], binding))
        secs = interleave(calls | roofline.probes(working_set), rounds)
        bandwidth = roofline.figures(secs, 1.0, working_set).read_gbytes_per_sec * 1e9
        kept = secs["plain"] / (secs["fused"] - extra / bandwidth)
        rows.append(
            {
                "shape_vars": binding,
                "plain_secs": secs["plain"],
                "fused_secs": secs["fused"],
                "extra_bytes": extra,
                "read_bytes_per_sec": bandwidth,
                "kept": kept,
                "disturbed": secs.disturbed,
            }
        )
    return rows


def middle(rows: Sequence[Row]) -> Row:
    """One instance's row of several passes: the one whose share is the median of those that were calm."""
    rows = [row for row in rows if not row["disturbed"]] or rows
    row = sorted(rows, key=lambda row: float(row["kept"]))[len(rows) // 2]
    ratio = row["plain_secs"] / row["fused_secs"]
    print(f"  {row['shape_vars']} {ratio:.3f}, extra bytes taken off {row['kept']:.3f}", flush=True)
    return row


def call(library: Library, binding: dict[str, int]) -> Callable[[], Any]:
    """A call on torch tensors of its own."""
    operator = Operator.of(library.manifest)
    rng = np.random.default_rng(0)
    arguments: dict[str, Any] = {}
    for name, shape in operator.shapes(binding).items():
        array = aligned_empty(shape)
        array[...] = rng.standard_normal(shape, dtype=np.float32)
        packs = name in library.manifest["packed"]
        arguments[name] = library.pack(**{name: array}) if packs else torch.from_numpy(array)
    out = arguments.pop(operator.problem.output)
    return lambda: library(**arguments, out=out)


def bytes_of(library: Library, binding: dict[str, int]) -> int:
    """Of all tensors once."""
    shapes = Operator.of(library.manifest).shapes(binding).values()
    return sum(4 * int(np.prod(shape)) for shape in shapes)


if __name__ == "__main__":
    main()
