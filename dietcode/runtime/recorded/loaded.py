"""A compiled program joined with the Python function that it is of."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple

import numpy as np

from dietcode.errors import ShapeError
from dietcode.runtime import recorder
from dietcode.runtime.cgroups import memory_bytes
from dietcode.runtime.library import Library
from dietcode.runtime.models.loading import kernels_of
from dietcode.runtime.programs.loaded import BlockRun
from dietcode.runtime.programs.machine import BlockBuffers
from dietcode.runtime.programs.plan import ProgramPlan
from dietcode.runtime.recorded.calling import record_instances
from dietcode.runtime.recorded.counts import EagerCounts
from dietcode.runtime.recorded.session import Rewritten, Session, class_of
from dietcode.runtime.recorded.variants import RecordedRegion, Type, Variant, machine_of_types
from dietcode.runtime.reopened import Reopened
from dietcode.workload.text import counted

LimitError = recorder.LimitError
Run = recorder.Run

_PHASE_BITS, _SEEN = 24, 16
_CHANGED = "its source has changed since it was compiled; compile again"


class _Owner:
    """A tensor that has the weights of blocks, as it was when these were made.

    PyTorch does not count changes by way of ``tensor.data``: some elements are looked at as well.
    """

    def __init__(self, tensor: Any) -> None:
        self.tensor, self._version, self._address = tensor, tensor._version, tensor.data_ptr()
        flat = tensor.detach().numpy().reshape(-1)
        self._some = flat[:: max(1, flat.size // _SEEN)]
        self._bytes = self._some.tobytes()

    def has_changed(self) -> bool:
        """Whether it is another one now."""
        tensor = self.tensor
        is_same = tensor._version == self._version and tensor.data_ptr() == self._address
        return not is_same or self._some.tobytes() != self._bytes


@dataclass(frozen=True)
class Opened:
    """A bundle that is open, without its function.

    Attributes
    ----------
    folder : Path
    manifest : dict
    plan : ProgramPlan
    libraries : mapping of str to Library
    weights : mapping of str to array
        As they were when it was compiled.
    id_limits : mapping of (int, int) to int
        As `BlockBuffers` takes it.
    """

    folder: Path
    manifest: dict[str, Any]
    plan: ProgramPlan
    libraries: Mapping[str, Library]
    weights: Mapping[str, Any]
    id_limits: Mapping[tuple[int, int], int]


class CallProfile(NamedTuple):
    """Where the time of a call goes; measuring makes the call longer.

    Attributes
    ----------
    runs : list of BlockRun
        In order.
    num_waits : int
    secs : dict of str to float
        The parts of the call: ``python``, the user's code with what it records and computes eagerly;
        ``waits``, changes from one instance to another; ``scheduling``, sorting calls of blocks into buckets;
        ``kernels``; ``results``, with the arguments.
    """

    runs: list[BlockRun]
    num_waits: int
    secs: dict[str, float]


class RecordedProgram(Reopened):
    """A program that Python runs, and whose tensor code is run for many instances at once.

    Calls are thread-safe. Made by `dietcode.load`.

    Parameters
    ----------
    opened : Opened
    program : Program
        The function.
    regions : sequence of RecordedRegion
    rewritten : Rewritten
    changed : sequence of str
        Functions whose source has changed since it was compiled, as ``trees.py:node``.

    Attributes
    ----------
    changed : tuple of str
        As given.
    plan : ProgramPlan
    max_bytes : int
        That a call may take for rows of tensors, half of the memory that the process may use at first; it
        ends with a MemoryError beyond.
    """

    def __init__(
        self,
        opened: Opened,
        program: Any,
        regions: Sequence[RecordedRegion],
        rewritten: Rewritten,
        changed: Sequence[str] = (),
    ) -> None:
        self.folder, self.manifest, self.plan, self.program = (
            opened.folder,
            opened.manifest,
            opened.plan,
            program,
        )
        self.max_bytes = memory_bytes() // 2
        self.regions, self.changed = list(regions), tuple(changed)
        self._libraries, self._weights = opened.libraries, dict(opened.weights)
        self._limits = opened.id_limits
        self._rewritten = rewritten
        self._counts = EagerCounts()
        self._lock = threading.Lock()
        self._owners: dict[str, _Owner] = {}
        self._others: dict[str, Any] = {}
        self._make()

    def _make(self) -> None:
        """Make the machine, with the weights that there are."""
        _, kernels = kernels_of(self.plan, self._libraries, self._weights)
        buffers = BlockBuffers(self.plan, kernels, self._limits)
        types: list[Type] = [
            (one.dtype, tuple(extent.constant for extent in one.shape)) for one in self.plan.types
        ]
        constants = [
            (number, kernels.constants[name].__array_interface__["data"][0])
            for name, number in self.plan.tensors
        ]
        self._machine = machine_of_types(
            types, constants, self.plan.max_rows, buffers.blocks, len(self.plan.blocks), buffers.num_buffers,
            buffers.program, (kernels, buffers), buffers.fixed,
        )  # fmt: skip
        self._session = Session(
            self.regions, self._machine, types, class_of, self._accepts, self.plan.assigned
        )
        self._free: list[Run] = []

    def __repr__(self) -> str:
        """Return one line with its size."""
        counts = {"region": len(self.regions), "block": len(self.plan.blocks)}
        said = ", ".join(counted(number, noun) for noun, number in counts.items())
        return f"<dietcode.RecordedProgram {self.plan.name}: {said}; up to {self.plan.max_rows} rows>"

    def __call__(
        self, instances: Iterable[Any], *, errors: Literal["raise", "return"] = "raise"
    ) -> list[Any]:
        """Run the program for each of some instances; all are run, also where one of them fails.

        Parameters
        ----------
        instances : iterable
            What the program's only parameter is, of each; tuples where it has several.
        errors : {"raise", "return"}
            Whether the exception of the first instance that failed is raised, or exceptions stand among the
            results.

        Returns
        -------
        list
            A result an instance.

        Raises
        ------
        Exception
            What an instance raised; a note says which.
        ShapeError
            The instances together have more rows of tensors than the program was compiled for.
        MemoryError
            They take more than `max_bytes`.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f"errors: {errors!r}; allowed: raise, return")
        results, _ = self._run(list(instances))
        for number, one in enumerate(results if errors == "raise" else ()):
            if isinstance(one, BaseException):
                one.add_note(f"in instance {number} of {self.plan.name}")
                raise one
        return results

    def block_runs(self, instances: Iterable[Any]) -> list[BlockRun]:
        """Return what a call runs, in order, for a profile."""
        return self.profile(instances).runs

    def profile(self, instances: Iterable[Any]) -> CallProfile:
        """Return where the time of a call goes."""
        given, begin = list(instances), perf_counter_ns()
        _, run = self._run(given, is_traced=True)
        total = perf_counter_ns() - begin
        runs = [
            BlockRun(
                depth >> _PHASE_BITS,
                depth & ((1 << _PHASE_BITS) - 1),
                self.plan.blocks[block].name,
                rows,
                nsecs / 1e9,
            )
            for depth, block, rows, nsecs in run.traced
        ]
        kernels, flushed = sum(one.secs for one in runs), run.flush_nsecs
        python, of_instances, until_then, num_waits = run.times
        self._give_back(run)
        secs = {
            "python": python / 1e9,
            "waits": max(0, of_instances - python - until_then) / 1e9,
            "scheduling": flushed / 1e9 - kernels,
            "kernels": kernels,
            "results": (total - of_instances - (flushed - until_then)) / 1e9,
        }
        return CallProfile(runs, num_waits, secs)

    def explain(self) -> list[dict[str, Any]]:
        """Return what ran eagerly in the calls so far, the most frequent first.

        Returns
        -------
        list of dict
            ``where``, file and line; ``reason``; ``count``, how often. A function whose source has changed
            since it was compiled has count 0.
        """
        known = {} if self.changed else {one["where"]: one["reason"] for one in self.report["eager"]}
        found = [
            {"where": one.where, "reason": reason, "count": count}
            for one in self.regions
            for reason, count in one.eager.items()
        ]
        for use, count in self._counts.items():
            where = f"{Path(use.file).name}:{use.line}"
            reason = known.get(where) or f"{use.operator}: {use.reason}"
            found.append({"where": where, "reason": reason, "count": count})
        found += [{"where": one, "reason": _CHANGED, "count": 0} for one in self.changed]
        return sorted(found, key=lambda one: (-int(str(one["count"])), str(one["where"])))

    def _run(self, instances: list[Any], is_traced: bool = False) -> tuple[list[Any], Run]:
        with self._lock:
            self._take_weights()
            if not self._session.names.are_valid():  # a module or a function reads something else now
                self._make()
            session = self._session
            run = self._free.pop() if self._free else Run(self._machine, self.max_bytes)
        self._rewritten.install()
        run.is_traced = is_traced
        try:
            results = record_instances(
                self.program,
                instances,
                session,
                run=run,
                counts=self._counts,
                in_order=bool(self.plan.passed_on),
                waits=self.plan.waits,
            )
        except LimitError as error:
            raise self._refusal(error, len(instances)) from None
        if not is_traced:
            self._give_back(run)
        return results, run

    def _give_back(self, run: Run) -> None:
        """Keep a run for the next call, unless weights have changed meanwhile."""
        if run.machine is self._machine:
            self._free.append(run)

    def _refusal(self, error: LimitError, count: int) -> Exception:
        kind, number = error.args
        if kind == "rows":
            return ShapeError(
                f"{self.plan.name}: {count} instances have over {self.plan.max_rows} tensors "
                f"{self.plan.types[number]}; allowed: as many as it was compiled for, pass fewer at once"
            )
        return MemoryError(
            f"{self.plan.name}: {count} instances take over {self.max_bytes} bytes; pass fewer at once, or "
            "set max_bytes"
        )

    # ---- Weights ----

    def _accepts(self, variants: Sequence[tuple[Variant, dict[str, Any]]]) -> Variant | None:
        """Return the variant whose blocks have some weights; others are taken before the next call."""
        with self._lock:
            for variant, weights in variants:
                if all(
                    name in self._owners and self._owners[name].tensor is one for name, one in weights.items()
                ):
                    return variant
            for variant, weights in variants:
                if all(self._is_equal(name, one) for name, one in weights.items()):
                    for name, one in weights.items():
                        self._owners.setdefault(name, _Owner(one))
                    return variant
            for _, weights in variants:
                if not any(name in self._owners for name in weights):
                    self._others.update(weights)
                    break
            return None

    def _is_equal(self, name: str, tensor: Any) -> bool:
        known = self._owners.get(name)
        if known is not None:
            return known.tensor is tensor
        return bool(np.array_equal(self._weights[name], tensor.detach().numpy()))

    def _take_weights(self) -> None:
        """Take weights that are others than when they were compiled, or were changed since the last call."""
        changed = {name: one.tensor for name, one in self._owners.items() if one.has_changed()}
        if not changed and not self._others:
            return
        for name, tensor in {**changed, **self._others}.items():
            self._weights[name] = np.array(tensor.detach().numpy(), np.float32, order="C")
            self._owners[name] = _Owner(tensor)
        self._others.clear()
        self._make()
