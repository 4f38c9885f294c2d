"""Generated code as people read it."""

from __future__ import annotations

import ast
from typing import Any

from small_libraries import SPECS, make_parts

from dietcode.backends.listing import listings
from dietcode.library.parts import Parts
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel


def report_of(name: str) -> dict[str, Any]:
    """What `listings` reads of a report, as the tuner writes it; one more micro-kernel was not chosen."""
    parts: Parts = make_parts(SPECS[name])
    rows = [
        {
            "micro_kernel": kernel.name,
            **kernel.to_json(),
            "category": None if category == 0 else category,
            "instances_preferring": 9 - category,
        }
        for category, kernel in enumerate(parts.micro_kernels)
    ]
    return parts.report | {"problem": parts.task.problem.to_json(), "micro_kernels": rows}


def test_each_measured_micro_kernel_has_its_code_the_chosen_ones_first() -> None:
    report = report_of("epilogue")
    second, first = (row["micro_kernel"] for row in report["micro_kernels"])
    found = listings(report)
    assert list(found) == [first, second]
    for name, (kind, text) in found.items():
        assert kind == "tir" and f"def micro_kernel_{name}(" in text and "T.parallel" in text
        ast.parse(text)
    assert found[first] != found[second] and found == listings(report)


def test_no_further_one_is_begun_when_the_time_is_up() -> None:
    assert listings(report_of("dense"), secs=-1.0) == {}


def test_code_for_cuda_is_what_the_compiler_is_given() -> None:
    report = report_of("dense")
    tile = CudaMicroKernel(8, 16, 2, 2, 4)
    row = {"micro_kernel": tile.name, **tile.to_json(), "category": 0}
    report |= {"target": {"kind": "cuda", "arch": "sm_90"}, "micro_kernels": [row]}
    ((kind, text),) = listings(report).values()
    assert kind == "cuda" and 'extern "C" __global__' in text and tile.symbol in text
