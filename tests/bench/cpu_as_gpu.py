"""torch.cuda as far as the GPU benchmark uses it, on the CPU, with a clock that each launch moves on.

So that the benchmark's own loops have run before they cost a GPU's time. What they time means nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

NAME, NUM_SMS = "a CPU in the place of a GPU", 4
_THREADS_OF_SM = 2048
_SECS_PER_LAUNCH, _SECS_PER_WAVE = 1e-6, 4e-6


class _Clock:
    now = 0.0


class _Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing, self.at = enable_timing, 0.0

    def record(self) -> None:
        self.at = _Clock.now

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: _Event) -> float:
        return max(1e-3, 1e3 * (end.at - self.at))


class _Stream:
    cuda_stream = 0

    def wait_stream(self, other: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class _Graph:
    secs = 0.0

    def replay(self) -> None:
        _Clock.now += self.secs  # the calls were made while it was captured


@contextlib.contextmanager
def _within(_: Any) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _capturing(graph: _Graph) -> Iterator[None]:
    before = _Clock.now
    yield
    graph.secs = _Clock.now - before


def tick(driver: Any, most: int | None = None) -> None:
    """Have launches by a benchmark's class `Driver` move the clock on, by the waves of their grids.

    Parameters
    ----------
    most : int, optional
        Launches of a process; the next one does not come back.
    """
    call, num_launches = driver._call, itertools.count()

    def counting(self: Any, name: str, *arguments: Any) -> None:
        if name in {"cuLaunchKernel", "cuLaunchKernelEx"}:
            while most is not None and next(num_launches) >= most:
                time.sleep(60)
            if name == "cuLaunchKernel":
                _, x, y, _, threads, *_ = arguments
            else:
                config = arguments[0]._obj
                x, y, threads = config.x, config.y, config.threads_x
            waves = x * y / (NUM_SMS * (_THREADS_OF_SM // threads))
            _Clock.now += _SECS_PER_LAUNCH + _SECS_PER_WAVE * (0.7 * math.ceil(waves) + 0.3 * waves)
        call(self, name, *arguments)

    driver._call = counting


def pretend(torch: Any, kind: Any = None) -> Any:
    """torch, with this in the place of its ``cuda``, and tensors for "cuda" on the CPU, of a `kind`."""
    cuda = SimpleNamespace(
        Event=_Event,
        Stream=_Stream,
        CUDAGraph=_Graph,
        stream=_within,
        graph=_capturing,
        current_stream=_Stream,
        synchronize=lambda: None,
        _sleep=lambda cycles: None,
        get_device_properties=lambda _: SimpleNamespace(
            name=NAME, multi_processor_count=NUM_SMS, major=9, minor=0
        ),
        mem_get_info=lambda: (32 << 30, 80 << 30),
    )

    class Pretending:
        def __getattr__(self, name: str) -> Any:
            return cuda if name == "cuda" else getattr(torch, name)

        def compile(self, function: Any, **_: Any) -> Any:
            return function

        def randn(self, shape: Any, dtype: Any, device: str, generator: Any) -> Any:
            made = torch.randn(shape, dtype=dtype, generator=generator)
            return made if kind is None else made.as_subclass(kind)

        def empty(self, shape: Any, dtype: Any, device: Any) -> Any:
            return torch.empty(shape, dtype=dtype)

        def Generator(self, device: str) -> Any:  # noqa: N802 - as torch has it
            return torch.Generator()

    return Pretending()
