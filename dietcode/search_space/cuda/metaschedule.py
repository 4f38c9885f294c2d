"""The process in which MetaSchedule proposes micro-kernels for CUDA; `seeds` starts it and measures for it.

MetaSchedule's rules for GPUs tile the largest instance: "SSSRRSRS" for SIMT units, and its rule for tensor
cores over fragments of 16x16x16. Its decisions are read as a `CudaMicroKernel`, which is what is measured;
its own code is never built. Two things are left out of its space because micro-kernels do not differ in them:
the second tile within a thread ("SSSRRS" remains), and unrolling and the width of fetches, which code
generation derives. Neither a GPU nor the CUDA runtime is needed.

A request comes as a line of JSON on standard input. Then each round is a line of JSON out, ``{"measure":
[micro-kernel, ...]}``, and one in, ``{"secs": [seconds or null, ...]}``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Generator, Sequence
from typing import Any, TextIO
from unittest import mock

import numpy as np
import tvm
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import end_workers_alone, skip_foreign_intrinsics
from dietcode.target.cuda import CudaTarget

PER_ROUND = 16
FRAGMENT = 16  # rows, columns and steps of what MetaSchedule gives a warp's tensor core at a time
_TENSOR_STAGES = 3  # which its sketch for tensor cores does not have
_STRUCTURE = "SSSRRS"
_SHARED_AT, _REGISTERS_AT = (
    [4],
    [3],
)  # levels of the structure: operands are fetched, accumulators are written
_POPULATION, _GENERATIONS, _LEAST_SAMPLED, _MAX_FAILURES = 64, 3, 8, 200
_FAILED_SECS = 1e10


def rounded(extent: int, least: int = 1) -> int:
    """Return an extent with enough divisors to tile it: at most an eighth more, as with local padding.

    Parameters
    ----------
    least : int
        What it must be a multiple of, a power of two.
    """
    step = max(least, 1 << max(0, (extent // 8).bit_length() - 1))
    return -(-extent // step) * step


def micro_kernel_of(factors: Sequence[Sequence[int]], is_staged: bool, unit: str) -> CudaMicroKernel | None:
    """Return what MetaSchedule decided as a micro-kernel; None where the numbers do not fit together.

    Parameters
    ----------
    factors : sequence of sequence of int
        Of the rows and of the columns: grid, parts of a thread's tile, threads, a thread's part; on tensor
        cores grid, grid, warps, a warp's fragments. Of the reduction: tiles, steps of a tile.
    is_staged : bool
        Whether the next tile of the reduction is fetched while one is computed.
    unit : str
        ``simt`` or ``mma``.
    """
    (_, first, threads, own), (_, first_of_columns, across, own_of_columns), (_, k_tile) = factors
    numbers = {"stages": 2 if is_staged else 1}
    if unit == "simt":
        numbers |= {"row_vthreads": first, "thread_rows": first * own, "rows": first * own * threads}
        numbers |= {"column_vthreads": first_of_columns, "thread_columns": first_of_columns * own_of_columns}
        numbers |= {"columns": first_of_columns * own_of_columns * across, "k_tile": k_tile}
    else:
        numbers |= {"thread_rows": FRAGMENT * own, "rows": FRAGMENT * own * threads, "stages": _TENSOR_STAGES}
        numbers |= {"thread_columns": FRAGMENT * own_of_columns, "k_tile": FRAGMENT * k_tile}
        numbers |= {"columns": FRAGMENT * own_of_columns * across}
    more = {} if unit == "simt" else {"unit": unit}
    try:
        return CudaMicroKernel(**numbers, **more)  # type: ignore[arg-type]
    except ValueError:
        return None


def read_trace(trace: Any, unit: str) -> CudaMicroKernel | None:
    """Return the micro-kernel of a trace, see `micro_kernel_of`."""
    drawn = [i for i in trace.insts if i.kind.name == "SamplePerfectTile"]
    factors = [[int(factor) for factor in trace.decisions[i]] for i in drawn]
    return micro_kernel_of(factors, _is_staged(trace), unit)


def contraction(sizes: Sequence[int], unit: str) -> Any:
    """Return ``Y[rows, columns] = A[rows, reduction] · B[columns, reduction]`` as a static PrimFunc.

    Blocks compute tiles of flattened rows and columns, so that an instance is flattened here too; the batch
    is left out, as it only makes more blocks. bfloat16 is tiled as float16 is.

    Parameters
    ----------
    sizes : sequence of int
        Rows, columns and reduction.
    """
    rows, columns, reduction = sizes
    operand = "float32" if unit == "simt" else "float16"
    a, b = (
        te.placeholder((extent, reduction), operand, name=n) for extent, n in ((rows, "A"), (columns, "B"))
    )
    k = te.reduce_axis((0, reduction), "k")

    def element(i: Any, j: Any) -> Any:
        pair = (a[i, k], b[j, k])
        if unit != "simt":
            pair = tuple(value.astype("float32") for value in pair)
        return te.sum(pair[0] * pair[1], axis=k)

    output = te.compute((rows, columns), element, name="Y")
    return te.create_prim_func([a, b, output]).with_attr("global_symbol", "main")


def _tiling(unit: str) -> Any:
    """Return the rule that tiles; fetches are of four elements, which no micro-kernel chooses."""
    reuse = ms.schedule_rule.ReuseType
    if unit == "simt":
        return ms.schedule_rule.MultiLevelTiling(
            structure=_STRUCTURE,
            tile_binds=["blockIdx.x", "vthread.x", "threadIdx.x"],
            max_innermost_factor=64,
            vector_load_lens=[4],
            reuse_read=reuse("must", _SHARED_AT, "shared"),
            reuse_write=reuse("must", _REGISTERS_AT, "local"),
        )
    return ms.schedule_rule.MultiLevelTilingTensorCore(
        intrin_groups=tensor_intrinsics(True),
        structure=_STRUCTURE,
        tile_binds=["blockIdx.y", "blockIdx.x", "threadIdx.y"],
        max_innermost_factor=4,
        vector_load_lens=[4],
        reuse_read=reuse("must", _SHARED_AT, "shared.dyn"),
        reuse_write=reuse("must", [2], "shared.dyn"),
    )


def tensor_intrinsics(*transposed: bool) -> list[dict[str, str]]:
    """Register the intrinsics of fragments, sums in float32, and return the names of those of each group.

    The module that defines them registers a hundred as it is imported, each parsed by TVMScript, which takes
    over 20 seconds; here it is imported without that, and five of each group are registered.

    Parameters
    ----------
    *transposed : bool
        Of each group, whether the second operand has the reduction along its last axis.
    """
    from tvm.s_tir import TensorIntrin
    from tvm.script import tirx

    def unparsed(*_: Any, **__: Any) -> Any:
        return lambda function: function

    nothing = staticmethod(lambda *_, **__: None)
    path = "tvm.s_tir.tensor_intrin.cuda"
    sys.modules.pop(path, None)  # the empty one of `skip_foreign_intrinsics`
    with mock.patch.object(tirx, "prim_func", unparsed), mock.patch.object(TensorIntrin, "register", nothing):
        cuda = importlib.import_module(path)
    shape, scope, groups = (FRAGMENT, FRAGMENT, FRAGMENT), "shared.dyn", []
    for is_transposed in transposed:
        group: dict[str, str] = cuda.get_wmma_intrin_group(scope, scope, "float16", "float32", is_transposed)
        made = {
            "init": cuda.get_wmma_fill_intrin(*shape, "float32"),
            "load_a": cuda.get_wmma_load_intrin(*shape, "float16", scope, False, False),
            "load_b": cuda.get_wmma_load_intrin(*shape, "float16", scope, True, is_transposed),
            "compute": cuda.get_wmma_sync_intrin(*shape, "float16", "float32", is_transposed),
            "store": cuda.get_wmma_store_intrin(*shape, "float32", scope),
        }
        for part, name in group.items():
            TensorIntrin.register(name, *made[part], override=True)  # groups have some in common
        groups.append(group)
    return groups


class Proposals:
    """MetaSchedule's space of one instance, and its search in it.

    Parameters
    ----------
    sizes : tuple of int
        Flattened rows, columns and reduction of the largest instance.
    unit : str
        ``simt`` or ``mma``.
    seed : int
        Of random numbers; the same seed, and seconds, give the same proposals.
    """

    def __init__(
        self, problem: Problem, target: CudaTarget, sizes: tuple[int, int, int], unit: str, seed: int
    ) -> None:
        self.unit, self.seed = unit, seed
        self.holds = _Holds(problem, CudaLimits.of(target), unit)
        self._sizes = [rounded(size, 1 if unit == "simt" else FRAGMENT) for size in sizes]
        self._context = ms.TuneContext(
            tvm.IRModule({"main": contraction(self._sizes, unit)}),
            target=target.tvm_target(),
            space_generator=ms.space_generator.PostOrderApply(
                sch_rules=[_tiling(unit), ms.schedule_rule.AutoBind()],
                postprocs=[self.holds, *_postprocessors(unit)],
                mutator_probs={ms.mutator.MutateTileSize(): 1.0},
            ),
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION,
                init_min_unmeasured=_LEAST_SAMPLED,
                max_fail_count=_MAX_FAILURES,
                genetic_num_iters=_GENERATIONS,
            ),
            task_name="seed",
            rand_state=seed + 1,
            num_threads=1,  # more would give other proposals from run to run
        )
        self._space = self._context.generate_design_space()

    def sample(self, num_draws: int) -> list[CudaMicroKernel]:
        """Return those of `num_draws` random micro-kernels that the architecture holds, each once.

        The tiles of each sketch are drawn as MetaSchedule draws them; the sketch itself is not applied.
        """
        scale = 1 if self.unit == "simt" else FRAGMENT
        function = contraction([size // scale for size in self._sizes], self.unit)
        schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}), seed=self.seed + 1)
        loops = schedule.get_loops(schedule.get_sblock("Y"))
        sketches = [_sampling(sketch.trace) for sketch in self._space]
        found: dict[CudaMicroKernel, None] = {}
        for turn in range(num_draws):
            arguments, is_staged = sketches[turn % len(sketches)]
            factors = [
                [int(schedule.get(factor)) for factor in schedule.sample_perfect_tile(loop, *given)]
                for loop, given in zip(loops, arguments, strict=True)
            ]
            micro_kernel = micro_kernel_of(factors, is_staged, self.unit)
            if micro_kernel is not None and self.holds.passes(micro_kernel):
                found[micro_kernel] = None
        return list(found)

    def search(self, num_trials: int) -> Generator[list[CudaMicroKernel], list[float | None], None]:
        """Yield the rounds of MetaSchedule's evolutionary search under its XGBoost model.

        Each is answered by the seconds of its micro-kernels, None for what could not be measured.
        """
        context, per_round = self._context, min(PER_ROUND, num_trials)
        np.random.seed(self.seed)  # which the model draws from before it has any measurement
        model = ms.cost_model.XGBModel(num_warmup_samples=per_round, num_tuning_cores=1, verbose_eval=0)
        database = ms.database.MemoryDatabase()
        workload = database.commit_workload(context.mod)
        context.pre_tuning(num_trials, per_round, self._space, database, model)
        while candidates := context.generate_measure_candidates():
            micro_kernels = [read_trace(candidate.sch.trace, self.unit) for candidate in candidates]
            secs = yield [
                micro_kernel for micro_kernel in micro_kernels if micro_kernel is not None
            ]  # all: no other passes `_Holds`
            results = []
            for candidate, seconds in zip(candidates, secs, strict=True):
                run_secs = [_FAILED_SECS if seconds is None else seconds]
                results.append(ms.runner.RunnerResult(run_secs, None))
                record = ms.database.TuningRecord(
                    candidate.sch.trace, workload, run_secs, context.target, candidate.args_info
                )
                database.commit_tuning_record(record)
            model.update(context, candidates, results)
            context.notify_runner_results(candidates, results)


def _sampling(trace: Any) -> tuple[list[tuple[int, int]], bool]:
    """Return the parts and the largest innermost factor of a sketch's tiles, and whether it is staged."""
    drawn = [i for i in trace.insts if i.kind.name == "SamplePerfectTile"]
    return [(int(i.attrs[0]), int(i.attrs[1])) for i in drawn], _is_staged(trace)


def _is_staged(trace: Any) -> bool:
    notes = [str(i.attrs[0]) for i in trace.insts if i.kind.name == "Annotate"]
    return "software_pipeline_stage" in notes


def _postprocessors(unit: str) -> list[Any]:
    """Return the postprocessors after which MetaSchedule computes its features."""
    kinds = ms.postproc
    found = [
        kinds.RewriteCooperativeFetch(),
        kinds.RewriteUnboundBlock(max_threadblocks=256),
        kinds.RewriteReductionBlock(),
    ]
    return found if unit == "simt" else [*found, kinds.RewriteTensorize(vectorize_init_loop=False)]


@derived_object
class _Holds(ms.postproc.PyPostproc):  # type: ignore[misc]
    """Accepts schedules whose decisions make a micro-kernel that the architecture holds."""

    def __init__(self, problem: Problem, limits: CudaLimits, unit: str) -> None:
        super().__init__()
        self.problem, self.limits, self.unit = problem, limits, unit

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Do nothing: nothing of the context is needed."""

    def passes(self, micro_kernel: CudaMicroKernel) -> bool:
        """Whether the architecture holds it."""
        return self.limits.holds(self.problem, micro_kernel)

    def apply(self, sch: Any) -> bool:
        """Whether to accept a schedule."""
        micro_kernel = read_trace(sch.trace, self.unit)
        return micro_kernel is not None and self.passes(micro_kernel)

    def clone(self) -> Any:
        """Return a copy."""
        return _Holds(self.problem, self.limits, self.unit)


def serve(request: dict[str, Any], replies: TextIO, out: TextIO) -> None:
    """Propose until there is no more to propose, or until no answer comes."""
    problem, target = Problem.from_json(request["problem"]), CudaTarget.from_json(request["target"])
    proposals = Proposals(problem, target, tuple(request["sizes"]), request["unit"], request["seed"])

    def measure(micro_kernels: list[CudaMicroKernel]) -> list[float | None] | None:
        out.write(json.dumps({"measure": [micro_kernel.to_json() for micro_kernel in micro_kernels]}) + "\n")
        out.flush()
        reply = replies.readline()
        return json.loads(reply)["secs"] if reply else None

    if request["num_draws"]:
        measure(proposals.sample(request["num_draws"]))
        return
    search = proposals.search(request["num_trials"])
    with contextlib.suppress(StopIteration):
        micro_kernels = next(search)
        while (secs := measure(micro_kernels)) is not None:
            micro_kernels = search.send(secs)


if __name__ == "__main__":
    given = json.loads(sys.stdin.readline())
    skip_foreign_intrinsics(own=None)
    end_workers_alone()
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints must not get between the lines
    serve(given, sys.stdin, lines)
