"""What tiles ask for ahead: read from the generated code, whose results are the same without."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from compiled import make_problem
from row_blocks import problem_of

from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.stage import Stage

LIMITS = Limits(lanes=8, num_registers=16, l2_bytes=1 << 17, num_cores=2)
WIDE = {"m": 8, "n": 512, "k": 64}  # a column operand of 128 kB, as large as L2
TILE = MicroKernel(4, 8, "partition")


def asked_for(
    extents: dict[str, int],
    tile: MicroKernel = TILE,
    constant: bool = True,
    stages: tuple[Stage, ...] = (),
    einsum: str = "mk,nk->mn",
) -> Counter[str]:
    """How often a tile asks for each tensor; what a task keeps has no name."""
    return asked_by(make_problem(einsum, extents, list(stages), constant), tile)


def asked_by(problem: AnyProblem, micro_kernel: AnyMicroKernel) -> Counter[str]:
    text = str(build_module(problem, [micro_kernel], 0, (), LIMITS).script(show_meta=False))
    # The micro-kernel's function comes first; packing, another one, names its buffers anew.
    named: dict[str, str] = {}
    for buffer, tensor in re.findall(r"(\w+) = T\.decl_buffer\(.*?data=([A-Za-z]+)", text):
        named.setdefault(buffer, tensor)
    return Counter(named[b] for b in re.findall(r'"llvm\.prefetch", T\.address_of\((\w+)\[', text))


def test_a_tile_asks_for_the_next_rows_the_next_columns_and_its_output() -> None:
    assert asked_for(WIDE) == {"X": 1, "W": 1, "Y": 4}


def test_an_epilogue_that_reads_a_tensor_of_rows_asks_for_it() -> None:
    stages = (Stage("bias", tensor="bias"), Stage("residual", tensor="R"))
    assert asked_for(WIDE, stages=stages) == {"X": 1, "W": 1, "Y": 4, "R": 4}


@pytest.mark.parametrize("einsum", ["mk,nk->mn", "mk,kn->mn"])
def test_a_column_operand_that_tasks_pack_is_asked_for_where_it_lies(einsum: str) -> None:
    assert asked_for(WIDE, constant=False, einsum=einsum)["W"] == 1


def test_a_column_operand_that_stays_in_l2_is_not_asked_for() -> None:
    assert asked_for(WIDE | {"n": 256})["W"] == 0


def test_columns_that_would_push_out_what_is_in_l2_are_not_asked_for() -> None:
    deep = WIDE | {"k": 2048}
    assert asked_for(deep)["W"] == 0
    assert asked_for(deep, MicroKernel(4, 8, "partition", 512))["W"] == 1, "a range of them is small enough"


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_ask_for_the_next_ones_and_for_what_a_later_pass_writes(rows: int) -> None:
    problem = problem_of("softmax", {"k": 32})  # two lines, one step, nothing left over
    kernel = RowKernel(rows, 32)
    alone = 2 * (rows > 1)  # lines of a row that is left over, which knows no next one
    expected = {"X": 2 * rows, "Y": 2 * rows + alone}  # the mask of a batch is that of all its queries
    assert asked_by(problem, kernel) == expected
    assert asked_by(problem, RowKernel(rows, 32, overlap="before")) == expected
    # Once where all passes are one loop, and once where each has its own.
    twice = {"X": 4 * rows, "Y": 4 * rows + alone}
    assert asked_by(problem, RowKernel(rows, 32, overlap="beside")) == twice


@pytest.mark.parametrize(("fetch", "expected"), [("next", {"X": 2}), ("none", {})])
def test_rows_ask_for_what_their_axis_says(fetch: str, expected: dict[str, int]) -> None:
    problem = problem_of("softmax", {"k": 32})
    assert asked_by(problem, RowKernel(1, 32, fetch=fetch)) == expected


def test_outputs_that_are_written_past_the_caches_are_not_asked_for() -> None:
    problem = problem_of("softmax", {"k": 32})
    assert asked_by(problem, RowKernel(1, 32, stream=True))["Y"] == 0


def test_what_the_only_pass_writes_is_not_asked_for() -> None:
    problem = problem_of("lookup", {"n": 32})
    assert asked_by(problem, RowKernel(2, 32)) == {"words": 4}, "rows of the table alone"
