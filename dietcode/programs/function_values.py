"""Functions as values: those within a function, with the variables that they read, and ``functools.partial``.

A value is an object of a class of its own, whose fields are what it was made with; what is the same in every
instance, as a module, is the class's. A call asks the class which function it is.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from dietcode.programs.nested_functions import NestedFunction
from dietcode.programs.standard_library import operator_of
from dietcode.programs.statements import at, constant, load


@dataclass(frozen=True)
class FunctionParts:
    """What a function's values of one class have.

    Attributes
    ----------
    function : object
        What is called.
    positional : tuple of (str, object)
        The first arguments: the field of each, or an empty one and what is the same in every instance.
    named : tuple of (str, (str, object))
        Arguments by name, in the same way.
    """

    function: Any
    positional: tuple[tuple[str, Any], ...]
    named: tuple[tuple[str, tuple[str, Any]], ...]

    @property
    def key(self) -> Any:
        """What tells classes apart."""
        parts = [*self.positional, *(own for _, own in self.named)]
        names = tuple(name for name, _ in self.named)
        return self.function, len(self.positional), names, tuple((one, id(value)) for one, value in parts)

    def call(self, node: ast.Call) -> ast.expr:
        """Return a call of such a value as one of the function, with the value in a variable of `node`'s."""

        def part(given: tuple[str, Any]) -> ast.expr:
            name, value = given
            return (
                at(node, ast.Attribute(load(node, "applied"), name, ast.Load())) if name else constant(value)
            )

        own = {one.arg for one in node.keywords}
        if isinstance(self.function, NestedFunction):  # a default that is given by position
            own |= self.function.positions(len(self.positional) + len(node.args))
        named = [at(node, ast.keyword(name, part(one))) for name, one in self.named if name not in own]
        args = [*map(part, self.positional), *node.args]
        made = at(node, ast.Call(constant(self.function), args, [*node.keywords, *named]))
        return ast.fix_missing_locations(operator_of(made, self.function) or made)


class FunctionValue:
    """A function while samples run, and a record of the program's."""


def class_of(parts: FunctionParts, known: dict[Any, type]) -> type:
    """Return the class of values with such parts, always the same one; `known` are those that there are."""
    if parts.key not in known:
        name = f"function {getattr(parts.function, '__qualname__', 'of a class')} {len(known)}"
        known[parts.key] = type(name, (FunctionValue,), {"__module__": __name__, "parts": parts})
    return known[parts.key]


def parts_of(value: Any) -> FunctionParts | None:
    """Return the parts of a function that is a value; None for any other value."""
    found = getattr(type(value), "parts", None)
    return found if isinstance(found, FunctionParts) else None
