"""Expressions of a program's text, run on samples: what kind of value each has, and what each call calls."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import counters, dictionaries, lists, sets, texts
from dietcode.programs.containers import TableLookup, members_of
from dietcode.programs.dictionaries import DICT, Dictionary, DictView
from dietcode.programs.exceptions import NOTICED, SampleError
from dietcode.programs.fieldwise import Fieldwise
from dietcode.programs.fieldwise import compared as comparison
from dietcode.programs.kinds import (
    is_record_kind,
    is_tensor_kind,
    kind_of,
    tensors_in,
    words,
)
from dietcode.programs.roles import BINARY, COMPARE, ORDERS, UNARY
from dietcode.programs.sets import SET, MemberSet
from dietcode.programs.sites import Context, Path, Recorder, Site, allowed_for, is_of_library, named
from dietcode.programs.sources import Statics, is_tensor
from dietcode.programs.stacks import ListsCall, StackedRows, has_text
from dietcode.programs.truths import asked_name, truth_call, word_of
from dietcode.programs.values_read import ValueReadError
from dietcode.runtime.programs.instances import is_same
from dietcode.workload.text import one_line

NEXT, BREAK, CONTINUE = object(), object(), object()  # what a statement does; else it returns


class Evaluation(ABC):
    """Expressions of a function, evaluated while what they are is noted."""

    def __init__(self, recording: Recorder, context: Context, values: dict[str, Any]) -> None:
        self._recording, self._context, self._values = recording, context, values
        self._source = context.source
        self._statics = Statics(context.source, context.statics)
        self._path: Path = ()
        self._conditions: set[ast.expr] = set()  # of which the truth alone is asked

    def _refuse(self, node: ast.AST, what: str) -> ModelError:
        return self._source.refusal(node, what)

    def _failed(self, node: ast.AST, error: Exception) -> ModelError:
        """Return what to raise where plain Python of a sample fails: the program may take some of it."""
        refusal = self._refuse(node, f"a sample fails: {type(error).__name__}: {error}")
        return SampleError(refusal, error, is_noticed=True) if isinstance(error, NOTICED) else refusal

    def _site(self, node: ast.AST) -> Site:
        return self._context.sites.setdefault((self._path, node), Site())

    def _value(self, node: ast.expr, is_view: bool = False) -> Any:
        """Return the value of an expression; what ``d.items()`` gives may be one where it is read at once."""
        known, value = self._statics.find(node)
        if not known:
            run = _EXPRESSIONS.get(type(node))
            if run is None:
                raise self._refuse(node, f"{named(node)}; allowed: {allowed_for(node)}")
            value = run(self, node)
        if isinstance(value, DictView) and not is_view:
            raise self._refuse(
                node, f"keeps what {ast.unparse(node)} gives, which changes with the dict; write list of it"
            )
        if known:
            self._recording.shared.note(value, lambda: self._changed(node))
        site = self._site(node)
        site.kinds.add(kind_of(value))
        for kind, what in ((DICT, "dict"), (SET, "set")):
            is_mixed = kind in site.kinds and len(site.kinds) > 1 and not site.kinds <= {kind, "none"}
            if is_mixed and not is_of_library(self._source):  # which gives on whatever it is given
                raise self._refuse(node, f"is a {what} for one sample and something else for another")
        site.is_made |= any(id(one) in self._recording.made for one in tensors_in(value))
        return value

    def _changed(self, node: ast.expr) -> ModelError:
        what = f"{ast.unparse(node)} is changed, which all instances share"
        return self._refuse(node, f"{what}; make one of its own, list({ast.unparse(node)})")

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self._values:
            raise self._refuse(node, f"{node.id} is read before it is assigned")
        return self._values[node.id]

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._value(one) for one in node.elts)

    def _list(self, node: ast.List) -> Any:
        found: list[Any] = []
        for one in node.elts:
            if not isinstance(one, ast.Starred):
                found.append(self._value(one))
                continue
            items = self._value(one.value, is_view=True)
            if not isinstance(items, list | tuple | str | Dictionary):
                raise self._refuse(
                    one, f"* of {words(kind_of(items))}; allowed: of lists, tuples, texts, dicts"
                )
            found += items
        return found

    def _conditional(self, node: ast.IfExp) -> Any:
        return self._value(node.body if self._truth(node.test) else node.orelse)

    def _bool(self, node: ast.BoolOp) -> Any:
        stops, is_condition = isinstance(node.op, ast.Or), node in self._conditions
        for one in node.values:
            if is_condition:
                self._conditions.add(one)
            value = self._value(one)
            if isinstance(value, Dictionary | MemberSet) and is_condition:
                value = bool(value)
            elif isinstance(value, Dictionary | MemberSet):
                what = f"a {kind_of(value)[1]} in `and` or `or`"
                raise self._refuse(one, f"{what}; write len of it, or `is None`, or another statement")
            if self._as_truth(one, value) == stops:
                break
        return value

    def _unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._truth(node.operand)
        if type(node.op) not in UNARY:
            raise self._refuse(node, f"the operator {type(node.op).__name__}")
        return self._operated(node, UNARY[type(node.op)][1], [self._value(node.operand)], [node.operand])

    def _binary(self, node: ast.BinOp) -> Any:
        known = {**BINARY, ast.MatMult: ("", operator.matmul)}
        if type(node.op) not in known:
            raise self._refuse(node, f"the operator {type(node.op).__name__}")
        turned = transposed(node.right) if isinstance(node.op, ast.MatMult) else None
        if turned is not None:
            rows, other = self._value(turned), self._value(node.left)
            if isinstance(rows, StackedRows) and is_tensor(other) and other.dim() == 1:
                return self._stacked(node, operator.matmul, [rows, other], [turned, node.left])
            if not isinstance(rows, StackedRows):
                return self._operated(
                    node, operator.matmul, [other, self._value(node.right)], [node.left, node.right]
                )
        sides = [node.left, node.right]
        left = self._value(node.left)
        if isinstance(left, str) and isinstance(node.op, ast.Mod):
            return self._by_percent(node, left)
        return self._operated(node, known[type(node.op)][1], [left, self._value(node.right)], sides)

    def _compare(self, node: ast.Compare) -> Any:
        (op,), sides = node.ops, [node.left, node.comparators[0]]  # `simplified` leaves one
        left, right = self._value(sides[0]), self._value(sides[1], is_view=isinstance(op, ast.In))
        if isinstance(op, ast.Is | ast.IsNot):
            return is_same(left, right) == isinstance(op, ast.Is)
        if isinstance(op, ast.In):
            return self._contained(node, left, right)
        objects = [one for one in (left, right) if is_record_kind(kind_of(one)) and not _is_container(one)]
        if objects:
            return self._compare_objects(node, left, right, type(objects[0]))
        return self._operated(node, COMPARE[type(op)][1], [left, right], sides)

    def _contained(self, node: ast.Compare, left: Any, right: Any) -> bool:
        """Return whether a container, or a text, has something."""
        sides = [node.left, node.comparators[0]]
        members = members_of(right) if self._statics.find(sides[1])[0] else None
        if members is not None:
            self._set_role(node, "lookup").value = TableLookup(node.left, dict.fromkeys(members, True), False)
            return hashed(left) in members
        if self._says_itself(right, "__contains__"):
            return bool(self._by_name(node, "__contains__", sides[::-1], [right, left]))
        kinds: tuple[tuple[Any, Callable[..., Any]], ...] = (
            (Dictionary, dictionaries.has),
            (MemberSet, sets.has),
            (str, texts.contains),
            (list | tuple, lists.contains),
        )
        has = next((own for cls, own in kinds if isinstance(right, cls)), None)
        if has is None:
            what = f"`in` of {words(kind_of(right))}; allowed: of lists, tuples, texts, dicts and sets"
            raise self._refuse(node, what)
        return bool(self._library(node, ListsCall(has, tuple(zip(sides, (left, right), strict=True)))))

    def _compare_objects(self, node: ast.Compare, left: Any, right: Any, cls: type) -> bool:
        """Compare an object with another value: by fields where its class does so, else by what it is."""
        key = (node, id(cls))
        if key not in self._source.chains:
            self._source.chains[key] = comparison(node, cls)
        if self._source.chains[key] is None:
            word = COMPARE[type(node.ops[0])][0]
            advice = "give it __lt__, dataclass(order=True), or compare tuples of their fields"
            raise self._refuse(node, f"{word} of a {cls.__name__}, which its class does not say; {advice}")
        compared: Fieldwise = self._source.chains[key]
        site = self._set_role(node, "fieldwise")
        if site.value not in (None, compared):
            raise self._refuse(node, "compares objects of another class in another sample; write two of it")
        site.value = compared
        self._values[compared.left], self._values[compared.right] = left, right
        return bool(self._value(compared.body))

    def _walrus(self, node: ast.NamedExpr) -> Any:
        value = self._value(node.value, is_view=" " in node.target.id)  # one of our own is read at once
        self._store(node.target, value)
        return value

    def _operated(
        self, node: ast.AST, function: Callable[..., Any], operands: list[Any], nodes: list[ast.expr]
    ) -> Any:
        of_class = self._operated_by_class(node, function, operands, nodes)
        if of_class is not None:
            return of_class[0]
        is_stacked = any(isinstance(one, StackedRows) for one in operands)
        if is_stacked or any(is_tensor_kind(kind_of(one)) for one in operands):
            own = self._stacked(node, function, operands, nodes) if is_stacked else None
            return own if is_stacked else self._tensors(node, function, operands)
        if any(isinstance(one, MemberSet) for one in operands):
            of_sets = sets.OPERATORS.get(function.__name__)
            if of_sets is None or not all(isinstance(one, MemberSet) for one in operands):
                raise self._refuse(node, f"an operator of sets; allowed: {sets.ALLOWED}")
            found = self._of_dict(node, of_sets, *zip(nodes, operands, strict=True))
            return sets.as_frozen(found, operands[0])
        if any(isinstance(one, Dictionary) for one in operands):
            return self._operated_of_dicts(node, function, operands, nodes)
        if function is operator.mul and any(isinstance(one, list | str | tuple) for one in operands):
            pairs = list(zip(nodes, operands, strict=True))
            given = pairs if isinstance(operands[0], list | str | tuple) else pairs[::-1]
            rules = (str, texts.repeated), (tuple, lists.repeated_tuple), (list, lists.repeated)
            repeated = next(rule for cls, rule in rules if isinstance(given[0][1], cls))
            return self._library(node, ListsCall(repeated, tuple(given)))
        if any(isinstance(one, str) for one in operands) and function not in (operator.eq, operator.ne):
            is_known = all(isinstance(one, str) for one in operands) and function in (*ORDERS, operator.add)
            if not is_known:
                what = "computes with texts; allowed: comparisons, + and `in` a list of them"
                raise self._refuse(node, what)
            self._set_role(node, "text order" if function in ORDERS else "text")
        elif function in ORDERS and any(map(has_text, operands)):
            self._set_role(node, "text order")
        try:
            found = function(*operands)
        except Exception as error:
            raise self._failed(node, error) from None
        return found.item() if is_tensor(found) else found  # of whole numbers that argmax gave

    def _operated_of_dicts(
        self, node: ast.AST, function: Callable[..., Any], operands: list[Any], nodes: list[ast.expr]
    ) -> Any:
        """Compute ``a | b``, ``a == b`` or ``a != b`` of two dicts, or of two Counters."""
        are_dicts = all(isinstance(one, Dictionary) for one in operands)
        are_counters = [are_dicts and one.default is dictionaries.OF_COUNTER for one in operands]
        is_plain = are_dicts and not any(one.default or one.is_ordered for one in operands)
        known = counters.OPERATORS if all(are_counters) else dictionaries.OPERATORS if is_plain else {}
        own = known.get(function.__name__)
        if own is None:
            allowed = "|, == and != of two plain dicts, == of two Counters, in, len, [key] and methods"
            raise self._refuse(node, f"an operator of these dicts; allowed: {allowed}")
        return self._of_dict(node, own, *zip(nodes, operands, strict=True))

    def _tensors(self, node: ast.AST, function: Callable[..., Any], args: list[Any], **kwargs: Any) -> Any:
        """Compute tensors."""
        self._set_role(node, "tensor")
        try:
            found = function(*args, **kwargs)
        except ValueReadError:
            raise
        except Exception as error:
            what = one_line(f"{type(error).__name__}: {error}", 200)
            raise self._refuse(node, f"a sample fails: {what}") from error
        if isinstance(found, list):
            found = tuple(found)
        if getattr(function, "__name__", "") not in ("tensor", "as_tensor"):
            self._recording.made.update((id(one), one) for one in tensors_in(found))
        self._recording.ownership.note(function, tensors_in(found), tensors_in([*args, *kwargs.values()]))
        return found

    def _set_role(self, node: ast.AST, role: str) -> Site:
        site = self._site(node)
        if site.role not in ("", role):
            raise self._refuse(node, "is tensor code for one sample and plain Python for another")
        site.role = role
        return site

    def _truth(self, node: ast.expr) -> bool:
        self._conditions.add(node)
        return self._as_truth(node, self._value(node))

    def _as_truth(self, node: ast.expr, value: Any) -> bool:
        word = word_of(type(value)) if is_record_kind(kind_of(value)) and not _is_container(value) else ""
        if word:
            call = truth_call(self._source, node, word)
            self._values[asked_name(node)] = value
            return bool(self._value(call))
        if isinstance(value, StackedRows) or (is_tensor(value) and value.numel() != 1):
            raise self._refuse(node, f"is a condition of {words(kind_of(value))}; allowed: one number")
        return bool(value)

    def _of_dict(self, node: ast.AST, function: Callable[..., Any], *given: tuple[ast.expr, Any]) -> Any:
        """Do to a dict or a set what a function of `dictionaries` or `sets` does."""
        return self._library(node, ListsCall(function, given))

    @abstractmethod
    def _operated_by_class(
        self, node: ast.AST, function: Callable[..., Any], operands: list[Any], nodes: list[ast.expr]
    ) -> tuple[Any] | None:
        """Compute an operator that an object's class says; None where none does."""

    @abstractmethod
    def _says_itself(self, value: Any, word: str) -> bool:
        """Whether an object's class has a method of the user's for something."""

    @abstractmethod
    def _by_name(self, node: ast.AST, word: str, sides: list[ast.expr], values: list[Any]) -> Any:
        """Call a method with a name of Python's, of the first of several values."""

    @abstractmethod
    def _formatted(self, node: ast.JoinedStr) -> str:
        """Evaluate an f-string."""

    @abstractmethod
    def _by_percent(self, node: ast.BinOp, base: str) -> Any:
        """Evaluate a text that is formatted by ``%``."""

    @abstractmethod
    def _call(self, node: ast.Call) -> Any:
        """Evaluate a call."""

    @abstractmethod
    def _library(self, node: ast.AST, call: ListsCall) -> Any:
        """Do to a list of any length what a function of `lists` does."""

    @abstractmethod
    def _stacked(
        self,
        node: ast.AST,
        function: Any,
        args: list[Any],
        nodes: list[ast.expr],
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute tensor code over stacks of any length."""

    @abstractmethod
    def _subscript(self, node: ast.Subscript) -> Any:
        """Evaluate an item."""

    @abstractmethod
    def _attribute(self, node: ast.Attribute) -> Any:
        """Evaluate a field."""

    @abstractmethod
    def _field(self, node: ast.AST, base: Any, name: str) -> None:
        """Note that a field of an object is read or written."""

    @abstractmethod
    def _store(self, target: ast.expr, value: Any) -> None:
        """Assign a value."""

    @abstractmethod
    def _comprehension(self, node: ast.ListComp) -> Any:
        """Evaluate a comprehension."""


def transposed(node: ast.expr) -> ast.expr | None:
    """Return what is transposed by ``x.T``, ``x.mT`` or ``x.t()``; None for anything else."""
    if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr == "t" else None
    return node.value if isinstance(node, ast.Attribute) and node.attr in ("T", "mT") else None


def hashed(key: Any) -> Any:
    """Return a key as a dict has it: a whole number that is a tensor as a number."""
    if isinstance(key, list) or (is_tensor(key) and kind_of(key) != "int"):
        return (key,)  # which is in no container of numbers and texts
    return key.item() if is_tensor(key) else key


def _is_container(value: Any) -> bool:
    return isinstance(value, Dictionary | MemberSet)


_EXPRESSIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Name: Evaluation._name,
    ast.Tuple: Evaluation._tuple,
    ast.List: Evaluation._list,
    ast.IfExp: Evaluation._conditional,
    ast.BoolOp: Evaluation._bool,
    ast.UnaryOp: Evaluation._unary,
    ast.BinOp: Evaluation._binary,
    ast.Compare: Evaluation._compare,
    ast.Subscript: lambda self, node: self._subscript(node),
    ast.Attribute: lambda self, node: self._attribute(node),
    ast.ListComp: lambda self, node: self._comprehension(node),
    ast.Call: lambda self, node: self._call(node),
    ast.NamedExpr: Evaluation._walrus,
    ast.JoinedStr: lambda self, node: self._formatted(node),
}
