"""Machine code of micro-kernels of warpgroups: what the assembler made of it, and what it remarks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from compiled import make_problem
from disassembly import disassembled
from needs import needs_nvrtc

from dietcode.errors import CandidateError
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.cuda.space import hardware_seeds
from dietcode.search_space.problem import Problem
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin

pytestmark = needs_nvrtc

HOPPER = CudaTarget("sm_90a")
LIMITS = CudaLimits.of(HOPPER)


def half(einsum: str, fixed: dict[str, int], dtype: str) -> Problem:
    problem = make_problem(einsum, fixed, constant=False)
    return replace(problem, operand_dtype=dtype, output_dtype=dtype)


DENSE = half("mk,nk->mn", {"n": 2304, "k": 768}, "float16")
VALUES = half("bmk,bkn->bmn", {"n": 64}, "bfloat16")


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(("problem", "kind"), [(DENSE, "F32"), (VALUES, "F32.BF16")])
def test_seeds_multiply_by_warpgroups(problem: Problem, kind: str, tmp_path: Path) -> None:
    seeds = [seed.micro_kernel for seed in hardware_seeds(problem, LIMITS)]
    tiles = [tile for tile in seeds if tile.unit == "wgmma"]
    assert len(tiles) == (4 if problem is DENSE else 2)  # one by one fetched elements take registers
    assert seeds[0] == tiles[0]
    cubin = compile_cubin(cuda_text(problem, tiles, HOPPER), HOPPER)
    facts = facts_of(cubin, problem, tiles, "seeds", HOPPER)
    code = disassembled(cubin, tmp_path)
    sections = dict(re.findall(r"\.text\.(\w+):\n(.*?)(?=\n\t?\.section|\Z)", code, re.DOTALL))
    for tile in tiles:
        own = facts[tile.symbol]
        assert own.shared_bytes == tile.shared_bytes
        assert own.stack_bytes == 0
        estimate = LIMITS.registers(problem, tile)
        assert 0.6 < own.registers / estimate < 1.4, (tile.name, own.registers, estimate)
        instructions = re.findall(r"\b(HGMMA\.\S+|HMMA\.\S+)", sections[tile.symbol])
        assert set(instructions) == {f"HGMMA.64x{tile.thread_columns}x16.{kind}"}


def test_accumulators_that_are_used_while_they_are_summed_are_refused() -> None:
    """The assembler injects a wait, and says so in the log of a compilation that succeeds."""
    tile = CudaMicroKernel(64, 64, 64, 64, 64, stages=3, unit="wgmma")
    text = cuda_text(DENSE, [tile], HOPPER)
    compile_cubin(text, HOPPER)
    with pytest.raises(CandidateError, match=r"\(C751\d\)"):
        compile_cubin(text.replace("end_products();", "end_products(); sums_ptr[5] += 1.0f;"), HOPPER)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_no_search_elsewhere_takes_them(arch: str) -> None:
    limits = CudaLimits.of(CudaTarget(arch))
    tile = CudaMicroKernel(64, 64, 64, 64, 64, stages=3, unit="wgmma")
    assert "allowed: sm_90a" in (limits.why_not(DENSE, tile) or "")
    assert limits.why_never(DENSE, tile) is None
    assert {seed.micro_kernel.unit for seed in hardware_seeds(DENSE, limits)} == {"mma"}


def test_columns_that_fill_no_line_are_refused() -> None:
    tile = CudaMicroKernel(64, 24, 64, 24, 64, unit="wgmma")
    assert LIMITS.why_not(DENSE, tile) is None
    assert "24 columns of a warpgroup" in (LIMITS.why_not(VALUES, tile) or "")
    assert "float16" in (LIMITS.why_not(replace(DENSE, operand_dtype="float32"), tile) or "")
