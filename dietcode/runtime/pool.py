"""The pool of worker threads that all callers share.

TVM keeps a pool for each *calling* thread, and its workers spin for a while after a call: eight callers would
make eight pools that disturb each other. So the first caller runs kernels itself, and calls from other
threads are handed to one helper thread. At any time one call runs, on all cores of the pool.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_NOBODY = 0  # no thread's ident


class _Pool:
    def __init__(self, owner: int | None = None) -> None:
        self.lock = threading.Lock()
        self.owner = owner
        self._helper: ThreadPoolExecutor | None = None

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self.owner is None:
            with self.lock:
                self.owner = self.owner or threading.get_ident()
        if self.owner == threading.get_ident():
            with self.lock:
                return function(*arguments)
        return self._delegate(function, arguments)

    def _delegate(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        with self.lock:
            if self._helper is None:
                self._helper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dietcode")
            helper = self._helper
        return helper.submit(self._locked, function, arguments).result()

    def _locked(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        with self.lock:
            return function(*arguments)


_pool = _Pool()


def call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a native function on the shared pool and wait for it."""
    return _pool.call(function, arguments)


def thread_variables(num_threads: int) -> dict[str, str]:
    """Return the variables of a process whose pools have so many threads; TVM alone takes half of the cores.

    Workers are not bound to cores: a bound worker waits behind whatever the host program runs there.
    """
    return {"TVM_NUM_THREADS": str(num_threads), "TVM_BIND_THREADS": "0"}


def set_num_threads(num_threads: int) -> None:
    """Threads of every pool made from now on, see `thread_variables`."""
    os.environ.update(thread_variables(num_threads))


def _forget() -> None:
    """A forked child has none of the parent's threads, but TVM's pool of the calling thread does not know.

    A call from that thread would wait for ever, so where there was a call before, the helper makes them all.
    """
    global _pool  # noqa: PLW0603
    _pool = _Pool(owner=None if _pool.owner is None else _NOBODY)


os.register_at_fork(after_in_child=_forget)
