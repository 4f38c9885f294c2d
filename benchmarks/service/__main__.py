"""Run the parts that are named, or all, and write ``results/service-PART.json``."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from benchmarks.facts import result_path, write
from benchmarks.service import cancel, costs, filled, load

PARTS = {"costs": costs.measure, "load": load.measure, "filled": filled.measure, "cancel": cancel.measure}


def main() -> None:
    """Measure, and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; by default all")
    parser.add_argument("--dir", help="where databases lie meanwhile: `filled` needs 12 GB")
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"given {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    for name in given.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="dietcode-bench-", dir=given.dir) as folder:
            os.environ["DIETCODE_TRUST"] = f"{folder}/trust"
            result = PARTS[name](Path(folder))
        print(json.dumps(result, indent=1), flush=True)
        write(result_path(f"service-{name}"), result)


if __name__ == "__main__":
    main()
