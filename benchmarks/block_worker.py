"""What `benchmarks.blocks` runs in a process for each row: a library beside PyTorch, or another library.

    python -m benchmarks.block_worker ROW BUILD RESULT [--instances N] [--rounds N]

RESULT is a JSON list with a record for each instance.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.block_rows import ROWS
from dietcode.bench.compare import bench
from dietcode.bench.operator import Binder, Call, Operator
from dietcode.lifeline import die_with_parent
from dietcode.measure.tvm_threads import set_num_threads
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.loading import load
from dietcode.runtime.manifest import REPORT, read_json, read_manifest
from dietcode.search_space.cpu.limits import Limits
from dietcode.target.cpu import CpuTarget

_COPY = "copy"
_FLOAT_BYTES = 4
_MODULES = {4: torch.nn.LSTMCell, 3: torch.nn.GRUCell}


def main() -> None:
    """Parse arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("row", choices=ROWS, metavar="ROW")
    parser.add_argument("build", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--instances", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    die_with_parent()
    set_num_threads(available_cores())
    torch.set_num_threads(available_cores())
    row, folder = ROWS[arguments.row], arguments.build / arguments.row
    operator = Operator.of(read_manifest(folder))
    vendors: tuple[str, ...] = ("torch",)
    paths: dict[str, Binder] = {}
    if row.cell:
        paths = {"torch-eager-cell": _cell(operator, False), "torch-compile-cell": _cell(operator, True)}
    if row.bags:
        paths = {"torch-embedding-bag": _bags}
    if row.beside is not None:
        vendors, paths = (), {row.beside: _contiguous(operator, arguments.build / row.beside)}
    found = bench(folder, vendors, arguments.instances, arguments.rounds, probes=_copies, paths=paths)
    records = [_record(operator, folder, one) for one in found]
    arguments.result.write_text(json.dumps(records))


def _record(operator: Operator, folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return seconds of each path and of the prediction, and the ratio to the fastest other path."""
    extents = operator.extents(record["shape_vars"])
    flops = float(operator.problem.flops(extents))
    rates = {"dietcode": record["measured_gflops"]} | record["vendors"]
    secs = {name: flops / rate / 1e9 for name, rate in rates.items()}
    best = min(record["vendors"], key=lambda name: secs[name])
    limits = Limits.of(CpuTarget.from_json(read_json(folder / REPORT)["target"]))
    num_bytes = record.get("bytes", 0)
    found = {
        "shape_vars": record["shape_vars"],
        "disturbed": record["disturbed"],
        "micro_kernel": record["micro_kernel"],
        "secs": secs | record.get("probe_secs", {}),
        "predicted_secs": flops / record["predicted_gflops"] / 1e9,
        "best": best,
        "ratio": secs[best] / secs["dietcode"],
        "bytes": num_bytes,
        "beyond_l2": num_bytes > limits.num_cores * limits.l2_bytes,
        "max_rel_error": record["max_rel_error"],
    }
    shape = ",".join(f"{name}={value}" for name, value in record["shape_vars"].items())
    times = " ".join(f"{name}={value * 1e6:.1f}" for name, value in found["secs"].items())
    predicted = f"predicted {found['predicted_secs'] * 1e6:.1f}"
    print(f"  {shape:<14} {found['ratio']:.2f} × of {best}; µs: {times}; {predicted}", flush=True)
    return found


def _copies(num_bytes: int) -> dict[str, Callable[[], Any]]:
    """Return a copy that moves as many bytes, half of them read."""
    source = torch.ones(max(1, num_bytes // 2 // _FLOAT_BYTES))
    target = torch.empty_like(source)
    return {_COPY: lambda: target.copy_(source)}


def _cell(operator: Operator, compiled: bool) -> Binder:
    """Return the path of PyTorch's module with the weights of a cell of the examples' form."""
    kept: dict[int, Any] = {}

    def bind(arrays: Mapping[str, Any]) -> Call:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        key = tensors["W"].data_ptr()  # constants are the same arrays at every instance
        if key not in kept:
            module = _module(tensors)
            kept[key] = torch.compile(module, dynamic=True) if compiled else module
        module, inputs = kept[key], [tensors["X"], tensors["H"]]
        if "C" in tensors:
            inputs[1:] = [(tensors["H"], tensors["C"])]

        def run() -> Any:
            with torch.no_grad():
                return module(*inputs)

        return run

    return bind


def _module(tensors: Mapping[str, Any]) -> Any:
    """Return ``torch.nn.LSTMCell`` or ``GRUCell``, by the number of gates."""
    gates, hidden, read = tensors["W"].shape
    module = _MODULES[gates](read, hidden).eval()
    names = {"weight_ih": "W", "weight_hh": "U", "bias_ih": "b", "bias_hh": "d"}
    with torch.no_grad():
        for parameter, name in names.items():
            own = getattr(module, parameter)
            own.copy_(tensors[name].reshape(own.shape) if name in tensors else torch.zeros_like(own))
    return module.requires_grad_(False)


def _bags(arrays: Mapping[str, Any]) -> Call:
    """Return the path of ``embedding_bag`` with the table and the positions of a block of this form."""
    words, at = (torch.from_numpy(arrays[name]) for name in ("words", "at"))
    return lambda: torch.nn.functional.embedding_bag(at, words, mode="sum")


def _contiguous(operator: Operator, folder: Path) -> Binder:
    """Return the path of another library, which is given the gathered rows as they follow each other."""
    library = load(folder)
    packed: dict[int, Any] = {}

    def bind(arrays: Mapping[str, Any]) -> Call:
        values = {name: array for name, array in arrays.items() if name != "at"}
        values["X"] = arrays["X"][arrays["at"]]
        for name in library.manifest["packed"]:
            key = arrays[name].__array_interface__["data"][0]
            values[name] = packed.setdefault(key, library.pack(**{name: arrays[name]}))
        out = library(**values)
        return lambda: library(**values, out=out)

    return bind


if __name__ == "__main__":
    main()
