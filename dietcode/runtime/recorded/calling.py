"""A call of a recorded program: instances run, and what they return with tensors in the place of handles."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dietcode.runtime import recorder
from dietcode.errors import ModelError
from dietcode.runtime.recorded.session import Session
from dietcode.workload.text import clip

Handle = recorder.Handle
Run = recorder.Run

MAX_BYTES = 1 << 40
_LEAVES = (int, float, str, bool, type(None), bytes, complex)


class Arguments:
    """The arguments that a program takes of an instance: itself, or its items where it takes several.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Any) -> None:
        kinds = inspect.Parameter
        parameters = list(inspect.signature(program.function).parameters.values())[len(program.bound) :]
        plain = [
            one for one in parameters if one.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        ]
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
    scheduler: Callable[..., Any] | None = None,
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
    counts : Counts, optional
        Counts what runs eagerly.
    in_order : bool
        Whether instances run one after the other.
    waits : bool
        Whether they are thought to wait for values.
    scheduler : callable, optional
        Makes what runs them, in place of `Scheduler`.
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
            make = scheduler or Scheduler
            results = make(run, program.function, arguments, counts, in_order, waits).results()
            run.flush()
            make_tensors(run)
        finally:
            run.end()
    return [Plain()(one) for one in results]


def make_tensors(run: Run) -> None:
    """Make tensors of all handles that somebody has."""
    import torch

    from dietcode.runtime.recorded.handles import DTYPES

    groups: dict[tuple[int, int], list[Handle]] = {}
    for one in run.live():
        if one.tensor is None:
            groups.setdefault((one.type_number, one.dtype_code), []).append(one)
    for (_, dtype), handles in groups.items():
        rows = torch.empty((len(handles), *handles[0].type_shape), dtype=torch.float32)
        size = 4 * rows[0].numel()
        for at, one in enumerate(handles):
            ctypes.memmove(rows.data_ptr() + at * size, one.row_address, size)
        if dtype:
            rows = rows != 0 if DTYPES[dtype] == torch.bool else rows.to(DTYPES[dtype])
        for handle, row in zip(handles, rows.unbind(0), strict=True):
            handle.tensor = row


class Plain:
    """Puts tensors in the place of handles: in lists and objects where they are, in tuples by new ones."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._kept: list[Any] = []

    def __call__(self, value: Any) -> Any:
        """Return a value without handles."""
        kind = type(value)
        if kind is Handle:
            return value.tensor
        if kind in _LEAVES:
            return value
        if kind is tuple:
            made = tuple(map(self, value))
            return made if any(one is not other for one, other in zip(made, value, strict=True)) else value
        if id(value) in self._known:
            return self._known[id(value)]
        self._kept.append(value)
        self._known[id(value)] = value
        if kind is list:
            for at, one in enumerate(value):
                if type(one) not in _LEAVES:
                    value[at] = self(one)
        elif kind is dict or isinstance(value, dict):
            for key, one in list(value.items()):
                new = self(one)
                if new is not one:
                    value[key] = new
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            items = [self(one) for one in value]
            if any(one is not other for one, other in zip(items, value, strict=True)):
                value = self._known[id(value)] = tuple.__new__(kind, items)
        elif isinstance(value, list):
            for at, one in enumerate(value):
                value[at] = self(one)
        elif isinstance(value, set | frozenset) and any(type(one) is Handle for one in value):
            value = self._known[id(value)] = kind(map(self, value))
        elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
            for name, one in list(vars(value).items()):
                if type(one) not in _LEAVES:
                    vars(value)[name] = self(one)
        elif hasattr(kind, "__slots__"):
            self._slots(value)
        elif kind.__name__ == "deque":
            for at, one in enumerate(value):
                value[at] = self(one)
        return value

    def _slots(self, value: Any) -> None:
        for cls in type(value).__mro__:
            for name in getattr(cls, "__slots__", ()):
                one = getattr(value, name, None)
                new = self(one)
                if new is not one:
                    object.__setattr__(value, name, new)
