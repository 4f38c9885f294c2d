"""Whose threads run the loops of a library for CPUs: the launcher, bound to a library's functions."""

from __future__ import annotations

import functools
import numbers
import os
import sys
from dataclasses import dataclass
from typing import Any

from dietcode.errors import LibraryError
from dietcode.runtime.compile_launcher import LAUNCHER
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.native import load_code
from dietcode.workload.text import clip

TEAMS = ("auto", "own", "host")
_MAX_THREADS = 1024  # of one call, as the launcher has it
_OWN, _HOST_IN_TIME, _HOST, _POOL = range(4)  # as the launcher numbers them


@dataclass(frozen=True)
class Threads:
    """Of one library.

    Attributes
    ----------
    num_threads : int
        The most that one call uses.
    team : str
        ``own`` for those of the process's pool, ``host`` for the host program's team, ``auto`` for that team
        where tensors are PyTorch's and it comes in time.
    num_cores : int
        Threads of the pool that may run at once, whatever the calls.
    """

    num_threads: int
    team: str
    num_cores: int

    @classmethod
    def of(cls, num_threads: int | None, team: str | None, tuned_for: int) -> Threads:
        """From what `dietcode.load` was given, DIETCODE_THREADS, and the threads a library was tuned for.

        Raises
        ------
        LibraryError
            A number below 1, or no such team.
        """
        if num_threads is not None:
            num_threads = _checked_number(num_threads)
        name = "DIETCODE_THREADS" if team is None else "threads"
        chosen = (os.environ.get("DIETCODE_THREADS") or "auto") if team is None else team
        if chosen not in TEAMS:
            raise LibraryError(f"{name}: given {chosen!r}; allowed: {', '.join(TEAMS)}")
        if chosen == "auto" and num_threads is not None:
            chosen = "own"  # the host's team has as many threads as it has
        cores = available_cores()
        return cls(
            num_threads or max(1, min(tuned_for, cores, _MAX_THREADS)), chosen, min(cores, _MAX_THREADS)
        )

    def bind(self, function: Any, beside_torch: bool = False, uncounted: int = 0, num_parts: int = 0) -> Any:
        """The function of an attached library, on these threads; for PyTorch's tensors, or for others.

        How long its loops take is remembered for each shape, but for the integers that `uncounted` has a bit
        of, the lowest for the first. `num_parts` is how many iterations its loops have, 0 where that is not
        known.
        """
        team = {"own": _OWN, "host": _HOST, "auto": _HOST_IN_TIME if beside_torch else _OWN}[self.team]
        words = self.num_threads, team, self.num_cores, uncounted, num_parts
        return _launcher()["bind"](function, *words)

    def bind_copy(self, beside_torch: bool = False) -> Any:
        """The launcher's ``copy(to, from, kind)`` on these threads, for tensors as `bind` has them."""
        return self.bind(_launcher()["copy"], beside_torch)


def _checked_number(given: Any) -> int:
    is_integer = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if not is_integer or not 1 <= given <= _MAX_THREADS:
        raise LibraryError(f"num_threads: given {clip(given)}; allowed: an integer of 1…{_MAX_THREADS}")
    return int(given)


def bind_for_measuring(function: Any, num_threads: int) -> Any:
    """The function of an attached library on so many threads of the pool, also where fewer were faster."""
    return _launcher()["bind"](function, num_threads, _POOL, num_threads)


def attach(path: str) -> None:
    """Have the library that was loaded by this path run its loops by the launcher."""
    _launcher()["attach"](path)


@functools.lru_cache(maxsize=1)
def _launcher() -> Any:
    if not LAUNCHER.is_file():
        command = f"{sys.executable} -m dietcode.runtime.compile_launcher"
        raise LibraryError(f"{LAUNCHER}: missing; compile it: {command}")
    return load_code(LAUNCHER)
