"""One GPU as a measuring process uses it: tensors of instances, launches, and the time that they take.

The method is that of ``benchmarks/gpu/device.seconds_of``: calls are captured in a graph, so that launching
costs nothing, over copies of the tensors that are more than the L2 cache holds (512 at most); warm, by 20
milliseconds of replays; a reading lasts two milliseconds at least, by events of half a microsecond;
the median of five. What differs: the tensors come from the driver and not from PyTorch's allocator, all
copies hold the same numbers, and a larger cache is assumed where the driver reports one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.measure.cpu_worker import SAFE_ERROR, before_call
from dietcode.measure.cuda_driver import OUT_OF_MEMORY, CapturedGraph, Driver, GpuError, GpuFunction
from dietcode.search_space.cuda.launches import Call
from dietcode.search_space.forms import FORMS, Right
from dietcode.search_space.problem import AnyProblem
from dietcode.workload.dtypes import INDEX_DTYPE, UNIT_ROUNDOFF, rounded

_MAX_COPIES = 512
_WARM_SECS = 0.02  # of replays before the first reading: an idle GPU's clock is slow
_ALIGNMENT = 256


@dataclass
class Tensors:
    """Copies of the tensors of one instance, in memory of the GPU.

    Attributes
    ----------
    sets : list of dict of str to int
        Addresses by tensor; one dict for each copy.
    inputs : dict of str to array
        Values of the inputs, in the dtypes of the generated code; once `expected` is known, of those alone
        that a call writes to.
    expected : Right or None
        Of the outputs; None until it is first needed.
    """

    address: int
    sets: list[dict[str, int]]
    inputs: dict[str, Any]
    expected: Right | None = None


class GpuSession:
    """A GPU, in use by this process.

    Parameters
    ----------
    index : int
        Its number in the driver.
    l2_bytes : int
        Size of its cache.
    """

    def __init__(self, index: int, l2_bytes: int) -> None:
        self.driver, self._l2_bytes = Driver(), l2_bytes
        self.driver.use(index)
        self.stream = self.driver.stream()
        self._events = self.driver.event(), self.driver.event()
        self._tensors: dict[tuple[Any, ...], Tensors] = {}
        self._workspace = (0, 0)  # address, bytes

    def allocate(self, num_bytes: int) -> int:
        """Return the address of new memory; tensors of other instances are freed where it is short."""
        try:
            return self.driver.allocate(num_bytes)
        except GpuError as error:
            if error.status != OUT_OF_MEMORY or not self._tensors:
                raise
        self.forget()
        return self.driver.allocate(num_bytes)

    def forget(self) -> None:
        """Free all tensors."""
        for tensors in self._tensors.values():
            self.driver.free(tensors.address)
        self._tensors.clear()

    def tensors(self, problem: AnyProblem, extents: dict[str, int], seed: int = 0) -> Tensors:
        """Return tensors of normal numbers for an instance; made once."""
        key = (str(problem), seed, *sorted(extents.items()))
        if key not in self._tensors:
            self._tensors[key] = self._make(problem, extents, seed)
        return self._tensors[key]

    def _make(self, problem: AnyProblem, extents: dict[str, int], seed: int) -> Tensors:
        inputs, offsets, total = random_inputs(problem, extents, seed), {}, 0
        sizes = {name: array.nbytes for name, array in inputs.items()}
        for name in problem.outputs:
            if name not in problem.into:
                shape = problem.shape(name, extents)
                sizes[name] = int(np.prod(shape)) * problem.storage(name).itemsize
        for name, size in sizes.items():
            offsets[name] = total
            total += -(-size // _ALIGNMENT) * _ALIGNMENT
        copies = max(2, min(_MAX_COPIES, math.ceil(2 * self._l2_bytes / total)))
        first = self.allocate(copies * total)
        for name, array in inputs.items():
            self.driver.upload(first + offsets[name], array)
        for turn in range(1, copies):
            self.driver.copy(first + turn * total, first, total)
        self.driver.synchronize()
        offsets |= {name: offsets[table] for name, (table, _) in problem.into.items()}
        sets = [{name: first + i * total + own for name, own in offsets.items()} for i in range(copies)]
        return Tensors(first, sets, inputs)

    def bind(
        self, problem: AnyProblem, call: Call, functions: Mapping[str, GpuFunction], tensors: Tensors
    ) -> Callable[[int], None]:
        """Return ``run(turn)``, which puts all launches of a call on one copy of the tensors in the stream.

        Parameters
        ----------
        call : Call
            Its launches and its workspace.
        functions : mapping of str to GpuFunction
            By their symbols.
        tensors : Tensors
            Copies to take turns with.
        """
        own = -(-call.workspace_bytes // _ALIGNMENT) * _ALIGNMENT
        address = self._workspace_of(own * len(tensors.sets))
        sizes = [call.extents[index] for index in problem.dynamic]
        turns = []
        for turn, given in enumerate(tensors.sets):
            addresses = given | {name: address + turn * own + first for name, first in call.regions.items()}
            bound = []
            for one in call.launches:
                values = [*(addresses[name] for name in one.arguments), *sizes]
                maps = [(own_map, addresses[own_map.argument]) for own_map in one.maps]
                bound.append(functions[one.symbol].bind(one.grid, one.threads, values, maps))
            turns.append(bound)

        def run(turn: int) -> None:
            for launch in turns[turn]:
                launch(self.stream)

        return run

    def _workspace_of(self, num_bytes: int) -> int:
        address, known = self._workspace
        if known < num_bytes:
            if known:
                self.driver.free(address)
            self._workspace = (0, 0)
            self._workspace = (self.allocate(num_bytes), num_bytes)
        return self._workspace[0]

    def error_of(
        self,
        problem: AnyProblem,
        extents: dict[str, int],
        tensors: Tensors,
        run: Callable[[int], None],
        max_flops: float,
    ) -> float:
        """Return the largest error of the first copy's output against float64, over the largest value.

        Parameters
        ----------
        max_flops : float
            Most FLOPs in float64, the first time; where all rows take more, a sample of them is compared.
        """
        if tensors.expected is None:
            form = FORMS[problem.form]
            tensors.expected = form.expect(problem, tensors.inputs, extents, max_flops)
            tables = {table for table, _ in problem.into.values()}
            tensors.inputs = {name: value for name, value in tensors.inputs.items() if name in tables}
        addresses = tensors.sets[0]
        outputs = {name: before_call(problem, name, tensors.inputs, extents) for name in problem.outputs}
        for name, output in outputs.items():
            self.driver.upload(addresses[name], output)
        self.driver.synchronize()
        run(0)
        self.stream.synchronize()
        for name, output in outputs.items():
            self.driver.download(output, addresses[name])
        return tensors.expected.error_of_all(list(outputs.values()))

    def seconds_of(self, run: Callable[[int], None], copies: int, min_secs: float, repeats: int) -> float:
        """Return the median seconds of one call, of the GPU's time alone.

        Parameters
        ----------
        copies : int
            Turns that `run` takes.
        min_secs : float
            Least length of a reading.
        repeats : int
            Readings.
        """

        def all_copies() -> None:
            for turn in range(copies):
                run(turn)

        all_copies()  # warm
        self.stream.synchronize()
        graph = self.stream.capture(all_copies)
        try:
            once = max(self._reading(graph, 1), 1e-7)
            self._reading(graph, math.ceil(_WARM_SECS / once))
            replays = max(1, math.ceil(min_secs / max(self._reading(graph, 1), 1e-7)))
            return statistics.median(self._reading(graph, replays) for _ in range(repeats)) / copies
        finally:
            graph.close()

    def _reading(self, graph: CapturedGraph, replays: int) -> float:
        """Return the seconds of one replay."""
        start, end = self._events
        self.stream.record(start)
        for _ in range(replays):
            graph.replay()
        self.stream.record(end)
        return self.stream.seconds_between(start, end) / replays


def random_inputs(problem: AnyProblem, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Return random values for every input, as the problem draws them, rounded to its dtype."""
    rng = np.random.default_rng(seed)
    drawn = {name: problem.draw(name, extents, rng) for name in problem.inputs}
    return {name: _rounded(value, problem.dtype(name)) for name, value in drawn.items()}


def _rounded(value: Any, dtype: str) -> Any:
    return value if dtype == INDEX_DTYPE else rounded(value, dtype)


def largest_error(problem: AnyProblem) -> float:
    """Return the largest error allowed: that of float32, and of rounding an output to its dtype."""
    return SAFE_ERROR + max(UNIT_ROUNDOFF[problem.dtype(name)] for name in problem.outputs)
