"""Expressions of a program's text, run on samples: what kind of value each has, and what each call calls."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import dictionaries, lists, sets
from dietcode.programs.containers import TableLookup, are_scalars, chain_of, items_of, members_of
from dietcode.programs.dictionaries import DICT, Dictionary, DictView
from dietcode.programs.kinds import (
    WholeNumbers,
    is_named_result,
    is_record_kind,
    is_tensor_kind,
    kind_of,
    tensors_in,
    words,
)
from dietcode.programs.roles import BINARY, COMPARE, UNARY
from dietcode.programs.sets import SET, MemberSet
from dietcode.programs.sites import Context, Path, Recorder, Site, allowed_for, named
from dietcode.programs.sources import Statics, is_tensor
from dietcode.programs.stacks import ALLOWED as STACKS
from dietcode.programs.stacks import ListsCall, StackedRows, row_function
from dietcode.programs.values_read import ValueReadError
from dietcode.runtime.programs.instances import is_same
from dietcode.workload.text import one_line

LOOPED = (range, enumerate, zip, reversed)
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
        site = self._site(node)
        site.kinds.add(kind_of(value))
        for kind, what in ((DICT, "dict"), (SET, "set")):
            if kind in site.kinds and len(site.kinds) > 1 and not site.kinds <= {kind, "none"}:
                raise self._refuse(node, f"is a {what} for one sample and something else for another")
        site.is_made |= any(id(one) in self._recording.made for one in tensors_in(value))
        return value

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
            if not isinstance(items, list | tuple):
                raise self._refuse(one, f"* of {words(kind_of(items))}; allowed: of lists and tuples")
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
        return self._operated(node, known[type(node.op)][1], list(map(self._value, sides)), sides)

    def _compare(self, node: ast.Compare) -> Any:
        (op,), sides = node.ops, [node.left, node.comparators[0]]  # `simplified` leaves one
        left, right = self._value(sides[0]), self._value(sides[1], is_view=isinstance(op, ast.In))
        if isinstance(op, ast.Is | ast.IsNot):
            return is_same(left, right) == isinstance(op, ast.Is)
        if isinstance(op, ast.In):
            members = members_of(right) if self._statics.find(node.comparators[0])[0] else None
            if members is not None:
                self._set_role(node, "lookup").value = TableLookup(
                    node.left, dict.fromkeys(members, True), False
                )
                return hashed(left) in members
            if isinstance(right, Dictionary | MemberSet):
                has = dictionaries.has if isinstance(right, Dictionary) else sets.has
                return self._of_dict(node, has, (sides[0], left), (sides[1], right))
            if not isinstance(right, list | tuple):
                raise self._refuse(
                    node, f"`in` of {words(kind_of(right))}; allowed: of lists, tuples, dicts and sets"
                )
            return self._library(
                node, ListsCall(lists.contains, tuple(zip(sides, (left, right), strict=True)))
            )
        return self._operated(node, COMPARE[type(op)][1], [left, right], sides)

    def _walrus(self, node: ast.NamedExpr) -> Any:
        value = self._value(node.value, is_view=" " in node.target.id)  # one of our own is read at once
        self._store(node.target, value)
        return value

    def _operated(
        self, node: ast.AST, function: Callable[..., Any], operands: list[Any], nodes: list[ast.expr]
    ) -> Any:
        if any(isinstance(one, StackedRows) for one in operands):
            return self._stacked(node, function, operands, nodes)
        is_tensors = any(is_tensor_kind(kind_of(one)) for one in operands)
        if is_tensors:
            return self._tensors(node, function, operands)
        if any(isinstance(one, MemberSet) for one in operands):
            of_sets = sets.OPERATORS.get(function.__name__)
            if of_sets is None or not all(isinstance(one, MemberSet) for one in operands):
                raise self._refuse(node, f"an operator of sets; allowed: {sets.ALLOWED}")
            return self._of_dict(node, of_sets, *zip(nodes, operands, strict=True))
        if any(isinstance(one, Dictionary) for one in operands):
            raise self._refuse(node, "an operator of dicts; allowed: in, len, [key], {**a, **b} and methods")
        if function is operator.mul and any(isinstance(one, list) for one in operands):
            pairs = list(zip(nodes, operands, strict=True))
            own = pairs if isinstance(operands[0], list) else pairs[::-1]
            return self._library(node, ListsCall(lists.repeated, tuple(own)))
        if any(isinstance(one, str) for one in operands) and function not in (operator.eq, operator.ne):
            raise self._refuse(node, "computes with texts; allowed: ==, != and `in` a list of them")
        try:
            found = function(*operands)
        except Exception as error:
            raise self._refuse(node, f"a sample fails: {type(error).__name__}: {error}") from None
        return found.item() if is_tensor(found) else found  # of whole numbers that argmax gave

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

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self._value(node.value)
        items = items_of(base) if self._statics.find(node.value)[0] else None
        if items and not isinstance(node.slice, ast.Slice):
            is_plain = are_scalars(items.values())
            return self._item_of(node, items) if is_plain else self._chosen(node, node, base)
        if isinstance(node.slice, ast.Slice) and not is_tensor(base):
            return self._cut(node.slice, base) if node.slice.step is None else self._stepped(node, base)
        if isinstance(base, StackedRows) and isinstance(node.slice, ast.Tuple):
            is_static = all(self._statics.find(one)[0] for one in node.slice.elts[1:])
            function = row_function(self._indices(node.slice)) if is_static else None
            if function is None:
                raise self._refuse(node, f"these items of a stack of any length; allowed: {STACKS}")
            return self._library(node, ListsCall(lists.each, ((None, function), (node.value, base))))
        at = self._indices(node.slice) if is_tensor(base) else self._value(node.slice)
        if is_tensor(base):
            return self._tensors(node, operator.getitem, [base, at])
        return self._item(node, base, at)

    def _item(self, node: ast.Subscript, base: Any, at: Any) -> Any:
        """Return an item of a list, a tuple or a dict."""
        if isinstance(base, Dictionary):
            return self._of_dict(node, dictionaries.item, (node.value, base), (node.slice, at))
        if not isinstance(base, list | tuple):
            if self._site(node.value).value is not None:
                return base[at]
            advice = "; a dataclass has fields in place of a dict's items" if isinstance(base, dict) else ""
            raise self._refuse(
                node, f"reads an item of {_kind_words(base)}; allowed: of lists and tuples{advice}"
            )
        try:
            return base[at]
        except IndexError as error:
            raise self._refuse(node, f"a sample fails: {error}") from None

    def _cut(self, ends: ast.Slice, base: Any) -> Any:
        low, high = (None if one is None else self._value(one) for one in (ends.lower, ends.upper))
        is_own = isinstance(base, StackedRows | WholeNumbers)
        return type(base)(base[low:high]) if is_own else base[low:high]

    def _item_of(self, node: ast.Subscript, items: dict[Any, Any]) -> Any:
        """Return an item of a constant container of numbers, texts and None."""
        key = hashed(self._value(node.slice))
        if key not in items or not are_scalars(items):
            raise self._refuse(node, f"a sample asks for {key!r}, which {ast.unparse(node.value)} lacks")
        self._set_role(node, "lookup").value = TableLookup(node.slice, items)
        return items[key]

    def _chosen(
        self, node: ast.expr, item: ast.Subscript, container: Any, called: ast.Call | None = None
    ) -> Any:
        """Return an item of a constant container of modules, functions or weights, or a call of it."""
        key = (node, id(container))
        if key not in self._source.chains:
            chain = chain_of(item, container, called, lambda one: self._statics.find(one)[0])
            self._source.chains[key] = chain
        chain = self._source.chains[key]
        for name, one in chain.given:
            self._values[name] = self._value(one)
        wanted = hashed(self._value(chain.key))
        if wanted not in chain.positions or not are_scalars(chain.positions):
            raise self._refuse(node, f"a sample asks for {wanted!r}, which {ast.unparse(item.value)} lacks")
        self._set_role(node, "chosen").value = chain
        self._values[chain.position] = chain.positions[wanted]
        return self._value(chain.body)

    def _stepped(self, node: ast.Subscript, base: Any) -> Any:
        own = node.slice
        assert isinstance(own, ast.Slice)  # where it is called
        if type(base) is not list:
            raise self._refuse(node, f"a slice with a step of {words(kind_of(base))}; allowed: of lists")
        parts = [(one, self._value(one)) for one in (own.lower, own.upper, own.step) if one is not None]
        return self._library(node, ListsCall(lists.stepped, ((node.value, base), *parts)))

    def _indices(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._indices(one) for one in node.elts)
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if one is None else self._value(one) for one in ends))
        return self._value(node)

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self._value(node.value)
        if isinstance(base, WholeNumbers) and node.attr == "shape" and base:
            if not is_tensor(base[0]):
                raise self._refuse(node, "the shape of whole numbers with several axes; write len of them")
            self._set_role(node, "stack shape").value = ()
            return (len(base),)
        if isinstance(base, StackedRows):
            if node.attr != "shape":
                raise self._refuse(node, f"{node.attr} of a stack of any length; allowed: {STACKS}")
            self._set_role(node, "stack shape").value = tuple(base[0].shape)
            return (len(base), *base[0].shape)
        if isinstance(base, tuple) and is_named_result(base) and hasattr(base, node.attr):
            own = getattr(base, node.attr)
            self._set_role(node, "part").value = next(at for at, one in enumerate(base) if one is own)
            return own
        if is_tensor(base):
            found = getattr(base, node.attr)
            if is_tensor(found):
                return self._tensors(node, getattr, [base, node.attr])
            if node.attr not in ("shape", "ndim"):
                raise self._refuse(
                    node, f"the attribute {node.attr} of a tensor; allowed: shape, ndim, T, mT"
                )
            self._set_role(node, "constant").value = tuple(found) if node.attr == "shape" else found
            return found
        return self._field_of(node, base)

    def _field_of(self, node: ast.Attribute, base: Any) -> Any:
        """Return a field of an object, or what its class computes for that name."""
        kind = kind_of(base)
        if not is_record_kind(kind):
            raise self._refuse(node, f"reads {node.attr} of {words(kind)}; allowed: fields of records")
        own = inspect.getattr_static(type(base), node.attr, None)
        if isinstance(own, property):
            return self._property(node, base, own)
        if isinstance(own, functools.cached_property):
            raise self._refuse(node, f"{node.attr} is a cached_property; allowed: a property, or a field")
        self._field(node, base, node.attr)
        try:
            return getattr(base, node.attr)
        except AttributeError as error:
            raise self._refuse(node, f"a sample fails: {error}") from None

    @abstractmethod
    def _property(self, node: ast.Attribute, base: Any, own: property) -> Any:
        """Run a property of an object."""

    def _fields(self, node: ast.AST, cls: type) -> list[str]:
        """Return the fields of a class that are read, to add to."""
        fields = self._recording.fields_of(cls)
        if fields is None:
            raise self._refuse(node, f"there are two classes {cls.__name__}; give them different names")
        return fields

    def _field(self, node: ast.AST, base: Any, name: str) -> None:
        fields = self._fields(node, type(base))
        if name not in fields:
            fields.append(name)

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            if target.id in self._context.statics:
                raise self._refuse(
                    target, f"assigns to {target.id}, which is a module, weight or default; take another name"
                )
            self._values[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            kind = kind_of(value)
            if not isinstance(value, tuple | list) or (isinstance(kind, tuple) and kind[0] == "record"):
                raise self._refuse(target, f"takes {words(kind)} apart; allowed: tuples and lists")
            items = list(value)
            if len(items) != len(target.elts) or any(isinstance(one, ast.Starred) for one in target.elts):
                raise self._refuse(target, f"{len(target.elts)} names for {len(items)} values")
            for one, own in zip(target.elts, items, strict=True):
                self._store(one, own)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            base, at = self._value(target.value), self._value(target.slice)
            if isinstance(base, Dictionary):
                given = (target.value, base), (target.slice, at), (target, value)
                self._of_dict(target, dictionaries.put, *given)
                return
            if not isinstance(base, list) or isinstance(base, StackedRows):
                raise self._refuse(target, f"writes into {words(kind_of(base))}; allowed: into lists")
            base[at] = value
        elif isinstance(target, ast.Attribute):
            base = self._value(target.value)
            if kind_of(base) == "object":
                raise self._refuse(target, "writes an attribute of a constant; allowed: of records")
            self._field(target, base, target.attr)
            setattr(base, target.attr, value)
        else:
            raise self._refuse(
                target, f"assigns to {named(target)}; allowed: names, items of lists, attributes"
            )

    def _truth(self, node: ast.expr) -> bool:
        self._conditions.add(node)
        return self._as_truth(node, self._value(node))

    def _as_truth(self, node: ast.expr, value: Any) -> bool:
        if isinstance(value, StackedRows) or (is_tensor(value) and value.numel() != 1):
            raise self._refuse(node, f"is a condition of {words(kind_of(value))}; allowed: one number")
        return bool(value)

    def _of_dict(self, node: ast.AST, function: Callable[..., Any], *given: tuple[ast.expr, Any]) -> Any:
        """Do to a dict or a set what a function of `dictionaries` or `sets` does."""
        return self._library(node, ListsCall(function, given))

    def _loop(self, target: ast.expr, iterable: ast.expr, body: Callable[[], Any]) -> Any:
        for one in self._items(iterable):
            self._store(target, one)
            found = body()
            if found is BREAK:
                break
            if found is not CONTINUE and found is not NEXT:
                return found
        return NEXT

    def _items(self, node: ast.expr) -> Any:
        """Return what a loop goes over."""
        self._site(node)  # it is reached
        function = self._statics.find(node.func)[1] if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and function in LOOPED:
            strict = [one for one in node.keywords if one.arg == "strict" and function is zip]
            if len(strict) != len(node.keywords):
                raise self._refuse(
                    node, f"{function.__name__} with names of arguments; give them by position"
                )
            if function is range:
                return range(*[self._value(one) for one in node.args])
            if function is enumerate and len(node.args) == 2:
                return list(enumerate(self._items(node.args[0]), self._value(node.args[1])))
            parts = [list(self._items(one)) for one in node.args]
            is_strict = any(self._value(one.value) for one in strict)
            return list(zip(*parts, strict=is_strict) if function is zip else function(*parts))
        value = self._value(node, is_view=True)
        if isinstance(value, Dictionary):
            return list(value)
        if isinstance(value, MemberSet):
            raise self._refuse(node, "goes over a set, in an order that Python does not say; write sorted(…)")
        if not isinstance(value, list | tuple):
            allowed = (
                "range, lists, tuples, dicts, zip, enumerate and reversed of them; modules of a constant list"
            )
            rows = "; write x.unbind(), or give a list of the rows" if is_tensor(value) else ""
            raise self._refuse(node, f"a loop over {_kind_words(value)}; allowed: {allowed}{rows}")
        return value

    def _comprehension(self, node: ast.ListComp) -> Any:
        found: list[Any] = []

        def add() -> Any:
            found.append(self._value(node.elt))
            return NEXT

        self._rounds(node, 0, add)
        return found

    def _rounds(self, node: ast.ListComp, depth: int, body: Callable[[], Any]) -> Any:
        """Run the loops of a comprehension from a depth on; a body that breaks leaves all of them."""
        loop = node.generators[depth]
        if loop.is_async:
            raise self._refuse(node, "async in a comprehension; leave it out")
        is_left = False

        def inner() -> Any:
            nonlocal is_left
            if not all(self._truth(one) for one in loop.ifs):
                return NEXT
            last = depth == len(node.generators) - 1
            found = body() if last else self._rounds(node, depth + 1, body)
            is_left |= found is BREAK
            return found

        self._loop(loop.target, loop.iter, inner)
        return BREAK if is_left else NEXT

    def _lazily(self, node: ast.Call, stops: bool) -> bool:
        """Return ``any`` (which stops at what is true) or ``all`` of a generator."""
        self._set_role(node, "lazy").value = stops
        (given,) = node.args
        assert isinstance(given, ast.ListComp)  # as `simplified` writes it

        def look() -> Any:
            return BREAK if self._truth(given.elt) == stops else NEXT

        return (self._rounds(given, 0, look) is BREAK) == stops

    @abstractmethod
    def _call(self, node: ast.Call) -> Any:
        """Evaluate a call."""

    @abstractmethod
    def _library(self, node: ast.AST, call: ListsCall) -> Any:
        """Do to a list of any length what a function of `lists` does."""

    @abstractmethod
    def _stacked(self, node: ast.AST, function: Any, args: list[Any], nodes: list[ast.expr]) -> Any:
        """Compute tensor code over stacks of any length."""


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


def _kind_words(value: Any) -> str:
    kind = kind_of(value)
    return f"a {type(value).__name__}" if kind == "object" else words(kind)


_EXPRESSIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Name: Evaluation._name,
    ast.Tuple: Evaluation._tuple,
    ast.List: Evaluation._list,
    ast.IfExp: Evaluation._conditional,
    ast.BoolOp: Evaluation._bool,
    ast.UnaryOp: Evaluation._unary,
    ast.BinOp: Evaluation._binary,
    ast.Compare: Evaluation._compare,
    ast.Subscript: Evaluation._subscript,
    ast.Attribute: Evaluation._attribute,
    ast.ListComp: Evaluation._comprehension,
    ast.Call: lambda self, node: self._call(node),
    ast.NamedExpr: Evaluation._walrus,
}
