"""What is done to a program to run fewer and larger kernels; each may be left out, to see what it brings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Optimisations:
    """Optimisations of a program, all of which are on.

    Attributes
    ----------
    coarsening : bool
        A run of tensor code is one block; otherwise each call of a module or function is one.
    concurrency : bool
        ``dietcode.concurrent`` and ``dietcode.map`` run calls side by side; otherwise one after another.
    phases : bool
        Blocks wait for all rows of those that they read; otherwise depth alone orders them.
    hoisting : bool
        What depends on the instance alone is a block of its own, which runs first.
    tables : bool
        What depends on a whole number alone, such as a product of a word's embedding, is looked up in a table
        that is computed at load.
    horizontal : bool
        Products of the same rows within a block are one product.
    profile : bool
        Kernels are tuned for the numbers of rows that samples have; otherwise for all alike.
    """

    coarsening: bool = True
    concurrency: bool = True
    phases: bool = True
    hoisting: bool = True
    tables: bool = True
    horizontal: bool = True
    profile: bool = True


ALL = Optimisations()
