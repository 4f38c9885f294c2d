"""A batched matmul with a packed operand and every extent dynamic, and a four-core AVX2 target."""

from __future__ import annotations

from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget

TARGET = CpuTarget("haswell", (), ("avx2",), 4, 32, 16, 32 << 10, 64 << 10)
LIMITS = Limits.of(TARGET)
BATCHED = Problem(
    row_operand="X",
    column_operand="W",
    output="Y",
    indices={"X": "bmk", "W": "bnk", "Y": "bmn"},
    batch=("b",),
    rows=("m",),
    columns=("n",),
    reduction=("k",),
    extents=dict.fromkeys("bmnk"),
    stages=(),
    column_operand_constant=True,
)
