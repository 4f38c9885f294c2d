"""Texts that a program makes, run on samples: f-strings, ``+``, ``str`` and ``join``."""

from __future__ import annotations

import ast
from typing import Any

from dietcode.programs import letters, lists, texts
from dietcode.programs.evaluated_methods import MethodEvaluation
from dietcode.programs.formats import specification_of
from dietcode.programs.kinds import NUMBERS, kind_of, words
from dietcode.programs.sources import is_tensor
from dietcode.programs.stacks import ListsCall

_ALLOWED = "allowed: of whole numbers, floats, bools, texts and None"


class TextEvaluation(MethodEvaluation):
    """Expressions of a function, those that make texts among them."""

    def _formatted(self, node: ast.JoinedStr) -> str:
        self._set_role(node, "text")
        return "".join(self._part(one) for one in node.values)

    def _part(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        assert isinstance(node, ast.FormattedValue)  # Python has no other
        value = self._plain_value(node.value)
        spec = specification_of(node)
        if spec is None or node.conversion not in (-1, 115):
            raise self._refuse(node, f"{ast.unparse(node)}; allowed: a width, digits, and d, f or e, as :.2f")
        if spec and (isinstance(value, bool | str) or value is None):
            raise self._refuse(node, f"{words(kind_of(value))} with a specification; leave it out")
        try:
            return format(value, spec)
        except ValueError as error:
            raise self._failed(node, error) from None

    def _plain_value(self, node: ast.expr) -> Any:
        value = self._value(node)
        kind = kind_of(value)
        if kind not in (*NUMBERS, "text", "none"):
            advice = "; write .item() of it" if is_tensor(value) else ""
            raise self._refuse(node, f"a text of {words(kind)}; {_ALLOWED}{advice}")
        return value.item() if is_tensor(value) else value

    def _as_text(self, node: ast.Call) -> str:
        """Return ``str(x)``; of an exception, what it says."""
        if len(node.args) != 1 or node.keywords:
            raise self._refuse(node, "str takes one value")
        value = self._value(node.args[0])
        if not isinstance(value, BaseException):
            self._set_role(node, "text")
            return str(self._plain_value(node.args[0]))
        if len(value.args) != 1 or isinstance(value, KeyError) or not isinstance(value.args[0], str):
            raise self._refuse(
                node, "str of this exception; allowed: of one that has a text alone, but KeyError"
            )
        self._set_role(node, "said")
        return str(value)

    def _as_repr(self, node: ast.Call) -> Any:
        """Return ``repr(x)``."""
        if len(node.args) != 1 or node.keywords:
            raise self._refuse(node, "repr takes one value")
        value = self._value(node.args[0])
        if isinstance(value, str):
            return self._library(node, ListsCall(letters.quoted, ((node.args[0], value),)))
        self._set_role(node, "text")
        return str(self._plain_value(node.args[0]))

    def _method_of_text(self, node: ast.Call, base: str, args: list[Any], named: dict[str, Any]) -> Any:
        """Run a method of a text: ``join``, and those of `texts`."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name = node.func.attr
        function = texts.METHODS.get((name, len(args))) if not named else None
        taken = int if name in texts.OF_WIDTHS else str
        if function is not None and all(isinstance(one, taken) for one in args):
            pairs = zip([node.func.value, *node.args], [base, *args], strict=True)
            return self._library(node, ListsCall(function, tuple(pairs)))
        if name != "join" or len(args) != 1 or named or not isinstance(args[0], list | tuple):
            what = (
                f"calls {name} of a text; allowed: {', '.join(texts.ALLOWED)}, f-strings, + and comparisons"
            )
            raise self._refuse(node, what)
        pairs = (node.func.value, base), (node.args[0], args[0])  # type: ignore[assignment]
        return self._library(node, ListsCall(lists.joined, tuple(pairs)))
