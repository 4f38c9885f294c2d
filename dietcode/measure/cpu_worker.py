"""What runs in the child processes of a CPU: building one candidate, timing and checking one library."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from dietcode.confinement import MEMORY_BYTES, confine
from dietcode.lifeline import die_with_parent
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import Progress, SeedRequest, SeedResult, SeedSearch
from dietcode.measure.tvm_threads import thread_variables
from dietcode.runtime.native import load_code
from dietcode.runtime.threads import attach, bind_for_measuring
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.forms import FORMS
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.seed import NoTrialError
from dietcode.target.cpu import CpuTarget
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled
from dietcode.workload.identity import source_digest

SAFE_ERROR = 1e-5  # of float32, relative to the output's scale
_POISON = np.float32("nan")
_BATCHES = 4  # batches of calls in the time that a request gives for one
_LOW_PERCENTILE = 10
_RESOURCES: dict[str, Any] = {}
_KEPT_BYTES = 256 << 20
# Operands and their bytes, the latest ones last.
_OPERANDS: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()


@dataclass(frozen=True)
class CpuRecipe:
    """A library of some micro-kernels, as `dietcode.search_space.cpu.host.build_module` takes them.

    Attributes
    ----------
    tree : int or tuple
        The rule; 0 always runs the first micro-kernel.
    variables : tuple of str
        Shape variables that its function takes.
    """

    problem: AnyProblem
    micro_kernels: tuple[AnyMicroKernel, ...]
    tree: Any
    variables: tuple[str, ...]
    limits: Limits
    target: CpuTarget


@dataclass(frozen=True)
class CpuWorker:
    """`dietcode.measure.children.Worker` of a CPU.

    Parameters
    ----------
    num_threads : int
        P: cores that a measured kernel uses. TVM's own default is half of the visible ones.
    """

    num_threads: int

    @property
    def num_builders(self) -> int:
        """One for each core."""
        return self.num_threads

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables against a second pool that spins, as OpenBLAS's: it would disturb every timing."""
        return thread_variables(self.num_threads) | {"OPENBLAS_NUM_THREADS": "1"}

    @property
    def seeds(self) -> SeedSearch:
        """MetaSchedule in a process of its own."""
        return CpuSeedSearch()

    def start(self, temporary: str, measures: bool) -> None:
        """As `dietcode.measure.children.Worker` has it."""
        die_with_parent()
        confine(MEMORY_BYTES, temporary, starts_processes=not measures)

    def get_ready(self) -> None:
        """Import the compiler."""
        import tvm  # noqa: F401

    def build(self, request: BuildRequest) -> BuildResult:
        """Compile a `CpuRecipe` to a shared library."""
        from tvm.support.cc import create_shared

        from dietcode.search_space.cpu.compiling import compile_module
        from dietcode.search_space.cpu.host import build_module, function_name
        from dietcode.search_space.tir import script_of

        sizes: list[int] = []

        def link(output: str, objects: list[str], **options: Any) -> None:
            sizes.extend(Path(name).stat().st_size for name in objects)
            create_shared(output, objects, **options)

        started, given = time.perf_counter(), request.recipe
        module = build_module(given.problem, given.micro_kernels, given.tree, given.variables, given.limits)
        compile_module(module, given.target).export_library(request.path, fcompile=link)
        secs = time.perf_counter() - started
        code = source_digest(script_of(module[function_name(0, given.micro_kernels[0])]))
        return BuildResult(request.path, sum(sizes), secs, code=code)

    def time(self, request: TimeRequest) -> TimeResult:
        """Time ``run`` of a library at each point, then unload it, unless the request keeps it."""
        run = self._function(request.path, "run")
        secs = []
        for extents, values in request.bindings():
            arguments = [*_tensors(request.problem, extents, request.call.lanes), *values]
            secs.append(_time(lambda a=arguments: run(*a), request.min_secs, request.repeats))
        if not request.keeps:
            _RESOURCES.pop(request.path, None)
        return TimeResult(tuple(secs))

    def check(self, request: CheckRequest) -> CheckResult:
        """Compare a library with float64 in this process."""
        return check(request, lambda name, *values: self._function(request.path, name)(*values))

    def _function(self, path: str, name: str) -> Any:
        """A function of a library, on threads of the kind that will run it elsewhere."""
        if path not in _RESOURCES:
            _RESOURCES[path] = load_code(Path(path))
            attach(str(Path(path).resolve()))
        return bind_for_measuring(_RESOURCES[path][name], self.num_threads)


class CpuSeedSearch:
    """`SeedSearch` by `run_seed` on this machine."""

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """As `SeedSearch.find`."""
        from dietcode.search_space.cpu.seed import run_seed

        extents, target = dict(request.extents), cast(CpuTarget, request.target)  # of this worker's kind
        bounds = (request.num_trials, request.max_secs)
        try:
            _, facts = run_seed(request.problem, extents, target, work_dir, *bounds, progress)
        except NoTrialError as error:
            return SeedResult(None, str(error))
        return SeedResult(facts)


def layouts(problem: Any, extents: dict[str, int], lanes: int) -> list[tuple[str, list[int]]]:
    """Return the arguments of ``run`` with their shapes, in order; constants are packed."""
    found = []
    for name in (*problem.arguments, *problem.outputs):
        shape = [int(extent) for extent in problem.shape(name, extents)]
        if name in problem.packed:
            layout = problem.packed[name]
            roles = (layout.batch, layout.columns, layout.reduction)
            batch, columns, reduction = (int(problem.product(indices, extents)) for indices in roles)
            shape = [batch, -(-columns // lanes), reduction, lanes]
        found.append((name, shape))
    return found


def random_array(
    problem: Any, name: str, shape: list[int], extents: Mapping[str, int], rng: np.random.Generator
) -> Any:
    """Return random numbers for an input, NaN for an output.

    Parameters
    ----------
    name : str
        A tensor of the problem.
    shape : list of int
        As `layouts` gives it.
    extents : mapping of str to int
        Of every index.
    rng : Generator
        Source of the numbers.
    """
    if name in problem.outputs:
        return nan_filled(shape, problem.dtype(name))
    if name in problem.packed:
        return rng.standard_normal(shape, dtype=np.float32)
    return problem.draw(name, extents, rng)


def before_call(problem: AnyProblem, name: str, inputs: Mapping[str, Any], extents: Mapping[str, int]) -> Any:
    """Return an output as a check has it beforehand: NaN, or a copy of the table that it is written to."""
    if name in problem.into:
        return inputs[problem.into[name][0]].copy()
    return nan_filled(problem.shape(name, extents), problem.dtype(name))


def _tensors(problem: Any, extents: dict[str, int], lanes: int) -> list[Any]:
    """Return arguments of ``run``; those of the latest points are kept, since every candidate is read there.

    To draw them anew took three fifths of the seconds of reading a batched product at nineteen points. What
    is packed is constant, and one for all points.
    """
    import tvm

    found, of_problem, point = [], str(problem), tuple(sorted(extents.items()))
    for number, (name, shape) in enumerate(layouts(problem, extents, lanes)):
        key = (of_problem, name, tuple(shape), () if name in problem.packed else point)
        if key not in _OPERANDS:
            array = random_array(problem, name, shape, extents, np.random.default_rng(number))
            _OPERANDS[key] = (tvm.runtime.tensor(array), array.nbytes)
        _OPERANDS.move_to_end(key)
        found.append(_OPERANDS[key][0])
    while sum(size for _, size in _OPERANDS.values()) > _KEPT_BYTES:
        _OPERANDS.popitem(last=False)
    return found


def _time(call: Any, min_secs: float, repeats: int) -> float:
    """Return the lower decile of a call's seconds, over at least `repeats` batches in ``repeats · min_secs``.

    Batches are shorter than `min_secs`: another program has a core for some milliseconds at a time, and what
    runs between two of its turns is read as it is on a quiet machine.
    """
    call()
    started = time.perf_counter()
    call()
    once = max(time.perf_counter() - started, 1e-7)
    number = max(1, int(np.ceil(min_secs / _BATCHES / once)))
    readings: list[float] = []
    began = before = time.perf_counter()
    while len(readings) < repeats or before - began < repeats * min_secs:
        for _ in range(number):
            call()
        after = time.perf_counter()
        readings.append((after - before) / number)
        before = after
    return low_reading(readings)


def low_reading(readings: Sequence[float]) -> float:
    """Return the reading that counts of several: on a shared machine disturbances only ever add time."""
    return float(np.percentile(readings, _LOW_PERCENTILE))


def check(request: CheckRequest, call: Callable[..., Any]) -> CheckResult:
    """Compare ``run`` with float64 NumPy at each point, output poisoned beforehand.

    Parameters
    ----------
    call : callable
        Takes a function's name and its arguments: NumPy arrays, the last ones of which are written, then
        integers.

    Raises
    ------
    ValueError
        An error is above 1e-5 and what rounding the output to its dtype costs.
    """
    errors = (_error_at(request, call, extents, values) for extents, values in request.bindings())
    return CheckResult(max(errors, default=0.0))


def _error_at(
    request: CheckRequest, call: Callable[..., Any], extents: dict[str, int], values: Sequence[int]
) -> float:
    """Return the largest error at one point, relative to the output's scale."""
    problem = request.problem
    rng = np.random.default_rng(request.seed)
    inputs = {name: problem.draw(name, extents, rng) for name in problem.inputs}
    outputs = [before_call(problem, name, inputs, extents) for name in problem.outputs]
    right = FORMS[problem.form].expect(problem, inputs, extents, request.max_flops)
    arguments = dict(inputs)
    shapes = dict(layouts(problem, extents, request.call.lanes))
    for name, layout in problem.packed.items():
        arguments[name] = np.full(shapes[name], _POISON)
        call(layout.function, inputs[name], arguments[name])
    call("run", *(arguments[n] for n in problem.arguments), *outputs, *values)
    error = right.error_of_all(outputs)
    if not error <= SAFE_ERROR + max(UNIT_ROUNDOFF[problem.dtype(name)] for name in problem.outputs):
        raise ValueError(f"wrong result: error {error:.3g} of the output's scale at {extents}")
    return error
