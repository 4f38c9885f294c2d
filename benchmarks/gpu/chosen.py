"""From a GPU's records to a library and a pack of what it chose, to be compared on that GPU. Needs no GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.gpu.pack import instances_of, spec_for, write_pack
from dietcode.errors import DietCodeError
from dietcode.measure.records import read_records
from dietcode.runtime.manifest import CODE, write_folder
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import problem_from_spec
from dietcode.target.cuda import CudaTarget
from dietcode.tuner.tune import make_library


def main() -> None:
    """Select, build, and pack the chosen micro-kernels with which serves which instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("output", type=Path, help="a folder; library/ and chosen/ go there")
    parser.add_argument(
        "--synthetic", action="store_true", help="take records that no device measured; for tests"
    )
    given = parser.parse_args()
    try:
        records = read_records(given.records)
        target = CudaTarget.from_json(records.device["target"])
        spec = spec_for(given.spec, target.arch)
        made = make_library(spec, known=records, archs=(target.arch,), allow_synthetic=given.synthetic)
        files, report = made.files, made.report
        write_folder(given.output / "library", files)
        by_shape = {tuple(sorted(row["shape_vars"].items())): row for row in report["instances"]}
        kernels = [k for k in report["micro_kernels"] if k["category"] is not None]
        kernels.sort(key=lambda kernel: kernel["category"])
        problem = device_problem(problem_from_spec(spec))
        rows = [by_shape[tuple(sorted(i["shape_vars"].items()))] for i in instances_of(spec, problem)]
        more = {
            "assignment": [row["category"] for row in rows],
            "predicted_gflops": [row["predicted_gflops"] for row in rows],
            "padding_ratio": [row["padding_ratio"] for row in rows],
            "flops": [row["flops"] for row in rows],
            "standing": report["standing"],
            "kappa": report["calibration"]["kappa"],
        }
        tiles = [(CudaMicroKernel.from_json(kernel), kernel["provenance"]) for kernel in kernels]
        for line in write_pack(given.output / "chosen", spec, target, tiles, more):
            raise SystemExit(line)
    except (DietCodeError, ValueError) as error:
        raise SystemExit(str(error)) from error
    print(
        f"{given.output}: {len(tiles)} micro-kernels, {len(files[CODE])} bytes of code; {report['standing']}"
    )


if __name__ == "__main__":
    main()
