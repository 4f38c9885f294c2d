"""The process that runs MetaSchedule; its request comes as JSON on standard input from `seed.run_seed`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms

from dietcode.lifeline import die_with_parent
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import end_workers_alone, skip_foreign_intrinsics
from dietcode.target.cpu import CpuTarget

_TRIALS_PER_ROUND = 16
_RUN_TIMEOUT_SECS = 10
_MIN_REPEAT_MS = 20
_WORKLOADS, _TRIALS = "database_workload.json", "database_tuning_record.json"


def static_contraction(problem: Problem, extents: dict[str, int]) -> Any:
    """Return the largest instance as a static PrimFunc, without the epilogue.

    A constant column operand may be laid out freely. Operands under windows are padded in a stage of their
    own, as MetaSchedule's rules expect.

    Parameters
    ----------
    extents : dict of str to int
        Of every index of the problem, at least.
    """
    operands = [
        te.placeholder([extents[k] for k in problem.indices[name]], name=name)
        for name in (problem.row_operand, problem.column_operand)
    ]
    axes = {k: te.reduce_axis((0, extents[k]), k) for k in problem.reduction}
    indices = [problem.indices[name] for name in (problem.row_operand, problem.column_operand)]
    padded = [_padded(problem, *pair, extents) for pair in zip(operands, indices, strict=True)]
    output_indices = problem.indices[problem.output]

    def element(*spatial: Any) -> Any:
        values = dict(zip(output_indices, spatial, strict=True)) | axes
        first, second = (
            operand(*(_position(problem, k, values) for k in own))
            for operand, own in zip(padded, indices, strict=True)
        )
        return te.sum(first * second, axis=list(axes.values())) if axes else first * second

    output = te.compute([extents[k] for k in output_indices], element, name=problem.output)
    function = te.create_prim_func([*operands, output]).with_attr("global_symbol", "main")
    return function.with_attr("layout_free_buffers", [1]) if problem.column_operand_constant else function


def _padded(problem: Problem, operand: Any, indices: str, extents: dict[str, int]) -> Any:
    """Return the operand with the zeros that its windows read on both sides of it."""
    before, after = [], []
    for index in indices:
        window = problem.window_over(index)
        last = 0  # what the last position of a window reads, from the operand's first element
        if window is not None:
            last = (extents[window.output] - 1) * window.stride - window.padding
            last += (extents[window.kernel] - 1) * window.dilation
        before.append(0 if window is None else window.padding)
        after.append(max(0, last - extents[index] + 1))
    return topi.nn.pad(operand, before, after) if any(before + after) else operand


def _position(problem: Problem, axis: str, values: dict[str, Any]) -> Any:
    """Return the position along an axis of a padded operand, from the value of each index."""
    window = problem.window_over(axis)
    if window is None:
        return values[axis]
    return values[window.output] * window.stride + values[window.kernel] * window.dilation


def tune(request: dict[str, Any]) -> None:
    """Run the trials that are not in the database yet."""
    target = CpuTarget.from_json(request["target"])
    work_dir = Path(request["work_dir"])
    drop_torn_line(work_dir / _WORKLOADS)
    done = drop_torn_line(work_dir / _TRIALS)
    remaining = request["num_trials"] - done
    if remaining <= 0:
        return
    function = static_contraction(Problem.from_json(request["problem"]), request["extents"])
    per_round = min(_TRIALS_PER_ROUND, remaining)
    ms.tune_tir(
        tvm.IRModule({"main": function}),
        target.tvm_target(),
        str(work_dir),
        max_trials_global=remaining,
        num_trials_per_iter=per_round,
        builder=ms.builder.LocalBuilder(max_workers=target.num_cores, initializer=start_builder),
        runner=ms.runner.LocalRunner(
            initializer=die_with_parent,
            timeout_sec=_RUN_TIMEOUT_SECS,
            evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=_MIN_REPEAT_MS),
        ),
        cost_model=ms.cost_model.XGBModel(num_warmup_samples=per_round),
        strategy=_strategy(request["num_trials"]),
        num_tuning_cores=target.num_cores,
        seed=done,  # a run that goes on must not sample the same candidates again
    )


def _strategy(num_trials: int) -> Any:
    """Return a search; in a single round it only samples, as an untrained model is random too."""
    one_round = num_trials <= _TRIALS_PER_ROUND
    return ms.search_strategy.ReplayTrace() if one_round else ms.search_strategy.EvolutionarySearch()


def drop_torn_line(path: Path) -> int:
    """Cut off an incomplete last line, which MetaSchedule refuses; return the number of lines."""
    if not path.exists():
        return 0
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        path.write_bytes(whole)
    return whole.count(b"\n")


def start_builder() -> None:
    """Initialise a builder process."""
    die_with_parent()
    skip_foreign_intrinsics()


if __name__ == "__main__":
    given = json.load(sys.stdin)
    skip_foreign_intrinsics()
    end_workers_alone()
    tune(given)
