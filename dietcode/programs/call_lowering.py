"""Calls of a function as code."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dietcode.programs import dictionaries, sets
from dietcode.programs.applying import lower_applied, lower_function
from dietcode.programs.calling import callable_of
from dietcode.programs.classes import kinds_of
from dietcode.programs.code import Label
from dietcode.programs.exceptions import ARGS
from dietcode.programs.expressions import ExpressionLowering
from dietcode.programs.generators import is_whole
from dietcode.programs.kinds import NUMBERS, is_tensor_kind
from dietcode.programs.loops import lower_lazily, lower_listed, lower_map, lower_next
from dietcode.programs.roles import BUILTINS, LIST_METHODS, OF_TEXTS, initialiser_of
from dietcode.programs.sites import Context, Site
from dietcode.programs.sources import is_frozen, is_tensor
from dietcode.programs.tensor_calls import argmax_of
from dietcode.programs.truths import lower_number
from dietcode.programs.trying import UNREACHED
from dietcode.programs.values import KnownValue, Several, Value
from dietcode.runtime.programs.code import RECORD_KINDS
from dietcode.runtime.programs.instances import find

_OF_ONE_AXIS = "allowed: of one axis; of weights, outside of the program's functions"


class CallLowering(ExpressionLowering):
    """Calls of one context as code."""

    def call(self, node: ast.Call) -> Value:
        """Write a call."""
        site = self.site(node)
        role = site.role
        if not role and isinstance(node.func, ast.Attribute) and node.func.attr in LIST_METHODS:
            role = f"list.{node.func.attr}"  # a line of `lists` that no sample reached
        if role in _CALLS:
            return _CALLS[role](self, node, site)
        function = self.statics.find(node.func)[1]
        rules = {"builtin": self._builtin, "record": self._record, "tensor": self._tensor_call}
        if not role and any(function is one for one in BUILTINS):
            return self._builtin(node, function)  # of a line of `lists` that no sample reached
        if not role and self.throws:  # what is before it in its statement has always thrown
            self.fail(UNREACHED)
            return KnownValue(None)
        return rules[role](node, function) if role in rules else self._method(node, role)

    def _stacked(self, node: ast.Call) -> Value:
        """Write what is a stack from now on: what is appended later is not in it."""
        return self.code.emit("slice", (self.value(node.args[0]), KnownValue(None), KnownValue(None)))

    def _tensor_call(self, node: ast.Call, function: Any) -> Value:
        best = argmax_of(self, node, function)
        if best is not None:
            return self.code.emit("argmax", (best,))
        args = [self._tensor_argument(one) for one in node.args]
        named = {str(one.arg): self._tensor_argument(one.value) for one in node.keywords}
        if self.statics.find(node.func)[0]:
            return self.tensors(node, function, args, **named)
        assert isinstance(node.func, ast.Attribute)  # the recording refuses others
        return self.tensors(node, method_of(node.func.attr), [self.value(node.func.value), *args], **named)

    def _tensor_argument(self, node: ast.expr) -> Value:
        """Return an argument of tensor code; a list that is written there has its items one by one."""
        written = self.site(node).value if self.site(node).role == "written" else None
        if isinstance(written, ast.List):
            node = written
        if isinstance(node, ast.List) and not self.statics.find(node)[0]:
            return Several(tuple(map(self._tensor_argument, node.elts)), is_list=True)
        return self.value(node)

    def _method(self, node: ast.Call, role: str) -> Value:
        """Write a method of a list, or what waits for the numbers of a tensor."""
        assert isinstance(node.func, ast.Attribute)  # the recording refuses others
        if role in ("item", "tolist"):
            return self._item(node, node.func.value, role)
        base = self.value(node.func.value)
        if role == "stack length":
            return self.code.emit("len", (base,))
        if role == "list.copy":
            return self.code.emit("slice", (base, KnownValue(None), KnownValue(None)))
        args = [self.value(one) for one in node.args]
        if role == "list.append":
            self.code.emit("append", (base, *args), writes=0)
            return KnownValue(None)
        return self.code.emit("pop", (base, args[0] if args else KnownValue(None)))

    def is_of(self, value: Value, types: tuple[type, ...]) -> Value:
        """Return whether a value is of some types, as ``isinstance`` has it."""
        pairs = dict.fromkeys(kinds_of(types, self.classes), True)
        return self.code.emit("lookup", (self.code.emit("kind", (value,)), KnownValue(False)), pairs)

    def _by_class(self, node: ast.Call) -> Value:
        """Write a method of an object, whose class says which function it is."""
        assert isinstance(node.func, ast.Attribute)  # the recording refuses others
        known: dict[str, tuple[Any, dict[int, None]]] = self.site(node).value
        owner, found = (
            f" {word} {node.lineno} {node.col_offset} {node.func.attr}" for word in ("owner", "found")
        )
        self.code.write(owner, self.value(node.func.value))
        args, named = self._arguments(node)
        end = Label()
        for name, (function, contexts) in known.items():
            numbers = {self.contexts[one].number for one in contexts}
            if len(numbers) != 1:
                raise self.refuse(
                    node, "calls a method with other modules in another sample; name them in the text"
                )
            is_static = isinstance(function, staticmethod)
            own = [] if is_static else [self.code.read(owner)]
            values = self._completed(numbers, [*own, *args], named)
            other = Label()
            is_own = self.code.emit("kind", (self.code.read(owner),))
            wanted = KnownValue(RECORD_KINDS + list(self.records).index(name))
            self.code.jump_unless(self.code.emit("binary", (is_own, wanted), "=="), other)
            self.code.write(found, self.code.emit("call", [*own, *values[len(own) :]], numbers.pop()))
            self.code.jump(end)
            self.code.label(other)
        self.fail(
            f"AttributeError: no sample called {node.func.attr} of such an object; give samples that do"
        )
        self.code.label(end)
        return self.code.read(found)

    def said(self, node: ast.expr) -> Value:
        """Return what an exception says, which is the first of its arguments."""
        args = self.code.emit("field", (self.value(node),), ARGS)
        return self.code.emit("get", (args, KnownValue(0)))

    def _arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        args = [self.value(one) for one in node.args]
        return args, {str(one.arg): self.value(one.value) for one in node.keywords}

    def callee(self, node: ast.AST) -> int:
        """Return the number of the function that a call calls."""
        numbers = {self.contexts[one].number for one in self.site(node).callees}
        if len(numbers) != 1:
            raise self.refuse(
                node, "calls a function with other modules in another sample; name them in the text"
            )
        return numbers.pop()

    def lookup(self, number: int) -> Context:
        """Return a context that is called."""
        return self.contexts[number]

    def _given(self, node: ast.Call) -> list[Value]:
        """Return the arguments of a function; static ones are none."""
        bound = callable_of(self.statics.find(node.func)[1])[1]
        args, named = self._arguments(node)
        return self._completed(self.site(node).callees, [*(KnownValue(one) for one in bound), *args], named)

    def _called(self, node: ast.Call) -> Value:
        """Write a call of a function that is compiled too."""
        found = self.code.emit("call", self._given(node), self.callee(node))
        self.code.instructions[-1].is_whole = is_whole(node)
        return found

    def _completed(
        self, contexts: Collection[int], given: Sequence[Value], named: Mapping[str, Value]
    ) -> list[Value]:
        """Return the arguments of a function with its defaults; static ones are none."""
        callee = self.lookup(next(iter(contexts)))
        values = list(given)
        for at in range(len(values), len(callee.source.parameters)):
            name = callee.source.parameters[at]
            values.append(named[name] if name in named else KnownValue(callee.source.default(at)))
        return [
            KnownValue(None) if _is_object(value) else value
            for name, value in zip(callee.source.parameters, values, strict=True)
            if name not in callee.statics
        ]

    def library(self, node: ast.AST) -> Value:
        """Write a call of a function of `lists`."""
        call = self.site(node).library
        assert call is not None  # the recording has noted it with the role
        if not self.site(node).callees:
            raise self.refuse(node, "is done to empty lists in all samples; give others")
        is_of_dicts = dictionaries.is_of_dicts(call.function)
        read = self.value if is_of_dicts else self.items
        given = [
            self.value(one) if sets.is_own(call.function, k) else read(one)
            for k, (one, _) in enumerate(call.given)
            if one is not None
        ]
        found = self.code.emit("call", given, self.callee(node))
        is_update = call.function in (dictionaries.united, dictionaries.with_pairs)
        is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        return KnownValue(None) if is_update and is_method else found

    def _spawned(self, node: ast.expr) -> tuple[str, Value]:
        """Begin a call that runs beside others."""
        if not self.optimisations.concurrency:
            return "", self.value(node)
        if self.site(node).role == "written":
            node = self.site(node).value
        if isinstance(node, ast.Call) and self.site(node).role == "call":
            return "wait", self.code.emit("spawn", self._given(node), self.callee(node))
        return "", self.value(node)

    def _together(self, begun: list[tuple[str, Value]]) -> tuple[Value, ...]:
        return tuple(self.code.emit("wait", (one,)) if word else one for word, one in begun)

    def _item(self, node: ast.AST, base: ast.expr, role: str) -> Value:
        """Return numbers of a tensor."""
        value = self.value(base)
        kinds = self.site(base).kinds
        if kinds <= NUMBERS:
            return value
        tensors = [one for one in kinds if is_tensor_kind(one)]
        if role == "tolist" and any(len(one[2]) != 1 for one in tensors):
            raise self.refuse(node, f"tolist of a tensor of several axes; {_OF_ONE_AXIS}")
        if role == "tolist" and any(one[1] != "float32" for one in tensors):
            raise self.refuse(
                node, "tolist of whole numbers or bools; write x.float().tolist(), and int() of its items"
            )
        is_bool = bool(tensors) and all(one[1] == "bool" for one in tensors)
        is_whole = bool(tensors) and all(one[1] == "int32" for one in tensors)
        word = "bool" if is_bool else "int" if is_whole else "float"
        return self.code.emit("values", (value,)) if role == "tolist" else self.number(value, word)

    def _builtin(self, node: ast.Call, function: Any) -> Value:
        args = [self.items(one) for one in node.args]
        if node.keywords:
            raise self.refuse(node, f"{function.__name__} with names of arguments")
        of_own = {find: ("binary", "find")} | {own: (word,) for own, word in OF_TEXTS.items()}
        if function in of_own or (function is round and len(args) == 2):
            word, *rest = of_own.get(function, ("rounded",))
            return self.code.emit(word, args, *rest)
        if function is len:
            if isinstance(args[0], Several):
                return KnownValue(len(args[0].items))
            return self.code.emit("len", args)
        if function in (list, tuple):
            word = function.__name__
            return self.code.emit("as", args, word) if args else self.code.emit(word, ())
        if len(args) > 1 and function not in (min, max):
            raise self.refuse(node, f"{function.__name__} of {len(args)} values; allowed: of one")
        if function in (min, max):
            if len(args) < 2:
                raise self.refuse(node, f"{function.__name__} of a list; write a loop")
            found = args[0]
            for one in args[1:]:
                found = self.code.emit("binary", (found, one), function.__name__)
            return found
        (kinds, value) = (self.site(node.args[0]).kinds, args[0])
        if any(map(is_tensor_kind, kinds)):
            value = lower_number(self, node.args[0], value)
        return self.code.emit("unary", (value,), function.__name__)

    def _record(self, node: ast.Call, function: Any) -> Value:
        begin = initialiser_of(function)
        is_plain = begin is not None and begin.__name__ == "__init__"
        args, named = self._arguments(node)
        is_exception = issubclass(function, BaseException)
        if is_exception:
            given: dict[str, Value] = {ARGS: self.code.emit("tuple", args)}
        else:
            given = {} if is_plain else self._fields_given(node, function, args, named)
        order = self.records[function.__name__]
        made = self.code.emit(
            "record", [given.get(name, _of_all(function, name)) for name in order], function.__name__
        )
        if begin is not None:
            rest: tuple[list[Value], dict[str, Value]] = (args, named) if is_plain else ([], {})
            values = self._completed(self.site(node).callees, [made, *rest[0]], rest[1])
            self.code.emit("call", values, self.callee(node))
        return made

    def _fields_given(
        self, node: ast.Call, function: Any, args: Sequence[Value], named: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Return the fields with which an object of a dataclass or a named tuple begins."""
        fields = _fields_of(function)
        values = list(args)
        for name in list(fields)[len(args) :]:
            if name in named:
                values.append(named[name])
            elif fields[name] is dataclasses.MISSING:
                raise self.refuse(node, f"leaves out {name} of {function.__name__}; give it")
            else:
                values.append(self._default(fields[name]))
        found = dict(zip(fields, values, strict=True))
        for one in dataclasses.fields(function) if dataclasses.is_dataclass(function) else ():
            if not one.init and one.default_factory in (list, dict, set):
                found[one.name] = self._default(one.default_factory())
        return found

    def _default(self, value: Any) -> Value:
        """Return a field's default; one that is made empty is made here."""
        if isinstance(value, list):
            return self.code.emit("list", ())
        if isinstance(value, dict | set):
            name = type(value).__name__
            return self.code.emit("record", [self.code.emit("list", ()) for _ in self.records[name]], name)
        return KnownValue(value)

    def _replaced(self, node: ast.Call, cls: type) -> Value:
        """Write a new object of a class with the fields of another one, but for some."""
        if node.args:
            base = self.value(node.args[0])
        else:
            assert isinstance(node.func, ast.Attribute)  # _replace of a named tuple
            base = self.value(node.func.value)
        named = {str(one.arg): self.value(one.value) for one in node.keywords}
        order = self.records[cls.__name__]
        values = [named[one] if one in named else self.code.emit("field", (base,), one) for one in order]
        return self.code.emit("record", values, cls.__name__)


_CALLS: dict[str, Callable[[CallLowering, ast.Call, Site], Value]] = {
    "concurrent": lambda own, node, _: Several(own._together([own._spawned(one) for one in node.args])),
    "constant": lambda own, node, _: own.constant(node),
    "stack": lambda own, node, _: own._stacked(node),
    "lazy": lambda own, node, site: lower_lazily(own, node, bool(site.value)),
    "applied": lambda own, node, _: lower_applied(own, node),
    "function": lambda own, node, _: lower_function(own, node),
    "next": lambda own, node, _: lower_next(own, node),
    "map": lambda own, node, _: lower_map(own, node),
    "listed": lambda own, node, _: lower_listed(own, node),
    "call": lambda own, node, _: own._called(node),
    "kinds": lambda own, node, site: own.is_of(own.value(node.args[0]), site.value),
    "method": lambda own, node, _: own._by_class(node),
    "text": lambda own, node, _: own.code.emit("join", [own.value(node.args[0])]),
    "said": lambda own, node, _: own.said(node.args[0]),
    "replaced": lambda own, node, site: own._replaced(node, site.value),
}


def _of_all(record: Any, name: str) -> KnownValue:
    """Return what a class has for all of its objects, None for what it does not."""
    found = getattr(record, name, None)
    return KnownValue(found if isinstance(found, bool | int | float | str) else None)


def _is_object(value: Value) -> bool:
    return isinstance(value, KnownValue) and is_frozen(value.value) and not is_tensor(value.value)


def method_of(name: str) -> Callable[..., Any]:
    """Return a method of tensors as a function."""
    import torch

    return getattr(torch.Tensor, name)  # type: ignore[no-any-return]


def _fields_of(record: Any) -> dict[str, Any]:
    """Return the fields that a class's objects are made of, with their defaults, if they have one."""
    if hasattr(record, "_fields"):
        return {name: record._field_defaults.get(name, dataclasses.MISSING) for name in record._fields}
    return {
        one.name: one.default_factory() if one.default_factory in (list, dict, set) else one.default
        for one in dataclasses.fields(record)
        if one.init
    }
