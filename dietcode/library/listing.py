"""The generated code of a library's micro-kernels, as text for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.lowering import lower
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget

TIR, CUDA = "tir", "cuda"
Write = Callable[[Mapping[str, Any]], str]


def listings(report: Mapping[str, Any], secs: float = 2.0) -> dict[str, tuple[str, str]]:
    """Kind and text of the code of each measured micro-kernel, by name.

    Parameters
    ----------
    report : mapping
        Of a library for llvm or cuda.
    secs : float
        Once so much time has passed no further one is begun: the chosen ones come first, then those that most
        instances would have preferred.

    Returns
    -------
    dict of str to (str, str)
        ``tir``: TVMScript of the function before TVM's passes; ``cuda``: what the CUDA compiler is given.
    """
    until = time.monotonic() + secs
    kind, write = _writer(report)
    rows = sorted(
        report["micro_kernels"],
        key=lambda row: (row["category"] is None, -row.get("instances_preferring", 0)),
    )
    found: dict[str, tuple[str, str]] = {}
    for row in rows:
        if time.monotonic() > until:
            break
        found[row["micro_kernel"]] = kind, write(row)
    return found


def _writer(report: Mapping[str, Any]) -> tuple[str, Write]:
    """The kind of a report's code, and what writes it for a row of its micro-kernels."""
    target = report["target"]
    if target["kind"] == "cuda":
        return CUDA, _cuda_writer(report)
    problem, limits = Problem.from_json(report["problem"]), Limits.of(CpuTarget.from_json(target))

    def write(row: Mapping[str, Any]) -> str:
        kernel = MicroKernel.from_json(row)
        text = str(lower(problem, kernel, limits, kernel.name).script(show_meta=False))
        # A function outside of a module is called main.
        symbol = f"micro_kernel_{kernel.name}".replace("-", "_")
        return text.replace("def main(", f"def {symbol}(", 1) + "\n"

    return TIR, write


def _cuda_writer(report: Mapping[str, Any]) -> Write:
    from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
    from dietcode.search_space.cuda.source import cuda_text
    from dietcode.target.cuda import CudaTarget

    problem, target = Problem.from_json(report["problem"]), CudaTarget.from_json(report["target"])
    return lambda row: cuda_text(problem, [CudaMicroKernel.from_json(row)], target)
