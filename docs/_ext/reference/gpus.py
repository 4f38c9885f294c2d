"""What was measured on a GPU, a row a workload, from the data of its page."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.evidence.gpu_series import against
from reference.files import ROOT
from reference.markdown import table

_HEAD = (
    "GPU",
    "workload",
    "shapes",
    "of the fastest other: mean, worst, slower at",
    "others",
    "predictions off, mean and worst",
)


def text() -> str:
    """All comparisons of all GPUs; a row each."""
    rows = []
    for path in sorted((ROOT / "docs" / "evidence").glob("*/*.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        if "num_sms" in facts and "headline" in facts["data"]:
            rows.append((facts["device"], *_row(facts["data"])))
    return table(_HEAD, rows)


def _row(data: dict[str, Any]) -> tuple[str, ...]:
    found, count = data["headline"], len(data["instances"])
    ratio = gap = "not measured"
    if found["mean_ratio"] is not None:
        ratio = f"{found['mean_ratio']:.2f} ×, {found['worst_ratio']:.2f} ×, {found['num_slower']}"
    if found["num_held_out"]:
        gap = f"{found['mean_gap']:.1%}, {found['worst_gap']:.0%} at {found['num_held_out']}"
    return data["workload"], str(count), ratio, against(data), gap
