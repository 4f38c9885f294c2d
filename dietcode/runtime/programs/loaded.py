"""A compiled program: called with instances."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dietcode.errors import ProgramError, ShapeError
from dietcode.runtime.cgroups import memory_bytes
from dietcode.runtime.library import REFUSALS, refused_by_code
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.programs.failures import FAILURE_WORDS, failure_of
from dietcode.runtime.programs.instances import InstanceEncoder, Integers
from dietcode.runtime.programs.machine import NativeMachine, text_words
from dietcode.runtime.programs.plan import ProgramPlan
from dietcode.runtime.programs.results import ResultDecoder, read_texts, words_at
from dietcode.runtime.reopened import Reopened
from dietcode.workload.text import counted

MAX_STEPS = 1 << 40
_DONE, _NO_BYTES, _NO_ROWS, _NO_STEPS = range(4)
_PHASE_BITS = 24


class BlockRun(NamedTuple):
    """One run of a block, of all nodes of a depth that call it.

    Attributes
    ----------
    phase, depth : int
    block : str
    rows : int
    secs : float
    """

    phase: int
    depth: int
    block: str
    rows: int
    secs: float


class LoadedProgram(Reopened):
    """A program that is run for many instances at once, natively.

    Calls are thread-safe: each has memory of its own while it runs, which is kept for the next one. Made by
    `dietcode.load`.

    Parameters
    ----------
    folder : Path
    manifest : dict
    plan : ProgramPlan
    kernels : (Kernels, Kernels)
        For calls with NumPy's arrays, and with PyTorch's tensors.
    id_limits : mapping of (int, int) to int
        As `NativeMachine` takes it.

    Attributes
    ----------
    plan : ProgramPlan
    max_bytes : int
        That a call may take, half of the memory that the process may use at first; it ends with a MemoryError
        beyond.
    max_steps : int
        Instructions of a call; it ends with a ProgramError beyond.
    """

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, Any],
        plan: ProgramPlan,
        kernels: tuple[Kernels, Kernels],
        id_limits: Mapping[tuple[int, int], int],
    ) -> None:
        self.folder, self.manifest, self.plan = folder, manifest, plan
        self.max_bytes, self.max_steps = memory_bytes() // 2, MAX_STEPS
        self._machines = tuple(NativeMachine(plan, one, id_limits) for one in kernels)
        self._encoder, self._decoder = InstanceEncoder(plan), ResultDecoder(plan)
        self._free: tuple[list[Callable[..., Any]], ...] = ([], [])

    def __repr__(self) -> str:
        """Return one line with its size."""
        own = self.plan
        entry = own.functions[own.entry]
        counts = {"parameter": entry.parameters, "function": len(own.functions), "block": len(own.blocks)}
        said = ", ".join(counted(number, noun) for noun, number in counts.items())
        return f"<dietcode.LoadedProgram {own.name}: {said}; up to {own.max_rows} rows>"

    def __call__(
        self, instances: Iterable[Any], *, errors: Literal["raise", "return"] = "raise"
    ) -> list[Any]:
        """Run the program for each of some instances; all are run, also where one of them fails.

        Parameters
        ----------
        instances : iterable
            What the program's only parameter is, of each; tuples where it has several. What is in them is
            copied: lists and objects stay as they are.
        errors : {"raise", "return"}
            Whether the first instance that failed raises, or failures stand among the results.

        Returns
        -------
        list
            A result an instance; tensors are PyTorch's where one of the instances' is, NumPy arrays
            elsewhere.

        Raises
        ------
        ProgramError
            An instance failed: an index, a division, a ``raise``; its position is `ProgramError.instance`.
        TensorError
            An instance has what programs have not, or a tensor of another dtype or shape.
        ShapeError
            The instances together have more rows of tensors than the program was compiled for.
        MemoryError
            They take more than `max_bytes`.
        LibraryError
            A library takes other tensors than the bundle says.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f"errors: {errors!r}; allowed: raise, return")
        results, _ = self._run(list(instances), is_traced=False)
        for one in results if errors == "raise" else ():
            if isinstance(one, ProgramError):
                raise one
        return results

    def block_runs(self, instances: Iterable[Any]) -> list[BlockRun]:
        """Return what a call runs, in order, for a profile.

        Instances are as for a call; those that fail are left out.
        """
        return self._run(list(instances), is_traced=True)[1]

    def _run(self, instances: list[Any], is_traced: bool) -> tuple[list[Any], list[BlockRun]]:
        encoded = self._encoder.encode(instances)
        beside_torch = encoded.beside_torch
        free = self._free[beside_torch]
        try:
            workplace = free.pop()
        except IndexError:  # another thread has the others
            workplace = self._machines[beside_torch].workplace()
        facts = array("q", [0] * 10)
        given_texts = array("q", self._texts_of(encoded.texts))
        given = encoded.words.address, len(instances), encoded.num_objects
        tensors = encoded.tensors
        limits = self.max_bytes, self.max_steps, int(is_traced), facts.buffer_info()[0]
        try:
            workplace(*given, tensors.address, tensors.length // 2, *limits, given_texts.buffer_info()[0])
        except REFUSALS as error:
            raise refused_by_code(self.folder, error) from error
        ending, detail, failures, results, num_words, counts, trace, num_traced, made_texts, num_made = facts
        if ending != _DONE:
            self._refuse(ending, detail, len(instances))  # and the workplace is given back
        of_types = words_at(counts, len(self.plan.types))
        found = self._decoder.tensors(of_types, workplace, beside_torch)
        failed = words_at(failures, FAILURE_WORDS * len(instances)) if instances else array("q")
        runs = self._traced(words_at(trace, 4 * num_traced)) if num_traced else []
        own = Integers(results, num_words)
        texts = (*encoded.texts, *read_texts(made_texts, num_made)) if num_made else encoded.texts
        made = self._decoder.decode(own, len(instances), texts, found) if instances else []
        free.append(workplace)
        for number in range(len(instances)):
            one = failed[FAILURE_WORDS * number : FAILURE_WORDS * (number + 1)]
            if one[0]:
                made[number] = failure_of(self.plan, number, one, texts)
        return made, runs

    def _texts_of(self, texts: Sequence[str]) -> list[int]:
        """Return texts as the machine takes them, where it makes others of them."""
        own = texts if self.plan.makes_texts else ()
        return [len(own), *(number for one in own for number in text_words(one))]

    def _refuse(self, ending: int, detail: int, count: int) -> None:
        name = self.plan.name
        if ending == _NO_ROWS:
            raise ShapeError(
                f"{name}: {count} instances have over {self.plan.max_rows} tensors "
                f"{self.plan.types[detail]}; allowed: as many as it was compiled for, pass fewer at once"
            )
        if ending == _NO_STEPS:
            raise ProgramError(
                f"{name}: over {self.max_steps} instructions; does a loop not end? Otherwise set max_steps"
            )
        raise MemoryError(
            f"{name}: {count} instances take over {self.max_bytes} bytes, or more than there are; "
            "does an object contain itself? Otherwise pass fewer at once, or set max_bytes"
        )

    def _traced(self, words: array[int]) -> list[BlockRun]:
        return [
            BlockRun(
                words[at] >> _PHASE_BITS,
                words[at] & ((1 << _PHASE_BITS) - 1),
                self.plan.blocks[words[at + 1]].name,
                words[at + 2],
                words[at + 3] / 1e9,
            )
            for at in range(0, len(words), 4)
        ]
