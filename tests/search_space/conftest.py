"""The two vector units that kernels are compiled for."""

from __future__ import annotations

import pytest
from compiled import cpu_target

from dietcode.target.cpu import CpuTarget


@pytest.fixture(params=["haswell", "skylake-avx512"], ids=["avx2", "avx512"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found = cpu_target(request.param)
    if not found.runs_here:
        pytest.skip(f"this CPU cannot run {request.param} code")
    return found


@pytest.fixture
def avx2() -> CpuTarget:
    found = cpu_target("haswell")
    if not found.runs_here:
        pytest.skip("this CPU has no AVX2")
    return found
