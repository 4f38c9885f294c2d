"""Requests to children and their results, as frozen plain data: they cross processes and machines.

One set of types for every kind of device. What differs between kinds (the limits of a CPU, the launches of a
kernel on a GPU) is in the opaque fields ``recipe`` and ``call``, which the device's backend makes and its
`dietcode.measure.children.Worker` understands; and in ``facts``, which go the other way.

Machine code is a file: a path means something on one machine only, and who sends a request to another machine
sends the file beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dietcode.search_space.problem import AnyProblem

Point = Mapping[str, int]


@dataclass(frozen=True)
class BuildRequest:
    """Compile something to machine code.

    Attributes
    ----------
    path : str
        The file that it is written to.
    recipe : object
        What is compiled, and for what; a `CpuRecipe` or a `CudaRecipe`.
    """

    path: str
    recipe: Any


@dataclass(frozen=True)
class BuildResult:
    """Machine code in a file, or why there is none.

    Attributes
    ----------
    path : str or None
        That of the request; None where there is an error.
    object_bytes : int
        Bytes that the code adds to a library.
    secs : float
        What the build took.
    facts : mapping
        Facts from the compiler, by the worker's own names.
    node : str
        The machine that built it, where an engine has several.
    code : str or None
        Digest of the source that a micro-kernel was built from.
    """

    path: str | None
    object_bytes: int
    secs: float
    error: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    node: str = ""
    code: str | None = None

    @classmethod
    def failed(cls, error: str) -> BuildResult:
        """Return a result without code."""
        return cls(None, 0, 0.0, error)


@dataclass(frozen=True)
class CallRequest:
    """Call some machine code at several points.

    Attributes
    ----------
    problem : AnyProblem
    path : str
        The file of the code.
    call : object
        How it is called: `Limits` on a CPU, a `LaunchedKernel` or a `LibraryCall` on a GPU.
    points : tuple of dict of str to int
        Extents of every index.
    values : tuple of tuple of int
        Shape variables at each point, in the workload's order; empty where the code takes none.
    """

    problem: AnyProblem
    path: str
    call: Any
    points: tuple[Point, ...]
    values: tuple[tuple[int, ...], ...] = ()

    def bindings(self) -> list[tuple[dict[str, int], tuple[int, ...]]]:
        """Return each point with the values of the shape variables there."""
        values = self.values or ((),) * len(self.points)
        return [(dict(point), own) for point, own in zip(self.points, values, strict=True)]


@dataclass(frozen=True)
class TimeRequest(CallRequest):
    """Time some machine code; without points only the facts are returned.

    Attributes
    ----------
    min_secs : float
        Seconds that one reading lasts at least.
    repeats : int
        Readings at each point.
    keeps : bool
        Whether the code stays loaded, for another request that comes soon.
    """

    min_secs: float = 2e-3
    repeats: int = 7
    keeps: bool = False


@dataclass(frozen=True)
class CheckRequest(CallRequest):
    """Run some machine code once at each point and compare it with float64.

    Attributes
    ----------
    seed : int
        Of the random inputs.
    max_flops : float
        Most FLOPs in float64 at a point; where all rows take more, a sample of them is compared.
    """

    seed: int = 0
    max_flops: float = math.inf


@dataclass(frozen=True)
class TimeResult:
    """Seconds of one call at each point, as read, or why there are none.

    Attributes
    ----------
    secs : tuple of float
        In the order of the points.
    facts : mapping
        Facts from the device, by the worker's own names.
    """

    secs: tuple[float, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    @classmethod
    def failed(cls, error: str) -> TimeResult:
        """Return a result without seconds."""
        return cls((), error=error)


@dataclass(frozen=True)
class CheckResult:
    """The largest error, or why the code is wrong.

    Attributes
    ----------
    max_error : float or None
        Over all points, relative to the output's scale at each; None where there is an error.
    """

    max_error: float | None
    error: str | None = None

    @classmethod
    def failed(cls, error: str) -> CheckResult:
        """Return the result of code that is wrong, or did not run to its end."""
        return cls(None, error)
