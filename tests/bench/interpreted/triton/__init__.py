"""Triton as far as the GPU benchmark uses it, on the CPU: kernels run program by program, in NumPy.

Strict where the real one is: each parameter of a kernel has one value, constants are whole numbers, and what
lies outside of a tensor is neither read nor written. What it is tuned for means nothing.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from triton import language

__version__ = "0 (interpreted)"


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


class Config:
    def __init__(self, kwargs: dict[str, int], num_warps: int, num_stages: int) -> None:
        assert num_warps & (num_warps - 1) == 0 and num_stages >= 1
        self.kwargs = kwargs


class Kernel:
    """What `jit` returns: ``kernel[grid](*arguments, **constants)``."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function, self.signature = function, inspect.signature(function)

    def __getitem__(self, grid: Callable[[Any], Sequence[int]]) -> Callable[..., None]:
        def launch(*arguments: Any, **named: Any) -> None:
            given = self.signature.bind(*arguments, **named)  # each once
            constants = {n for n, p in self.signature.parameters.items() if "constexpr" in str(p.annotation)}
            assert constants == set(named) and all(type(given.arguments[n]) is int for n in constants)
            placed = {
                name: language.Pointer.of(value) if hasattr(value, "data_ptr") else value
                for name, value in given.arguments.items()
            }
            for program in itertools.product(*map(range, grid(given.arguments))):
                language.program = program
                self.function(**placed)

        return launch


def jit(function: Callable[..., None]) -> Kernel:
    function.__globals__["tl"] = language
    return Kernel(function)


class Tuned:
    """What `autotune` returns: for new values of the key it runs two of the configs, and keeps one."""

    def __init__(self, kernel: Kernel, configs: list[Config], key: list[str]) -> None:
        self.kernel, self.configs, self.key = kernel, configs, key
        self.best: dict[tuple[Any, ...], Config] = {}

    def __getitem__(self, grid: Callable[[Any], Sequence[int]]) -> Callable[..., None]:
        def launch(*arguments: Any, **named: Any) -> None:
            given = self.kernel.signature.bind_partial(*arguments, **named).arguments
            place = tuple(given[name] for name in self.key)
            if place not in self.best:
                for config in (self.configs[0], self.configs[-1]):
                    self.kernel[grid](*arguments, **named, **config.kwargs)
                self.best[place] = self.configs[-1]
            self.kernel[grid](*arguments, **named, **self.best[place].kwargs)

        return launch


def autotune(configs: list[Config], key: list[str]) -> Callable[[Kernel], Tuned]:
    return lambda kernel: Tuned(kernel, configs, key)
