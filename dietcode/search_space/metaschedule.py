"""The process that runs MetaSchedule; its request comes as JSON on standard input from `seed.run_seed`."""

from __future__ import annotations

import json
import platform
import sys
import types
from pathlib import Path
from typing import Any

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from dietcode.lifeline import die_with_parent
from dietcode.target.cpu import CpuTarget

_TRIALS_PER_ROUND = 16
_RUN_TIMEOUT_SECS = 10
_MIN_REPEAT_MS = 20
_WORKLOADS, _TRIALS = "database_workload.json", "database_tuning_record.json"


def static_contraction(subscripts: list[str], extents: dict[str, int], constant: bool) -> Any:
    """The largest instance as a static PrimFunc; a constant column operand may be laid out freely."""
    a_letters, b_letters, y_letters = subscripts
    a = te.placeholder([extents[k] for k in a_letters], name="A")
    b = te.placeholder([extents[k] for k in b_letters], name="B")
    reduction = [k for k in a_letters if k not in y_letters]
    axes = {k: te.reduce_axis((0, extents[k]), k) for k in reduction}

    def element(*spatial: Any) -> Any:
        index = dict(zip(y_letters, spatial, strict=True)) | axes
        product = a(*(index[k] for k in a_letters)) * b(*(index[k] for k in b_letters))
        return te.sum(product, axis=[axes[k] for k in reduction])

    output = te.compute([extents[k] for k in y_letters], element, name="Y")
    function = te.create_prim_func([a, b, output]).with_attr("global_symbol", "main")
    return function.with_attr("layout_free_buffers", [1]) if constant else function


def tune(request: dict[str, Any]) -> None:
    """Run the trials that the database does not hold yet."""
    target = CpuTarget.from_json(request["target"])
    work_dir = Path(request["work_dir"])
    drop_torn_line(work_dir / _WORKLOADS)
    done = drop_torn_line(work_dir / _TRIALS)
    remaining = request["num_trials"] - done
    if remaining <= 0:
        return
    function = static_contraction(request["subscripts"], request["extents"], request["constant"])
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
        num_tuning_cores=target.num_cores,
        seed=done,  # a run that goes on must not sample the same candidates again
    )


def drop_torn_line(path: Path) -> int:
    """Cut off what a killed run left half written, which MetaSchedule would not read; the number of lines."""
    if not path.exists():
        return 0
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        path.write_bytes(whole)
    return whole.count(b"\n")


def start_builder() -> None:
    """First thing in each builder process."""
    die_with_parent()
    skip_foreign_intrinsics()


def skip_foreign_intrinsics() -> None:
    """Keep TVM from parsing the tensor intrinsics of GPUs and other processors, which it does for any task.

    That takes 12 to 18 seconds in this process and again in each builder of each round, more than the
    trials themselves; no CPU schedule looks them up.
    """
    own = "arm_cpu" if platform.machine() in {"aarch64", "arm64"} else "x86"
    for name in {"cuda", "rocm", "hexagon", "riscv_cpu", "arm_cpu", "x86"} - {own}:
        path = f"tvm.s_tir.tensor_intrin.{name}"
        sys.modules.setdefault(path, types.ModuleType(path))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    die_with_parent(given["parent_pid"])
    skip_foreign_intrinsics()
    tune(given)
