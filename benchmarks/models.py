"""Whole models beside PyTorch, AOTInductor, ONNX Runtime and OpenVINO; their profile; the runtime's guard.

    python -m benchmarks.models export bert --config full -o build/benchmarks/bert.pt2 --onnx --aoti
    dietcode compile build/benchmarks/bert.pt2 -o build/benchmarks/bert
    python -m benchmarks.models measure bert --config full build/benchmarks/bert --sizes 1x1,1x128,4x64
    python -m benchmarks.models profile bert --config full build/benchmarks/bert --sizes 1x128
    python -m benchmarks.models guard bert --config full build/benchmarks/bert --sizes 1x1,4x64

`measure`: calls take turns, a few milliseconds of each path a round, and the medians of the rounds count;
the sizes are those that ``example_args`` of ``examples/models`` takes. Peers whose files `export` has not
made are left out. With ``--static SIZE=BUNDLE``, a bundle compiled for that size alone takes part there.
Writes ``model-NAME.json`` of this device in ``benchmarks/results``. `guard`: memory over calls of random
sizes, threads, fork.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import dietcode
from benchmarks.facts import calm, result_path, write
from benchmarks.model_guard import guarded
from benchmarks.model_memory import planned
from benchmarks.model_peers import peers, write_aoti, write_onnx, write_optimized
from dietcode.measure.turns import interleave
from dietcode.models.exporting import export
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.models.executable import KernelStep

ROOT = Path(__file__).resolve().parent.parent
_LEAVES = torch.utils._pytree.tree_leaves
_PROFILED_CALLS = 40
_TRANSFORMERS = {"bert": "bert", "llama": "gpt2"}  # what ONNX Runtime's optimizer calls these examples


def main() -> None:
    """Export an example, or measure its bundle."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("export", "measure", "profile", "guard"):
        command = commands.add_parser(name)
        command.add_argument("example")
        command.add_argument("--config", help="A function of the example that returns one, as full.")
        if name == "export":
            command.add_argument("-o", "--output", type=Path, required=True)
            command.add_argument("--onnx", action="store_true", help="The ONNX file too, for peers.")
            command.add_argument("--aoti", action="store_true", help="AOTInductor too, which takes minutes.")
            continue
        command.add_argument("bundle", type=Path)
        command.add_argument("--sizes", required=True, help="As 1x1,1x128,4x64.")
        if name == "measure":
            command.add_argument("--rounds", type=int, default=7)
            command.add_argument("--static", action="append", default=[], metavar="SIZE=BUNDLE")
            command.add_argument("--label", help="Of the result; by default that of the example.")
        if name == "guard":
            command.add_argument("--calls", type=int, default=100_000)
    arguments = parser.parse_args()
    example = _example(arguments.example)
    config = getattr(example, arguments.config)() if arguments.config else None
    if arguments.command == "export":
        _export(arguments, example, config)
        return
    torch.set_num_threads(available_cores())
    sizes = [tuple(map(int, one.split("x"))) for one in arguments.sizes.split(",")]
    with torch.no_grad():
        if arguments.command == "measure":
            _measure(arguments, example, config, sizes)
        elif arguments.command == "profile":
            _profile(dietcode.load(arguments.bundle), [(one, _args(example, config, one)) for one in sizes])
        else:
            own = dietcode.load(arguments.bundle)
            facts = guarded(own, lambda size: _args(example, config, size), sizes, arguments.calls)
            write(_result(arguments.example, arguments.config, "-guard"), facts)


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


def _export(arguments: argparse.Namespace, example: ModuleType, config: Any) -> None:
    own = () if config is None or isinstance(config, torch.nn.Module) else (config,)
    model, args, shapes = _built(example, config), _args(example, config), example.dynamic_shapes(*own)
    program = export(model, args, dynamic_shapes=shapes)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, arguments.output)
    if arguments.onnx:
        write_onnx(model, args, shapes, arguments.output)
        if arguments.example in _TRANSFORMERS:
            used = config or example.Config()
            write_optimized(arguments.output, _TRANSFORMERS[arguments.example], used.heads, used.hidden)
    if arguments.aoti:
        write_aoti(_peer_program(model, args, shapes, program), arguments.output)


def _peer_program(model: torch.nn.Module, args: Any, shapes: Any, program: Any) -> Any:
    """Return PyTorch's own export, with its fused attention; ours of a model that it cannot take."""
    try:
        return torch.export.export(model, args, dynamic_shapes=shapes)
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        print(f"AOTInductor takes the program of dietcode.export: {why[:160]}")
        return program


def _measure(arguments: argparse.Namespace, example: ModuleType, config: Any, sizes: Sequence[Any]) -> None:
    begin = time.perf_counter()
    own = dietcode.load(arguments.bundle)
    load_secs = time.perf_counter() - begin
    paths, missing = peers(_built(example, config), arguments.bundle.with_suffix(".pt2"))
    static = {}
    for text in arguments.static:
        size, folder = text.split("=", 1)
        static[tuple(map(int, size.split("x")))] = dietcode.load(Path(folder))
    rows = [
        _row(own, paths, missing, static.get(one), _args(example, config, one), one, arguments.rounds)
        for one in sizes
    ]
    ratios = [row["ratio"] for row in calm(rows, arguments.example)]
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"{arguments.example}: {mean:.2f} × of the best other, {min(ratios):.2f} at worst")
    facts = {"rows": rows, "geometric_mean": mean, "worst": min(ratios), "load_secs": load_secs}
    write(_result(arguments.label or arguments.example, arguments.config, ""), facts | {"missing": missing})


def _result(name: str, config: str | None, suffix: str) -> Path:
    label = f"{name}-{config}" if config else name
    return result_path(f"model-{label}{suffix}")


def _row(
    own: Any,
    paths: dict[str, Any],
    missing: dict[str, str],
    static: Any,
    args: Any,
    size: tuple[int, ...],
    rounds: int,
) -> dict[str, Any]:
    """Return the seconds of each path at one size, and how many times faster the bundle is than the best.

    Parameters
    ----------
    missing : dict of str to str
        Paths that fail go from `paths` to here.
    static : Model or None
        A bundle for this size alone.
    """
    begin = time.perf_counter()
    found = _LEAVES(own(*args))
    first_secs = time.perf_counter() - begin
    wanted = _LEAVES(paths["torch-eager"](*args))
    error = _error(found, wanted)
    assert error < 1e-4, f"{size}: error {error:.1e}"
    for name in list(paths):
        try:
            others = _error(_LEAVES(paths[name](*args)), wanted)
            assert others < 1e-2, f"{size}: error {others:.1e}"
        except Exception as failure:
            missing[name] = f"{size}: {type(failure).__name__}: {str(failure).splitlines()[0][:200]}"
            del paths[name]
            print(f"{name}: left out, {missing[name]}")
    beside = paths if static is None else {**paths, "dietcode-static": static}
    calls = {name: (lambda path=path: path(*args)) for name, path in {"dietcode": own, **beside}.items()}
    secs = interleave(calls, rounds)
    best = min(paths, key=lambda name: secs[name])
    ratio, own_secs = secs[best] / secs["dietcode"], secs["dietcode"]
    kernels = _kernel_secs(own, args)
    facts = {"secs": secs, "best": best, "ratio": ratio, "first_secs": first_secs, "error": error}
    facts["memory"] = planned(own, args)
    if static is not None:
        facts["memory"]["bytes_static"] = planned(static, args)["bytes"]
    facts["disturbed"] = secs.disturbed
    facts |= {"kernel_secs": kernels["kernels"], "host_secs": kernels["host"], "alone_secs": kernels["call"]}
    others = ", ".join(f"{name} {one * 1e3:.2f}" for name, one in secs.items() if name != "dietcode")
    print(
        f"{size}: {own_secs * 1e3:.2f} ms, {ratio:.2f} × of {best} ({others}); "
        f"first call {first_secs / own_secs:.1f} ×; alone {kernels['call'] * 1e3:.3f} ms, "
        f"of which kernels {kernels['kernels'] * 1e3:.3f}, host {kernels['host'] * 1e3:.3f}"
    )
    return {"size": size, **facts}


def _error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Return the largest error of any output, relative to its largest element."""
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if b.numel()]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def _kernel_secs(own: Any, args: Any) -> dict[str, float]:
    """Return the seconds of a call, of its kernels and of its steps on the host, in turns."""
    totals, steps = [], []
    for _ in range(_PROFILED_CALLS):
        begin = time.perf_counter()
        own(*args)
        totals.append(time.perf_counter() - begin)
        steps.append([secs for _, secs in own.step_secs(*args)])
    each = np.median(steps, axis=0)
    is_kernel = np.array([isinstance(step, KernelStep) for step, _ in own.step_secs(*args)])
    return {
        "call": float(np.median(totals)),
        "kernels": float(each[is_kernel].sum()),
        "host": float(each[~is_kernel].sum()),
    }


def _profile(own: Any, cases: Sequence[tuple[Any, Any]]) -> None:
    """Print the share of each library, and of the host, in a call."""
    names = {part["digest"]: part for part in own.report["parts"]}
    for size, args in cases:
        own(*args)
        timed = [own.step_secs(*args) for _ in range(_PROFILED_CALLS)]
        each = np.median([[secs for _, secs in one] for one in timed], axis=0)
        shares: dict[str, list[float]] = {}
        for (step, _), secs in zip(timed[0], each, strict=True):
            label = step.digest if isinstance(step, KernelStep) else f"host: {step.operator}"
            shares.setdefault(label, []).append(float(secs))
        print(f"{size}: {each.sum() * 1e3:.3f} ms in {len(each)} steps")
        for label, secs in sorted(shares.items(), key=lambda item: -sum(item[1])):
            part = names.get(label)
            what = label if part is None else f"{part['name']}  {part['operator'][:60]}"
            print(f"  {sum(secs) / each.sum():6.1%} {sum(secs) * 1e6:9.1f} µs {len(secs):4} × {what}")


if __name__ == "__main__":
    main()
