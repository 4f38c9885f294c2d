"""What the parts of a function's lowering know of each other."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dietcode.errors import ModelError
from dietcode.programs.code import Code, Label
from dietcode.programs.exceptions import FinalStatements
from dietcode.programs.optimisations import Optimisations
from dietcode.programs.sites import Context, Path, Site
from dietcode.programs.sources import FunctionSource, Statics
from dietcode.programs.values import Value


class FunctionWriter(Protocol):
    """A function that is being written, as `dietcode.programs.lowering.FunctionLowering` is."""

    context: Context
    source: FunctionSource
    statics: Statics
    code: Code
    path: Path
    loops: list[tuple[Label, Label]]
    pending: list[FinalStatements]
    taken: list[str]
    throws: bool
    records: Mapping[str, Sequence[str]]
    classes: Mapping[str, type]
    optimisations: Optimisations

    def site(self, node: ast.AST) -> Site:
        """Return what samples show of an expression."""

    def refuse(self, node: ast.AST, what: str) -> ModelError:
        """Return the error of what cannot be compiled."""

    def body(self, body: Sequence[ast.stmt]) -> None:
        """Write statements."""

    def value(self, node: ast.expr) -> Value:
        """Write an expression; returns its value."""

    def items(self, node: ast.expr) -> Value:
        """Write an expression; returns its value, or the keys of a dict."""

    def store(self, target: ast.expr, value: Value) -> None:
        """Assign a value."""

    def condition(self, node: ast.expr, then: Callable[[Value], None]) -> None:
        """Write a condition, and what is to be done with it."""

    def truth(self, node: ast.expr) -> Value:
        """Write a condition; returns its value."""

    def is_seen(self, node: ast.expr) -> bool:
        """Whether a sample reached an expression; where not, an error of the instance is written."""

    def fail(self, text: str) -> None:
        """Write an error of the instance."""

    def throw(self, cls: type, text: str) -> None:
        """Write an exception of the program's."""

    def is_of(self, value: Value, types: tuple[type, ...]) -> Value:
        """Return whether a value is of some types."""

    def number(self, value: Value, word: str) -> Value:
        """Return the number that a tensor of one element is."""

    def callee(self, node: ast.AST) -> int:
        """Return the number of the context that a call calls."""
