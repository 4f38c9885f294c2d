"""Iterators in a program's text, and what ``collections`` has, run on samples."""

from __future__ import annotations

import ast
import copy
from typing import Any

from dietcode.programs import counters, dictionaries, iterators, lists, numerals, sets, statements, texts
from dietcode.programs.dictionaries import Dictionary, is_library
from dietcode.programs.evaluated_functions import FunctionEvaluation
from dietcode.programs.iterators import ListIterator, NumberIterator
from dietcode.programs.kinds import BoundedList, kind_of, words
from dietcode.programs.nested_functions import NestedFunction
from dietcode.programs.roles import is_users
from dietcode.programs.sites import is_of_library
from dietcode.programs.stacks import ListsCall


class IteratorEvaluation(FunctionEvaluation):
    """Expressions of a function, iterators among them."""

    def _iterator(self, node: ast.Call) -> Any:
        """Make an iterator of a list or a text; one that is given stays as it is."""
        value = self._value(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        if isinstance(value, ListIterator | NumberIterator):
            self._set_role(node, "written").value = node.args[0]
            return value
        if isinstance(value, str):
            listed = statements.at(
                node, ast.Call(node.func, [statements.call(node, "list", node.args[0])], [])
            )
            written = self._source.chains.setdefault((node, 4), listed)
            self._set_role(node, "written").value = written
            return self._value(written)
        if not isinstance(value, list | tuple | Dictionary) or hasattr(value, "_fields"):
            raise self._refuse(
                node, f"iter of {words(kind_of(value))}; allowed: of a list, a tuple, a text or a dict"
            )
        return self._library(node, ListsCall(iterators.made, ((node.args[0], value),)))

    def _counting(self, node: ast.Call) -> Any:
        """Make an iterator of all numbers from one on."""
        named = {str(one.arg): one.value for one in node.keywords}
        zero, one = (
            self._source.chains.setdefault((node, 5 + k), statements.at(node, ast.Constant(k)))
            for k in (0, 1)
        )
        given = [*node.args, *[zero, one][len(node.args) :]] if not named else []
        if len(given) != 2:
            raise self._refuse(node, "this count; allowed: count(), count(first), count(first, step)")
        pairs = tuple((own, self._value(own)) for own in given)
        return self._library(node, ListsCall(iterators.numbers, pairs))

    def _following(self, node: ast.Call) -> Any:
        """Return ``next`` of an iterator that the program has made."""
        own = self._value(node.args[0]) if node.args and not node.keywords else None
        if isinstance(own, ListIterator) and len(node.args) == 2:
            pairs = (node.args[0], own), (node.args[1], self._value(node.args[1]))
            return self._library(node, ListsCall(iterators.following_or, pairs))
        is_of_list = isinstance(own, ListIterator)
        if not isinstance(own, ListIterator | NumberIterator) or len(node.args) != 1:
            raise self._refuse(
                node,
                f"next of {words(kind_of(own))}; allowed: of iter(items), itertools.count and generators",
            )
        function = iterators.following if is_of_list else iterators.following_number
        return self._library(node, ListsCall(function, ((node.args[0], own),)))

    def _with_lists(self, node: ast.Call, function: Any, args: list[Any]) -> ast.Call | None:
        """Return a call with lists in the place of iterators and texts that it goes over; None for others."""
        is_own = isinstance(function, NestedFunction) or (is_users(function) and not is_library(function))
        is_of_items = function in (sorted, tuple, sets.made)
        taken = [
            (isinstance(one, ListIterator) and not is_own and function is not list)
            or (type(one) is str and is_of_items)
            for one in args
        ]
        if not any(taken) or is_of_library(self._source):
            return None
        key = (node, 4)
        if key not in self._source.chains:
            whole = [
                statements.call(one, "list", one) if is_taken else one
                for one, is_taken in zip(node.args, taken, strict=True)
            ]
            self._source.chains[key] = statements.at(node, ast.Call(node.func, whole, node.keywords))
        found: ast.Call = self._source.chains[key]
        return found

    def _of_one(self, node: ast.Call, function: Any, value: Any) -> tuple[Any] | None:
        """Return what a function of Python gives of an object, an iterator or a text; None for all else."""
        if function is len and self._says_itself(value, "__len__"):
            return (self._by_name(node, "__len__", node.args, [value]),)
        if function is bool and not is_of_library(self._source):
            key = (node, 3)
            twice = statements.at(node, ast.UnaryOp(ast.Not(), node.args[0]))
            self._source.chains.setdefault(key, statements.at(node, ast.UnaryOp(ast.Not(), twice)))
            self._set_role(node, "written").value = self._source.chains[key]
            return (self._as_truth(node.args[0], value),)
        of_text = numerals.FUNCTIONS.get(function) if type(value) is str else None
        if function is chr and kind_of(value) in ("int", "bool") and not is_of_library(self._source):
            of_text = texts.character
        if function is list and isinstance(value, ListIterator):
            of_text = iterators.rest
        if of_text is None:
            return None
        return (self._library(node, ListsCall(of_text, ((node.args[0], value),))),)

    def _kept_loop(self, node: ast.Call, function: Any) -> Any:
        """Return ``range`` that is a value as a list, and ``zip`` and the like as an iterator of one."""
        whole = statements.call(node, "list", copy.copy(node))  # which is another place of the text
        made = whole if function is range else statements.call(node, "iter", whole)
        written = self._source.chains.setdefault((node, 12), made)
        self._set_role(node, "written").value = written
        return self._value(written)

    def _marked(self, node: ast.Call, mark: str) -> Any:
        """Return a dict that is an OrderedDict, or a set that is frozen: samples know it."""
        self._set_role(node, "written").value = node.args[0]
        found = self._value(node.args[0])
        setattr(found, mark, True)
        return found

    def _with_default(self, node: ast.Call) -> Dictionary:
        """Make a ``defaultdict``: a dict whose missing items are written where it is read."""
        given = node.args[0] if len(node.args) == 1 and not node.keywords else None
        factory = given if given is None or isinstance(given, ast.Lambda) else self._statics.find(given)[1]
        default = dictionaries.default_of(factory)
        if default is None:
            allowed = "of list, dict, set, int, float, or a lambda of constants; or d.setdefault(key, …)"
            raise self._refuse(node, f"this defaultdict; allowed: {allowed}")
        return self._made_of(node, dictionaries.made, [], default)

    def _counter(self, node: ast.Call) -> Dictionary:
        """Make a ``Counter`` of a list, or an empty one."""
        if len(node.args) > 1 or node.keywords:
            raise self._refuse(node, "this Counter; allowed: of a list, or empty")
        return self._made_of(node, counters.counted, node.args, dictionaries.OF_COUNTER)

    def _made_of(
        self, node: ast.Call, function: Any, args: list[ast.expr], default: dictionaries.Default
    ) -> Dictionary:
        """Return what a function of `dictionaries` makes of an argument, or of an empty list."""
        empty = self._source.chains.setdefault((node, 1), statements.at(node, ast.List([], ast.Load())))
        given = args[0] if args else empty
        found: Dictionary = self._library(node, ListsCall(function, ((given, self._value(given)),)))
        found.default = default  # type: ignore[misc]  # of this one, and not of the class
        return found

    def _deque(self, node: ast.Call) -> BoundedList:
        """Make a deque that has a number of items at most, which is a constant."""
        named = {str(one.arg): one.value for one in node.keywords}
        items, *rest = node.args or [self._source.chains.setdefault((node, 1), _empty_list(node))]
        limit = rest[0] if rest else named.pop("maxlen", None)
        known, many = self._statics.find(limit) if limit is not None else (False, None)
        if named or len(rest) > 1 or limit is None or not known or type(many) is not int or many < 1:
            raise self._refuse(node, "this deque; allowed: of a list, with a constant maxlen or without")
        pairs = (items, self._value(items)), (limit, many)
        found = BoundedList(self._library(node, ListsCall(lists.last_of, pairs)))
        found.most = many
        return found


def _empty_list(node: ast.AST) -> ast.expr:
    return statements.at(node, ast.List([], ast.Load()))
