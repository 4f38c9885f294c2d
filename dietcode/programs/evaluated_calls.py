"""Calls of a program's text, run on samples: what each calls, and what is done to lists of any length."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import dictionaries, lists, sets, statements
from dietcode.programs import module as marks
from dietcode.programs.calling import callable_of, static_arguments
from dietcode.programs.classes import types_of
from dietcode.programs.containers import TableLookup, are_scalars, items_of
from dietcode.programs.dictionaries import Dictionary, DictView, is_library
from dietcode.programs.evaluating import LOOPED, Evaluation, hashed
from dietcode.programs.kinds import Extremes, WholeNumbers, is_record_kind, is_tensor_kind, kind_of, words
from dietcode.programs.roles import LIST_METHODS, is_users, is_users_module, role_of_call
from dietcode.programs.sets import MemberSet
from dietcode.programs.sites import ALLOWED, is_of_library
from dietcode.programs.sources import FunctionSource, is_tensor
from dietcode.programs.stacks import ALLOWED as STACKS
from dietcode.programs.stacks import (
    ListsCall,
    StackedRows,
    python_call,
    rows_if_tensors,
    tensor_call,
    topk_call,
)
from dietcode.programs.values_read import ValueReadError, refused_values
from dietcode.runtime.programs.instances import find
from dietcode.workload.text import clip

_LISTS_METHODS: dict[str, Callable[..., Any]] = {
    "extend": lists.extend,
    "insert": lists.insert,
    "remove": lists.removed,
    "index": lists.position,
    "count": lists.count,
    "reverse": lists.turn,
    "clear": lists.clear,
    "popleft": lists.pop_first,
    "appendleft": lists.append_first,
}
_LIST_METHODS = (*LIST_METHODS, "copy", "sort", *_LISTS_METHODS)
_ADVICE = {
    "hasattr": "give objects the field, as None where they lack it",
    "print": "a program computes results; print them outside",
    "dict": "allowed: dict(), of a dict, of a list of pairs, dict(name=value)",
    "fromkeys": "write {key: value for key in keys}",
    "defaultdict": "write a dict, and d.setdefault(key, [])",
    "Counter": "write a dict, and d[key] = d.get(key, 0) + 1",
    "frozenset": "write set, or a tuple",
    "iter": "go over the list itself, or by positions",
}
_OF_PACKAGES = {
    "random": "give the instance its random numbers, and read them from a list",
    "itertools": "write it as loops",
}
_OF_TENSORS = {
    "min": "write torch.minimum, or item()",
    "max": "write torch.maximum, or item()",
    "list": "write x.unbind()",
    "tuple": "write x.unbind()",
    "topk": "allowed: the largest of one axis, x[i].topk(k) of each row, (-x).topk(k) for the smallest",
}
_TOPK = ("input", "k", "dim", "largest", "sorted")  # its parameters
_REHEARSED = 3  # rows with which each line of a function of `lists` is reached


class CallEvaluation(Evaluation):
    """Expressions of a function, calls among them."""

    def _call(self, node: ast.Call) -> Any:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            raise self._refuse(node, "a call with * or **; write the arguments out")
        known, function = self._statics.find(node.func)
        if not known:
            return self._of_values(node)
        if isinstance(getattr(function, "__self__", None), list | dict | set):
            return self._of_constant(node, function)
        for own, run in self._special:
            if function is own:
                return run(node)
        if getattr(function, "__name__", "") == "topk" and not is_users(function):
            return self._topk(node, node.args)
        return self._plain_call(node, function)

    @property
    def _special(self) -> tuple[tuple[Any, Callable[[ast.Call], Any]], ...]:
        """What has a rule of its own."""
        return (
            (marks.concurrent, self._concurrent),
            (marks.map, self._map),
            (isinstance, self._isinstance),
            (dataclasses.replace, self._replaced),
            (list, self._listed),
            (lists.LAZY["any"], lambda node: self._lazily(node, stops=True)),
            (lists.LAZY["all"], lambda node: self._lazily(node, stops=False)),
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

    def _topk(self, node: ast.Call, given: list[ast.expr]) -> Any:
        """Find the largest numbers of a row: where they are is waited for, and they are items of the row."""
        pairs = [*zip(_TOPK, given, strict=False), *((str(one.arg), one.value) for one in node.keywords)]
        call = topk_call({name: (one, self._value(one)) for name, one in pairs})
        if call is None:
            raise self._refuse(node, f"topk as it stands here; {_OF_TENSORS['topk']}")
        values, places = self._library(node, call)
        import torch

        return Extremes(StackedRows(values) if values else values, WholeNumbers(map(torch.tensor, places)))

    def _is_looped(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._statics.find(node.func)[1] in LOOPED

    def _plain_call(self, node: ast.Call, function: Any) -> Any:
        args = [self._value(one, is_view=True) for one in node.args]
        named = {str(one.arg): self._value(one.value) for one in node.keywords}
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
        if is_stack(function, node):
            return self._stack(node, args, named)
        return self._applied(node, function, args, named)

    def _stack(self, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
        """Keep a list of any length as the rows of what ``torch.stack`` gives."""
        axis = named.pop("dim", args[1] if len(args) > 1 else 0)
        rows = rows_if_tensors(args[0])
        if not isinstance(rows, StackedRows) or axis != 0 or named:
            what = "tensors float32 of one shape, along axis 0" if isinstance(args[0], list) else "a list"
            raise self._refuse(node, f"torch.stack of {words(kind_of(args[0]))}; allowed: {what}")
        self._set_role(node, "stack")
        return StackedRows(rows)

    def _stacked(
        self,
        node: ast.AST,
        function: Any,
        args: list[Any],
        nodes: list[ast.expr],
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute tensor code over stacks of any length.

        Parameters
        ----------
        node : expression
        function : callable
            Of tensors.
        args : list
        nodes : list of expression
            Where they are in the text.
        named : mapping, optional
        """
        call = tensor_call(function, args, named or {}, nodes)
        read = [one for one, _ in call.given if one is not None] if call is not None else []
        others = [one for one in nodes if one not in read]
        if isinstance(node, ast.Call):
            others += [one.value for one in node.keywords]
        if call is None or not all(self._statics.find(one)[0] for one in others):
            name = getattr(function, "__name__", type(function).__name__)
            raise self._refuse(node, f"{name} of torch.stack of a list of any length; allowed: {STACKS}")
        return self._library(node, call)

    def _library(self, node: ast.AST, call: ListsCall) -> Any:
        """Run a function of `lists`, whose text is compiled as if it stood here."""
        site = self._set_role(node, "library")
        if site.library is not None and not call.same_as(site.library):
            raise self._refuse(node, "is done to other kinds of values in another sample")
        site.library = call
        changes = call.function in lists.CHANGING
        is_of_dicts = call.function.__module__ == dictionaries.__name__
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
        statics = {
            name: value for name, (own, value) in zip(parameters, call.given, strict=True) if own is None
        }
        try:
            if changes and isinstance(given[0], list) and given[0]:
                self._recording.call(call.function, list(map(_longer_list, given)), statics)
            elif any(isinstance(one, StackedRows) for one in given) and call.function not in lists.BY_KEYS:
                self._recording.call(call.function, list(map(self._longer, given)), statics)
            result, number = self._recording.call(call.function, given, statics)
        except ModelError as error:
            raise self._refuse(node, f"{call.function.__name__}: {error}") from error
        site.callees[number] = None
        if call.function is lists.extreme:
            return Extremes(*result)
        return rows_if_tensors(result) if any(isinstance(one, StackedRows) for one in given) else result

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
            raise self._refuse(node, f"calls {clip(ast.unparse(node.func))}; {_advice(function)}")
        self._set_role(node, role)
        if role == "record" and hasattr(function, "__post_init__"):
            raise self._refuse(
                node, f"{function.__name__} has __post_init__; allowed: dataclasses without it"
            )
        if function in (min, max, list, tuple) and any(is_tensor_kind(kind_of(one)) for one in args):
            raise self._refuse(node, f"{function.__name__} of a tensor; {_OF_TENSORS[function.__name__]}")
        if role == "builtin" and function not in (bool, find) and any(isinstance(one, str) for one in args):
            raise self._refuse(node, f"{function.__name__} of a text; allowed: of numbers, lists and tuples")
        if function is find and not dictionaries.is_key(args[1]):
            advice = "; write .item() of it" if is_tensor(args[1]) else ""
            what = words(kind_of(args[1]))
            raise self._refuse(node, f"{what} as a key of a dict; allowed: {dictionaries.KEYS}{advice}")
        try:
            made = function(*args, **named)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._refuse(node, f"a sample fails: {type(error).__name__}: {error}") from None
        if role == "record":
            self._own_containers(node, made)
            for name in getattr(made, "_fields", ()) or vars(made):
                self._field(node, made, name)
        return made

    def _own_containers(self, node: ast.Call, made: Any) -> None:
        """Give an object the program's dicts and sets for the empty ones that its class makes."""
        for name, value in vars(made).items() if dataclasses.is_dataclass(made) else ():
            if type(value) in (dict, set) and not value:
                own: Any = Dictionary([], []) if isinstance(value, dict) else MemberSet([])
                setattr(made, name, own)
                for field in vars(own):
                    self._field(node, own, field)

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
        result, number = self._recording.call(target, given, statics)
        site.callees[number] = None
        return result

    def _check_pure(self, node: ast.Call, function: Any, named: Mapping[str, Any]) -> None:
        """Refuse functions that write into their arguments."""
        name = getattr(function, "__name__", "")
        if name.endswith("_") and not name.startswith("__"):
            raise self._refuse(node, f"{name} changes a tensor in place; allowed: {name.rstrip('_')}")
        if "out" in named or named.get("inplace"):
            raise self._refuse(node, "writes into a tensor that it is given; allowed: results that are new")

    def _map(self, node: ast.Call) -> Any:
        self._set_role(node, "map")
        if len(node.args) != 2 or node.keywords:
            raise self._refuse(node, "dietcode.map takes a function and a list")
        known, function = self._statics.find(node.args[0])
        if not known:
            raise self._refuse(node.args[0], "is chosen by values; name a function")
        found = []
        for one in self._value(node.args[1]):
            target, bound = callable_of(function)
            if role_of_call(function, [one], self._recording.source_of) == "tensor":
                found.append(self._tensors(node, function, [one]))
                self._site(node).role = "map"
                continue
            source = self._recording.source_of(target)
            statics = dict(zip(source.parameters, bound, strict=False))
            result, number = self._recording.call(target, [*bound, one], statics)
            self._site(node).callees[number] = None
            found.append(result)
        return found

    def _method(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Attribute):
            raise self._refuse(node, "calls what a value chooses; name the function")
        base, name = self._value(node.func.value), node.func.attr
        args = [self._value(one) for one in node.args]
        named = {str(one.arg): self._value(one.value) for one in node.keywords}
        if isinstance(base, StackedRows):
            return self._method_of_rows(node, base, args, named)
        if is_tensor(base):
            return self._method_of_tensor(node, base, args, named)
        if isinstance(base, int | float) and name == "item" and not args:  # a whole number that argmax gave
            self._set_role(node, name)
            return base
        if isinstance(base, Dictionary | MemberSet):
            return self._method_of_keys(node, base, args, named)
        if is_record_kind(kind_of(base)):
            return self._method_of_record(node, base, args, named)
        return self._method_of_list(node, base, args, named)

    def _method_of_list(self, node: ast.Call, base: Any, args: list[Any], named: dict[str, Any]) -> Any:
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name = node.func.attr
        if isinstance(base, WholeNumbers) and name == "tolist":
            self._set_role(node, "list.copy")
            return [_plain(one) for one in base]
        if isinstance(base, WholeNumbers) and (name == "numel" or (name == "size" and args == [0])):
            self._set_role(node, "stack length")
            return len(base)
        if not isinstance(base, list) or named or name not in _LIST_METHODS:
            allowed = f"methods of tensors, and {', '.join(_LIST_METHODS)} of lists"
            raise self._refuse(node, f"calls {name} of {words(kind_of(base))}; allowed: {allowed}")
        if name in _LISTS_METHODS:
            pairs = tuple(zip([node.func.value, *node.args], [base, *args], strict=True))
            return self._library(node, ListsCall(_LISTS_METHODS[name], pairs))
        self._set_role(node, f"list.{name}")
        return getattr(base, name)(*args)

    def _method_of_keys(
        self, node: ast.Call, base: Dictionary | MemberSet, args: list[Any], named: dict[str, Any]
    ) -> Any:
        """Run a method of a dict or a set."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name = node.func.attr
        what, methods = (
            ("dict", dictionaries.METHODS) if isinstance(base, Dictionary) else ("set", sets.METHODS)
        )
        function = methods.get((name, len(args))) if not named else None
        if function is None:
            allowed = ", ".join(dict.fromkeys(one for one, _ in methods))
            raise self._refuse(node, f"calls {name} of a {what} with {len(args)} values; allowed: {allowed}")
        if function is dictionaries.united and not isinstance(args[0], Dictionary):
            function = dictionaries.with_pairs
        found = self._of_dict(node, function, (node.func.value, base), *zip(node.args, args, strict=True))
        if name == "update":
            return None
        return DictView(found) if name in dictionaries.VIEWS else found

    def _isinstance(self, node: ast.Call) -> bool:
        if len(node.args) != 2 or node.keywords:
            raise self._refuse(node, "isinstance takes a value and a class")
        value = self._value(node.args[0])
        types = types_of(self._statics.find(node.args[1])[1])
        if types is None:
            raise self._refuse(node, f"isinstance of {ast.unparse(node.args[1])}; allowed: classes by name")
        if is_record_kind(kind_of(value)):
            self._fields(node, type(value))
        for one in types:
            if dataclasses.is_dataclass(one) or hasattr(one, "_fields"):
                self._fields(node, one)
        self._set_role(node, "kinds").value = types
        own = {Dictionary: dict, MemberSet: set}.get(type(value))
        return issubclass(own, types) if own is not None else isinstance(value, types)

    def _replaced(self, node: ast.Call) -> Any:
        """Return an object with some fields that are others."""
        base: Any = self._value(node.args[0]) if len(node.args) == 1 else None
        is_own = isinstance(base, type | Dictionary | MemberSet)
        is_known = hasattr(base, "__dataclass_fields__") and not is_own
        if not is_known:
            raise self._refuse(node, "dataclasses.replace takes an object of a dataclass, and fields by name")
        named = {str(one.arg): self._value(one.value) for one in node.keywords}
        site = self._set_role(node, "replaced")
        if site.value not in (None, type(base)):
            raise self._refuse(node, "replaces fields of another class in another sample; write two calls")
        site.value = type(base)
        if hasattr(base, "__post_init__") or not all(one.init for one in dataclasses.fields(base)):
            what = f"{site.value.__name__} has __post_init__ or fields that it makes itself"
            raise self._refuse(node, f"{what}; allowed: dataclasses without")
        try:
            made = dataclasses.replace(base, **named)
        except (TypeError, ValueError) as error:
            raise self._refuse(node, f"a sample fails: {error}") from None
        for name in vars(made):
            self._field(node, made, name)
        return made

    def _method_of_record(self, node: ast.Call, base: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """Run a method of an object, of which each class may have another one."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name, cls = node.func.attr, type(base)
        function = inspect.getattr_static(cls, name, None)
        if not inspect.isfunction(function) or not is_users(function):
            raise self._refuse(node, f"calls {name} of a {cls.__name__}, which has no such method of its own")
        return self._of_class(node, base, function, args, named)

    def _property(self, node: ast.Attribute, base: Any, own: property) -> Any:
        """Run a property as the method without arguments that it is."""
        cls = type(base)
        if own.fget is None or not inspect.isfunction(own.fget) or not is_users(own.fget):
            raise self._refuse(node, f"{node.attr} of a {cls.__name__} is a property of another package")
        key = (node, 0)
        if key not in self._source.chains:
            read = statements.at(node, ast.Attribute(node.value, node.attr, ast.Load()))
            self._source.chains[key] = statements.at(node, ast.Call(read, [], []))
        call = self._source.chains[key]
        self._set_role(node, "property").value = call
        return self._of_class(call, base, own.fget, [], {})

    def _of_class(
        self, node: ast.Call, base: Any, function: Any, args: list[Any], named: dict[str, Any]
    ) -> Any:
        """Run a function that an object's class has for a name."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        cls = type(base)
        self._fields(node, cls)
        site = self._set_role(node, "method")
        site.value = site.value or {}
        source = self._recording.source_of(function)
        given, nodes = self._in_order(node, source, [base, *args], [node.func.value, *node.args], named)
        statics = static_arguments(self._statics, source, nodes, given)
        result, number = self._recording.call(function, given, statics)
        site.value.setdefault(cls.__name__, (function, {}))[1][number] = None
        return result

    def _in_order(
        self,
        node: ast.Call,
        source: FunctionSource,
        given: list[Any],
        nodes: list[ast.expr | None],
        named: Mapping[str, Any],
    ) -> tuple[list[Any], list[ast.expr | None]]:
        """Return the arguments of a call in the order of the parameters, and where they are in the text."""
        given, nodes = list(given), list(nodes)
        for at in range(len(given), len(source.parameters)):
            name = source.parameters[at]
            keyword = next((one.value for one in node.keywords if one.arg == name), None)
            try:
                given.append(named[name] if keyword is not None else source.default(at))
            except KeyError:
                raise self._refuse(node, f"leaves out {name} of {source.function.__name__}") from None
            nodes.append(keyword)
        return given, nodes

    def _method_of_tensor(self, node: ast.Call, base: Any, args: list[Any], named: dict[str, Any]) -> Any:
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name, nodes = node.func.attr, [node.func.value, *node.args]
        if name in ("item", "tolist"):
            self._set_role(node, name)
            return getattr(base, name)()
        if name == "topk":
            return self._topk(node, nodes)
        if name in ("size", "dim", "numel"):
            self._set_role(node, "constant").value = found = getattr(base, name)(*args)
            return found
        function = getattr(type(base), name, None)
        if function is None:
            raise self._refuse(node, f"calls {name} of {words(kind_of(base))}, which has no such method")
        if any(isinstance(one, StackedRows) for one in args):
            return self._stacked(node, function, [base, *args], nodes, named)
        self._check_pure(node, function, named)
        return self._tensors(node, function, [base, *args], **named)

    def _method_of_rows(
        self, node: ast.Call, base: StackedRows, args: list[Any], named: dict[str, Any]
    ) -> Any:
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name, nodes = node.func.attr, [node.func.value, *node.args]
        if name == "size" and args == [0]:
            self._set_role(node, "stack length")
            return len(base)
        if name == "topk":
            return self._topk(node, nodes)
        function = getattr(type(base[0]), name, None)
        if function is None:
            raise self._refuse(node, f"calls {name} of a stack of any length; allowed: {STACKS}")
        return self._stacked(node, function, [base, *args], nodes, named)


def _advice(function: Any) -> str:
    """Return what to write in place of a call that a program cannot have."""
    known = _ADVICE.get(getattr(function, "__name__", ""))
    owner = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    if known is None and isinstance(function, type) and is_users(function):
        return "a class of this program's is a dataclass or a named tuple, which makes no fields by itself"
    return known or _OF_PACKAGES.get(str(owner), f"allowed: {ALLOWED}")


def _plain(numbers: Any) -> Any:
    return numbers.tolist() if is_tensor(numbers) else [_plain(one) for one in numbers]


def _is_read_as_list(value: Any, is_of_dicts: bool) -> bool:
    return isinstance(value, DictView) or (isinstance(value, Dictionary) and not is_of_dicts)


def is_stack(function: Any, node: ast.Call) -> bool:
    """Whether a call is ``torch.stack`` of a list that is not written there item by item."""
    import torch

    if function is not torch.stack or not node.args:
        return False
    given = node.args[0]
    if not isinstance(given, ast.List | ast.Tuple):
        return True
    return any(isinstance(one, ast.Starred) for one in given.elts)


def _longer_list(value: Any) -> Any:
    """Return a list with more items, so that each line of a function that changes it is reached."""
    return [*value, *value[:1] * _REHEARSED] if isinstance(value, list) else value
