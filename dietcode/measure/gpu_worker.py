"""What runs in the child processes of a GPU: compiling one micro-kernel, and using the GPU."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_ffi

from dietcode.confinement import MEMORY_BYTES, confine
from dietcode.errors import CandidateError, TuningError
from dietcode.lifeline import die_with_parent
from dietcode.measure.cpu_worker import before_call
from dietcode.measure.cuda_driver import GpuFunction
from dietcode.measure.device_tensors import tensor_at
from dietcode.measure.gpu_session import GpuSession, largest_error, random_inputs
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CallRequest,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import NoSeedSearch, SeedSearch
from dietcode.search_space.cuda.forms import functions_of
from dietcode.search_space.cuda.launches import call_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.forms import FORMS
from dietcode.search_space.problem import AnyProblem
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.workload.identity import source_digest

_SESSIONS: list[GpuSession] = []


@dataclass(frozen=True)
class CudaRecipe:
    """One micro-kernel; ``facts["kernels"]`` of the result has a `KernelFacts` by symbol.

    Attributes
    ----------
    problem : AnyProblem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    """

    problem: AnyProblem
    micro_kernel: CudaMicroKernel
    target: CudaTarget


@dataclass(frozen=True)
class LaunchedKernel:
    """The launches of one micro-kernel in a cubin.

    ``facts`` of a time has ``registers``, ``stack_bytes`` and ``resident_blocks`` of its own
    function, as the driver has them.
    """

    micro_kernel: CudaMicroKernel


@dataclass(frozen=True)
class LibraryCall:
    """``run`` of a finished library.

    Attributes
    ----------
    workspace_bytes : int
        As its manifest has it.
    """

    workspace_bytes: int


@dataclass(frozen=True)
class GpuWorker:
    """`dietcode.measure.children.Worker` of a GPU.

    Parameters
    ----------
    index : int
        Its number in the driver.
    l2_bytes : int
        Size of its cache.
    """

    index: int
    l2_bytes: int

    @property
    def environment(self) -> Mapping[str, str]:
        """No variables: float64 on the CPU may use all cores."""
        return {}

    @property
    def num_builders(self) -> int:
        """Half of the cores: launching needs one."""
        return max(1, (os.cpu_count() or 1) // 2)

    @property
    def seeds(self) -> SeedSearch:
        """No search: what MetaSchedule proposes for a GPU is measured as any other candidate."""
        return NoSeedSearch("a GPU has no search of its own")

    def start(self, temporary: str, measures: bool) -> None:
        """As `dietcode.measure.children.Worker` has it; address space is not bounded where a driver is used.

        A driver reserves more of it than there is memory.
        """
        die_with_parent()
        confine(None if measures else MEMORY_BYTES, temporary, drives_gpu=measures)

    def get_ready(self) -> None:
        """Do nothing: this module is all that is needed, and the first call initialises the GPU."""

    def build(self, request: BuildRequest) -> BuildResult:
        """Compile a `CudaRecipe` to a cubin; spilled registers are an error too."""
        started, recipe = time.perf_counter(), request.recipe
        tiles = [recipe.micro_kernel]
        try:
            text = cuda_text(recipe.problem, tiles, recipe.target)
            cubin = compile_cubin(text, recipe.target)
            kernels = facts_of(cubin, recipe.problem, tiles, recipe.micro_kernel.name, recipe.target)
        except (CandidateError, TuningError) as error:
            return BuildResult.failed(str(error))
        spilled = max(facts.stack_bytes for facts in kernels.values())
        if spilled:
            return BuildResult.failed(f"spills {spilled} bytes a thread")
        Path(request.path).write_bytes(cubin)
        code_bytes = sum(facts.code_bytes for facts in kernels.values())
        secs, code = time.perf_counter() - started, source_digest(text)
        return BuildResult(request.path, code_bytes, secs, facts={"kernels": kernels}, code=code)

    def time(self, request: TimeRequest) -> TimeResult:
        """Time a `LaunchedKernel`; its tensors stay in the GPU's memory where the request keeps them."""
        session, problem, tile = self._session(), request.problem, request.call.micro_kernel
        found, secs = functions_of(problem, tile), []
        with _functions(session, request) as functions:
            for extents, _ in request.bindings():
                call, tensors = call_of(problem, tile, extents), session.tensors(problem, extents)
                run = session.bind(problem, call, functions, tensors)
                secs.append(session.seconds_of(run, len(tensors.sets), request.min_secs, request.repeats))
                if not request.keeps:
                    session.forget()
            block = next(function for function in found if function.symbol == tile.symbol)
            resident = functions[block.symbol].resident_blocks(block.threads)
            facts = functions[block.symbol].facts() | {"resident_blocks": resident}
        return TimeResult(tuple(secs), facts)

    def check(self, request: CheckRequest) -> CheckResult:
        """Compare a `LaunchedKernel` or a `LibraryCall` with float64.

        Raises
        ------
        ValueError
            The numbers are wrong.
        GpuError, RuntimeError
            It cannot be loaded or run.
        """
        at = self._library_errors if isinstance(request.call, LibraryCall) else self._kernel_errors
        worst = 0.0
        for extents, error in at(request):
            if not error <= largest_error(request.problem):
                raise ValueError(f"wrong result: error {error:.3g} of the output's scale at {extents}")
            worst = max(worst, error)
        return CheckResult(worst)

    def _kernel_errors(self, request: CheckRequest) -> Iterator[tuple[dict[str, int], float]]:
        session, problem = self._session(), request.problem
        with _functions(session, request) as functions:
            for extents, _ in request.bindings():
                call = call_of(problem, request.call.micro_kernel, extents)
                tensors = session.tensors(problem, extents, request.seed)
                run = session.bind(problem, call, functions, tensors)
                yield call.extents, session.error_of(problem, extents, tensors, run, request.max_flops)

    def _library_errors(self, request: CheckRequest) -> Iterator[tuple[dict[str, int], float]]:
        session, library, problem = self._session(), _library(request.path), request.problem
        for extents, values in request.bindings():
            inputs = random_inputs(problem, extents, request.seed)
            outputs = {name: before_call(problem, name, inputs, extents) for name in problem.outputs}
            arrays = inputs | {name: own for name, own in outputs.items() if name not in problem.into}
            addresses = {name: session.allocate(array.nbytes) for name, array in arrays.items()}
            workspace = session.allocate(request.call.workspace_bytes)
            for name, array in arrays.items():
                session.driver.upload(addresses[name], array)
            located = addresses | {name: addresses[table] for name, (table, _) in problem.into.items()}
            tensors = [
                tensor_at(located[name], (inputs | outputs)[name].shape, problem.dtype(name), self.index)
                for name in (*problem.arguments, *problem.outputs)
            ]
            library["run"](*tensors, workspace, *values)
            session.driver.synchronize()
            for name, output in outputs.items():
                session.driver.download(output, located[name])
            for address in (*addresses.values(), workspace):
                session.driver.free(address)
            right = FORMS[problem.form].expect(problem, inputs, extents, request.max_flops)
            yield extents, right.error_of_all(list(outputs.values()))

    def _session(self) -> GpuSession:
        """Return the only session of this process, in use by this thread."""
        if not _SESSIONS:
            _SESSIONS.append(GpuSession(self.index, self.l2_bytes))
        _SESSIONS[0].driver.use(self.index)
        return _SESSIONS[0]


@contextmanager
def _functions(session: GpuSession, request: CallRequest) -> Iterator[dict[str, GpuFunction]]:
    """The functions of a cubin, by their symbols."""
    module = session.driver.load(Path(request.path).read_bytes())
    found = functions_of(request.problem, request.call.micro_kernel)
    yield {
        one.symbol: module.function(one.symbol, one.shared_bytes, one.overlaps, one.cluster, one.persistent)
        for one in found
    }
    module.unload()


@functools.cache
def _library(path: str) -> Any:
    return tvm_ffi.load_module(path)
