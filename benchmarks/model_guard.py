"""Calls of random sizes: memory that stays flat, threads side by side, and a child of `fork`."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

_LEAVES = torch.utils._pytree.tree_leaves
_NUM_THREADS = 8
_NUM_CALLS_OF_A_THREAD = 200
_NUM_READINGS = 10


def guarded(
    own: Any, args_of: Callable[[Sequence[int]], Any], sizes: Sequence[Any], num_calls: int
) -> dict[str, Any]:
    """Return what calls of random sizes between the smallest and the largest do to the process.

    Parameters
    ----------
    own : Model
    args_of : callable
        The arguments of a size.
    sizes : sequence of tuple of int
        The first is the smallest, the last the largest.
    num_calls : int
    """
    facts = {
        "memory": _memory(own, args_of, sizes[0], sizes[-1], num_calls),
        "threads": _threads(own, args_of, sizes[0], sizes[-1]),
        "fork": _fork(own, args_of(sizes[-1])),
    }
    for name, one in facts.items():
        print(f"{name}: {one}")
    return facts


def _between(generator: random.Random, low: Sequence[int], high: Sequence[int]) -> list[int]:
    return [generator.randint(min(a, b), max(a, b)) for a, b in zip(low, high, strict=True)]


def _memory(own: Any, args_of: Any, low: Any, high: Any, num_calls: int) -> dict[str, Any]:
    """Return the resident memory, in bytes, after a call of the largest size, and amid calls."""
    own(*args_of(high))
    generator, readings, begin = random.Random(0), [_resident()], time.perf_counter()
    sizes = set()
    for number in range(1, num_calls + 1):
        size = _between(generator, low, high)
        sizes.add(tuple(size))
        own(*args_of(size))
        if number % max(1, num_calls // _NUM_READINGS) == 0:
            readings.append(_resident())
    return {
        "calls": num_calls,
        "num_sizes": len(sizes),
        "resident_bytes": readings,
        "growth": max(readings[1:]) / readings[1] - 1,
        "growth_of_the_first": readings[1] / readings[0] - 1,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "secs": time.perf_counter() - begin,
    }


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _threads(own: Any, args_of: Any, low: Any, high: Any) -> dict[str, Any]:
    """Return the number of wrong outputs of threads that call one model at once."""
    generator = random.Random(1)
    cases = [args_of(_between(generator, low, high)) for _ in range(16)]
    wanted = [_LEAVES(own(*args)) for args in cases]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        mine = random.Random(seed)
        for _ in range(_NUM_CALLS_OF_A_THREAD):
            number = mine.randrange(len(cases))
            try:
                found = _LEAVES(own(*cases[number]))
            except Exception as error:
                wrong.append(repr(error))
                return
            for one, right in zip(found, wanted[number], strict=True):
                if not torch.allclose(one, right, rtol=1e-5, atol=1e-5):
                    wrong.append(number)

    before = _resident()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(_NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "threads": _NUM_THREADS,
        "calls": _NUM_THREADS * _NUM_CALLS_OF_A_THREAD,
        "wrong": wrong[:5],
        "growth": _resident() / before - 1,
    }


def _fork(own: Any, args: Any) -> dict[str, Any]:
    """Return whether a child of a fork computes what its parent did, and the parent after it."""
    arrays = [one.numpy() for one in args]  # PyTorch's own threads do not survive a fork
    wanted = _LEAVES(own(*arrays))
    child = os.fork()
    if child == 0:
        try:
            found = _LEAVES(own(*arrays))
            same = all((a == b).all() for a, b in zip(found, wanted, strict=True))
            os._exit(0 if same else 1)
        except BaseException:
            os._exit(2)
    deadline, ended, status = time.monotonic() + 60, 0, -1
    while ended == 0 and time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.05)
    if ended == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        status = -1
    again = _LEAVES(own(*arrays))
    return {
        "child_is_right": status == 0,
        "parent_is_right": all((a == b).all() for a, b in zip(again, wanted, strict=True)),
    }
