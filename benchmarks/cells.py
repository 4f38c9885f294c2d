"""LSTM and GRU cells beside PyTorch's own: ``torch.nn.LSTMCell``, ``torch.nn.GRUCell``, eager and compiled.

    dietcode tune examples/lstm-cell.yaml -o build/benchmarks/lstm-cell
    python -m benchmarks.cells build/benchmarks/lstm-cell … [--rows 1,2,8,…] [--rounds 9]

Calls take turns, a few milliseconds of each path a round, and the medians of the rounds count. Weights
are packed beforehand on both sides: compiled modules are frozen. Writes
``cells.json`` of this device in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._inductor.config

from benchmarks.facts import calm, result_path, write
from dietcode.measure.turns import interleave
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.library import Library
from dietcode.runtime.loading import load

_GATES = {4: torch.nn.LSTMCell, 3: torch.nn.GRUCell}


def main() -> None:
    """Measure every library at every number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rows", default="1,2,4,8,16,32,64,100,128,200,256")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(available_cores())
    torch._inductor.config.freezing = True
    found = {}
    for folder in arguments.folders:
        cell = Cell(load(folder))
        rows = [cell.measure(int(number), arguments.rounds) for number in arguments.rows.split(",")]
        ratios = [row["ratio"] for row in calm(rows, folder.name)]
        mean = float(np.exp(np.mean(np.log(ratios))))
        print(f"{folder.name}: {mean:.2f} × of PyTorch's best, {min(ratios):.2f} at worst")
        found[folder.name] = {"rows": rows, "geometric_mean": mean, "worst": min(ratios)}
    write(result_path("cells"), {"cells": found})


class Cell:
    """A library of the examples' form, and PyTorch's module with the same weights.

    Parameters
    ----------
    library : Library
        Of ``examples/lstm-cell.yaml`` or ``examples/gru-cell.yaml``, whatever its extents are.
    """

    def __init__(self, library: Library) -> None:
        self.library, rng = library, np.random.default_rng(0)
        extents = {k: int(v) for k, v in library.manifest["dims"].items() if str(v).isdigit()}
        self.read, self.hidden, gates = extents["k"], extents["n"], extents["g"]
        self.module = _GATES[gates](self.read, self.hidden)
        shapes = {"W": (gates, self.hidden, self.read), "U": (gates, self.hidden, self.hidden)}
        shapes |= dict.fromkeys(("b", "d"), (gates, self.hidden))
        weights = {n: 0.1 * rng.standard_normal(s, dtype=np.float32) for n, s in shapes.items()}
        names = {"weight_ih": "W", "weight_hh": "U", "bias_ih": "b", "bias_hh": "d"}
        with torch.no_grad():
            for parameter, name in names.items():
                own = getattr(self.module, parameter)
                own.copy_(torch.from_numpy(weights[name]).reshape(own.shape))
            if "d" not in library.manifest["argument_order"]:
                self.module.bias_hh.zero_()
        self.call = library.bind(
            **{n: weights[n] for n in weights if n in library.manifest["argument_order"]}
        )
        self.compiled = torch.compile(self.module.eval(), dynamic=True)

    def measure(self, rows: int, rounds: int) -> dict[str, Any]:
        """Return the seconds of each path, and how many times faster the library is than the best."""
        tensors = [torch.randn(rows, self.read), torch.randn(rows, self.hidden)]
        state: Any = tensors[1]
        if isinstance(self.module, torch.nn.LSTMCell):
            tensors.append(torch.randn(rows, self.hidden))
            state = (tensors[1], tensors[2])
        own = self.call(*tensors)
        with torch.no_grad():
            right = self.module(tensors[0], state)
            for result, wanted in zip(_tuple(own), _tuple(right), strict=True):
                assert torch.allclose(result, wanted, rtol=1e-4, atol=1e-5)

            def eager() -> Any:
                return self.module(tensors[0], state)

            def compiled() -> Any:
                return self.compiled(tensors[0], state)

            paths = {"torch-eager": eager, "torch-compile-freezing": compiled}
            secs = interleave({"dietcode": lambda: self.call(*tensors)} | paths, rounds)
        best = min(paths, key=lambda name: secs[name])
        ratio = secs[best] / secs["dietcode"]
        return {"rows": rows, "secs": secs, "best": best, "ratio": ratio, "disturbed": secs.disturbed}


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


if __name__ == "__main__":
    main()
