"""torch.cuda as far as the GPU benchmark uses it, on the CPU: its graphs do nothing, its events read a clock.

So that the benchmark's own loops have run before they cost a GPU's time. What they time means nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

NAME, NUM_SMS = "a CPU in the place of a GPU", 132


class _Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing, self.at = enable_timing, 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

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
    def replay(self) -> None:
        time.sleep(1e-4)  # the calls were made while it was captured


@contextlib.contextmanager
def _within(_: Any) -> Iterator[None]:
    yield


def pretend(torch: Any, kind: Any = None) -> Any:
    """torch, with this in the place of its ``cuda``, and tensors for "cuda" on the CPU, of a `kind`."""
    cuda = SimpleNamespace(
        Event=_Event,
        Stream=_Stream,
        CUDAGraph=_Graph,
        stream=_within,
        graph=_within,
        current_stream=_Stream,
        synchronize=lambda: None,
        _sleep=lambda cycles: None,
        get_device_properties=lambda _: SimpleNamespace(name=NAME, multi_processor_count=NUM_SMS),
    )

    class Pretending:
        def __getattr__(self, name: str) -> Any:
            return cuda if name == "cuda" else getattr(torch, name)

        def randn(self, shape: Any, dtype: Any, device: str, generator: Any) -> Any:
            made = torch.randn(shape, dtype=dtype, generator=generator)
            return made if kind is None else made.as_subclass(kind)

        def empty(self, shape: Any, dtype: Any, device: str) -> Any:
            return torch.empty(shape, dtype=dtype)

        def Generator(self, device: str) -> Any:  # noqa: N802 - as torch has it
            return torch.Generator()

    return Pretending()
