"""Instances of a program as fibers: greenlets that wait for values until all do, or have ended.

An instance runs in the greenlet of the caller until its first wait. Then the next one runs, in a driver: a
greenlet that makes calls, and is pooled by its thread. Where nothing is left to run, the last to wait
computes what is noted, and goes on. Groups of calls, and waits, are in `recorder/greenlets.c`.
"""

from __future__ import annotations

import sys
import threading
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, TypeVar

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from dietcode.runtime import recorder
from dietcode.runtime.recorded.counts import EagerCounts

Run = recorder.Run
begin_calls, begin_map = recorder.begin_calls, recorder.begin_map
call_at_bottom = recorder.call_at_bottom
_MISSING = object()
T = TypeVar("T")
S = TypeVar("S")


def concurrent(functions: Iterable[Callable[[], T]]) -> list[T]:
    """Call functions side by side: where one waits for a value, others run.

    Parameters
    ----------
    functions : iterable of callable
        Without arguments.

    Returns
    -------
    list
        Their results, in order.

    Raises
    ------
    Exception
        That of the first function that raised; the others have ended by then.
    """
    return list(call_all(*[(one, ()) for one in functions]))


def call_all(*calls: tuple[Callable[..., T], tuple[Any, ...]]) -> tuple[T, ...]:
    """Make calls, functions and their arguments, as `concurrent` does and with its errors."""
    group = begin_calls(calls)
    if group is None:
        return tuple([function(*arguments) for function, arguments in calls])
    found: list[Any] = []
    for function, arguments in group:
        try:
            found.append(function(arguments[0]) if len(arguments) == 1 else _called(function, arguments))
        except BaseException as error:
            found.append(group.fail(error))
    result: tuple[T, ...] = group.finish(found)
    return result


def concurrent_map(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Call a function for each item, as `concurrent` does and with its errors."""
    group = begin_map(function, items)
    if group is None:
        return [function(one) for one in items]
    found: list[Any] = []
    for one in group:
        try:
            found.append(function(one))
        except BaseException as error:
            found.append(group.fail(error))
    result: list[T] = group.finish(found)
    return result


def _called(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """Call a function, of few arguments without a frame of C, which a switch would copy."""
    count = len(arguments)
    if count == 1:
        return function(arguments[0])
    if count == 2:
        return function(arguments[0], arguments[1])
    if count == 3:
        return function(arguments[0], arguments[1], arguments[2])
    return function(*arguments) if arguments else function()


class Scheduler(recorder.Fibers):
    """Runs the instances of one call.

    Parameters
    ----------
    run : Run
        This thread's current one.
    function : callable
    instances : sequence of tuple
        The arguments of each.
    counts : EagerCounts, optional
        Counts what runs eagerly.
    in_order : bool
        Whether instances run one after the other, as each sees what the one before has left.
    waits : bool
        Whether instances are thought to wait for values; otherwise `concurrent` makes calls in order.
    """

    def __init__(
        self,
        run: Run,
        function: Callable[..., Any],
        instances: Sequence[tuple[Any, ...]],
        counts: EagerCounts | None = None,
        in_order: bool = False,
        waits: bool = True,
    ) -> None:
        self.is_plain, self.is_in_order = not waits, in_order
        self.counts = counts
        self._work = function, tuple(instances)
        self._active: set[greenlet] = set()  # drivers with a call
        self._is_over = False

    def results(self) -> list[Any]:
        """Run all instances.

        Returns
        -------
        list
            The result of each, or the exception that it raised.

        Raises
        ------
        BaseException
            No error of an instance: KeyboardInterrupt, or an error of a block.
        """
        self._home, drivers, self._context = getcurrent(), _drivers(), copy_context()
        self._modes = [one() for one in _MODES]
        before, self.run.scheduler = self.run.scheduler, self
        function, instances = self._work
        del self._work
        found: list[Any] = []
        try:
            group = self.begin(function, instances, drivers.idle, drivers.starter)
            for arguments in group:
                try:
                    found.append(_called(function, arguments))
                except BaseException as error:
                    found.append(group.fail(error))
            results: list[Any] = group.finish(found)
            return results
        except BaseException as error:
            self.failure = self.failure or error
            if self.failure is error:
                raise
            raise self.failure from None
        finally:
            self._is_over = True
            for one in list(self._active):  # only after a failure
                one.parent = getcurrent()
                with suppress(BaseException):  # of the `finally` of an instance that is abandoned
                    one.throw(GreenletExit)
            self.run.scheduler = before

    def keep(self, value: Any, name: str) -> None:
        """Let each instance have an attribute of an object for itself from now on."""
        self.kept = self.kept or {}
        self.kept[id(value), name] = value

    def drive(self, own: greenlet) -> greenlet:
        """Make calls in a driver until there is none; return the greenlet that goes on."""
        self._active.add(own)
        try:
            while (call := self.take()) is not None:
                group, number, function, arguments = call
                del call
                own.gr_context = self._context.copy()
                try:
                    result = _called(function, arguments)
                except Exception as error:
                    if self.failure is not None or self.run.failure is not None:
                        raise
                    group.put(number, None, error)
                else:
                    group.put(number, result)
                    del result
                del group, function, arguments  # which are freed unless others have them
            if self.failure is not None:
                raise self.failure
            target: greenlet = self.next() or self._home
        except BaseException as error:
            if not self._is_over:
                self.failure = self.failure or error
                self._home.throw(self.failure)
            raise
        self._active.discard(own)
        return target

    def leave_apart(self, target: greenlet, given: tuple[Any, ...]) -> None:
        """Switch to another greenlet, and restore the modes and attributes of this one after it."""
        own = [(one, name, getattr(one, name, _MISSING)) for (_, name), one in (self.kept or {}).items()]
        with _restored(self._modes):
            target.switch(*given)
        for one, name, value in own:
            if value is not _MISSING:
                setattr(one, name, value)


class _Drivers:
    """The pooled drivers of a thread.

    A greenlet begins with the recursion depth of who starts it. So one that was started by the caller starts
    all drivers: an instance that waits deep in a recursion leaves the full depth to the next.

    Attributes
    ----------
    idle : list of greenlet
        Each takes a scheduler, as `starter` does.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.idle: list[greenlet] = []
        self._given: Any = None
        self.starter = greenlet(self._start)
        self.starter.switch()

    def _start(self) -> None:
        self._given = getcurrent().parent.switch()
        while True:  # without a variable that keeps it
            self._given = greenlet(call_at_bottom).switch(self._drive)

    def _drive(self) -> None:
        scheduler, self._given = self._given, None
        own = getcurrent()
        while True:
            target = scheduler.drive(own)
            self.idle.append(own)
            del scheduler  # which is freed when its run is over
            scheduler = target.switch()


class _Local(threading.local):
    drivers: _Drivers | None = None


_local = _Local()


def _drivers() -> _Drivers:
    """Return those of this thread that may recurse at least as deep as the caller."""
    depth, frame = 0, sys._getframe(1)
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    if _local.drivers is None or _local.drivers.depth > depth:
        _local.drivers = _Drivers(depth)
    return _local.drivers


# ---- What PyTorch has by thread: each instance has it for itself ----

_MODES: list[Callable[[], Any]] = [
    torch._C.is_grad_enabled,
    torch._C.is_inference_mode_enabled,
    torch._C._is_any_autocast_enabled,
    torch._C._len_torch_function_stack,
]
recorder.watch((*_MODES, _get_running_loop))


@contextmanager
def _restored(modes: list[Any]) -> Iterator[None]:
    """The modes in which all instances begin, for others; then those of this instance again."""
    is_grad, is_inference, is_autocast, count = modes
    own_autocast = torch.is_autocast_enabled("cpu")
    popped = [
        torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack() - count)
    ]
    torch.set_autocast_enabled("cpu", is_autocast)
    try:
        with torch.inference_mode(is_inference), torch.set_grad_enabled(is_grad):
            yield
    finally:
        torch.set_autocast_enabled("cpu", own_autocast)
        for one in reversed(popped):
            torch._C._push_on_torch_function_stack(one)
