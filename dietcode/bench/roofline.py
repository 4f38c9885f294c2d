"""What the machine gives at most, now: FMA rate of its cores, and how fast they read a working set.

A shared machine drifts by a fifth within minutes, so both are read beside each measurement. The kernels are
in C (``runtime/loops/probes.c``): they need no compiler where a library is measured.

- ``fma-peak``: chains of multiply-adds in registers, full vectors, on every core;
- ``read-stream``: every core sums its own part of a buffer that is as large as the working set, so that a
  working set which fits a cache is held against that cache and not against DRAM. It reads and never writes,
  and no byte is read by two cores: the most that compulsory traffic can hope for.

The roofline is that of Williams, Waterman and Patterson (CACM 52(4), 2009).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.runtime.native_loops import loop_function
from dietcode.runtime.tensors import aligned_empty

FMA_PEAK, READ_STREAM = "fma-peak", "read-stream"
# A call takes some milliseconds at least, so that starting its threads does not show: of what caches hold it
# reads more.
_PEAK_STEPS = 2_000_000
_STREAM_BYTES = 64 << 20
_CACHED_STREAM_BYTES, _CACHED_BYTES = 512 << 20, 4 << 20
_MOST_BYTES = 256 << 20  # of the buffer: more than caches hold
_READINGS, _MOST_TIMES = 5, 4


@dataclass(frozen=True)
class Figures:
    """What was read beside one instance.

    Attributes
    ----------
    peak_gflops : float
        Of all cores, in float32.
    read_gbytes_per_sec : float
        Of all cores, at the size of the working set.
    roof_gflops : float
        The lower of the peak and of bandwidth times FLOPs by compulsory bytes.
    """

    peak_gflops: float
    read_gbytes_per_sec: float
    roof_gflops: float


class Roofline:
    """The two kernels on some threads.

    Parameters
    ----------
    num_threads : int
        As many as what is held against them uses.

    Raises
    ------
    LibraryError
        The loops in C are not there: this installation was made without a compiler.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._probe = loop_function("probe")
        sizes = np.zeros(2, np.int64)
        loop_function("probe_sizes")(sizes.ctypes.data)
        self._step_floats = int(sizes.prod())
        self._sums = aligned_empty((num_threads, self._step_floats))
        self._data = aligned_empty((0,))

    def probes(self, num_bytes: float) -> dict[str, Callable[[], Any]]:
        """A call of each kernel; the stream reads a buffer of `num_bytes`, rounded up, several times over."""
        steps, passes = self._steps(num_bytes), self._passes(num_bytes)
        size = steps * self._step_floats * self.num_threads
        if self._data.size < size:
            self._data = aligned_empty((size,))
            self._data.fill(1.0)
        sums, data = self._sums.ctypes.data, self._data.ctypes.data
        return {
            FMA_PEAK: lambda: self._probe(sums, 0, self.num_threads, _PEAK_STEPS, 1),
            READ_STREAM: lambda: self._probe(sums, data, self.num_threads, steps, passes),
        }

    def figures(self, secs: dict[str, float], flops: float, num_bytes: float) -> Figures:
        """From seconds of one call of each probe."""
        peak_flops = 2.0 * self.num_threads * _PEAK_STEPS * self._step_floats
        step_bytes = 4 * self._step_floats * self.num_threads
        read_bytes = self._steps(num_bytes) * step_bytes * self._passes(num_bytes)
        peak, bandwidth = peak_flops / secs[FMA_PEAK] / 1e9, read_bytes / secs[READ_STREAM] / 1e9
        return Figures(peak, bandwidth, min(peak, bandwidth * flops / num_bytes))

    def read(self, flops: float, num_bytes: float, reached_gflops: float = 0.0) -> Figures:
        """Return the figures of now, from the fastest of a few calls: some tens of milliseconds.

        Parameters
        ----------
        flops : float
            Of a call of what is held against them.
        num_bytes : float
            That it reads and writes at least: its tensors, once.
        reached_gflops : float
            What it was measured at. A roofline below that was disturbed: it is read again, a few times.
        """
        secs = dict.fromkeys((FMA_PEAK, READ_STREAM), math.inf)
        for _ in range(_MOST_TIMES):
            for name, call in self.probes(num_bytes).items():
                call()
                for _ in range(_READINGS):
                    begun = time.perf_counter()
                    call()
                    secs[name] = min(secs[name], time.perf_counter() - begun)
            found = self.figures(secs, flops, num_bytes)
            if found.roof_gflops >= reached_gflops:
                break
        return found

    def _steps(self, num_bytes: float) -> int:
        """Of each thread, through the buffer once."""
        wanted = min(int(num_bytes), _MOST_BYTES)
        return max(1, -(-wanted // (4 * self._step_floats * self.num_threads)))

    def _passes(self, num_bytes: float) -> int:
        wanted = _CACHED_STREAM_BYTES if num_bytes <= _CACHED_BYTES else _STREAM_BYTES
        return max(1, -(-wanted // max(1, int(num_bytes))))
