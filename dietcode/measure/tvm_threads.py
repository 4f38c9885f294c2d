"""Threads of TVM's own runtime, which runs what MetaSchedule measures, and devices behind RPC.

What else is measured runs on `dietcode.runtime.threads`, as libraries do.
"""

from __future__ import annotations

import os


def thread_variables(num_threads: int) -> dict[str, str]:
    """Return the variables of a process whose pools have so many threads; TVM alone takes half of the cores.

    Workers are not bound to cores: a bound worker waits behind whatever the host program runs there.
    """
    return {"TVM_NUM_THREADS": str(num_threads), "TVM_BIND_THREADS": "0"}


def set_num_threads(num_threads: int) -> None:
    """Threads of every pool of TVM's made from now on, see `thread_variables`."""
    os.environ.update(thread_variables(num_threads))
