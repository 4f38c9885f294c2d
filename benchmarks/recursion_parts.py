"""What parts of a recursion's compilation give: bundles compiled in other ways, and Python between levels.

    python -m benchmarks.recursion_parts MODEL BUNDLE [OTHER …] [--batches 1,10,64] [--threads 2]

Calls take turns, the medians of the rounds count. Beside the time, the memory that one call takes beyond what
was there before, of the first bundle and of PyTorch by level: the peak of resident memory, each in a process
of its own. Appends to ``recursion_parts.json`` of this device in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.facts import result_path, write
from benchmarks.recursion import INPUTS, ROOT, hidden_of, inputs_of, weights_of
from benchmarks.recursion_by_level import BY_LEVEL, Levels, plain
from benchmarks.recursion_inputs import batch_of, products_of
from dietcode.measure.turns import interleave
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.opening import load

RESULT = result_path("recursion_parts")


def main() -> None:
    """Measure every kind of structure and batch of one model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", choices=INPUTS)
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    parser.add_argument("--batches", default="1,10,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    batches = list(map(int, arguments.batches.split(",")))
    if arguments.memory_of:
        path, inputs = arguments.memory_of.split(":")
        print(peak_bytes(arguments.model, arguments.bundles[0], path, inputs, batches[0]))
        return
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    for inputs in INPUTS[arguments.model]:
        for batch in batches:
            row = {"model": arguments.model, "inputs": inputs, "batch": batch, "threads": arguments.threads}
            rows = [one for one in rows if not row.items() <= one.items()]
            row |= measure(arguments.model, arguments.bundles, inputs, batch, arguments)
            row["bytes"] = {
                path: _peak_of(arguments, path, inputs, batch) for path in ("dietcode", "by level")
            }
            rows.append(row)
            print(row, flush=True)
            write(RESULT, {"rows": rows})


def measure(kind: str, bundles: list[Path], inputs: str, batch: int, arguments: Any) -> dict[str, Any]:
    """Return the seconds of a call of each bundle, and of the first with Python between levels."""
    structure = batch_of(inputs, batch)
    models = {folder.name: load(folder, num_threads=arguments.threads) for folder in bundles}
    first = models[bundles[0].name]
    x = inputs_of(first, weights_of(kind, bundles[0]), structure)
    calls = {name: (lambda model=model: model(structure, x)) for name, model in models.items()}
    calls["python between levels"] = lambda: first.range_secs(structure, x)
    secs = interleave(calls, arguments.rounds)
    hidden = hidden_of(first)
    flops = products_of(kind, hidden, structure)
    return {"hidden": hidden, "mflops": flops / 1e6, "secs": secs, "disturbed": secs.disturbed}


def _peak_of(arguments: argparse.Namespace, path: str, inputs: str, batch: int) -> int:
    command = [sys.executable, "-m", "benchmarks.recursion_parts", arguments.model, str(arguments.bundles[0])]
    command += ["--batches", str(batch), "--memory-of", f"{path}:{inputs}"]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def peak_bytes(kind: str, folder: Path, path: str, inputs: str, batch: int) -> int:
    """Return how far a call raises this process's resident memory, after one of a single structure."""
    model = load(folder)
    weights = weights_of(kind, folder)

    def call(many: int) -> Any:
        structure = batch_of(inputs, many)
        x = inputs_of(model, weights, structure)
        if path == "dietcode":
            return lambda: model(structure, x)
        levels = Levels(structure, model.description.max_children)
        given, run = torch.from_numpy(x), BY_LEVEL[kind](weights, levels, plain)
        return torch.inference_mode()(lambda: run(given))

    small, large = call(1), call(batch)
    small()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
    before = _status("VmRSS")
    result = large()
    del result
    return max(_status("VmHWM") - before, 0)


def _status(word: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(word + ":"))


if __name__ == "__main__":
    main()
