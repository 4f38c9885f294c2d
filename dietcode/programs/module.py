"""``dietcode.program`` and what a program's text may say beside plain Python."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dietcode.errors import ModelError
from dietcode.programs.decorators import undecorated
from dietcode.workload.text import clip

_Item = TypeVar("_Item")


class Program:
    """A function of one instance, which ``dietcode compile`` batches over many.

    Called, or by `eager`, it is the plain function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        given = undecorated(function.forward if hasattr(function, "forward") else function)
        self.bound = [given.__self__] if inspect.ismethod(given) else []
        self.function = undecorated(given.__func__) if inspect.ismethod(given) else given
        if not inspect.isfunction(self.function):
            raise ModelError(
                f"program: given {clip(function)}; allowed: a function written by def, a method, or a module"
            )
        if inspect.isgeneratorfunction(self.function) or inspect.iscoroutinefunction(self.function):
            kind = "a generator" if inspect.isgeneratorfunction(self.function) else "a coroutine"
            raise ModelError(
                f"program: {self.function.__name__} is {kind}; allowed: a function that returns its result, "
                "as a list of what is yielded"
            )
        functools.update_wrapper(self, self.function)

    def __get__(self, instance: Any, owner: type) -> Program:
        """Return the program of an object, where it is marked in the object's class."""
        return self if instance is None else Program(self.function.__get__(instance, owner))

    def __call__(self, *args: Any) -> Any:
        """Run the function on one instance."""
        return self.function(*self.bound, *args)

    def eager(self, *args: Any) -> Any:
        """Run the function on one instance without gradients: the same numbers, for a debugger."""
        import torch

        with torch.no_grad():
            return self.function(*self.bound, *args)


class MarkedBlock:
    """A function of tensors, which is compiled as one piece; called, it is the plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ModelError(f"block: given {clip(function)}; allowed: a function of tensors")
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        return self.function(*args, **kwargs)


def program(function: Callable[..., Any]) -> Program:
    """Mark a function, a method or a module as a program: see `Program`."""
    return Program(function)


def block(function: Callable[..., Any]) -> MarkedBlock:
    """Mark a function of tensors, without control flow that depends on values, as one block."""
    return MarkedBlock(function)


def concurrent(*results: Any) -> tuple[Any, ...]:
    """Return what calls of functions return, which do not depend on each other.

    Compiled, they run side by side: one that waits for the value of a tensor lets the others go on.
    """
    return results


def map(function: Callable[[_Item], Any], items: Iterable[_Item]) -> list[Any]:
    """Return what a function returns for each item; compiled, the calls run side by side."""
    fibers = sys.modules.get("dietcode.runtime.recorded.fibers")
    return [function(one) for one in items] if fibers is None else fibers.concurrent_map(function, items)
