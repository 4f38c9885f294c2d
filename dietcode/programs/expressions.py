"""Expressions of a function as code, with what samples show of them."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs.applying import lower_function
from dietcode.programs.code import Code, Label
from dietcode.programs.containers import MISSING, Chain, TableLookup
from dietcode.programs.dictionaries import DICT
from dietcode.programs.exceptions import FinalStatements
from dietcode.programs.fieldwise import Fieldwise
from dietcode.programs.formats import specification_of
from dietcode.programs.kinds import NUMBERS, is_tensor_kind, words
from dietcode.programs.loops import lower_list_comprehension
from dietcode.programs.optimisations import Optimisations
from dietcode.programs.roles import BINARY, COMPARE, UNARY
from dietcode.programs.sets import SET
from dietcode.programs.sites import Context, Path, Site, is_of_library
from dietcode.programs.sources import Statics, is_tensor
from dietcode.programs.tensor_calls import tensor_operation
from dietcode.programs.truths import lower_number, lower_truth
from dietcode.programs.trying import UNREACHED, lower_thrown
from dietcode.programs.values import KnownValue, Register, Several, Value


class ExpressionLowering(ABC):
    """Expressions of one context as code.

    Parameters
    ----------
    context : Context
    contexts : sequence of Context
        By their numbers: several may be one.
    records : mapping of str to sequence of str
        The fields of records, by the name of the class.
    classes : mapping of str to type
        The classes themselves, in the same order.
    optimisations : Optimisations
    throws : bool
        Whether the program takes exceptions; where not, each ends its instance.
    doubtful : set of str
        Variables that may be read before they are assigned.
    """

    def __init__(
        self,
        context: Context,
        contexts: Sequence[Context],
        records: Mapping[str, Sequence[str]],
        classes: Mapping[str, type],
        optimisations: Optimisations,
        throws: bool = False,
        doubtful: Collection[str] = (),
    ) -> None:
        self.throws = throws
        self.optimisations = optimisations
        self.context, self.contexts = context, contexts
        self.records, self.classes = records, classes
        self.source = context.source
        self.statics = Statics(context.source, context.statics)
        self.code = Code([one for one in context.source.parameters if one not in context.statics], doubtful)
        self.path: Path = ()
        self.loops: list[tuple[Label, Label]] = []  # where continue and break go
        self.pending: list[FinalStatements] = []  # what runs before one leaves, the innermost last
        self.taken: list[str] = []  # variables of the exceptions that are being taken

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

    def throw(self, cls: type, text: str) -> None:
        """Write an exception of the program's, which ends the instance where nothing takes it."""
        lower_thrown(self, cls, text)

    def _unless(self, value: Value, good: Label) -> None:
        """Jump to a label where a value is true."""
        self.code.jump_unless(self.code.emit("unary", (value,), "not"), good)

    def value(self, node: ast.expr) -> Value:
        """Write an expression; returns its value."""
        known, static = self.statics.find(node)
        if known:
            return KnownValue(static, ast.unparse(node))
        special: dict[str, Callable[[ast.expr], Value]] = {
            "library": self.library,
            "lookup": self.looked_up,
            "chosen": self.chosen,
            "written": lambda own: self.value(self.site(own).value),
            "kept": self.over_variables,
        }
        if self.site(node).role in special:
            return self.kinded(special[self.site(node).role](node), node)
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
        return self.variable(node.id)

    def variable(self, name: str) -> Value:
        """Return the value of a variable, which has to be assigned by then."""
        what = f"cannot access local variable {name!r} where it is not associated with a value"
        self.code.check_assigned(name, lambda: self.throw(UnboundLocalError, what))
        return self.code.read(name)

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.store(node.target, value)
        return value

    def _tuple(self, node: ast.Tuple) -> Value:
        return Several(tuple(self.value(one) for one in node.elts))

    def _list(self, node: ast.List) -> Value:
        found: Value | None = None
        for is_list, several in itertools.groupby(node.elts, lambda one: isinstance(one, ast.Starred)):
            nodes = list(several)
            parts = [self._items_of(one.value) for one in nodes if isinstance(one, ast.Starred)]
            if not is_list:
                parts = [self.code.emit("list", tuple(map(self.value, nodes)))]
            for one in parts:
                found = one if found is None else self.code.emit("binary", (found, one), "+")
        return self.code.emit("list", ()) if found is None else found

    def _items_of(self, node: ast.expr) -> Value:
        """Return a list of its own with the items of a list, a tuple or a text."""
        kinds = self.site(node).kinds
        if "text" in kinds and len(kinds) > 1:
            raise self.refuse(node, "is a text in one sample and something else in another")
        value = self.items(node)
        if "text" in kinds:
            return self.code.emit("characters", (value,))
        return self.code.emit("as", (value,), "list")

    def items(self, node: ast.expr) -> Value:
        """Return the value of an expression; of a dict, its own list of its keys, and that of a set."""
        value, kinds = self.value(node), self.site(node).kinds
        name = next((name for kind, name in _LISTS.items() if kind in kinds), None)
        return value if name is None else self.code.emit("field", (value,), name)

    def condition(self, node: ast.expr, then: Callable[[Value], None]) -> None:
        """Write a condition, and what is to be done with it."""
        then(self.truth(node))

    def truth(self, node: ast.expr) -> Value:
        """Return the truth of a condition; a tensor's is waited for."""
        return lower_truth(self, node, self._asked(node))

    def _asked(self, node: ast.expr) -> Value:
        """Return the value of a condition."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.code.emit("unary", (self.truth(node.operand),), "not")
        if isinstance(node, ast.Compare) and self.site(node).role == "tensor" and self._is_of_numbers(node):
            sides = (node.left, node.comparators[0])
            both = [self._compared(one, self.value(one)) for one in sides]
            return self.code.emit("binary", both, COMPARE[type(node.ops[0])][0])
        value = self.value(node)
        kinds = self.site(node).kinds
        name = next((name for kind, name in _LISTS.items() if kind in kinds), None)
        if name is not None:
            if len(kinds) > 1:
                what = f"is a {'dict' if DICT in kinds else 'set'} or None as a condition"
                raise self.refuse(node, f"{what}; write `is None`, or len of it")
            return self.code.emit("len", (self.code.emit("field", (value,), name),))
        if any(map(is_tensor_kind, kinds)):
            return lower_number(self, node, value)
        return value

    def number(self, value: Value, word: str) -> Value:
        """Return the number that a tensor of one element is: the instance waits for it."""
        return self.code.emit("value", (value,), word)

    def _conditional(self, node: ast.IfExp) -> Value:
        name = f" {node.lineno} {node.col_offset}"  # no name in the text has spaces
        otherwise, end = Label(), Label()
        self.condition(node.test, lambda value: self.code.jump_unless(value, otherwise))
        self.code.write(name, self.value(node.body) if self.is_seen(node.body) else KnownValue(None))
        self.code.jump(end)
        self.code.label(otherwise)
        self.code.write(name, self.value(node.orelse) if self.is_seen(node.orelse) else KnownValue(None))
        self.code.label(end)
        return self.code.read(name)

    def is_seen(self, node: ast.expr) -> bool:
        """Whether a sample reached an expression; otherwise it is an error of the instance.

        A constant needs none, nor does a variable of our own.
        """
        is_plain = isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and " " in node.id)
        if is_plain or (self.path, node) in self.context.sites or is_of_library(self.source):
            return True
        self.fail(UNREACHED)
        return False

    def _bool(self, node: ast.BoolOp) -> Value:
        name, end = f" {node.lineno} {node.col_offset}", Label()
        for at, one in enumerate(node.values):
            if at and not self.is_seen(one):
                break
            value = self._asked(one)
            self.code.write(name, value)
            if at < len(node.values) - 1:
                value = lower_truth(self, one, value)
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
        if self.site(node).role == "text":  # "join" takes numbers, too
            return self.code.emit("concatenate", (self.code.emit("list", operands),))
        if self.site(node).role == "text order":
            return self.code.emit("binary", (self.code.emit("order", operands), KnownValue(0)), known[0])
        return self.code.emit("unary" if len(operands) == 1 else "binary", operands, known[0])

    def _formatted(self, node: ast.JoinedStr) -> Value:
        """Write an f-string."""
        parts: list[Value] = []
        for one in node.values:
            if not isinstance(one, ast.FormattedValue):
                parts.append(self.value(one))
                continue
            if self.site(one).role == "kept":
                parts.append(self.over_variables(one))
                continue
            spec, value = specification_of(one), self.value(one.value)
            parts.append(self.code.emit("format", (value,), KnownValue(spec)) if spec else value)
        return self.code.emit("join", parts)

    def _compare(self, node: ast.Compare) -> Value:
        left, right = self.value(node.left), self.value(node.comparators[0])
        if self.site(node).role == "fieldwise":
            compared: Fieldwise = self.site(node).value
            self.code.write(compared.left, left)
            self.code.write(compared.right, right)
            return self.value(compared.body)
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
        if self.site(node).role == "field at":
            return self.code.emit("field", (base,), self.site(node).value)
        at = self.value(node.slice)
        if isinstance(base, Several) and isinstance(at, KnownValue) and not base.is_list:
            item: Value = base.items[at.value]
            return item
        return self.code.emit("get", (base, at))

    def _attribute(self, node: ast.Attribute) -> Value:
        special: dict[str, Callable[[], Value]] = {
            "constant": lambda: self.constant(node),
            "function": lambda: lower_function(self, node),
            "property": lambda: self.call(self.site(node).value),
        }
        if self.site(node).role in special:
            return special[self.site(node).role]()
        base = self.value(node.value)
        role, known = self.site(node).role, self.site(node).value
        if role == "stack shape":
            return Several((self.code.emit("len", (base,)), *map(KnownValue, known)))
        if role == "part":
            return base.items[known] if isinstance(base, Several) else self._item_of(base, known)
        if role == "tensor":
            return self.tensors(node, getattr, [base, KnownValue(node.attr)])
        return self.code.emit("field", (base,), node.attr)

    def _item_of(self, base: Value, at: int) -> Value:
        return self.code.emit("get", (base, KnownValue(at)))

    def looked_up(self, node: ast.expr) -> Value:
        """Write an access to a dict, list or set of constants."""
        asked: TableLookup = self.site(node).value
        key = self.value(asked.key)
        if asked.otherwise is MISSING:
            good = Label()
            known = dict.fromkeys(asked.items, True)
            self.code.jump_unless(
                self._unlike(self.code.emit("lookup", (key, KnownValue(False)), known)), good
            )
            self.throw(asked.error, f"a key that {ast.unparse(node)} is not of")
            self.code.label(good)
        otherwise = KnownValue(None if asked.otherwise is MISSING else asked.otherwise)
        given = self.value(asked.otherwise) if isinstance(asked.otherwise, ast.expr) else otherwise
        return self.code.emit("lookup", (key, given), asked.items)

    def _unlike(self, value: Value) -> Value:
        return self.code.emit("unary", (value,), "not")

    def chosen(self, node: ast.expr) -> Value:
        """Write an item of a container of modules, functions or weights, or a call of it."""
        chain: Chain = self.site(node).value
        for name, one in chain.given:
            self.code.write(name, self.value(one))
        known = self.code.emit("lookup", (self.value(chain.key), KnownValue(-1)), chain.positions)
        self.code.write(chain.position, known)
        good = Label()
        found = self.code.emit("binary", (known, KnownValue(0)), "<")
        self.code.jump_unless(found, good)
        self.throw(KeyError, f"a key that {ast.unparse(node)} is not of")
        self.code.label(good)
        return self.value(chain.body)

    def over_variables(self, node: ast.expr) -> Value:
        """Write an expression over variables that values are kept in before."""
        given, whole = self.site(node).value
        for name, one in given:
            self.code.write(name, self.value(one))
        return self.value(whole)

    def constant(self, node: ast.expr) -> Value:
        """Return what samples show to be the same in every instance."""
        found = self.site(node).value
        return Several(tuple(map(KnownValue, found))) if isinstance(found, tuple) else KnownValue(found)

    def _comprehension(self, node: ast.ListComp) -> Value:
        return lower_list_comprehension(self, node)

    def tensors(
        self, node: ast.AST, function: Callable[..., Any], args: Sequence[Any], **kwargs: Any
    ) -> Value:
        """Add tensor code; returns its result."""
        found = tensor_operation(self, node, function, list(args), kwargs)
        if not self.optimisations.coarsening:
            self.code.flush()
        return found

    @abstractmethod
    def call(self, node: ast.Call) -> Value:
        """Write a call."""

    @abstractmethod
    def is_of(self, value: Value, types: tuple[type, ...]) -> Value:
        """Return whether a value is of some types."""

    @abstractmethod
    def callee(self, node: ast.AST) -> int:
        """Return the number of the context that a call calls."""

    @abstractmethod
    def library(self, node: ast.AST) -> Value:
        """Write a call of a function of `lists`."""


_LISTS = {DICT: "dict_keys", SET: "set_members"}  # the list that a loop goes over, or whose length counts
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
    ast.Call: lambda self, node: self.call(node),
    ast.NamedExpr: ExpressionLowering._walrus,
    ast.JoinedStr: ExpressionLowering._formatted,
}
