"""Arguments of calls in a program's text, run on samples: ``*`` and ``**`` of calls and of functions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from dietcode.programs.calling import callable_of
from dietcode.programs.dictionaries import Dictionary
from dietcode.programs.evaluated_stacks import StackEvaluation
from dietcode.programs.kinds import kind_of, words
from dietcode.programs.nested_functions import NestedFunction
from dietcode.programs.roles import initialiser_of, is_users, is_users_module
from dietcode.programs.sources import FunctionSource
from dietcode.programs.spreading import (
    has_stars,
    is_made_alone,
    lacks_rest,
    names_written,
    spread,
    with_named_rest,
)
from dietcode.programs.statements import is_read_alone


class ArgumentEvaluation(StackEvaluation):
    """Expressions of a function, arguments of any number among them."""

    def _has_other_arguments(self, node: ast.Call, source: FunctionSource | None) -> bool:
        """Whether the arguments of a call are written out before it is one."""
        has_names = any(one.arg is None for one in node.keywords)
        return has_stars(node) or has_names or (source is not None and lacks_rest(node, source))

    def _source_with_rest(self, function: Any) -> FunctionSource | None:
        """Return the source of a user's function that has ``*args`` or ``**kwargs``; None for others."""
        if isinstance(function, NestedFunction):
            source = self._recording.source_of(function)
            return source if source.rest or source.named_rest else None
        if is_users_module(function):
            function = function.forward
        if isinstance(function, type):
            function = initialiser_of(function)
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            return None
        target = callable_of(function)[0]
        has_rest = bool(target.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))
        return self._recording.source_of(target) if has_rest and is_users(target) else None

    def _spread(self, node: ast.Call, function: Any, source: FunctionSource | None) -> Any:
        """Evaluate a call with its arguments written out."""
        for one in node.args:
            if isinstance(one, ast.Starred) and not is_read_alone(one.value):
                raise self._refuse(node, f"* of {ast.unparse(one.value)}; write * of a name")

        def length_of(one: ast.expr) -> int:
            value = self._value(one)
            if not isinstance(value, list | tuple):
                raise self._refuse(one, f"* of {words(kind_of(value))}; allowed: of lists and tuples")
            return len(value)

        num_bound = 1 if isinstance(function, type) else len(callable_of(function)[1])
        num_plain = source.num_plain - num_bound if source is not None else 0
        rest = source.rest if source is not None else ""
        node, asked = self._with_names(node), node
        lengths = [] if rest else [length_of(one.value) for one in node.args if isinstance(one, ast.Starred)]
        key = (asked, 0)
        if key not in self._source.chains:
            written = spread(node, num_plain, rest, length_of)
            if source is not None and source.named_rest:
                written = with_named_rest(written, source.parameters, source.named_rest)
            self._source.chains[key] = (written, lengths)
        known = self._source.chains[key]
        if known[1] != lengths:
            raise self._refuse(node, "* of other numbers of items in samples; allowed: always as many")
        self._set_role(asked, "written").value = known[0]
        return self._value(known[0])

    def _with_names(self, node: ast.Call) -> ast.Call:
        """Return a call with the items of ``**options`` by names, of which there are always the same."""
        given = [one.value for one in node.keywords if one.arg is None]
        names = [self._names_in(one) for one in given]
        key = (node, 2)
        if key not in self._source.chains:
            self._source.chains[key] = (names_written(node, names) if given else node, names)
        written, known = self._source.chains[key]
        if known != names:
            raise self._refuse(node, "** of other names in another sample; allowed: always the same")
        found: ast.Call = written
        return found

    def _names_in(self, node: ast.expr) -> list[str]:
        known, value = self._statics.find(node)
        if not is_made_alone(node):
            raise self._refuse(
                node, "** of what is computed here; give it a name before, and write ** of that"
            )
        value = value if known else self._value(node)
        keys = list(value) if isinstance(value, Mapping | Dictionary) else None
        if keys is None or not all(isinstance(one, str) for one in keys):
            raise self._refuse(node, f"** of {words(kind_of(value))}; allowed: of dicts whose keys are texts")
        return keys
