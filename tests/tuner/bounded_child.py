"""A whole run from records in a process of its own: prints its peak memory and what it made.

PyTorch is kept out: it is no dependency, but where it is installed `tvm_ffi` loads it, 200 MiB of it.
"""

from __future__ import annotations

import json
import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _NoTorch(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError(fullname)


def main(shape_vars: dict[str, Any], dims: dict[str, Any]) -> None:
    """Make a library of every tile that this machine's registers hold."""
    from benchmarks.fake_children import FakeChildren
    from benchmarks.synthetic import fake_records, peak_mib, two_variables
    from dietcode.target.cpu import resolve_target
    from dietcode.tuner.tune import make_library

    spec = two_variables(shape_vars=shape_vars, dims=dims, objective={"binary_size": 0.0})
    records = fake_records(spec, resolve_target(spec.target))
    result = make_library(spec, known=records, children=FakeChildren())
    facts = {"measured": len(records.measurements), "torch": "torch" in sys.modules, "peak_mib": peak_mib()}
    facts |= {"rule": result.report["rule"], "instances": result.report["num_instances"]}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    sys.meta_path.insert(0, _NoTorch())
    main(*json.loads(sys.argv[1]))
