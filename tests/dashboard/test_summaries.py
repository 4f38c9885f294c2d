"""What lists say of a workload: short, whatever the spec holds."""

import pytest
import yaml
from small_libraries import ROOT

from dietcode_server.dashboard.summaries import WorkloadSummary, summary

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize(
    ("op", "shape_vars", "expected"),
    [
        (
            {"einsum": "mk,nk->mn"},
            {"T": {"min": 1, "max": 128}},
            WorkloadSummary("einsum mk,nk->mn", "T 1–128"),
        ),
        ({"conv2d": {"strides": 1}}, {"N": {"values": [1, 2]}}, WorkloadSummary("conv2d", "N 1/2")),
        ({"conv2d": {}}, {"N": {"values": [1, 2, 4, 8, 16]}}, WorkloadSummary("conv2d", "N 1…16")),
        (
            {
                "block": {
                    "graph": {"S": {"add": ["X", "R"]}, "Y": {"rmsnorm": ["S"]}, "Z": {"add": ["Y", "R"]}}
                }
            },
            {"M": {"min": 1, "max": 9}, "N": {"min": 2, "max": 3}},
            WorkloadSummary("block: add, rmsnorm", "M 1–9, N 2–3"),
        ),
        (None, None, WorkloadSummary("", "")),
        ({}, [], WorkloadSummary("", "")),
        ({"block": {"graph": {"S": None}}}, {"T": None}, WorkloadSummary("block: ", "T None")),
        ({"einsum": "x" * 999}, {"y" * 999: 1}, WorkloadSummary("einsum " + "x" * 40 + "…", "y" * 47 + "…")),
    ],
)
def test_a_summary(op: object, shape_vars: object, expected: WorkloadSummary) -> None:
    assert summary(op, shape_vars) == expected


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_has_one(path) -> None:
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = summary(spec["op"], spec["shape_vars"])
    assert found.operator.split()[0].rstrip(":") in spec["op"]
    assert all(name in found.shapes for name in list(spec["shape_vars"])[:3])
