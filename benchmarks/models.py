"""Whole models beside PyTorch: eager, compiled for dynamic shapes with frozen weights, and AOTInductor.

    python -m benchmarks.models export bert --config full -o build/benchmarks/bert.pt2
    dietcode compile build/benchmarks/bert.pt2 -o build/benchmarks/bert
    python -m benchmarks.models measure bert --config full build/benchmarks/bert --sizes 1x1,1x128,4x64

Calls take turns, a few milliseconds of each path a round, and the medians of the rounds count; the sizes are
those that ``example_args`` of ``examples/models`` takes. Then the memory of the process over calls of random
sizes between the smallest and the largest. Writes ``benchmarks/results/model-NAME.json``.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch._inductor.config

import dietcode
from benchmarks.facts import write
from dietcode.bench.compare import interleave
from dietcode.models.exporting import export
from dietcode.runtime.cpu import available_cores

ROOT = Path(__file__).resolve().parent.parent
_LEAVES = torch.utils._pytree.tree_leaves


def main() -> None:
    """Export an example, or measure its bundle."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("export", "measure"):
        command = commands.add_parser(name)
        command.add_argument("example")
        command.add_argument("--config", help="A function of the example that returns one, as full.")
        if name == "export":
            command.add_argument("-o", "--output", type=Path, required=True)
            continue
        command.add_argument("bundle", type=Path)
        command.add_argument("--sizes", required=True, help="As 1x1,1x128,4x64.")
        command.add_argument("--rounds", type=int, default=7)
        command.add_argument("--calls", type=int, default=2000, help="Of random sizes, for the memory.")
        command.add_argument("--aoti", action="store_true", help="AOTInductor too, which takes minutes.")
    arguments = parser.parse_args()
    example = _example(arguments.example)
    config = getattr(example, arguments.config)() if arguments.config else None
    if arguments.command == "export":
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        torch.export.save(_program(example, config), arguments.output)
        return
    _measure(arguments, example, config)


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / "models" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _built(example: ModuleType, config: Any) -> torch.nn.Module:
    """Return the model; configurations of some examples are the model itself."""
    if isinstance(config, torch.nn.Module):
        return config
    return example.build() if config is None else example.build(config)


def _args(example: ModuleType, config: Any, size: Sequence[int] = ()) -> Any:
    own = {} if config is None or isinstance(config, torch.nn.Module) else {"config": config}
    return example.example_args(*size, **own)


def _program(example: ModuleType, config: Any) -> Any:
    own = () if config is None or isinstance(config, torch.nn.Module) else (config,)
    model, args = _built(example, config), _args(example, config)
    return export(model, args, dynamic_shapes=example.dynamic_shapes(*own))


def _measure(arguments: argparse.Namespace, example: ModuleType, config: Any) -> None:
    torch.set_num_threads(available_cores())
    torch._inductor.config.freezing = True
    sizes = [tuple(map(int, one.split("x"))) for one in arguments.sizes.split(",")]
    begin = time.perf_counter()
    own = dietcode.load(arguments.bundle)
    load_secs = time.perf_counter() - begin
    model = _built(example, config)
    paths = {"torch-eager": model, "torch-compile-freezing": torch.compile(model, dynamic=True)}
    if arguments.aoti:
        package = torch._inductor.aoti_compile_and_package(_program(example, config))
        paths["aotinductor"] = torch._inductor.aoti_load_package(package)
    rows = []
    with torch.no_grad():
        for one in sizes:
            rows.append(_row(own, paths, _args(example, config, one), one, arguments.rounds))
        memory = _memory(own, example, config, sizes, arguments.calls)
    ratios = [row["ratio"] for row in rows]
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"{arguments.example}: {mean:.2f} × of PyTorch's best, {min(ratios):.2f} at worst")
    facts = {"rows": rows, "geometric_mean": mean, "worst": min(ratios), "memory": memory}
    facts["load_secs"] = load_secs
    label = f"{arguments.example}-{arguments.config}" if arguments.config else arguments.example
    write(ROOT / "benchmarks" / "results" / f"model-{label}.json", facts)


def _row(own: Any, paths: dict[str, Any], args: Any, size: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Return the seconds of each path at one size, and how many times faster the bundle is than the best."""
    begin = time.perf_counter()
    found = _LEAVES(own(*args))
    first_secs = time.perf_counter() - begin
    wanted = _LEAVES(paths["torch-eager"](*args))
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if b.numel()]
    error = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    assert error < 1e-4, f"{size}: error {error:.1e}"
    calls = {name: (lambda path=path: path(*args)) for name, path in {"dietcode": own, **paths}.items()}
    secs = interleave(calls, rounds)
    best = min(paths, key=lambda name: secs[name])
    ratio = secs[best] / secs["dietcode"]
    own_secs = secs["dietcode"]
    first = f"first call {first_secs / own_secs:.1f} ×"
    print(f"{size}: {own_secs * 1e3:.2f} ms, {ratio:.2f} × of {best}, {first}")
    facts = {"secs": secs, "best": best, "ratio": ratio, "first_secs": first_secs, "error": error}
    return {"size": size, **facts}


def _memory(own: Any, example: ModuleType, config: Any, sizes: list[Any], num_calls: int) -> dict[str, Any]:
    """Return the resident memory, in bytes, before, amid and after calls of random sizes."""
    low, high = sizes[0], sizes[-1]
    own(*_args(example, config, high))
    generator = random.Random(0)
    readings = [_resident()]
    for number in range(num_calls):
        size = [generator.randint(min(a, b), max(a, b)) for a, b in zip(low, high, strict=True)]
        own(*_args(example, config, size))
        if number + 1 in (num_calls // 2, num_calls):
            readings.append(_resident())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"calls": num_calls, "resident_bytes": readings, "peak_bytes": peak}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
