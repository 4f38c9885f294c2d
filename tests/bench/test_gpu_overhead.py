"""What looks at a call on a GPU, run without one: what needs the real driver is told as not holding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc, of_extra

from dietcode.runtime.loading import load

ROOT = Path(__file__).parents[2]
sys.path.extend([str(ROOT / "benchmarks" / "gpu"), str(ROOT / "tests" / "runtime")])

pytest.importorskip("torch", reason=of_extra("bench"))
pytestmark = needs_nvrtc


def test_it_sees_what_holds_and_what_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import overhead
    import torch
    from cpu_as_gpu import pretend
    from test_cuda_calls import SPEC, OnGpu, build, let_through

    library: Any = load(build(SPEC, tmp_path / "library"))
    calls = let_through(library, monkeypatch)
    for name, value in (("_CALLS", 2), ("_GROUPS", 3), ("_TURNS", 2)):
        monkeypatch.setattr(overhead, name, value)
    # The emulated driver computes in the call, one call at a time: no stream, no graph, no threads.
    checks = [check for check in overhead.CHECKS if check is not overhead.threads_are_apart]
    monkeypatch.setattr(overhead, "CHECKS", checks)
    found = overhead.look(pretend(torch, OnGpu), library, {"T": 2})
    assert set(found["failed_checks"]) == {
        "waits_for_nothing",
        "runs_on_the_current_stream",
        "can_be_captured",
    }
    assert found["category"] == 1
    assert all(value > 0 for value in found["host_microseconds"].values())
    assert len(calls) > 2 * 3 * 2
