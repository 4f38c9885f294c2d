"""Functions as values in a program's text, run on samples."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Any

from dietcode.programs.evaluated_arguments import ArgumentEvaluation
from dietcode.programs.function_values import FunctionParts, class_of, parts_of
from dietcode.programs.kinds import kind_of, words
from dietcode.programs.sources import is_frozen
from dietcode.programs.statements import at, constant, is_read_alone


class FunctionEvaluation(ArgumentEvaluation):
    """Expressions of a function, functions that are values among them."""

    def _closure(self, node: ast.Call) -> Any:
        """Make a value of a function within this one, with the variables that it reads."""
        function = self._statics.find(node.args[0])[1]
        self._check_read(node, function)
        return self._function(node, function, [], node.keywords)

    def _check_read(self, node: ast.Call, function: Any) -> None:
        """Refuse what reads a variable that may be another one when the function is called."""
        source = self._source
        for one in node.keywords:
            name = str(one.arg)
            if name not in function.read:  # a default, which is computed here
                continue
            is_of_comprehension = " " in name and not name.startswith("cell ")
            if source.stores.get(name, 0) > 1 or name in source.stored_in_loops or is_of_comprehension:
                what = f"{function.__name__} is a value, and reads {name.split(maxsplit=1)[0]}"
                advice = "which is assigned anew; give it as an argument of a function that returns this one"
                raise self._refuse(node, f"{what}, {advice}")

    def _partial(self, node: ast.Call) -> Any:
        """Make a value of ``functools.partial``."""
        known, function = self._statics.find(node.args[0]) if node.args else (False, None)
        is_written = all(one.arg is not None for one in node.keywords)
        is_written &= not any(isinstance(one, ast.Starred) for one in node.args)
        if not known or not callable(function) or not is_written:
            raise self._refuse(
                node, "this partial; allowed: of a function by name, with arguments in the text"
            )
        return self._function(node, function, node.args[1:], node.keywords)

    def _bound(self, node: ast.Attribute, base: Any, function: Any) -> Any:
        return self._function(node, function, [node.value], [], [base])

    def _function(
        self,
        node: ast.expr,
        function: Any,
        args: list[ast.expr],
        named: list[ast.keyword],
        known: Sequence[Any] = (),
    ) -> Any:
        """Make a function a value; its first argument may be known already."""
        given: list[tuple[str, ast.expr]] = []
        values: dict[str, Any] = {}

        def part(name: str, one: ast.expr) -> tuple[str, Any]:
            value = known[0] if known else self._value(one)
            if self._statics.find(one)[0] and (is_frozen(value) or isinstance(value, str)):
                return "", value
            given.append((name, one))
            values[name] = value
            return name, None

        positional = tuple(part(f"argument{k}", one) for k, one in enumerate(args))
        by_name = tuple((str(one.arg), part(f"named{k}", one.value)) for k, one in enumerate(named))
        cls = class_of(FunctionParts(function, positional, by_name), self._recording.functions)
        made: Any = object.__new__(cls)
        self._fields(node, cls)
        for name, value in values.items():
            setattr(made, name, value)
            self._field(node, made, name)
        self._set_role(node, "function").value = (cls, given)
        return made

    def _applied_value(self, node: ast.Call, own: Any) -> Any:
        """Call a function that is a value."""
        if self._says_itself(own, "__call__") and is_read_alone(node.func):
            read = at(node, ast.Attribute(node.func, "__call__", ast.Load()))
            made = at(node, ast.Call(read, node.args, node.keywords))
            written = self._source.chains.setdefault((node, 8), made)
            self._set_role(node, "written").value = written
            return self._value(written)
        parts = parts_of(own)
        if parts is None:
            advice = "name the function, or write calls in an `if`"
            raise self._refuse(node, f"calls {words(kind_of(own))}, which a value chooses; {advice}")
        site = self._set_role(node, "applied")
        site.value = site.value or {}
        call = self._source.chains.setdefault((node, hash(type(own))), parts.call(node))
        site.value[type(own)] = call
        self._values[f"applied {node.lineno} {node.col_offset}"] = own
        return self._value(call)

    def _with_parts(self, node: ast.Call, function: functools.partial[Any]) -> Any:
        """Call a ``functools.partial`` of the file."""
        own = {one.arg for one in node.keywords}
        named = [
            ast.keyword(name, constant(one)) for name, one in function.keywords.items() if name not in own
        ]
        args = [*map(constant, function.args), *node.args]
        made = at(node, ast.Call(constant(function.func), args, [*node.keywords, *named]))
        written = self._source.chains.setdefault((node, id(function)), ast.fix_missing_locations(made))
        self._set_role(node, "written").value = written
        return self._value(written)
