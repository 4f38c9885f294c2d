"""Expressions of a function as code, with what samples show of them."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs.calling import callable_of
from dietcode.programs.code import Code, Label
from dietcode.programs.kinds import NUMBERS, is_tensor_kind, words
from dietcode.programs.loops import lower_list_comprehension, lower_listed, lower_map
from dietcode.programs.roles import BINARY, COMPARE, UNARY
from dietcode.programs.sites import Context, Path, Site
from dietcode.programs.sources import Statics, is_frozen, is_tensor
from dietcode.programs.tensor_calls import argmax_of, tensor_operation
from dietcode.programs.values import KnownValue, Register, Several, Value

UNREACHED = "RuntimeError: no sample reached this line; give samples that do"


class ExpressionLowering(ABC):
    """Expressions of one context as code.

    Parameters
    ----------
    context : Context
    contexts : sequence of Context
        By their numbers: several may be one.
    records : mapping of str to sequence of str
        The fields of records, by the name of the class.
    """

    def __init__(
        self, context: Context, contexts: Sequence[Context], records: Mapping[str, Sequence[str]]
    ) -> None:
        self.context, self.contexts, self.records = context, contexts, records
        self.source = context.source
        self.statics = Statics(context.source, context.statics)
        self.code = Code(context.source.parameters)
        self.path: Path = ()
        self.loops: list[tuple[Label, Label]] = []  # where continue and break go

    def site(self, node: ast.AST) -> Site:
        """Return what samples show of an expression."""
        return self.context.sites.get((self.path, node), Site())

    def refuse(self, node: ast.AST, what: str) -> ModelError:
        """Return the error of what cannot be compiled."""
        return self.source.refusal(node, what)

    @abstractmethod
    def body(self, body: Sequence[ast.stmt]) -> None:
        """Write statements."""

    @abstractmethod
    def store(self, target: ast.expr, value: Value) -> None:
        """Assign a value."""

    def fail(self, text: str) -> None:
        """Write an error of the instance."""
        self.code.end_block()
        self.code.emit("raise", (), KnownValue(text), writes=0)

    def _unless(self, value: Value, good: Label) -> None:
        """Jump to a label where a value is true."""
        self.code.jump_unless(self.code.emit("unary", (value,), "not"), good)

    def value(self, node: ast.expr) -> Value:
        """Write an expression; returns its value."""
        known, static = self.statics.find(node)
        if known:
            return KnownValue(static, ast.unparse(node))
        return self.kinded(_EXPRESSIONS[type(node)](self, node), node)

    def kinded(self, found: Value, node: ast.AST) -> Value:
        """Return a register with what samples show that it holds."""
        site = self.site(node)
        if not isinstance(found, Register) or not site.kinds:
            return found
        if len(site.kinds) > 1:
            kind: Any = (
                "number" if site.kinds <= NUMBERS else ("mixed", tuple(sorted(map(words, site.kinds))))
            )
        else:
            (kind,) = site.kinds
        return Register(found.number, kind, site.is_made)

    def _name(self, node: ast.Name) -> Value:
        return self.code.read(node.id)

    def _tuple(self, node: ast.Tuple) -> Value:
        return Several(tuple(self.value(one) for one in node.elts))

    def _list(self, node: ast.List) -> Value:
        found: Value | None = None
        for is_list, several in itertools.groupby(node.elts, lambda one: isinstance(one, ast.Starred)):
            nodes = list(several)
            parts = [self.value(one.value) for one in nodes if isinstance(one, ast.Starred)]
            if not is_list:
                parts = [self.code.emit("list", tuple(map(self.value, nodes)))]
            elif found is None:
                parts.insert(0, self.code.emit("list", ()))  # `[*a]` is another list than a
            for one in parts:
                found = one if found is None else self.code.emit("binary", (found, one), "+")
        return self.code.emit("list", ()) if found is None else found

    def condition(self, node: ast.expr, then: Callable[[Value], None]) -> None:
        """Write a condition, and what is to be done with it."""
        then(self.truth(node))

    def truth(self, node: ast.expr) -> Value:
        """Return the value of a condition; a tensor's is waited for."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.code.emit("unary", (self.truth(node.operand),), "not")
        if isinstance(node, ast.Compare) and self.site(node).role == "tensor" and self._is_of_numbers(node):
            sides = (node.left, node.comparators[0])
            both = [self._compared(one, self.value(one)) for one in sides]
            return self.code.emit("binary", both, COMPARE[type(node.ops[0])][0])
        value = self.value(node)
        kinds = self.site(node).kinds
        return self.number(value, "float") if kinds and all(map(is_tensor_kind, kinds)) else value

    def number(self, value: Value, word: str) -> Value:
        """Return the number that a tensor of one element is: the instance waits for it."""
        return self.code.emit("value", (value,), word)

    def _conditional(self, node: ast.IfExp) -> Value:
        name = f" {node.lineno} {node.col_offset}"  # no name in the text has spaces
        otherwise, end = Label(), Label()
        self.condition(node.test, lambda value: self.code.jump_unless(value, otherwise))
        self.code.write(name, self.value(node.body) if self._is_seen(node.body) else KnownValue(None))
        self.code.jump(end)
        self.code.label(otherwise)
        self.code.write(name, self.value(node.orelse) if self._is_seen(node.orelse) else KnownValue(None))
        self.code.label(end)
        return self.code.read(name)

    def _is_seen(self, node: ast.expr) -> bool:
        """Whether a sample reached an expression; otherwise it is an error of the instance."""
        if (self.path, node) in self.context.sites:
            return True
        self.fail(UNREACHED)
        return False

    def _bool(self, node: ast.BoolOp) -> Value:
        name, end = f" {node.lineno} {node.col_offset}", Label()
        for at, one in enumerate(node.values):
            if at and not self._is_seen(one):
                break
            value = self.truth(one)
            self.code.write(name, value)
            if at < len(node.values) - 1:
                if isinstance(node.op, ast.And):
                    self.code.jump_unless(value, end)
                else:
                    self._unless(value, end)
        self.code.label(end)
        return self.code.read(name)

    def _unary(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.truth(node)
        return self._operated(node, UNARY[type(node.op)], [self.value(node.operand)])

    def _binary(self, node: ast.BinOp) -> Value:
        known = {**BINARY, ast.MatMult: ("", operator.matmul)}
        return self._operated(node, known[type(node.op)], [self.value(node.left), self.value(node.right)])

    def _operated(self, node: ast.AST, known: tuple[str, Callable[..., Any]], operands: list[Value]) -> Value:
        if self.site(node).role == "tensor":
            return self.tensors(node, known[1], operands)
        return self.code.emit("unary" if len(operands) == 1 else "binary", operands, known[0])

    def _compare(self, node: ast.Compare) -> Value:
        left, right = self.value(node.left), self.value(node.comparators[0])
        kind = type(node.ops[0])
        if kind in (ast.Is, ast.IsNot):
            found = self.code.emit("binary", (left, right), "is")
            return found if kind is ast.Is else self.code.emit("unary", (found,), "not")
        return self._operated(node, COMPARE[kind], [left, right])

    def _is_of_numbers(self, node: ast.Compare) -> bool:
        """Whether a comparison of tensors is one of single numbers, which the program itself compares."""
        kinds = self.site(node.left).kinds | self.site(node.comparators[0]).kinds
        return all(math.prod(one[2]) == 1 for one in kinds if is_tensor_kind(one))

    def _compared(self, node: ast.expr, value: Value) -> Value:
        """Return a side of a comparison with a tensor; constants are as float32 has them."""
        if isinstance(value, KnownValue) and isinstance(value.value, float):
            import torch

            return KnownValue(float(torch.tensor(value.value)))
        is_number = isinstance(value, KnownValue) and not is_tensor(value.value)
        if is_number or not any(map(is_tensor_kind, self.site(node).kinds)):
            return value
        return self.number(value, "float")

    def _subscript(self, node: ast.Subscript) -> Value:
        if self.site(node).role == "tensor":
            return tensor_operation(self, node, operator.getitem, [self.value(node.value), node.slice])
        base = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            ends = [
                KnownValue(None) if one is None else self.value(one)
                for one in (node.slice.lower, node.slice.upper)
            ]
            return self.code.emit("slice", (base, *ends))
        at = self.value(node.slice)
        if isinstance(base, Several) and isinstance(at, KnownValue) and not base.is_list:
            item: Value = base.items[at.value]
            return item
        return self.code.emit("get", (base, at))

    def _attribute(self, node: ast.Attribute) -> Value:
        if self.site(node).role == "constant":
            return self._constant(node)
        base = self.value(node.value)
        if self.site(node).role == "tensor":
            return self.tensors(node, getattr, [base, KnownValue(node.attr)])
        return self.code.emit("field", (base,), node.attr)

    def _constant(self, node: ast.expr) -> Value:
        found = self.site(node).value
        return Several(tuple(map(KnownValue, found))) if isinstance(found, tuple) else KnownValue(found)

    def _comprehension(self, node: ast.ListComp) -> Value:
        return lower_list_comprehension(self, node)

    # ---- Calls ----

    def tensors(
        self, node: ast.AST, function: Callable[..., Any], args: Sequence[Any], **kwargs: Any
    ) -> Value:
        """Add tensor code; returns its result."""
        return tensor_operation(self, node, function, list(args), kwargs)

    def _call(self, node: ast.Call) -> Value:
        site = self.site(node)
        role = site.role
        if role == "concurrent":
            return Several(self._together([self._spawned(one) for one in node.args]))
        if role == "constant":
            return self._constant(node)
        if role in ("map", "listed"):
            return lower_map(self, node) if role == "map" else lower_listed(self, node)
        if role == "call":
            return self.code.emit("call", self._given(node), self.callee(node))
        function = self.statics.find(node.func)[1]
        rules = {"builtin": self._builtin, "record": self._record, "tensor": self._tensor_call}
        return rules[role](node, function) if role in rules else self._method(node, role)

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
        if isinstance(node, ast.List) and not self.statics.find(node)[0]:
            return Several(tuple(map(self._tensor_argument, node.elts)), is_list=True)
        return self.value(node)

    def _method(self, node: ast.Call, role: str) -> Value:
        """Write a method of a list, or what waits for the numbers of a tensor."""
        assert isinstance(node.func, ast.Attribute)  # the recording refuses others
        if role in ("item", "tolist"):
            return self._item(node, node.func.value, role)
        base = self.value(node.func.value)
        args = [self.value(one) for one in node.args]
        if role == "list.append":
            self.code.emit("append", (base, *args), writes=0)
            return KnownValue(None)
        return self.code.emit("pop", (base, args[0] if args else KnownValue(None)))

    def _arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        args = [self.value(one) for one in node.args]
        return args, {str(one.arg): self.value(one.value) for one in node.keywords}

    def callee(self, node: ast.Call) -> int:
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
        contexts = self.site(node).callees
        callee = self.lookup(next(iter(contexts)))
        args, named = self._arguments(node)
        values: list[Value] = [*(KnownValue(one) for one in bound), *args]
        for at in range(len(values), len(callee.source.parameters)):
            name = callee.source.parameters[at]
            values.append(named[name] if name in named else KnownValue(callee.source.default(at)))
        return [
            KnownValue(None) if name in callee.statics or _is_object(value) else value
            for name, value in zip(callee.source.parameters, values, strict=True)
        ]

    def _spawned(self, node: ast.expr) -> tuple[str, Value]:
        """Begin a call that runs beside others."""
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
        if role == "tolist" and any(len(one[2]) != 1 for one in kinds if is_tensor_kind(one)):
            raise self.refuse(node, "tolist of a tensor of several axes; allowed: of one axis")
        return self.code.emit("values", (value,)) if role == "tolist" else self.number(value, "float")

    def _builtin(self, node: ast.Call, function: Any) -> Value:
        args = [self.value(one) for one in node.args]
        if node.keywords:
            raise self.refuse(node, f"{function.__name__} with names of arguments")
        if function is len:
            if isinstance(args[0], Several):
                return KnownValue(len(args[0].items))
            return self.code.emit("len", args)
        if function is list:
            if not args:
                return self.code.emit("list", ())
            return self.code.emit("slice", (args[0], KnownValue(None), KnownValue(None)))
        if function in (min, max):
            if len(args) < 2:
                raise self.refuse(node, f"{function.__name__} of a list; write a loop")
            found = args[0]
            for one in args[1:]:
                found = self.code.emit("binary", (found, one), function.__name__)
            return found
        (kinds, value) = (self.site(node.args[0]).kinds, args[0])
        if kinds and all(map(is_tensor_kind, kinds)):
            value = self.number(value, "float")
        return self.code.emit("unary", (value,), function.__name__)

    def _record(self, node: ast.Call, function: Any) -> Value:
        fields = [one for one in dataclasses.fields(function) if one.init]
        args, named = self._arguments(node)
        values = list(args)
        for one in fields[len(args) :]:
            if one.name in named:
                values.append(named[one.name])
            elif one.default is not dataclasses.MISSING:
                values.append(KnownValue(one.default))
            else:
                raise self.refuse(node, f"leaves out {one.name} of {function.__name__}; give it")
        given = dict(zip((one.name for one in fields), values, strict=True))
        order = self.records[function.__name__]
        return self.code.emit(
            "record", [given.get(name, KnownValue(None)) for name in order], function.__name__
        )


def _is_object(value: Value) -> bool:
    return isinstance(value, KnownValue) and is_frozen(value.value) and not is_tensor(value.value)


def method_of(name: str) -> Callable[..., Any]:
    """Return a method of tensors as a function."""
    import torch

    return getattr(torch.Tensor, name)  # type: ignore[no-any-return]


_EXPRESSIONS: dict[type, Callable[[Any, Any], Value]] = {
    ast.Name: ExpressionLowering._name,
    ast.Tuple: ExpressionLowering._tuple,
    ast.List: ExpressionLowering._list,
    ast.IfExp: ExpressionLowering._conditional,
    ast.BoolOp: ExpressionLowering._bool,
    ast.UnaryOp: ExpressionLowering._unary,
    ast.BinOp: ExpressionLowering._binary,
    ast.Compare: ExpressionLowering._compare,
    ast.Subscript: ExpressionLowering._subscript,
    ast.Attribute: ExpressionLowering._attribute,
    ast.ListComp: ExpressionLowering._comprehension,
    ast.Call: ExpressionLowering._call,
}
