"""A call of a recorded program: instances run, and what they return with tensors in the place of handles."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MemberDescriptorType, ModuleType
from typing import Any

from dietcode.errors import ModelError
from dietcode.runtime import recorder
from dietcode.runtime.recorded.session import Session
from dietcode.workload.text import clip

Handle = recorder.Handle
Run = recorder.Run

MAX_BYTES = 1 << 40


class Arguments:
    """The arguments that a program takes of an instance: itself, or its items where it takes several.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Any) -> None:
        kinds = inspect.Parameter
        parameters = list(inspect.signature(program.function).parameters.values())[len(program.bound) :]
        by_place = kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD
        plain = [one for one in parameters if one.kind in by_place]
        self._bound, self._name = tuple(program.bound), program.__name__
        self._least = sum(one.default is kinds.empty for one in plain)
        self._most = 1 << 16 if any(one.kind is kinds.VAR_POSITIONAL for one in parameters) else len(plain)

    def __call__(self, instance: Any) -> tuple[Any, ...]:
        """Return the arguments of an instance, behind what the program is bound to.

        Raises
        ------
        ModelError
            The program takes another number.
        """
        least, most = self._least, self._most
        if type(instance) is tuple and most > 1 and max(least, 2) <= len(instance) <= most:
            return (*self._bound, *instance)
        if not least <= 1 <= most:
            allowed = f"tuples of {least} to {most}" if least < most else f"tuples of {most}"
            raise ModelError(f"given {clip(instance)}; allowed: {allowed}, which {self._name} takes")
        return (*self._bound, instance)


def record_instances(
    program: Any,
    instances: Sequence[Any],
    session: Session,
    compute: Callable[..., Any] | None = None,
    observe: Callable[..., Any] | None = None,
    run: Run | None = None,
    counts: Any = None,
    in_order: bool = False,
    waits: bool = True,
) -> list[Any]:
    """Return the results of instances, or the exceptions that they raised.

    Parameters
    ----------
    program : Program
    instances : sequence
    session : Session
    compute, observe : callable, optional
        As `Run` has them.
    run : Run, optional
        What is noted in; a new one otherwise.
    counts : EagerCounts, optional
        Counts what runs eagerly.
    in_order : bool
        Whether instances run one after the other.
    waits : bool
        Whether they are thought to wait for values.
    """
    import torch

    from dietcode.runtime.recorded.fibers import Scheduler
    from dietcode.runtime.recorded.handles import install

    install()
    run = run or Run(session.machine, MAX_BYTES)
    run.compute, run.observe = compute, observe
    arguments = list(map(Arguments(program), instances))
    with torch.no_grad(), session:
        run.begin()
        try:
            scheduler = Scheduler(run, program.function, arguments, counts, in_order, waits)
            results = scheduler.results()
            run.flush()
            settle(run, results, scheduler.kept)
        finally:
            run.end()
    return results


def settle(run: Run, results: list[Any], kept: Mapping[tuple[int, str], Any] | None = None) -> None:
    """Make tensors of all handles that somebody has, and put them in the place of the handles in results.

    Handles elsewhere, as in closures, pass as their tensors.

    Parameters
    ----------
    run : Run
    results : list
        What is in it is changed in place; tuples and the like are made anew.
    kept : mapping of (int, str) to object, optional
        Objects that have results too, by the name of an attribute.
    """
    run.settle(results, _made, _layout_of)
    for (_, name), one in (kept or {}).items():
        found = getattr(one, name, None)
        if type(found) is Handle:
            setattr(one, name, found.tensor)


def _made(run: Run, handles: list[Handle]) -> Sequence[Any]:
    import torch

    from dietcode.runtime.recorded.handles import DTYPES

    rows = torch.empty((len(handles), *handles[0].type_shape), dtype=torch.float32)
    run.gather(handles, rows.data_ptr())
    dtype = DTYPES[handles[0].dtype_code]
    found: Sequence[Any] = rows.to(dtype).unbind(0)
    return found


_KINDS: tuple[tuple[type, int], ...] = (
    *((frozenset, 3), (tuple, 2), (list, 4), (dict, 5), (set, 6), (deque, 7)),
    (object, 8),
)


def _layout_of(cls: type) -> tuple[int, bool, tuple[str, ...]]:
    """Return where objects of a class may have handles, as ``recorder/results.c`` counts kinds."""
    from torch import Tensor

    leaves = (int, float, str, bytes, complex, type(None), type, ModuleType, Tensor)
    if issubclass(cls, leaves) or any("__call__" in vars(base) for base in cls.__mro__):
        return 0, False, ()  # functions and modules too
    kind = next(kind for base, kind in _KINDS if issubclass(cls, base))
    if kind == 2 and hasattr(cls, "n_sequence_fields"):  # of C, as those of torch.max
        kind = 3
    slots = [
        name
        for base in cls.__mro__
        if "__slots__" in vars(base)
        for name, one in vars(base).items()
        if type(one) is MemberDescriptorType
    ]
    if issubclass(cls, BaseException):
        slots.append("args")
    return kind, cls.__dictoffset__ != 0, tuple(slots)
