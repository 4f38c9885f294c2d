"""Texts that a program makes, run on samples: f-strings, ``+``, ``str`` and ``join``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dietcode.programs import letters, lists, splits, texts
from dietcode.programs.evaluated_methods import MethodEvaluation
from dietcode.programs.formats import by_fields, by_percent, displayed, in_base, specification_of, written
from dietcode.programs.kinds import NUMBERS, kind_of, words
from dietcode.programs.sources import is_tensor
from dietcode.programs.stacks import ListsCall
from dietcode.programs.statements import at, call, name_of
from dietcode.workload.text import one_line

_Kept = tuple[tuple[str, ast.expr, Any], ...]  # variables, what is kept in them, and its values
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
        value = self._value(node.value)
        spec = specification_of(node)
        if _is_displayed(value) or self._word_of_text(value):
            if spec != "":
                raise self._refuse(
                    node, f"{ast.unparse(node)} of {words(kind_of(value))}; write !s before it"
                )
            name = f"formatted {node.lineno} {node.col_offset}"
            made = call(node, "str", at(node, ast.Name(name, ast.Load())))
            whole = self._source.chains.setdefault((node, 6), made)
            return str(self._over_variables(node, ((name, node.value, value),), whole))
        value = self._plain(node.value, value)
        is_text = node.conversion == ord("s") or isinstance(value, str)
        if node.conversion not in (-1, ord("s")):
            raise self._refuse(node, f"{ast.unparse(node)}; allowed: !r and !s")
        if spec == "":
            return str(value)
        if value is None and not is_text:
            raise self._refuse(node, "None with a specification; write !s, or leave it out")
        if spec is None or is_text:
            return self._specified(node, value, "text" if is_text else _kind_of_number(value))
        try:
            return format(value, spec)
        except ValueError as error:
            raise self._failed(node, error) from None

    def _specified(self, node: ast.FormattedValue, value: Any, kind: str) -> str:
        """Format a value as functions of `numerals` do."""
        name = f"formatted {node.lineno} {node.col_offset}"
        read: ast.expr = at(node, ast.Name(name, ast.Load()))
        if node.conversion == ord("s"):
            read = call(node, "str", read)
        found = self._source.chains.setdefault((node, hash(kind)), written(node, read, kind))
        if found is None:
            what = "a fill, <, > or ^, a sign, a width, commas, digits, and d, f, e, g, %, x, o, b or s"
            raise self._refuse(node, f"{ast.unparse(node)} of {kind}; allowed: {what}, as :>8.2f")
        return str(self._over_variables(node, ((name, node.value, value),), found))

    def _over_variables(
        self, node: ast.expr, given: tuple[tuple[str, ast.expr, Any], ...], whole: ast.expr
    ) -> Any:
        """Evaluate an expression over variables that values are kept in before."""
        site = self._set_role(node, "kept")
        own = tuple((name, one) for name, one, _ in given), whole
        if site.value not in (None, own):
            raise self._refuse(node, "formats a text in one sample, and a number in another")
        site.value = own
        self._values |= {name: value for name, _, value in given}
        return self._value(whole)

    def _as_format(self, node: ast.Call) -> Any:
        """Return ``format(x, spec)``."""
        spec = self._statics.find(node.args[1])[1] if len(node.args) == 2 else ""
        if node.keywords or len(node.args) not in (1, 2) or not isinstance(spec, str):
            raise self._refuse(node, "this format; allowed: of a value and a constant text")
        args = [at(node, ast.Name(name_of(node, "part 0"), ast.Load()))]
        given = ((name_of(node, "part 0"), node.args[0], self._value(node.args[0])),)
        key, text = (node, 5), "{:" + spec + "}"
        return self._formatted_by(node, key, lambda: by_fields(node, text, args, {}), given)

    def _formatted_by(
        self,
        node: ast.expr,
        key: tuple[ast.AST, int],
        make: Callable[[], Any],
        given: _Kept,
    ) -> Any:
        """Format values as an f-string that says the same."""
        if key not in self._source.chains:
            made = make()
            self._source.chains[key] = None if made is None else ast.fix_missing_locations(made)
        if self._source.chains[key] is None:
            raise self._refuse(node, f"{one_line(ast.unparse(node), 60)}; write it as an f-string")
        return self._over_variables(node, given, self._source.chains[key])

    def _by_fields(self, node: ast.Call, base: str, args: list[Any], named: dict[str, Any]) -> Any:
        """Return ``base.format(…)`` of a text that is constant."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        if not self._statics.find(node.func.value)[0]:
            raise self._refuse(node, "format of a text that is computed; write an f-string")
        nodes = [*node.args, *(one.value for one in node.keywords)]
        names = [name_of(node, f"part {k}") for k in range(len(nodes))]
        given = tuple(zip(names, nodes, [*args, *named.values()], strict=True))
        read: list[ast.expr] = [at(node, ast.Name(name, ast.Load())) for name in names]
        own = dict(zip(named, read[len(args) :], strict=True))
        make = lambda: by_fields(node, base, read[: len(args)], own)  # noqa: E731
        return self._formatted_by(node, (node, 5), make, given)

    def _by_percent(self, node: ast.BinOp, base: str) -> Any:
        """Return ``base % given`` of a text that is constant."""
        if not self._statics.find(node.left)[0]:
            raise self._refuse(node, "% of a text that is computed; write an f-string")
        nodes = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        values = [self._value(one) for one in nodes]
        if not isinstance(node.right, ast.Tuple) and isinstance(values[0], tuple):
            raise self._refuse(node, "% of a tuple that is computed; write its items, or an f-string")
        names = [name_of(node, f"part {k}") for k in range(len(nodes))]
        read = [at(node, ast.Name(name, ast.Load())) for name in names]
        pairs = list(zip(read, values, strict=True))
        kinds = hash(tuple(isinstance(one, float) for one in values))
        given = tuple(zip(names, nodes, values, strict=True))
        return self._formatted_by(node, (node, kinds), lambda: by_percent(node, base, pairs), given)

    def _in_base(self, node: ast.Call, function: Any) -> Any:
        """Return ``bin``, ``oct`` or ``hex`` of a whole number."""
        value = self._value(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        if kind_of(value) not in ("int", "bool"):
            raise self._refuse(node, f"{function.__name__} takes a whole number")
        name, form = name_of(node, "part 0"), {bin: "b", oct: "o", hex: "x"}[function]
        read = at(node, ast.Name(name, ast.Load()))
        made = self._source.chains.setdefault((node, 5), in_base(node, read, form, True))
        return self._over_variables(node, ((name, node.args[0], value),), made)

    def _plain_value(self, node: ast.expr) -> Any:
        return self._plain(node, self._value(node))

    def _plain(self, node: ast.expr, value: Any) -> Any:
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
        if self._word_of_text(value):
            return str(self._by_name(node, self._word_of_text(value), node.args, [value]))
        if _is_displayed(value):
            return str(self._displayed(node, value))
        if not isinstance(value, BaseException):
            self._set_role(node, "text")
            return str(self._plain(node.args[0], value))
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
        if self._says_itself(value, "__repr__"):
            return str(self._by_name(node, "__repr__", node.args, [value]))
        if _is_displayed(value):
            return self._displayed(node, value)
        self._set_role(node, "text")
        return str(self._plain(node.args[0], value))

    def _method_of_text(self, node: ast.Call, base: str, args: list[Any], named: dict[str, Any]) -> Any:
        """Run a method of a text: ``join``, and those of `texts`."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name = node.func.attr
        if name in ("split", "rsplit") and named and set(named) <= {"sep", "maxsplit"} and not args[1:]:
            return self._split_by_names(node, args)
        key = (name, len(args))
        function = texts.METHODS.get(key) if not named else None
        taken = texts.TAKEN.get(key, (str,) * len(args))
        if name in texts.OF_TUPLES and len(args) == 1 and type(args[0]) is tuple and not named:
            function, taken = texts.OF_TUPLES[name], (tuple,)
        if key == ("split", 2) and args[0] is None:
            function, taken = splits.words_of, (type(None), int)
        if function is not None and all(map(isinstance, args, taken)):
            pairs = zip([node.func.value, *node.args], [base, *args], strict=True)
            return self._library(node, ListsCall(function, tuple(pairs)))
        if name == "format":
            return self._by_fields(node, base, args, named)
        if name == "join" and len(args) == 1 and isinstance(args[0], str):
            listed = at(node, ast.Call(node.func, [call(node, "list", node.args[0])], []))
            return self._written(node, listed)
        if name != "join" or len(args) != 1 or named or not isinstance(args[0], list | tuple):
            what = (
                f"calls {name} of a text; allowed: {', '.join(texts.ALLOWED)}, f-strings, + and comparisons"
            )
            raise self._refuse(node, what)
        pairs = (node.func.value, base), (node.args[0], args[0])  # type: ignore[assignment]
        return self._library(node, ListsCall(lists.joined, tuple(pairs)))

    def _word_of_text(self, value: Any) -> str:
        """Return the method by which an object's class says its text; empty for anything else."""
        known = (one for one in ("__str__", "__repr__") if self._says_itself(value, one))
        return "" if isinstance(value, BaseException) else next(known, "")

    def _displayed(self, node: ast.Call, value: list[Any] | tuple[Any, ...]) -> Any:
        """Return the text of a list or a tuple, as Python displays it."""
        many = None if isinstance(value, list) else len(value)
        if many is None and len({_displayed_as(one) for one in value}) > 1:
            raise self._refuse(node, "the text of a list of several kinds of items; write those of its items")
        chains, key = self._source.chains, (node, 10)
        if key not in chains:
            name = f"displayed {len(chains)}"  # another one within each
            chains[key] = name, many, ast.fix_missing_locations(displayed(node, name, many))
        name, known, whole = chains[key]
        if known != many:
            raise self._refuse(
                node, "the text of lists or tuples of other lengths; write those of their items"
            )
        return self._over_variables(node, ((name, node.args[0], value),), whole)

    def _written(self, node: ast.Call, made: ast.expr) -> Any:
        """Evaluate a call as another expression."""
        written = self._source.chains.setdefault((node, 6), ast.fix_missing_locations(made))
        self._set_role(node, "written").value = written
        return self._value(written)

    def _split_by_names(self, node: ast.Call, args: list[Any]) -> Any:
        """Return ``text.split(sep=…, maxsplit=…)``."""
        named = {str(one.arg): one.value for one in node.keywords}
        separator = node.args[0] if args else named.get("sep", at(node, ast.Constant(None)))
        given = [separator, named["maxsplit"]] if "maxsplit" in named else [separator]
        return self._written(node, at(node, ast.Call(node.func, given, [])))


def _displayed_as(value: Any) -> Any:
    """Return what says how the text of a value is made: its class, of tuples their length."""
    return len(value) if type(value) is tuple else type(value) if isinstance(value, str | list) else None


def _is_displayed(value: Any) -> bool:
    """Whether a value is a list or a tuple, whose text has those of its items."""
    return type(value) in (list, tuple)


def _kind_of_number(value: Any) -> str:
    return "float" if isinstance(value, float) else "int"
