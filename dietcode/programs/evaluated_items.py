"""Items and fields in a program's text, run on samples: what is read, and what is assigned to."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from abc import abstractmethod
from typing import Any

from dietcode.programs import dictionaries, lists, stacked, texts
from dietcode.programs.containers import TableLookup, are_scalars, chain_of, items_of
from dietcode.programs.dictionaries import Dictionary
from dietcode.programs.enums import read_of_member
from dietcode.programs.evaluating import Evaluation, hashed
from dietcode.programs.exceptions import SampleError
from dietcode.programs.kinds import (
    WholeNumbers,
    is_named_result,
    is_record_kind,
    kind_of,
    words,
)
from dietcode.programs.sites import named
from dietcode.programs.sources import is_tensor
from dietcode.programs.stacks import ALLOWED as STACKS
from dietcode.programs.stacks import ListsCall, StackedRows, row_function
from dietcode.programs.statements import at as placed


class ItemEvaluation(Evaluation):
    """Expressions of a function, items and fields among them."""

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self._value(node.value)
        items = items_of(base) if self._statics.find(node.value)[0] else None
        if items and not isinstance(node.slice, ast.Slice):
            is_plain = are_scalars(items.values())
            return self._item_of(node, items) if is_plain else self._chosen(node, node, base)
        if isinstance(base, str):
            return self._of_text(node, base)
        if isinstance(node.slice, ast.Slice) and not is_tensor(base):
            return self._cut(node.slice, base) if node.slice.step is None else self._stepped(node, base)
        if isinstance(base, StackedRows) and isinstance(node.slice, ast.Tuple):
            is_static = all(self._statics.find(one)[0] for one in node.slice.elts[1:])
            function = row_function(self._indices(node.slice)) if is_static else None
            if function is None:
                raise self._refuse(node, f"these items of a stack of any length; allowed: {STACKS}")
            return self._library(node, ListsCall(stacked.each, ((None, function), (node.value, base))))
        at = self._indices(node.slice) if is_tensor(base) else self._value(node.slice)
        if is_tensor(base):
            return self._tensors(node, operator.getitem, [base, at])
        return self._item(node, base, at)

    def _item(self, node: ast.Subscript, base: Any, at: Any) -> Any:
        """Return an item of a list, a tuple or a dict."""
        if isinstance(base, Dictionary):
            return self._item_of_dict(node, base, at)
        if self._says_itself(base, "__getitem__"):
            return self._by_name(node, "__getitem__", [node.value, node.slice], [base, at])
        if not isinstance(base, list | tuple):
            if self._site(node.value).value is not None:
                return base[at]
            advice = "; a dataclass has fields in place of a dict's items" if isinstance(base, dict) else ""
            raise self._refuse(
                node, f"reads an item of {kind_words(base)}; allowed: of lists and tuples{advice}"
            )
        try:
            found = base[at]
        except IndexError as error:
            raise self._failed(node, error) from None
        if is_record_kind(kind_of(base)):
            self._note_field_at(node, base, at)
        return found

    def _item_of_dict(self, node: ast.Subscript, base: Dictionary, at: Any) -> Any:
        """Return an item of a dict, or what a ``defaultdict`` makes in its place."""
        given = (node.value, base), (node.slice, at)
        if base.default is None:
            return self._of_dict(node, dictionaries.item, *given)
        made = self._source.chains.setdefault((node, 1), base.default.make(node))
        function = dictionaries.kept if base.default.is_kept else dictionaries.got
        return self._of_dict(node, function, *given, (made, self._value(made)))

    def _note_field_at(self, node: ast.Subscript, base: Any, at: Any) -> None:
        """Note which field of a named tuple an item is."""
        name = base._fields[at] if self._statics.find(node.slice)[0] else ""
        site = self._set_role(node, "field at")
        if not name or site.value not in (None, name):
            raise self._refuse(
                node, f"an item of {words(kind_of(base))} by position; allowed: a field by name"
            )
        site.value = name
        self._field(node, base, name)

    def _cut(self, ends: ast.Slice, base: Any) -> Any:
        low, high = (None if one is None else self._value(one) for one in (ends.lower, ends.upper))
        is_own = isinstance(base, StackedRows | WholeNumbers)
        return type(base)(base[low:high]) if is_own else base[low:high]

    def _item_of(self, node: ast.Subscript, items: dict[Any, Any]) -> Any:
        """Return an item of a constant container of numbers, texts and None."""
        key = hashed(self._value(node.slice))
        if not are_scalars(items):
            raise self._refuse(node, f"an item of {ast.unparse(node.value)}, whose keys are no constants")
        if key not in items:
            what = f"a sample asks for {key!r}, which {ast.unparse(node.value)} lacks"
            self._set_role(node, "lookup").value = TableLookup(node.slice, items)
            raise SampleError(self._refuse(node, what), KeyError(key))
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

    def _of_text(self, node: ast.Subscript, base: str) -> Any:
        """Return a character of a text, or a part of it."""
        own = node.slice
        if not isinstance(own, ast.Slice):
            return self._library(node, ListsCall(texts.item, ((node.value, base), (own, self._value(own)))))
        none = self._source.chains.setdefault((node, 3), placed(node, ast.Constant(None)))
        ends = [one or none for one in (own.lower, own.upper)]
        pairs = [(one, self._value(one)) for one in (*ends, *([own.step] if own.step else []))]
        function = texts.stepped if own.step else texts.cut
        return self._library(node, ListsCall(function, ((node.value, base), *pairs)))

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
        if kind in ("text", "int", "float") and node.attr in ("value", "name"):
            asked = read_of_member(node, self._source.function)
            if asked is not None and (base in asked.items or asked.otherwise is node.value):
                self._set_role(node, "lookup").value = asked
                return asked.items.get(base, base)
        if not is_record_kind(kind):
            raise self._refuse(node, f"reads {node.attr} of {words(kind)}; allowed: fields of records")
        own = inspect.getattr_static(type(base), node.attr, None)
        if isinstance(own, property):
            return self._property(node, base, own)
        if isinstance(own, functools.cached_property):
            raise self._refuse(node, f"{node.attr} is a cached_property; allowed: a property, or a field")
        if inspect.isfunction(own):
            return self._bound(node, base, own)
        self._field(node, base, node.attr)
        try:
            return getattr(base, node.attr)
        except AttributeError as error:
            raise self._refuse(node, f"a sample fails: {error}") from None

    @abstractmethod
    def _bound(self, node: ast.Attribute, base: Any, function: Any) -> Any:
        """Make a value of a method of an object."""

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
            for one, own in zip(target.elts, self._apart(target, value), strict=True):
                self._store(one, own)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            base, at = self._value(target.value), self._value(target.slice)
            if isinstance(base, Dictionary):
                given = (target.value, base), (target.slice, at), (target, value)
                self._of_dict(target, dictionaries.put, *given)
                return
            if not isinstance(base, list) or isinstance(base, StackedRows):
                raise self._refuse(target, f"writes into {words(kind_of(base))}; allowed: into lists")
            try:
                base[at] = value
            except IndexError as error:
                raise self._failed(target, error) from None
        elif isinstance(target, ast.Attribute):
            base = self._value(target.value)
            if kind_of(base) == "object":
                raise self._refuse(
                    target, "writes an attribute of what all instances share; allowed: of objects of its own"
                )
            self._field(target, base, target.attr)
            setattr(base, target.attr, value)
        else:
            raise self._refuse(
                target, f"assigns to {named(target)}; allowed: names, items of lists, attributes"
            )

    def _apart(self, target: ast.Tuple | ast.List, value: Any) -> list[Any]:
        """Return the items of what is taken apart, which are as many as there are names."""
        self._check_apart(target, value)
        items, many = list(value), len(target.elts)
        if any(isinstance(one, ast.Starred) for one in target.elts):
            raise self._refuse(
                target,
                "a star within a comprehension, or several; write items[1:], or one star of an assignment",
            )
        if len(items) != many:
            word = "too many" if len(items) > many else "not enough"
            error = ValueError(f"{word} values to unpack (expected {many}, got {len(items)})")
            refusal = self._refuse(target, f"a sample fails: ValueError: {error}")
            raise SampleError(refusal, error, is_noticed=True)
        return items

    def _check_apart(self, target: ast.Tuple | ast.List, value: Any) -> None:
        """Refuse what cannot be taken apart; note texts, and the class of a named tuple, by its fields."""
        kind = kind_of(value)
        is_named = is_record_kind(kind) and hasattr(value, "_fields")
        if not isinstance(value, tuple | list | str) or (is_record_kind(kind) and not is_named):
            raise self._refuse(target, f"takes {words(kind)} apart; allowed: tuples, lists and texts")
        site = self._site(target)
        own = type(value) if is_named or isinstance(value, str) else tuple
        if site.value not in (None, own):
            raise self._refuse(target, f"takes {words(kind)} apart, and something else in another sample")
        site.value = own
        for name in getattr(value, "_fields", ()) if is_named else ():
            self._field(target, value, name)


def kind_words(value: Any) -> str:
    """Return what a value is, for messages."""
    kind = kind_of(value)
    return f"a {type(value).__name__}" if kind == "object" else words(kind)
