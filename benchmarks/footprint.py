"""What a process needs that runs a model: installed bytes and peak memory, without PyTorch and with it.

    python -m benchmarks.footprint build/benchmarks/bert build/benchmarks/bert.pt2 --size 1x128

Each path runs in a process of its own, on zeros. Installed are the files of every distribution that the path
needs, by what `importlib.metadata` lists, with their dependencies; of this repository, its package. Writes
``footprint.json`` of this device in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from benchmarks.facts import result_path, write
from benchmarks.models import ROOT
from dietcode.lean import with_torch, without_torch

# The peak is read from /proc: that of getrusage begins with the parent's, which has PyTorch loaded.
_SHIPPED = {".py", ".pyi", ".so", ".h", ".typed"}
_OWN = """
import json, sys
import numpy as np
if sys.argv[1] == "import":
    import dietcode
else:
    import dietcode
    model = dietcode.load(sys.argv[1])
    sizes = json.loads(sys.argv[2])
    model(*[np.zeros(shape, dtype) for shape, dtype in sizes])
assert "tvm" not in sys.modules and not hasattr(sys.modules.get("torch"), "Tensor")
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
_TORCH = """
import json, sys
import torch
if sys.argv[1] != "import":
    module = torch.export.load(sys.argv[1]).module()
    sizes = json.loads(sys.argv[2])
    with torch.no_grad():
        module(*[torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, dtype in sizes])
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("--size", required=True, help="Values of the dimensions, in order, as 1x128.")
    arguments = parser.parse_args()
    inputs = json.dumps(_inputs(arguments.bundle, [int(one) for one in arguments.size.split("x")]))
    facts: dict[str, Any] = {"model": arguments.bundle.name, "size": arguments.size}
    for name, code, file, distribution in (
        ("dietcode", _OWN, arguments.bundle, "dietcode"),
        ("torch", _TORCH, arguments.program, "torch"),
    ):
        facts[name] = {
            "installed_bytes": installed_bytes(distribution),
            "imported_peak_bytes": _peak(code, "import", ""),
            "model_peak_bytes": _peak(code, str(file), inputs),
        }
        print(name, {key: f"{value / 1e6:.0f} MB" for key, value in facts[name].items()})
    write(result_path("footprint"), facts)


def _inputs(bundle: Path, values: list[int]) -> list[tuple[list[int], str]]:
    """Return the shape and dtype of each input, in the order of a call."""
    from dietcode.runtime.models.executable import read_executable

    executable = read_executable(json.loads((bundle / "model.json").read_text()))
    binding = dict(zip(executable.ranges, values, strict=True))
    types = [executable.inputs[name] for name in executable.signature["positional"]]
    return [([extent.evaluate(binding) for extent in type_.shape], type_.dtype) for type_ in types]


def installed_bytes(distribution: str) -> int:
    """Return the bytes of the files of a distribution and of all that it requires without an extra."""
    found: dict[str, int] = {}
    waiting = [distribution]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        one = metadata.distribution(name)
        if name == "dietcode":  # here an editable installation, which lists no files
            paths = [path for path in (ROOT / name).rglob("*") if path.suffix in _SHIPPED]
        else:
            paths = [Path(str(file.locate())) for file in one.files or []]
        found[name] = sum(path.stat().st_size for path in paths if path.is_file())
        for text in one.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    print(f"{distribution}: {', '.join(f'{n} {b / 1e6:.1f}' for n, b in sorted(found.items()))} MB")
    return sum(found.values())


def _peak(code: str, first: str, second: str) -> int:
    # tvm-ffi imports PyTorch where it is installed; a process without it is measured here.
    env = without_torch(os.environ) if code is _OWN else with_torch(os.environ)
    arguments = [sys.executable, "-c", code, first, second]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


if __name__ == "__main__":
    main()
