"""The vendor's paths in a process that loads no library from here; called by `benchmarks.core`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from dietcode.bench.compare import interleave
from dietcode.bench.vendor import Operator, vendor_paths
from dietcode.workload.expr import DimExpr


def main(folder: Path, bindings: list[dict[str, int]]) -> None:
    """Print a JSON list of GFLOP/s for each binding."""
    manifest = json.loads((folder / "manifest.json").read_text())
    operator = Operator.of(manifest)
    paths = vendor_paths("torch", operator, int(manifest["num_threads"]))
    rng = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {}
    rows = []
    for binding in bindings:
        extents = {k: int(DimExpr.parse(v, k).evaluate(binding)) for k, v in manifest["dims"].items()}
        arrays = {}
        for name, letters in operator.inputs.items():
            array = rng.standard_normal([extents[k] for k in letters], dtype=np.float32)
            arrays[name] = constants.setdefault(name, array) if name in operator.constants else array
        secs = interleave({name: bind(arrays) for name, bind in paths.items()}, rounds=5)
        flops = 2.0 * np.prod([float(v) for v in extents.values()])
        rates = {name: float(flops / value / 1e9) for name, value in secs.items()}
        rows.append({"shape_vars": binding, "vendors": rates})
    print(json.dumps(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
