"""What `benchmarks.cpu` runs in a process for each workload: the library beside PyTorch and the roofline.

    python -m benchmarks.cpu_worker DIR RESULT [--instances N] [--rounds N] [--passes N] [--alone]

The instances are gone through several times, so that a slow second of the machine is one reading of several
instances and not all readings of one; medians over the passes count. Rows are printed at the end; RESULT is
JSON. With ``--alone`` no library is loaded: PyTorch by itself, to show that sharing a process does not
handicap it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.bench.compare import bench, spread
from dietcode.bench.operator import Binder, Operator
from dietcode.bench.roofline import Roofline
from dietcode.bench.vendor import vendor_paths
from dietcode.lifeline import die_with_parent
from dietcode.measure.turns import interleave
from dietcode.measure.tvm_threads import set_num_threads
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.manifest import REPORT, read_json, read_manifest

_NUM_ALONE = 6


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()
    die_with_parent()
    if arguments.alone:
        result = alone(arguments.library, arguments.instances, arguments.rounds)
    else:
        result = beside(arguments.library, arguments.instances, arguments.rounds, arguments.passes)
    arguments.result.write_text(json.dumps(result))


def beside(folder: Path, num_instances: int, rounds: int, passes: int) -> dict[str, Any]:
    """The library, every path of PyTorch and the two probes, in turns at each instance."""
    threads = available_cores()
    set_num_threads(threads)
    operator = Operator.of(read_manifest(folder))
    roofline, kept = Roofline(threads), _Kept()
    paths = {name: kept.binder(name, bind) for name, bind in vendor_paths("torch", operator, threads).items()}
    readings = [
        list(bench(folder, (), num_instances or None, rounds, threads, roofline.probes, paths))
        for _ in range(passes)
    ]
    rows = []
    for records in zip(*readings, strict=True):
        record = _middle(records)
        flops = float(operator.problem.flops(operator.extents(record["shape_vars"])))
        figures = roofline.figures(record.pop("probe_secs"), flops, record["bytes"])
        rows.append(record | asdict(figures) | {"of_roof": record["measured_gflops"] / figures.roof_gflops})
        print(line(rows[-1]), flush=True)
    return {"threads": threads, "passes": passes, "backends": kept.backends(), "instances": rows}


def _middle(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One record of several passes, of the calm ones if there are any: medians, and the largest error."""
    worst = max(r["max_rel_error"] for r in records)
    records = [r for r in records if not r["disturbed"]] or records

    def median(name: str) -> dict[str, float]:
        return {path: float(np.median([r[name][path] for r in records])) for path in records[0][name]}

    vendors = median("vendors")
    best = max(vendors, key=lambda name: vendors[name])
    return dict(records[0]) | {
        "measured_gflops": float(np.median([r["measured_gflops"] for r in records])),
        "vendor": best,
        "vendor_gflops": vendors[best],
        "vendors": vendors,
        "probe_secs": median("probe_secs"),
        "max_rel_error": worst,
    }


def line(row: Mapping[str, Any]) -> str:
    """One row as text."""
    shape = ",".join(f"{name}={value}" for name, value in row["shape_vars"].items())
    vendors = " ".join(f"{name}={rate:.0f}" for name, rate in row["vendors"].items())
    rate, vendor = row["measured_gflops"], row["vendor_gflops"]
    return (
        f"  {shape:<14} {rate:6.0f} GFLOP/s, {rate / vendor:.2f} ×; "
        f"{row['of_roof']:.0%} of {row['roof_gflops']:.0f} (peak {row['peak_gflops']:.0f}, "
        f"{row['read_gbytes_per_sec']:.0f} GB/s); error {row['max_rel_error']:.0e}; {vendors}"
    )


class _Kept:
    """The last call of each path, to look into."""

    def __init__(self) -> None:
        self.calls: dict[str, Callable[[], Any]] = {}

    def binder(self, name: str, bind: Binder) -> Binder:
        """The same, but its call is kept."""

        def bound(arrays: Mapping[str, Any]) -> Callable[[], Any]:
            self.calls[name] = bind(arrays)
            return self.calls[name]

        return bound

    def backends(self) -> dict[str, Any]:
        """Operators that PyTorch's profiler sees in a call of each path; and how PyTorch was built."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        found: dict[str, Any] = {}
        for name, call in self.calls.items():
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                call()
            found[name] = sorted({event.key for event in profiler.key_averages() if "::" in event.key})
        words = ("MKL", "DNN", "BLAS_INFO", "CPU capability")
        lines = torch.__config__.show().replace(", ", "\n").split("\n")
        build = [line.strip(" -") for line in lines if any(word in line for word in words)]
        return found | {"build": [line for line in build if len(line) < 120]}


def alone(folder: Path, num_instances: int, rounds: int) -> dict[str, Any]:
    """GFLOP/s of PyTorch's paths at some of the instances."""
    operator = Operator.of(read_manifest(folder))
    instances = read_json(folder / REPORT)["instances"]
    chosen = [instances[i] for i in spread(len(instances), min(num_instances or _NUM_ALONE, _NUM_ALONE))]
    paths = vendor_paths("torch", operator, available_cores())
    rng = np.random.default_rng(0)
    constants: dict[Any, np.ndarray[Any, Any]] = {}
    rows = []
    for row in chosen:
        shapes, arrays = operator.shapes(row["shape_vars"]), {}
        for name in operator.inputs:
            array = rng.standard_normal(shapes[name], dtype=np.float32)
            is_constant = name in operator.constants
            arrays[name] = constants.setdefault((name, shapes[name]), array) if is_constant else array
        secs = interleave({name: bind(arrays) for name, bind in paths.items()}, rounds)
        rates = {name: row["flops"] / value / 1e9 for name, value in secs.items()}
        rows.append({"shape_vars": row["shape_vars"], "vendors": rates, "disturbed": secs.disturbed})
        print("  alone", rows[-1], flush=True)
    return {"vendor_alone": rows}


if __name__ == "__main__":
    main()
