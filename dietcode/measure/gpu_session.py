"""One GPU as a measuring process uses it: tensors of instances, launches, and the time that they take.

The method is that of ``benchmarks/gpu/device.seconds_of``: calls are captured in a graph, so that launching
costs nothing, over copies of the tensors that are more than the L2 cache holds (512 at most); warm, by 20
milliseconds of replays; a reading lasts two milliseconds at least, by events, which tell half microseconds;
the median of five. What differs: the tensors come from the driver and not from PyTorch's allocator, all
copies hold the same numbers, and the cache is taken for larger where the driver says that it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.measure.cpu_worker import SAFE_ERROR
from dietcode.measure.cuda_driver import OUT_OF_MEMORY, Driver, Function, GpuError, Graph
from dietcode.search_space.cuda.launches import Call, Launch
from dietcode.search_space.expected import Expected, expect
from dietcode.search_space.problem import Problem
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled, rounded

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
        What the copies hold, as generated code does; empty once `expected` is known.
    expected : Expected or None
        Of the output; None where it was not asked for yet.
    """

    address: int
    sets: list[dict[str, int]]
    inputs: dict[str, Any]
    expected: Expected | None = None


class Session:
    """A GPU, in use by this process.

    Parameters
    ----------
    index : int
        The driver's number of it.
    l2_bytes : int
        What its cache holds at most.
    """

    def __init__(self, index: int, l2_bytes: int) -> None:
        self.driver, self._l2_bytes = Driver(), l2_bytes
        self.driver.use(index)
        self.stream = self.driver.stream()
        self._events = self.driver.event(), self.driver.event()
        self._tensors: dict[tuple[Any, ...], Tensors] = {}
        self._workspace = (0, 0)  # address, bytes

    def allocate(self, num_bytes: int) -> int:
        """Memory of the GPU; tensors of other instances are given up where there is no more."""
        try:
            return self.driver.allocate(num_bytes)
        except GpuError as error:
            if error.status != OUT_OF_MEMORY or not self._tensors:
                raise
        self.forget()
        return self.driver.allocate(num_bytes)

    def forget(self) -> None:
        """Give the memory of all tensors back."""
        for tensors in self._tensors.values():
            self.driver.free(tensors.address)
        self._tensors.clear()

    def tensors(self, problem: Problem, extents: dict[str, int], seed: int = 0) -> Tensors:
        """Normal numbers for the inputs of an instance; made once."""
        key = (str(problem), seed, *sorted(extents.items()))
        if key not in self._tensors:
            self._tensors[key] = self._make(problem, extents, seed)
        return self._tensors[key]

    def _make(self, problem: Problem, extents: dict[str, int], seed: int) -> Tensors:
        inputs, offsets, total = random_inputs(problem, extents, seed), {}, 0
        output = problem.shape(problem.output, extents)
        sizes = {name: array.nbytes for name, array in inputs.items()}
        sizes[problem.output] = int(np.prod(output)) * problem.storage(problem.output).itemsize
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
        sets = [{name: first + i * total + offsets[name] for name in sizes} for i in range(copies)]
        return Tensors(first, sets, inputs)

    def bind(
        self, problem: Problem, call: Call, functions: Sequence[Function], tensors: Tensors
    ) -> Callable[[int], None]:
        """``run(turn)``, which puts all launches of a call on one copy of the tensors in the stream."""
        own = -(-call.workspace_bytes // _ALIGNMENT) * _ALIGNMENT
        address = self._workspace_of(own * len(tensors.sets))
        sizes = [call.extents[letter] for letter in problem.dynamic]
        turns = []
        for turn, given in enumerate(tensors.sets):
            places = given | {name: address + turn * own + first for name, first in call.regions.items()}
            turns.append(
                [
                    function.bind(launch.grid, launch.threads, [*_addresses(launch, places), *sizes])
                    for function, launch in zip(functions, call.launches, strict=True)
                ]
            )

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
        problem: Problem,
        extents: dict[str, int],
        tensors: Tensors,
        run: Callable[[int], None],
        max_flops: float,
    ) -> float:
        """Largest error of the first copy's output against float64, over the largest value.

        Parameters
        ----------
        max_flops : float
            What float64 may take the first time; a sample of the rows is compared where all are more.
        """
        if tensors.expected is None:
            tensors.expected = expect(problem, tensors.inputs, extents, max_flops)
            tensors.inputs = {}
        output = nan_filled(problem.shape(problem.output, extents), problem.output_dtype)
        self.driver.upload(tensors.sets[0][problem.output], output)
        self.driver.synchronize()
        run(0)
        self.stream.synchronize()
        self.driver.download(output, tensors.sets[0][problem.output])
        return tensors.expected.error_of(output)

    def seconds_of(self, run: Callable[[int], None], copies: int, min_secs: float, repeats: int) -> float:
        """Median seconds of one call, the GPU's time alone."""

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

    def _reading(self, graph: Graph, replays: int) -> float:
        """Seconds of one replay."""
        start, end = self._events
        self.stream.record(start)
        for _ in range(replays):
            graph.replay()
        self.stream.record(end)
        return self.stream.seconds_between(start, end) / replays


def _addresses(launch: Launch, places: dict[str, int]) -> list[int]:
    return [places[name] for name in launch.arguments]


def random_inputs(problem: Problem, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Normal numbers for every input, held as generated code holds them."""
    rng = np.random.default_rng(seed)
    return {
        name: rounded(
            rng.standard_normal([int(n) for n in problem.shape(name, extents)], dtype=np.float32),
            problem.dtype(name),
        )
        for name in problem.inputs
    }


def largest_error(problem: Problem) -> float:
    """What is allowed: of float32, and what rounding the output to its dtype costs."""
    return SAFE_ERROR + UNIT_ROUNDOFF[problem.output_dtype]
