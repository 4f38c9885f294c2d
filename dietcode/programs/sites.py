"""What samples show of a program: at each place of its text, in each context."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dietcode.programs.dictionaries import is_library
from dietcode.programs.kinds import Kind
from dietcode.programs.ownership import Ownership
from dietcode.programs.shared_lists import SharedLists
from dietcode.programs.sources import FunctionSource
from dietcode.programs.stacks import ListsCall
from dietcode.workload.text import one_line

Path = tuple[int, ...]


@dataclass
class Site:
    """What one expression was, in one context.

    Attributes
    ----------
    kinds : set of Kind
    role : str
        Of an operation or call, see `dietcode.programs.roles`; empty for others.
    callees : dict of int to None
        The contexts that were called.
    is_made : bool
        Whether its tensors were ever computed; otherwise they came with the instance.
    value : object
        What an expression is that is the same in every instance, as the shape of a tensor.
    library : ListsCall or None
        What is done to a list of any length.
    """

    kinds: set[Kind] = field(default_factory=set)
    role: str = ""
    callees: dict[int, None] = field(default_factory=dict)
    is_made: bool = False
    value: Any = None
    library: ListsCall | None = None


@dataclass
class Context:
    """A function with what is static in it: weights, modules and functions that it is given.

    Attributes
    ----------
    number : int
    source : FunctionSource
    statics : dict of str to object
        Of parameters.
    sites : dict of (Path, node) to Site
        A path has the rounds of loops over modules, the outermost first.
    reached : set of (Path, node)
        The statements that samples reached.
    """

    number: int
    source: FunctionSource
    statics: dict[str, Any]
    sites: dict[tuple[Path, ast.AST], Site] = field(default_factory=dict)
    reached: set[tuple[Path, ast.AST]] = field(default_factory=set)


def is_of_library(source: FunctionSource) -> bool:
    """Whether a function is one of `lists`, `sets` or `dictionaries`, of which each line is compiled."""
    return is_library(source.function)


class Recorder(Protocol):
    """What expressions need of a recording, as `dietcode.programs.recording.Recording` is one."""

    records: dict[str, list[str]]
    classes: dict[str, type]
    made: dict[int, Any]
    functions: dict[Any, type]
    ownership: Ownership
    shared: SharedLists

    def fields_of(self, cls: type) -> list[str] | None:
        """Return the fields of a class that are read, to add to; None where another class has its name."""

    def source_of(self, function: Any) -> FunctionSource:
        """Return the source of a function."""

    def call(
        self,
        function: Any,
        args: Sequence[Any],
        statics: dict[str, Any] | None,
        callees: dict[int, None] | None = None,
    ) -> tuple[Any, int]:
        """Return what a function returns, and the number of the context that computed it."""


ALLOWED = (
    "functions, if, while, for, lists, tuples, dataclasses, numbers, comparisons, tensor code, "
    "dietcode.concurrent and dietcode.map"
)


_ADVICE: dict[type, str] = {
    ast.Lambda: "a lambda as the key of sorted, min and max, and in map and filter; else a function by def",
    ast.Match: "patterns of values, of classes with named fields, of lists and tuples, names and _",
    ast.With: "with torch.no_grad(), contextlib.nullcontext()",
    ast.ClassDef: "classes outside of the program",
    ast.Global: "a parameter, and a result",
    ast.Nonlocal: "a list that holds the value, or a result",
    ast.Import: "imports at the top of the file",
    ast.ImportFrom: "imports at the top of the file",
    ast.Delete: "pop of a list",
    ast.GeneratorExp: "a list, as [… for … in …]; a generator within sum, min, max, any, all, list, sorted",
    ast.Yield: "yield as a statement, in a generator that ends by itself and returns no value",
    ast.YieldFrom: "yield from as a statement, in a generator that ends by itself and returns no value",
    ast.Starred: "arguments that are written out",
}


def allowed_for(node: ast.AST) -> str:
    """Return what is allowed in the place of a node that a program cannot have."""
    return _ADVICE.get(type(node), ALLOWED)


def named(node: ast.AST) -> str:
    return f"{type(node).__name__.lower()} `{one_line(ast.unparse(node), 50)}`"
