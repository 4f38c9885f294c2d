"""Calls of a program's text, run on samples: what each calls, and what is done to lists of any length."""

from __future__ import annotations

import ast
import collections
import contextlib
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import (
    dictionaries,
    letters,
    lists,
    numerals,
    orders,
    sets,
    splits,
    stacked,
    texts,
)
from dietcode.programs import module as marks
from dietcode.programs.calling import callable_of, static_arguments
from dietcode.programs.containers import TableLookup, are_scalars, items_of
from dietcode.programs.decorators import DECORATORS
from dietcode.programs.dictionaries import Dictionary, DictView, is_library
from dietcode.programs.enums import is_enum, member_of
from dietcode.programs.evaluated_iterators import IteratorEvaluation
from dietcode.programs.evaluated_loops import LOOPED
from dietcode.programs.evaluating import hashed
from dietcode.programs.exceptions import SampleError
from dietcode.programs.kinds import Extremes, is_record_kind, is_tensor_kind, kind_of, words
from dietcode.programs.nested_functions import closure
from dietcode.programs.roles import OF_TEXTS, is_users, is_users_module, role_of_call
from dietcode.programs.sets import MemberSet
from dietcode.programs.sites import ALLOWED, is_of_library
from dietcode.programs.sources import is_tensor
from dietcode.programs.stacks import (
    ListsCall,
    StackedRows,
    python_call,
    rows_if_tensors,
)
from dietcode.programs.values_read import ValueReadError, refused_values
from dietcode.runtime.programs.instances import find
from dietcode.workload.text import clip

_ADVICE = {
    "hasattr": "give objects the field, as None where they lack it",
    "print": "a program computes results; print them outside",
    "dict": "allowed: dict(), of a dict, of a list of pairs, dict(name=value)",
    "range": "write list(range(…))",
    "zip": "write list(zip(…))",
    "enumerate": "write list(enumerate(…))",
    "reversed": "write list(reversed(…)), or x[::-1]",
    "type": "write isinstance(x, C)",
    "super": "name the class: Base.method(self, …)",
    "copy": "write list(x), x.copy(), or dataclasses.replace(x)",
    "deepcopy": "write out what is copied",
}
_OF_PACKAGES = {
    "random": "give the instance its random numbers, and read them from a list",
    "itertools": "write it as loops; cycle within islice, or items[k % len(items)] of a counter k",
}
_OF_TENSORS = {
    "min": "write torch.minimum, or item()",
    "max": "write torch.maximum, or item()",
    "list": "write x.unbind()",
    "tuple": "write x.unbind()",
}
_OF_TEXTS = tuple(one.__name__ for one in (texts, splits, letters, numerals))
_REHEARSED = 3  # rows with which each line of a function of `lists` is reached


class CallEvaluation(IteratorEvaluation):
    """Expressions of a function, calls among them."""

    def _call(self, node: ast.Call) -> Any:
        known, function = self._statics.find(node.func)
        if inspect.isfunction(function) and hasattr(function, "__wrapped__") and is_users(function):
            raise self._refuse(node, f"{function.__name__} is decorated; allowed: {DECORATORS}")
        is_special = any(function is own for own, _ in self._special)
        source = self._source_with_rest(function) if known and not is_special else None
        if self._has_other_arguments(node, source):
            return self._spread(node, function, source)
        if not known:
            return self._of_values(node)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str | list | dict | set):
            return self._method(node) if isinstance(owner, str) else self._of_constant(node, function)
        rule = self._rule_of(function)
        return self._plain_call(node, function) if rule is None else rule(node)

    def _rule_of(self, function: Any) -> Callable[[ast.Call], Any] | None:
        """Return what runs the calls of a function that has a rule of its own; None for others."""
        rule = next((run for own, run in self._special if function is own), None)
        if isinstance(function, functools.partial):
            return lambda node: self._with_parts(node, function)
        if rule is None and getattr(function, "__name__", "") == "topk" and not is_users(function):
            return lambda node: self._topk(node, node.args)
        return (lambda node: self._member(node, function)) if rule is None and is_enum(function) else rule

    def _member(self, node: ast.Call, cls: Any) -> Any:
        """Return the member of an Enum that has a value."""
        asked = member_of(node, cls)
        if asked is None:
            raise self._refuse(node, f"{cls.__name__} of this; allowed: of one number or text")
        value = hashed(self._value(asked.key))
        self._set_role(node, "lookup").value = asked
        if value not in asked.items:
            refusal = self._refuse(node, f"a sample asks for {value!r}, which is no {cls.__name__}")
            raise SampleError(refusal, ValueError(f"{value!r} is not a valid {cls.__name__}"))
        return asked.items[value]

    @property
    def _special(self) -> tuple[tuple[Any, Callable[[ast.Call], Any]], ...]:
        """What has a rule of its own."""
        return (
            (marks.concurrent, self._concurrent),
            (marks.map, self._map),
            (isinstance, self._isinstance),
            (dataclasses.replace, self._replaced),
            (collections.defaultdict, self._with_default),
            (collections.Counter, self._counter),
            (list, self._listed),
            (str, self._as_text),
            (repr, self._as_repr),
            (format, self._as_format),
            *((one, lambda node, own=one: self._in_base(node, own)) for one in (bin, oct, hex)),
            (lists.LAZY["any"], lambda node: self._lazily(node, stops=True)),
            (lists.LAZY["all"], lambda node: self._lazily(node, stops=False)),
            (lists.LAZY["next"], self._next),
            (next, self._following),
            (iter, self._iterator),
            (itertools.count, self._counting),
            (closure, self._closure),
            (collections.deque, self._deque),
            (functools.partial, self._partial),
            (dictionaries.in_order, lambda node: self._marked(node, "is_ordered")),
            (sets.frozen, lambda node: self._marked(node, "is_frozen")),
            *((one, lambda node, own=one: self._kept_loop(node, own)) for one in LOOPED),
        )

    def _concurrent(self, node: ast.Call) -> Any:
        self._set_role(node, "concurrent")
        return tuple(self._value(one) for one in node.args)

    def _listed(self, node: ast.Call) -> Any:
        if len(node.args) != 1 or not self._is_looped(node.args[0]):
            return self._plain_call(node, list)
        self._set_role(node, "listed")
        return list(self._items(node.args[0]))

    def _of_constant(self, node: ast.Call, function: Any) -> Any:
        """Evaluate a method of a list, dict or set of the file's."""
        if isinstance(function.__self__, dict) and function.__name__ == "get":
            return self._got(node, function.__self__)
        what = ast.unparse(node.func)
        raise self._refuse(node, f"{what} of what all instances share; make one of its own")

    def _of_values(self, node: ast.Call) -> Any:
        """Evaluate a call of something that values choose."""
        own = node.func
        if isinstance(own, ast.Subscript) and self._statics.find(own.value)[0]:
            container = self._value(own.value)
            if items_of(container):
                return self._chosen(node, own, container, node)
        return self._method(node)

    def _got(self, node: ast.Call, items: Mapping[Any, Any]) -> Any:
        """Return what ``get`` of a constant dict gives."""
        key, *rest = node.args
        if len(rest) > 1 or node.keywords or not are_scalars([*items, *items.values()]):
            raise self._refuse(node, "get of this dict; allowed: of a dict of numbers and texts")
        otherwise = self._value(rest[0]) if rest else None
        self._set_role(node, "lookup").value = TableLookup(key, items, rest[0] if rest else None)
        return items.get(hashed(self._value(key)), otherwise)

    def _is_looped(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._statics.find(node.func)[1] in LOOPED

    def _plain_call(self, node: ast.Call, function: Any) -> Any:
        args = [self._value(one, is_view=True) for one in node.args]
        named = {str(one.arg): self._value(one.value) for one in node.keywords}
        if len(args) == 1 and not named:
            own = self._of_one(node, function, args[0])
            if own is not None:
                return own[0]
        written = self._with_lists(node, function, args)
        if written is not None:
            self._set_role(node, "written").value = written
            return self._value(written)
        if function is dictionaries.of_given:
            function = dictionaries.copied if isinstance(args[0], Dictionary) else dictionaries.made
        if is_library(function) and not is_of_library(self._source):
            return self._library(node, ListsCall(function, tuple(zip(node.args, args, strict=True))))
        call = python_call(function, args, named, node.args)
        if call is not None:
            return self._library(node, call)
        if any(isinstance(one, MemberSet) for one in args) and function in (list, tuple):
            raise self._refuse(
                node, f"{function.__name__} of a set, in an order that Python does not say; write sorted"
            )
        if any(isinstance(one, DictView) for one in args) and function not in (len, list, tuple):
            raise self._refuse(node, "gives on what changes with a dict; write list of it")
        made = self._of_list(node, function, args, named)
        return self._applied(node, function, args, named) if made is None else made

    def _library(self, node: ast.AST, call: ListsCall) -> Any:
        """Run a function of `lists`, whose text is compiled as if it stood here."""
        if any(isinstance(one, dict) for _, one in call.given):
            raise self._refuse(
                node, "gives on a dict that all instances share; write its items out in the text"
            )
        site = self._set_role(node, "library")
        if site.library is not None and not call.same_as(site.library):
            raise self._refuse(node, "is done to other kinds of values in another sample")
        is_first, site.library = site.library is None, call
        changes = call.function in (*lists.CHANGING, *orders.CHANGING)
        is_of_dicts = dictionaries.is_of_dicts(call.function)
        is_kept = changes or is_of_dicts or call.function.__module__ == sets.__name__  # by the value itself
        given = [list(one) if _is_read_as_list(one, is_of_dicts) else one for _, one in call.given]
        given = [
            list(one.set_members) if isinstance(one, MemberSet) and not sets.is_own(call.function, k) else one
            for k, one in enumerate(given)
        ]
        given = [
            one if own is None or is_kept else rows_if_tensors(one)
            for (own, _), one in zip(call.given, given, strict=True)
        ]
        parameters = self._recording.source_of(call.function).parameters
        for name, (_, one) in zip(parameters, call.given, strict=True):
            if isinstance(one, MemberSet) and name in ("key", "one") and is_kept:
                what = "a set as a key, or as a member of a set"
                raise self._refuse(node, f"{what}; write a tuple of its members, tuple(sorted(s))")
        statics = {
            name: value for name, (own, value) in zip(parameters, call.given, strict=True) if own is None
        }
        try:
            if is_first and call.function.__module__ in _OF_TEXTS:
                for pair in texts.REHEARSED:
                    rows = iter([*pair, *pair])
                    others = [next(rows) if isinstance(one, str) else one for one in given]
                    self._rehearse(call.function, others, statics)
            if changes and isinstance(given[0], list) and given[0]:
                self._rehearse(call.function, list(map(_longer_list, given)), statics)
            elif any(isinstance(one, StackedRows) for one in given) and call.function not in orders.BY_KEYS:
                self._rehearse(call.function, list(map(self._longer, given)), statics)
            result, _ = self._recording.call(call.function, given, statics, site.callees)
        except ModelError as error:
            refusal = self._refuse(node, f"{call.function.__name__}: {error}")
            if isinstance(error, SampleError):
                raise SampleError(refusal, error.error, error.is_noticed) from error
            raise refusal from error
        if call.function is stacked.extreme:
            return Extremes(*result)
        return rows_if_tensors(result) if any(isinstance(one, StackedRows) for one in given) else result

    def _rehearse(self, function: Any, given: list[Any], statics: dict[str, Any]) -> None:
        with contextlib.suppress(SampleError):  # what the sample itself throws comes when it is run
            self._recording.call(function, given, statics)

    def _longer(self, value: Any) -> Any:
        """Return enough rows that each line of a function of `lists` is reached."""
        return StackedRows([*value, *value[:1] * _REHEARSED]) if isinstance(value, StackedRows) else value

    def _applied(self, node: ast.Call, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        role = role_of_call(function, [*args, *named.values()], self._recording.source_of)
        if role == "call" or self._site(node).role == "call":
            return self._called(node, function, args, named)
        if role == "tensor":
            return self._tensor_applied(node, function, args, named)
        if role == "":
            raise self._refuse(node, f"calls {clip(ast.unparse(node.func))}; {_advice(node.func, function)}")
        if role == "record":
            return self._new_object(node, function, args, named)
        if function in (len, list, tuple) and args and hasattr(args[0], "_fields"):
            if function is not len:
                what = f"{function.__name__} of a {type(args[0]).__name__}; write its fields, (one.a, one.b)"
                raise self._refuse(node, what)
            self._set_role(node, "constant").value = len(args[0])
            return len(args[0])
        self._set_role(node, role)
        if function in (min, max) and any(is_record_kind(kind_of(one)) for one in args):
            raise self._refuse(
                node, f"{function.__name__} of objects; give it a key, as key=lambda one: one.a"
            )
        if function in (min, max, list, tuple) and any(is_tensor_kind(kind_of(one)) for one in args):
            raise self._refuse(node, f"{function.__name__} of a tensor; {_OF_TENSORS[function.__name__]}")
        if (
            role == "builtin"
            and function not in (bool, find, *OF_TEXTS)
            and any(isinstance(one, str) for one in args)
        ):
            raise self._refuse(node, f"{function.__name__} of a text; allowed: of numbers, lists and tuples")
        if function is find and not dictionaries.is_key(args[1]):
            is_object = is_record_kind(kind_of(args[1]))
            advice = "; write a tuple of its fields" if is_object else ""
            advice = "; write .item() of it" if is_tensor(args[1]) else advice
            what = words(kind_of(args[1]))
            raise self._refuse(node, f"{what} as a key of a dict; allowed: {dictionaries.KEYS}{advice}")
        try:
            return function(*args, **named)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._failed(node, error) from None

    def _tensor_applied(self, node: ast.Call, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        if any(isinstance(one, StackedRows) for one in [*args, *named.values()]):
            return self._stacked(node, function, args, node.args, named)
        self._check_pure(node, function, named)
        if isinstance(function, marks.MarkedBlock):
            return self._tensors(node, function.function, args, **named)
        if not is_users_module(function):
            return self._tensors(node, function, args, **named)
        try:
            with refused_values():
                return self._tensors(node, function, args, **named)
        except ValueReadError:  # its text has control flow that depends on them
            self._site(node).role = ""
            return self._called(node, function, args, named)

    def _called(self, node: ast.Call, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """Run a function whose text is compiled too."""
        site = self._set_role(node, "call")
        target, bound = callable_of(function)
        source = self._recording.source_of(target)
        nodes: list[ast.expr | None] = [*([None] * len(bound)), *node.args]
        given, nodes = self._in_order(node, source, [*bound, *args], nodes, named)
        statics = static_arguments(self._statics, source, nodes, given)
        return self._recording.call(target, given, statics, site.callees)[0]

    def _map(self, node: ast.Call) -> Any:
        self._set_role(node, "map")
        if len(node.args) != 2 or node.keywords:
            raise self._refuse(node, "dietcode.map takes a function and a list")
        known, function = self._statics.find(node.args[0])
        if not known:
            raise self._refuse(
                node.args[0], "is chosen by values; name a function, or write calls in an `if`"
            )
        found = []
        for one in self._value(node.args[1]):
            target, bound = callable_of(function)
            if role_of_call(function, [one], self._recording.source_of) == "tensor":
                found.append(self._tensors(node, function, [one]))
                self._site(node).role = "map"
                continue
            source = self._recording.source_of(target)
            statics = dict(zip(source.parameters, bound, strict=False))
            called = self._site(node).callees
            found.append(self._recording.call(target, [*bound, one], statics, called)[0])
        return found


def _advice(node: ast.expr, function: Any) -> str:
    """Return what to write in place of a call that a program cannot have.

    It is by the function's name, or else by that in the text: packages put others in the place of what Python
    has, as Ray does with print.
    """
    known = _ADVICE.get(getattr(function, "__name__", ""))
    if known is None and isinstance(node, ast.Name):
        known = _ADVICE.get(node.id)
    owner = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    if known is None and isinstance(function, type) and is_users(function):
        return "a class of a program has fields, methods and properties, and no __new__ or other base"
    return known or _OF_PACKAGES.get(str(owner), f"allowed: {ALLOWED}")


def _is_read_as_list(value: Any, is_of_dicts: bool) -> bool:
    return isinstance(value, DictView) or (isinstance(value, Dictionary) and not is_of_dicts)


def _longer_list(value: Any) -> Any:
    """Return a list with more items, so that each line of a function that changes it is reached."""
    return [*value, *value[:1] * _REHEARSED] if isinstance(value, list) else value
