"""Compiled kernels, and the arrays to call them with."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from compile_cache import load_compiled

from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.search_space.tails import TAILS
from dietcode.target.cpu import CpuTarget, resolve_target
from dietcode.workload.contraction import Contraction
from dietcode.workload.dtypes import nan_filled, widened
from dietcode.workload.spec import TargetSpec

NUM_CORES = 2


@functools.cache
def cpu_target(mcpu: str, num_cores: int = NUM_CORES) -> CpuTarget:
    return resolve_target(TargetSpec(kind="llvm", mcpu=mcpu, num_cores=num_cores))


def make_problem(
    einsum: str,
    fixed: dict[str, int] | None = None,
    stages: Sequence[Stage] = (),
    constant: bool = True,
) -> Problem:
    """Operands X and W; every letter is dynamic that `fixed` does not give."""
    operands, _, output = einsum.partition("->")
    first, second = operands.split(",")
    roles = Contraction.from_indices({"X": first, "W": second}, "Y", output)
    indices = {"X": first, "W": second, "Y": output}
    for stage in stages:
        if stage.tensor is not None:
            indices[stage.tensor] = output[-1] if stage.kind == "bias" else output
    letters = dict.fromkeys(first + second)
    return Problem(
        row_operand=roles.row_operand,
        column_operand=roles.column_operand,
        output="Y",
        indices=indices,
        batch=roles.batch,
        rows=roles.rows,
        columns=roles.columns,
        reduction=roles.reduction,
        extents={letter: (fixed or {}).get(letter) for letter in letters},
        stages=tuple(stages),
        column_operand_constant=constant,
    )


def pack(problem: Problem, operand: Any, lanes: int, extents: dict[str, int] | None = None) -> Any:
    """``packed[b, n // L, k, n % L] = B[b, n, k]``, zero past the end, by NumPy alone.

    `extents` are needed where an axis of the operand is made of several letters.
    """
    source = problem.indices[problem.column_operand]
    extents = extents or dict(zip(source, operand.shape, strict=True))
    own_batch = [letter for letter in problem.batch if letter in source]
    order = (*own_batch, *problem.columns, *problem.reduction)
    batch, columns, reduction = (
        problem.product(tuple(role), extents) for role in (own_batch, problem.columns, problem.reduction)
    )
    flat = operand.reshape([extents[letter] for letter in source])
    flat = flat.transpose([source.index(letter) for letter in order]).reshape(batch, columns, reduction)
    panels = -(-columns // lanes)
    padded = np.zeros((batch, panels * lanes, reduction), np.float32)
    padded[:, :columns] = flat
    return np.ascontiguousarray(padded.reshape(batch, panels, lanes, reduction).transpose(0, 1, 3, 2))


class Compiled:
    """Micro-kernels of one problem as machine code."""

    def __init__(
        self,
        problem: Problem,
        tiles: Sequence[tuple[Any, ...] | MicroKernel],
        target: CpuTarget,
        tree: DispatchTree = 0,
        variables: Sequence[str] = (),
    ) -> None:
        self.problem, self.limits = problem, Limits.of(target)
        kernels = [tile if isinstance(tile, MicroKernel) else MicroKernel(*tile) for tile in tiles]
        self.code = build_module(problem, kernels, tree, variables, self.limits)
        self.module = load_compiled(self.code, target)
        self.variables = variables

    def random_inputs(self, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
        rng, problem = np.random.default_rng(seed), self.problem
        return {
            name: rng.standard_normal(problem.shape(name, extents), dtype=np.float32)
            for name in problem.arguments
        }

    def arguments(self, inputs: dict[str, Any], extents: dict[str, int] | None = None) -> list[Any]:
        operand = self.problem.column_operand
        packed = self.problem.column_operand_constant
        return [
            pack(self.problem, value, self.limits.lanes, extents) if packed and name == operand else value
            for name, value in inputs.items()
        ]

    def output_shape(self, extents: dict[str, int]) -> list[int]:
        return self.problem.shape("Y", extents)

    def run(self, inputs: dict[str, Any], extents: dict[str, int], values: Sequence[int] = ()) -> Any:
        """The output as float32, which was NaN everywhere beforehand."""
        return self.call(self.arguments(inputs, extents), extents, values)

    def call(self, arguments: Sequence[Any], extents: dict[str, int], values: Sequence[int] = ()) -> Any:
        """As `run`, of arguments as the code takes them."""
        output = nan_filled(self.output_shape(extents), self.problem.output_dtype)
        self.module["run"](*arguments, output, *values)
        return widened(output, self.problem.output_dtype)

    def check(self, extents: dict[str, int], seed: int = 0, values: Sequence[int] = ()) -> None:
        inputs = self.random_inputs(extents, seed)
        output = self.run(inputs, extents, values)
        expected = reference(self.problem, inputs)
        scale = float(np.abs(expected).max()) + 1.0
        assert np.isfinite(output).all(), f"not all of the output was written at {extents}"
        assert np.abs(output - expected).max() / scale < 1e-5, f"wrong at {extents}"


def numbered(count: int, variable: str = "kernel") -> DispatchTree:
    """A rule that calls kernel i where the variable is i."""
    tree: DispatchTree = count - 1
    for category in reversed(range(count - 1)):
        tree = (variable, category, category, tree)
    return tree


def all_tails(problem: Problem, tile: tuple[int, int], target: CpuTarget) -> Compiled:
    """One tile with every alternative for tails, chosen by a variable: its place in `TAILS`."""
    tree = numbered(len(TAILS), "tails")
    return Compiled(problem, [(*tile, tails) for tails in TAILS], target, tree, ("tails",))
