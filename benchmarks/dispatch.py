"""How many kernels a range needs: dense layers of BERT by at most 1, 2, 4, 8 of them (Nimble, Figure 3).

    python -m benchmarks.dispatch [--trials 32] [--seconds 45]

Three layers are tuned for 1 to 128 tokens, their categories chosen again with at most so many micro-kernels,
and each is tuned for 128 tokens alone, where the same budget goes to one shape. All take turns. Writes
``dispatch.json`` of this device in ``benchmarks/results``; what is tuned lies in
``build/benchmarks/dispatch`` and is not tuned again with the same budget.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import dietcode
from benchmarks.dense import dense_spec
from benchmarks.facts import ROOT, result_path, write
from dietcode.measure.turns import interleave
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.library import Library

BUILD = ROOT / "build" / "benchmarks" / "dispatch"
LAYERS = {"projection": (768, 768), "expand": (3072, 768), "contract": (768, 3072)}
MOST, TOKENS = (8, 4, 2, 1), (1, 5, 37, 100, 128)
_STATIC = 128
_OBJECTIVE = {"binary_size": 0.0, "max_loss": 0.0, "max_kernels": max(MOST)}
Row = dict[str, Any]


def main() -> None:
    """Tune what is not there yet, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    rows = []
    for layer in LAYERS:
        libraries = {
            name: dietcode.load(folder, num_threads=available_cores())
            for name, folder in tuned(layer, arguments.trials, arguments.seconds).items()
        }
        for tokens in TOKENS:
            rows.append(timed(layer, libraries, tokens, arguments.rounds))
            print({key: rows[-1][key] for key in ("layer", "tokens", "over_static", "disturbed")}, flush=True)
    write(result_path("dispatch"), {"trials": arguments.trials, "seconds": arguments.seconds, "rows": rows})


def tuned(layer: str, trials: int, seconds: float) -> dict[str, Path]:
    """Return the libraries of a layer: for 128 tokens alone, and by at most so many micro-kernels."""
    build = BUILD / f"{trials}-trials-{seconds:g}-s"
    found = {"static": build / f"{layer}-static"}
    every = build / f"{layer}-every"
    for folder, least in ((found["static"], _STATIC), (every, 1)):
        if not folder.exists():
            spec = folder.with_suffix(".json")
            spec.parent.mkdir(parents=True, exist_ok=True)
            rows = ("M", least, _STATIC)
            spec.write_text(json.dumps(dense_spec(folder.name, rows, *LAYERS[layer], objective=_OBJECTIVE)))
            _run("tune", str(spec), "-o", str(folder), "--trials", f"{trials}", "--seconds", f"{seconds:g}")
    for most in MOST:
        found[f"at most {most}"] = folder = build / f"{layer}-{most}"
        if not folder.exists():
            _run("reselect", str(every), "--objective", f"max_kernels={most}", "-o", str(folder))
    return found


def _run(*command: str) -> None:
    subprocess.run([sys.executable, "-m", "dietcode", *command], cwd=ROOT, check=True)


def timed(layer: str, libraries: dict[str, Library], tokens: int, rounds: int) -> Row:
    """Return the seconds of each library at a number of tokens, and each one's over that of 128 alone."""
    columns, depth = LAYERS[layer]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((rows, depth), np.float32) for rows in (tokens, columns))
    y = np.empty((tokens, columns), np.float32)
    calls = {}
    for name, library in libraries.items():
        if name == "static" and tokens != _STATIC:
            continue
        bound = library.bind(W=w)
        calls[name] = lambda bound=bound: bound(x, out=y)
        calls[name]()
        assert np.abs(y - x @ w.T).max() < 1e-3 * depth**0.5
    secs = interleave(calls, rounds)
    static = secs.get("static")
    return {
        "layer": layer,
        "tokens": tokens,
        "num_kernels": {
            name: len(one.report["selection"]["micro_kernels"]) for name, one in libraries.items()
        },
        "secs": dict(secs),
        "over_static": None if static is None else {name: one / static for name, one in secs.items()},
        "disturbed": secs.disturbed,
    }


if __name__ == "__main__":
    main()
