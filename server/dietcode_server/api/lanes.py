"""Lanes: downloads do not delay requests for jobs; threads apart, and turns in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")


class Lane:
    """A few threads that one kind of work shares; what is over them waits in line.

    Parameters
    ----------
    num_threads : int
        Most calls at once.
    """

    def __init__(self, name: str, num_threads: int) -> None:
        self._num_threads = num_threads
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"dietcode.{name}")  # one for each event loop

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Call `work` in one of the threads."""
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(self._num_threads)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(work, *arguments, limiter=limiter)


WRITES = Lane("writes", num_threads=4)
"""Submissions, which may wait for the compiler: many at once wait here, and what only reads goes by."""

CHECKS = Lane("checks", num_threads=4)
"""Texts that somebody writes, likewise, so that they hold up no submission either."""


class Turns:
    """A few steps of one kind in each round of the event loop, the others in the rounds after it.

    Two hundred downloads that all have something to send would make each round long, and whoever is answered
    in several rounds would wait for all of them each time. While a request is worked on in a thread, which
    needs what they need, there are fewer rounds.

    Parameters
    ----------
    num_steps : int
        In one round.
    pause_secs : float
        How long a round takes while others work.
    """

    def __init__(self, name: str, num_steps: int, pause_secs: float) -> None:
        self._num_steps, self._pause_secs = num_steps, pause_secs
        self._slots: RunVar[asyncio.Semaphore] = RunVar(f"dietcode.{name}")

    async def wait(self) -> None:
        """Wait for a turn."""
        try:
            slots = self._slots.get()
        except LookupError:
            slots = asyncio.Semaphore(self._num_steps)
            self._slots.set(slots)
        async with slots:
            others = anyio.to_thread.current_default_thread_limiter().borrowed_tokens
            await asyncio.sleep(self._pause_secs if others else 0)
