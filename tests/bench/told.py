"""Records, and pages that tell their figures, for tests of these."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.facts import RESULTS, ROOT

DOCS = ROOT / "docs"
EARLIER, SHARED = "intel-xeon-processor-2-cores", "intel-xeon-processor-family-6-model-207-2-cores"
XEON, EPYC = "intel-xeon-processor-family-6-model-167-2-cores", "amd-epyc-family-25-model-17-2-cores"
ZEN3, OLD_EPYC = "amd-epyc-family-25-model-1-2-cores", "amd-epyc-2-cores"
Row = dict[str, Any]


def record(device: str, name: str) -> Row:
    found: Row = json.loads((RESULTS / device / f"{name}.json").read_text())
    return found


def told(name: str) -> str:
    """A page without line breaks, marks of emphasis, and spaces before per cent."""
    return " ".join((ROOT / name).read_text().replace("*", "").split()).replace(" %", "%")


def geomean(ratios: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(ratios)))))
