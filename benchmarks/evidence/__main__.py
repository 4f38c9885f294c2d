"""The command; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evidence.choice import PRUNING, VOTES
from benchmarks.evidence.figure import Figure
from benchmarks.evidence.gpu import RECORDS, todays_versions
from benchmarks.evidence.gpu_pages import render
from benchmarks.evidence.pages import is_of_gpu, write_index, write_pages
from benchmarks.evidence.series import COMPLEXITY, CONV, DENSE, HIDDEN
from benchmarks.evidence.shop import Scale, Shop
from benchmarks.evidence.tiles import EDGES, GRIDS, SWEEP
from benchmarks.evidence.versions import ROOT, versions
from benchmarks.facts import device_folder, write
from dietcode.errors import DietCodeError

OUTPUT = ROOT / "docs" / "evidence"
# In the paper's order; measured from the quickest on, and Table 1 from what the series have measured.
FIGURES = (COMPLEXITY, GRIDS, EDGES, VOTES, SWEEP, PRUNING, DENSE, HIDDEN, CONV)
_ORDER = (GRIDS, EDGES, DENSE, SWEEP, VOTES, PRUNING, HIDDEN, CONV, COMPLEXITY)


def main() -> int:
    """Parse arguments, measure, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--only", help=f"of {', '.join(figure.name for figure in FIGURES)}")
    parser.add_argument("--keep", action="store_true", help="use libraries and databases of an earlier run")
    parser.add_argument("--pages", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    parser.add_argument("--records", type=Path, default=RECORDS, help="of GPUs, a folder each")
    arguments = parser.parse_args()
    names = [figure.name for figure in FIGURES]
    wanted = names if arguments.only is None else arguments.only.split(",")
    if unknown := set(wanted) - set(names):
        parser.error(f"--only: given {', '.join(sorted(unknown))}; allowed: {', '.join(names)}")
    folder = arguments.output / device_folder()
    if not arguments.pages:
        shop = Shop(ROOT / "build" / "evidence", Scale(), arguments.keep)
        measure([figure for figure in _ORDER if figure.name in wanted], shop, folder)
    found = sorted(arguments.output.glob("*/*.json"))
    for place in sorted({path.parent for path in found if not is_of_gpu(json.loads(path.read_text()))}):
        write_pages(place, FIGURES)
    status = 0
    for place in sorted(path for path in arguments.records.glob("*") if path.is_dir()):
        try:
            print(render(place, arguments.output))
        except DietCodeError as error:
            print(error, file=sys.stderr)
            status = 1
    write_index(arguments.output)
    return status


def measure(figures: Sequence[Figure], shop: Shop, folder: Path) -> None:
    """Measure figures and write their data, each as soon as it is there."""
    for figure in figures:
        print(f"{figure.title}", flush=True)
        used = versions(list(figure.uses(shop.scale)), "")
        write(folder / f"{figure.name}.json", {"measured_with": used, "data": figure.measure(shop)})


def stale(folder: Path, scale: Scale, prefix: str = "") -> list[str]:
    """Results below a folder that today's specs, features or generator did not make, a line each."""
    lines, figures = [], {figure.name: figure for figure in FIGURES}
    for path in sorted(folder.glob("*/*.json")):
        found = json.loads(path.read_text())
        if is_of_gpu(found):
            now = todays_versions(found["workloads"])
        else:
            now = versions(list(figures[path.stem].uses(scale)), prefix)
        known = found["measured_with"]
        for what, value in now.items():
            if known.get(what) != value:
                lines.append(f"{path.parent.name}/{path.name}: {what} was {known.get(what)}, is {value}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
