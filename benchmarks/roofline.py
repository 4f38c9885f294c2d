"""What the machine gives at most, now: FMA rate of all cores, and how fast they read a working set.

    python -m benchmarks.roofline [MEGABYTES …]

`Roofline.probes` gives two calls that a benchmark times in turns with what it measures, since a shared
machine drifts by a fifth within minutes:

- ``fma-peak``: chains of multiply-adds in registers, full vectors, on every core;
- ``read-stream``: every core sums its own part of a buffer that is as large as the working set, so that a
  working set which fits a cache is held against that cache and not against DRAM. It reads and never writes,
  and no byte is read by two cores: the most that compulsory traffic can hope for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.bench.turns import interleave
from dietcode.measure.tvm_threads import set_num_threads
from dietcode.runtime.tensors import aligned_empty
from dietcode.search_space.tir import CPU, DTYPE, i64, load, small_buffer, splat, store
from dietcode.target.cpu import CpuTarget, resolve_target
from dietcode.workload.target_spec import TargetSpec

FMA_PEAK, READ_STREAM = "fma-peak", "read-stream"
# Two ports times a latency of four cycles, and some more; as many sums hide the latency of additions.
_CHAINS = 12
_PEAK_TRIPS = 50_000
_UNROLLED = 4
_STREAM_BYTES = 32 << 20  # a call reads as much at least, so that starting the threads does not show


@dataclass(frozen=True)
class Figures:
    """What was read beside one instance.

    Attributes
    ----------
    peak_gflops : float
        Of all cores.
    read_gbytes_per_sec : float
        Of all cores, at the size of the working set.
    roof_gflops : float
        The lower of the peak and of bandwidth times FLOPs by compulsory bytes.
    """

    peak_gflops: float
    read_gbytes_per_sec: float
    roof_gflops: float


class Roofline:
    """The two kernels, compiled for this machine.

    Parameters
    ----------
    num_threads : int
        Of the pool: one task each. Load libraries first or set ``TVM_NUM_THREADS``: the pool is made once.
    """

    def __init__(self, num_threads: int, target: CpuTarget | None = None) -> None:
        target = target or resolve_target(TargetSpec(kind="llvm"))
        self.num_threads, self._lanes = num_threads, target.lanes()
        functions = {
            "peak": _peak_function(num_threads, self._lanes),
            "stream": _stream_function(num_threads, self._lanes),
        }
        self._module = tvm.compile(tvm.IRModule(functions), target=target.tvm_target())
        self._sums = aligned_empty((num_threads, _CHAINS, self._lanes))
        self._data = aligned_empty((0,))

    def probes(self, num_bytes: float) -> dict[str, Callable[[], Any]]:
        """A call of each kernel; the stream reads a buffer of `num_bytes`, rounded up, several times over."""
        peak, stream = self._module["peak"], self._module["stream"]
        step = self._lanes * _CHAINS
        steps = max(1, -(-int(num_bytes) // (4 * step * self.num_threads)))
        size = steps * step * self.num_threads
        if self._data.size < size:
            self._data = aligned_empty((size,))
            self._data.fill(1.0)
        data = tvm_ffi.from_dlpack(self._data[:size].reshape(self.num_threads, steps, _CHAINS, self._lanes))
        factors = tvm_ffi.from_dlpack(np.full(2, 0.5, np.float32))  # every chain tends to 1
        sums = tvm_ffi.from_dlpack(self._sums)
        passes = self._passes(num_bytes)
        return {
            FMA_PEAK: lambda: peak(factors, sums, _PEAK_TRIPS),
            READ_STREAM: lambda: stream(data, sums, passes),
        }

    def figures(self, secs: dict[str, float], flops: float, num_bytes: float) -> Figures:
        """From seconds of one call of each probe."""
        peak_flops = 2.0 * self.num_threads * _PEAK_TRIPS * _UNROLLED * _CHAINS * self._lanes
        step_bytes = 4 * self._lanes * _CHAINS * self.num_threads
        read_bytes = -(-int(num_bytes) // step_bytes) * step_bytes * self._passes(num_bytes)
        peak, bandwidth = peak_flops / secs[FMA_PEAK] / 1e9, read_bytes / secs[READ_STREAM] / 1e9
        return Figures(peak, bandwidth, min(peak, bandwidth * flops / num_bytes))

    def _passes(self, num_bytes: float) -> int:
        return max(1, -(-_STREAM_BYTES // max(1, int(num_bytes))))


def _peak_function(num_tasks: int, lanes: int) -> Any:
    """``sums[task, chain] = chain · factors[0] + factors[1], trips times``; LLVM cannot shorten that."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("peak")
        T.func_attr({"global_symbol": "peak"})
        handles = [T.arg(name, T.handle()) for name in ("factors", "sums")]
        trips = T.arg("trips", T.int64())
        factors = T.match_buffer(handles[0], (i64(2),), DTYPE, align=4)
        sums = T.match_buffer(handles[1], (i64(num_tasks), i64(_CHAINS), i64(lanes)), DTYPE, align=4)
        with (
            T.attr(i64(0), "device_type", CPU),
            T.attr(i64(0), "device_id", 0),
            T.parallel(i64(0), i64(num_tasks)) as task,
        ):
            chains = _zeros(lanes)
            scale, shift = (T.Bind(splat(factors[i64(i)], lanes)) for i in range(2))
            with T.serial(i64(0), trips):
                for chain in chains * _UNROLLED:
                    store(chain, load(chain, [0], lanes) * scale + shift, [0], lanes)
            _keep(chains, sums, task, lanes)
    return builder.get()


def _stream_function(num_tasks: int, lanes: int) -> Any:
    """``sums[task, i] = Σ data[task, step, i]``, over all steps, passes times."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("stream")
        T.func_attr({"global_symbol": "stream"})
        handles = [T.arg(name, T.handle()) for name in ("data", "sums")]
        passes = T.arg("passes", T.int64())
        steps = T.int64()
        shape = (i64(num_tasks), steps, i64(_CHAINS), i64(lanes))
        data = T.match_buffer(handles[0], shape, DTYPE, align=4)
        sums = T.match_buffer(handles[1], (i64(num_tasks), i64(_CHAINS), i64(lanes)), DTYPE, align=4)
        with (
            T.attr(i64(0), "device_type", CPU),
            T.attr(i64(0), "device_id", 0),
            T.parallel(i64(0), i64(num_tasks)) as task,
        ):
            chains = _zeros(lanes)
            with T.serial(i64(0), passes), T.serial(i64(0), steps) as step:
                for i, chain in enumerate(chains):
                    value = load(data, [task, step, i, 0], lanes)
                    store(chain, load(chain, [0], lanes) + value, [0], lanes)
            _keep(chains, sums, task, lanes)
    return builder.get()


def _zeros(lanes: int) -> list[Any]:
    chains = [small_buffer(lanes) for _ in range(_CHAINS)]
    for chain in chains:
        store(chain, splat(tirx.const(0, DTYPE), lanes), [0], lanes)
    return chains


def _keep(chains: list[Any], sums: Any, task: Any, lanes: int) -> None:
    """Write the chains where the caller can see them, or LLVM would leave them out."""
    for i, chain in enumerate(chains):
        store(sums, load(chain, [0], lanes), [task, i, 0], lanes)


def main(sizes: list[float]) -> None:
    """Print the peak, and the bandwidth at some sizes."""
    target = resolve_target(TargetSpec(kind="llvm"))
    set_num_threads(target.num_cores)
    roofline = Roofline(target.num_cores, target)
    for megabytes in sizes:
        secs = interleave(roofline.probes(megabytes * 1e6), rounds=5)
        found = roofline.figures(secs, 1.0, megabytes * 1e6)
        peak, read = found.peak_gflops, found.read_gbytes_per_sec
        print(f"{megabytes:8.2f} MB: peak {peak:.0f} GFLOP/s, read {read:.1f} GB/s")


if __name__ == "__main__":
    main([float(text) for text in sys.argv[1:]] or [0.05, 1.0, 3.0, 16.0, 64.0])
