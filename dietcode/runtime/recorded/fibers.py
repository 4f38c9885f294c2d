"""Instances of a program as fibers: greenlets that wait for values until all do, or have ended.

An instance runs in the greenlet of the caller until its first wait. Then the next one runs, in a driver: a
greenlet that runs one job after another, and is pooled by its thread. Where nothing is left to run, the last
to wait computes what is noted, and goes on.
"""

from __future__ import annotations

import sys
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from dietcode.runtime import recorder
from dietcode.runtime.recorded.counts import Counts

Handle = recorder.Handle
Run = recorder.Run
call_at_bottom, current = recorder.call_at_bottom, recorder.current
_MISSING = object()
T = TypeVar("T")
S = TypeVar("S")


def wait(handle: Handle) -> None:
    """Return when a handle is computed, and let other instances run until then."""
    run = handle.run
    scheduler = None if run is None else run.scheduler
    if scheduler is not None and run is current():
        scheduler.wait(handle)
    elif run is not None:  # of a call around this one, whose instances cannot run now
        run.flush()


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
    return call_all([(one, ()) for one in functions])


def concurrent_map(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Call a function for each item, as `concurrent` does and with its errors."""
    return call_all([(function, (one,)) for one in items])


def call_all(calls: Iterable[tuple[Callable[..., T], tuple[Any, ...]]]) -> list[T]:
    """Make calls, functions and their arguments, as `concurrent` does and with its errors."""
    run = current()
    scheduler = None if run is None else run.scheduler
    if scheduler is None or scheduler.is_plain:
        return [function(*arguments) for function, arguments in calls]
    found: list[T] = scheduler.call_all([Job(function, arguments) for function, arguments in calls])
    return found


class Job:
    """A call that may run in a driver.

    Attributes
    ----------
    is_begun, is_done : bool
    result : object
    error : Exception or None
    waiter : greenlet or None
        Goes on when it is done.
    """

    __slots__ = ("arguments", "error", "function", "is_begun", "is_done", "is_instance", "result", "waiter")

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[Any, ...] = (), is_instance: bool = False
    ) -> None:
        self.function, self.arguments, self.is_instance = function, arguments, is_instance
        self.is_begun = self.is_done = False
        self.result: Any = None
        self.error: Exception | None = None
        self.waiter: greenlet | None = None


class Scheduler:
    """Runs the instances of one call.

    Parameters
    ----------
    run : Run
        This thread's current one.
    function : callable
    instances : sequence of tuple
        The arguments of each.
    counts : Counts, optional
        Counts what runs eagerly.
    in_order : bool
        Whether instances run one after the other, as each sees what the one before has left.
    waits : bool
        Whether instances are thought to wait for values; otherwise `concurrent` calls one function after the other.
    """

    def __init__(
        self,
        run: Run,
        function: Callable[..., Any],
        instances: Sequence[tuple[Any, ...]],
        counts: Counts | None = None,
        in_order: bool = False,
        waits: bool = True,
    ) -> None:
        self.is_plain = not waits
        self._run, self.counts, self._in_order = run, counts, in_order
        self._kept: dict[tuple[int, str], Any] = {}
        self._instances = [Job(function, one, is_instance=True) for one in instances]
        self._jobs = deque(self._instances)
        self._num_left = len(self._instances)
        self._ready: deque[greenlet] = deque()
        self._waiting: deque[greenlet] = deque()
        self._active: set[greenlet] = set()  # drivers with a job
        self._failure: BaseException | None = None  # ends the call
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
        self._home, self._drivers, self._context = getcurrent(), _drivers(), copy_context()
        self._modes = _is_grad(), _is_inference(), _is_autocast(), _num_modes()
        before, self._run.scheduler = self._run.scheduler, self
        try:
            while self._num_left:
                if self._has_job():
                    self._do(self._jobs.popleft())
                else:
                    self._leave()
            return [one.result if one.error is None else one.error for one in self._instances]
        except BaseException as error:
            self._failure = self._failure or error
            if self._failure is error:
                raise
            raise self._failure from None
        finally:
            self._is_over = True
            for one in list(self._active):  # only after a failure
                one.parent = getcurrent()
                with suppress(BaseException):  # of the `finally` of an instance that is abandoned
                    one.throw(GreenletExit)
            self._run.scheduler = before

    def wait(self, handle: Handle) -> None:
        """Return when a handle is computed."""
        while not handle.computed:
            if self._failure is not None:
                raise self._failure
            if self._in_order or _get_running_loop() is not None:  # of asyncio, which a thread has
                self._run.flush()
            elif self._ready or (self._jobs and self._has_job()):
                self._waiting.append(getcurrent())
                self._leave()
            else:
                self._flush()

    def keep(self, value: Any, name: str) -> None:
        """Let each instance have an attribute of an object for itself from now on."""
        self._kept[id(value), name] = value

    def call_all(self, jobs: Sequence[Job]) -> list[Any]:
        """Return the results of jobs in order; those that nobody has begun run here."""
        if self._failure is not None:
            raise self._failure
        waiting = self._jobs
        waiting.extend(reversed(jobs))
        for job in jobs:
            if waiting and waiting[-1] is job:
                waiting.pop()
            if not job.is_begun:
                self._do(job)
        for job in jobs:
            while not job.is_done:
                job.waiter = getcurrent()
                self._leave()
        for job in jobs:
            if job.error is not None:
                raise job.error
        return [job.result for job in jobs]

    def drive(self, own: greenlet, job: Job) -> greenlet:
        """Run jobs in a driver until there is none; return the greenlet that goes on."""
        self._active.add(own)
        try:
            own.gr_context = self._context.copy()
            self._do(job)
            while self._failure is None and self._has_job():
                own.gr_context = self._context.copy()
                self._do(self._jobs.popleft())
            if self._failure is not None:
                raise self._failure
            target = self._next()
        except BaseException as error:
            if not self._is_over:
                self._failure = self._failure or error
                self._home.throw(self._failure)
            raise
        self._active.discard(own)
        return target

    def _do(self, job: Job) -> None:
        job.is_begun = True
        try:
            arguments = job.arguments
            if len(arguments) == 1:  # CPython calls it without a frame of C, which a switch would copy
                job.result = job.function(arguments[0])
            else:
                job.result = job.function(*arguments) if arguments else job.function()
        except Exception as error:
            if self._failure is not None or self._run.failure is not None:
                raise
            job.error = error
        job.is_done = True
        job.arguments = ()  # frees what nobody else has
        self._num_left -= job.is_instance
        if job.waiter is not None:
            self._ready.append(job.waiter)

    def _has_job(self) -> bool:
        jobs = self._jobs
        while jobs and jobs[0].is_begun:
            jobs.popleft()
        return bool(jobs)

    def _flush(self) -> None:
        try:
            self._run.flush()
        except BaseException as error:
            self._failure = error
            raise
        self._ready, self._waiting = self._waiting, self._ready

    def _next(self) -> greenlet:
        """Return the greenlet that goes on where no job is left; the caller's where all have ended."""
        if not self._ready and self._waiting:
            self._flush()
        return self._ready.popleft() if self._ready else self._home

    def _leave(self) -> None:
        """Let others run until somebody comes back to this greenlet."""
        work: tuple[Any, ...] = ()
        if self._ready:
            target = self._ready.popleft()
        elif self._has_job():
            target, work = self._drivers.take(), (self, self._jobs.popleft())
        else:
            target = self._next()
            if target is getcurrent():
                raise RuntimeError("an instance left its greenlet for another one; it has to come back")
        own = [(one, name, getattr(one, name, _MISSING)) for (_, name), one in self._kept.items()]
        if (_is_grad(), _is_inference(), _is_autocast(), _num_modes()) == self._modes:
            target.switch(*work)
        else:
            with _restored(self._modes):
                target.switch(*work)
        for one, name, value in own:
            if value is not _MISSING:
                setattr(one, name, value)


class _Drivers:
    """The pooled drivers of a thread.

    A greenlet begins with the recursion depth of who starts it. So one that was started by the caller starts
    all drivers: an instance that waits deep in a recursion leaves the full depth to the next.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._idle: list[greenlet] = []
        self._starter = greenlet(self._start)
        self._starter.switch()

    def take(self) -> greenlet:
        """Return a greenlet that takes a scheduler and a job."""
        return self._idle.pop() if self._idle else self._starter

    def _start(self) -> None:
        work = getcurrent().parent.switch()
        while True:
            work = greenlet(partial(call_at_bottom, self._drive)).switch(*work)

    def _drive(self, scheduler: Scheduler, job: Job) -> None:
        own = getcurrent()
        while True:
            target = scheduler.drive(own, job)
            self._idle.append(own)
            del scheduler, job  # which are freed when their call is over
            scheduler, job = target.switch()


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

_is_grad, _is_inference = torch._C.is_grad_enabled, torch._C.is_inference_mode_enabled
_is_autocast, _num_modes = torch._C._is_any_autocast_enabled, torch._C._len_torch_function_stack


@contextmanager
def _restored(modes: tuple[bool, bool, bool, int]) -> Iterator[None]:
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
