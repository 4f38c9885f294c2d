"""MetaSchedule's kernels of one shape each, proposed, lowered and compiled without a GPU.

The baseline of the paper: TVM tuned for each shape alone on the same GPU. MetaSchedule's own rules for CUDA
propose, TVM's own code generation writes the text, and the GPU's machine times all of them; the fastest of a
shape is its baseline. What is left out is the feedback: nothing is learnt from the device between proposals,
which are MetaSchedule's replays of its sketches with decisions drawn at random.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dietcode.errors import DietCodeError
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.search_space.seed import end_workers_alone, skip_foreign_intrinsics
from dietcode.target.cubin import read_kernels
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin

FACTS, KERNELS = "alone.json", "alone.zip"
STRATEGY = "MetaSchedule, random replays of its sketches, nothing learnt from the device"
NUM_SHAPES = 6
_DTYPES = ("float32", "float16")  # those that MetaSchedule's rules for CUDA have units for
_DRAWS_PER_TRIAL = 3  # at most: what does not compile, or spills, is no trial
_SHAPE_SECS = 300.0  # of proposals for one shape: MetaSchedule refuses most of what it draws for some
_COMPILE_SECS = 120.0  # of one text: what is unrolled without an end takes minutes, and is no trial
_SCOPE = "shared.dyn"
_LAUNCH = "tirx.kernel_launch_params"
_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"


@dataclass(frozen=True)
class Kernel:
    """One proposal as CUDA text, and what its launch takes.

    Attributes
    ----------
    arguments : list of str
        Tensors in the order of its parameters, which TVM sorts.
    grid, threads : list of int
        x, y, z.
    shared_bytes : int
        Dynamic shared memory of a block.
    """

    text: str
    symbol: str
    arguments: list[str]
    grid: list[int]
    threads: list[int]
    shared_bytes: int


def can_be_alone(problem: AnyProblem) -> bool:
    """Whether MetaSchedule has rules for a workload: a product without an epilogue, float32 or float16."""
    if not isinstance(problem, Problem) or problem.stages or problem.windows:
        return False
    return {problem.operand_dtype, problem.output_dtype} <= set(_DTYPES) and len(problem.inputs) == 2


def product(problem: Problem, extents: Mapping[str, int]) -> Any:
    """One shape as a static PrimFunc: operands in the order of the problem's inputs, sums in float32."""
    import tvm  # noqa: F401 - makes te's operators known
    from tvm import te

    operands = [
        te.placeholder([extents[k] for k in problem.indices[name]], problem.dtype(name), name=name)
        for name in problem.inputs
    ]
    axes = {k: te.reduce_axis((0, extents[k]), k) for k in problem.reduction}
    letters = problem.indices[problem.output]
    shape = [extents[k] for k in letters]

    def element(*spatial: Any) -> Any:
        values = dict(zip(letters, spatial, strict=True)) | axes
        first, second = (
            operand(*(values[k] for k in problem.indices[name])).astype("float32")
            for operand, name in zip(operands, problem.inputs, strict=True)
        )
        return te.sum(first * second, axis=list(axes.values()))

    if problem.output_dtype == "float32":
        output = te.compute(shape, element, name=problem.output)
    else:
        sums = te.compute(shape, element, name="sums")
        output = te.compute(shape, lambda *i: sums(*i).astype(problem.output_dtype), name=problem.output)
    return te.create_prim_func([*operands, output]).with_attr("global_symbol", "main")


@functools.cache
def _tensor_core_rule() -> Any:
    """The rule of TVM's defaults for tensor cores, with sums in float32."""
    from tvm.s_tir import meta_schedule as ms

    from dietcode.search_space.cuda.metaschedule import tensor_intrinsics

    reuse = ms.schedule_rule.ReuseType
    return ms.schedule_rule.MultiLevelTilingTensorCore(
        intrin_groups=tensor_intrinsics(False, True),
        structure="SSSRRSRS",
        tile_binds=["blockIdx.y", "blockIdx.x", "threadIdx.y"],
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 3, 4, 8, 16],
        reuse_read=reuse("must", [4], _SCOPE),
        reuse_write=reuse("must", [2], _SCOPE),
    )


def proposals(problem: Problem, extents: Mapping[str, int], target: CudaTarget, seed: int) -> Iterator[Any]:
    """MetaSchedule's schedules of one shape, valid by its own checks, for as long as it finds some."""
    skip_foreign_intrinsics(own=None)
    end_workers_alone()
    import tvm
    from tvm.s_tir import meta_schedule as ms

    kind = "cuda" if problem.operand_dtype == "float32" else "cuda-tensorcore"
    rules = ms.schedule_rule.ScheduleRule.create("cuda")
    own = [] if kind == "cuda" else [_tensor_core_rule()]
    context = ms.TuneContext(
        tvm.IRModule({"main": product(problem, extents)}),
        target=target.tvm_target(),
        space_generator=ms.space_generator.PostOrderApply(
            sch_rules=[*own, *rules],
            postprocs=ms.postproc.Postproc.create(kind),
            mutator_probs=ms.mutator.Mutator.create(kind),
        ),
        search_strategy=ms.search_strategy.ReplayTrace(max_fail_count=_MAX_FAILURES),
        task_name="alone",
        rand_state=seed + 1,
        num_threads=1,  # more would give other proposals from run to run
    )
    context.pre_tuning(
        _ENDLESS, _PER_ROUND, context.generate_design_space(), ms.database.MemoryDatabase(), _no_model()
    )
    while found := context.generate_measure_candidates():
        yield from (candidate.sch for candidate in found)
        context.notify_runner_results(found, [ms.runner.RunnerResult([1.0], None) for _ in found])


_PER_ROUND, _ENDLESS, _MAX_FAILURES = 8, 1 << 20, 200


def _no_model() -> Any:
    from tvm.s_tir import meta_schedule as ms

    return ms.cost_model.RandomModel(seed=0)


def lowered(schedule: Any, target: CudaTarget) -> Kernel:
    """One schedule as TVM's own code generation writes it.

    Rewriting of storage is left out: this TVM refuses tensor cores' code after it, whose operands and sums in
    shared memory differ in dtype. Shared memory is merged by a later pass all the same.

    Raises
    ------
    Exception
        What TVM cannot lower; its kinds are many.
    """
    import tvm
    import tvm_ffi
    from tvm.tirx.build import codegen_build, split_host_device_mods
    from tvm.tirx.compilation_pipeline import get_tir_pipeline

    device = target.tvm_target()
    bound = tvm.tirx.transform.BindTarget(device.with_host(tvm.target.Target("llvm")))(schedule.mod)
    with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
        pipeline, _, finish_device = get_tir_pipeline("s_tir")
        host, devices = split_host_device_mods(pipeline(bound))
        (own,) = devices.values()
        ((name, function),) = finish_device()(own).functions_items()
        text = codegen_build(finish_device()(own), device).inspect_source("cuda")
    (entry,) = host.functions.values()
    asked = [str(one) for one in function.attrs[_LAUNCH]]
    calls: list[list[Any]] = []

    def look(call: Any) -> None:
        if len(call.args) > len(asked) and str(getattr(call.args[0], "value", "")) == name.name_hint:
            calls.append([int(getattr(value, "value", value)) for value in call.args[-len(asked) :]])

    tvm_ffi.structural.structural_walk(entry.body, (tvm.ir.Call, look))
    (values,) = calls
    extents = dict(zip(asked, values, strict=True))
    grid, threads = ([extents.get(f"{of}.{axis}", 1) for axis in "xyz"] for of in ("blockIdx", "threadIdx"))
    arguments = arguments_of(text, name.name_hint)
    return Kernel(text, name.name_hint, arguments, grid, threads, extents.get(_DYNAMIC_SHARED, 0))


def arguments_of(text: str, symbol: str) -> list[str]:
    """Tensors that the parameters of a function of TVM's text point to, in their order."""
    given = re.findall(rf"\b{symbol}\(([^)]*)\)", text)[0]
    return [parameter.split()[-1].removesuffix("_ptr") for parameter in given.split(",")]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:160]


def trials_of(
    problem: Problem, extents: Mapping[str, int], target: CudaTarget, num_trials: int, seed: int
) -> tuple[list[tuple[Kernel, bytes]], dict[str, int]]:
    """Proposals of one shape that compile and do not spill, each text once; and why others are left out.

    They are fewer where MetaSchedule takes too long to find that many.
    """
    until = time.monotonic() + _SHAPE_SECS
    kept: dict[str, tuple[Kernel, bytes]] = {}
    lost: dict[str, int] = {}

    def lose(why: str) -> None:
        lost[why] = lost.get(why, 0) + 1

    def compiled(kernel: Kernel) -> tuple[Kernel, bytes] | str:
        try:
            cubin = compile_cubin(kernel.text, target, reproducible=True, max_secs=_COMPILE_SECS)
        except DietCodeError as error:
            return str(error)[:160]
        (facts,) = read_kernels(cubin).values()
        return "spills" if facts.stack_bytes else (kernel, cubin)

    drawn, names = proposals(problem, extents, target, seed), sorted([*problem.inputs, problem.output])
    for _ in range(_DRAWS_PER_TRIAL):
        batch: dict[str, Kernel] = {}
        for schedule in itertools.islice(drawn, num_trials - len(kept)):
            if time.monotonic() > until:
                lose(f"no time was left of {_SHAPE_SECS:.0f} s")
                break
            try:
                kernel = lowered(schedule, target)
            except Exception as error:  # TVM's errors have no common class
                lose(_first_line(error))
                continue
            if sorted(kernel.arguments) != names:
                lose(f"its parameters are {', '.join(kernel.arguments)}")
                continue
            if kernel.text not in kept:
                batch[kernel.text] = kernel
        with ThreadPoolExecutor() as pool:
            for result in pool.map(compiled, batch.values()):
                if isinstance(result, str):
                    lose(result)
                else:
                    kept[result[0].text] = result
        if len(kept) >= num_trials or time.monotonic() > until:
            break
    return list(kept.values()), lost


def write_alone(
    folder: Path,
    problem: Problem,
    target: CudaTarget,
    instances: Sequence[Mapping[str, Any]],
    num_trials: int,
    say: Callable[[str], None] = print,
) -> int:
    """Pack trials for each of some instances beside the micro-kernels of a pack; returns their bytes.

    Trials come in turns of the shapes, so that those before any place are as many of each.
    """
    found, shapes = [], []
    for instance in instances:
        kernels, lost = trials_of(problem, instance["extents"], target, num_trials, instance["index"])
        why = "".join(f"; {count} left out: {reason}" for reason, count in sorted(lost.items()))
        say(f"MetaSchedule at {instance['shape_vars']}: {len(kernels)} trials{why}")
        found.append((instance["index"], kernels))
        shapes.append({"index": instance["index"], "trials": len(kernels), "left_out": lost})
    trials: list[dict[str, Any]] = []
    with zipfile.ZipFile(folder / KERNELS, "w", zipfile.ZIP_DEFLATED) as files:
        for turn in range(num_trials):
            for index, kernels in found:
                if turn >= len(kernels):
                    continue
                kernel, cubin = kernels[turn]
                name = f"s{len(trials):04d}"
                files.writestr(f"{name}.cubin", cubin)
                files.writestr(f"{name}.cu", kernel.text)
                facts = asdict(kernel)
                del facts["text"]
                trials.append({"number": len(trials), "index": index, "file": name} | facts)
    facts = {"strategy": STRATEGY, "shapes": shapes, "trials": trials}
    (folder / FACTS).write_text(json.dumps(facts, separators=(",", ":")) + "\n")
    return sum((folder / name).stat().st_size for name in (FACTS, KERNELS))
