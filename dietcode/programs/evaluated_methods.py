"""Methods of lists, dicts, sets and tensors in a program's text, run on samples."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.programs import counters, dictionaries, lists, sets
from dietcode.programs.dictionaries import Dictionary, DictView
from dietcode.programs.evaluated_objects import ObjectEvaluation
from dietcode.programs.function_values import parts_of
from dietcode.programs.generators import MOST, is_of_generator
from dietcode.programs.kinds import BoundedList, Extremes, WholeNumbers, is_record_kind, kind_of, words
from dietcode.programs.roles import BINARY, LIST_METHODS
from dietcode.programs.sets import MemberSet
from dietcode.programs.sites import is_of_library
from dietcode.programs.sources import is_tensor
from dietcode.programs.stacks import ALLOWED as STACKS
from dietcode.programs.stacks import ListsCall, StackedRows, topk_call
from dietcode.programs.statements import at, is_read_alone

_LISTS_METHODS: dict[tuple[str, int], Callable[..., Any]] = {  # by how many arguments there are
    ("extend", 1): lists.extend,
    ("insert", 2): lists.insert,
    ("remove", 1): lists.removed,
    ("index", 1): lists.position,
    ("index", 2): lists.position_from,
    ("index", 3): lists.position_between,
    ("count", 1): lists.count,
    ("reverse", 0): lists.turn,
    ("clear", 0): lists.clear,
    ("popleft", 0): lists.pop_first,
    ("appendleft", 1): lists.append_first,
    ("extendleft", 1): lists.extend_first,
    ("rotate", 0): lists.rotate_once,
    ("rotate", 1): lists.rotate,
}
_OF_TUPLES = ("index", "count")
_PLAIN_METHODS = {"append": (1,), "pop": (0, 1), "copy": (0,), "sort": (0,)}  # and their numbers of arguments
_LIST_METHODS = tuple(dict.fromkeys([*LIST_METHODS, "copy", "sort", *(name for name, _ in _LISTS_METHODS)]))
_TOPK = ("input", "k", "dim", "largest", "sorted")  # its parameters
_OF_TOPK = "allowed: the largest of one axis, x[i].topk(k) of each row, (-x).topk(k) for the smallest"


class MethodEvaluation(ObjectEvaluation):
    """Expressions of a function, methods among them."""

    def _method(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Attribute):
            return self._applied_value(node, self._value(node.func))
        base, name = self._value(node.func.value), node.func.attr
        if is_record_kind(kind_of(base)) and parts_of(getattr(base, name, None)) is not None:
            if not is_read_alone(node.func.value):
                raise self._refuse(node, f"calls {name} of what is computed here; give it a name before")
            return self._applied_value(node, self._value(node.func))
        args = [self._value(one) for one in node.args]
        named = {str(one.arg): self._value(one.value) for one in node.keywords}
        rules: tuple[tuple[Any, Callable[..., Any]], ...] = (
            (StackedRows, self._method_of_rows),
            (Dictionary | MemberSet, self._method_of_keys),
            (str, self._method_of_text),
        )
        for cls, rule in rules:
            if isinstance(base, cls):
                return rule(node, base, args, named)
        if is_tensor(base):
            return self._method_of_tensor(node, base, args, named)
        if isinstance(base, int | float) and name == "item" and not args:  # a whole number that argmax gave
            self._set_role(node, name)
            return base
        is_record = is_record_kind(kind_of(base))
        return (self._method_of_record if is_record else self._method_of_list)(node, base, args, named)

    @abstractmethod
    def _applied_value(self, node: ast.Call, own: Any) -> Any:
        """Call a function that is a value."""

    @abstractmethod
    def _method_of_text(self, node: ast.Call, base: str, args: list[Any], named: dict[str, Any]) -> Any:
        """Run a method of a text."""

    def _method_of_list(self, node: ast.Call, base: Any, args: list[Any], named: dict[str, Any]) -> Any:
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name = node.func.attr
        if isinstance(base, WholeNumbers) and name == "tolist":
            self._set_role(node, "list.copy")
            return [_plain(one) for one in base]
        if isinstance(base, WholeNumbers) and (name == "numel" or (name == "size" and args == [0])):
            self._set_role(node, "stack length")
            return len(base)
        is_bounded = isinstance(base, BoundedList) and not is_of_library(self._source)
        if is_bounded and name in ("append", "extend", "appendleft", "insert", "copy"):
            if name != "append" or len(args) != 1:
                raise self._refuse(
                    node, f"calls {name} of a deque with maxlen; allowed: append, or list of it"
                )
            many = self._source.chains.setdefault((node, base.most), at(node, ast.Constant(base.most)))
            own = (node.func.value, base), (node.args[0], args[0]), (many, base.most)
            return self._library(node, ListsCall(lists.append_within, own))
        function = _LISTS_METHODS.get((name, len(args)))
        is_own = isinstance(base, list) or (type(base) is tuple and name in _OF_TUPLES)
        if not is_own or named or (function is None and len(args) not in _PLAIN_METHODS.get(name, ())):
            many = f" with {len(args)} values" if is_own and name in _LIST_METHODS else ""
            allowed = f"methods of tensors, and {', '.join(_LIST_METHODS)} of lists"
            raise self._refuse(node, f"calls {name} of {words(kind_of(base))}{many}; allowed: {allowed}")
        if function is not None:
            pairs = tuple(zip([node.func.value, *node.args], [base, *args], strict=True))
            return self._library(node, ListsCall(function, pairs))
        if len(base) > MOST and is_of_generator(node.func.value):
            raise self._refuse(
                node, f"yields more than {MOST} values: a generator runs to its end where it is called"
            )
        self._set_role(node, f"list.{name}")
        try:
            return getattr(base, name)(*args)
        except IndexError as error:
            raise self._failed(node, error) from None

    def _method_of_keys(
        self, node: ast.Call, base: Dictionary | MemberSet, args: list[Any], named: dict[str, Any]
    ) -> Any:
        """Run a method of a dict or a set."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name = node.func.attr
        what, methods = (
            ("dict", dictionaries.METHODS) if isinstance(base, Dictionary) else ("set", sets.METHODS)
        )
        if isinstance(base, Dictionary) and base.default is dictionaries.OF_COUNTER:
            methods = methods | counters.METHODS
        if name == "copy" and isinstance(base, Dictionary) and base.default is not None:
            raise self._refuse(node, "copies a defaultdict or a Counter; write dict(d), or make another one")
        function = methods.get((name, len(args))) if not named else None
        if isinstance(base, Dictionary) and list(named) == ["last"] and type(named["last"]) is bool:
            known = self._statics.find(node.keywords[0].value)[0]
            function = dictionaries.OF_ENDS.get((name, len(args), named["last"])) if known else None
        if function is counters.count_more and isinstance(args[0], Dictionary):
            if args[0].default is not dictionaries.OF_COUNTER:
                raise self._refuse(node, "updates a Counter by a dict; allowed: by a list, or a Counter")
            function = counters.count_all
        if function is None:
            allowed = ", ".join(dict.fromkeys(one for one, _ in methods))
            raise self._refuse(node, f"calls {name} of a {what} with {len(args)} values; allowed: {allowed}")
        if function is dictionaries.united and not isinstance(args[0], Dictionary):
            function = dictionaries.with_pairs
        found = self._of_dict(node, function, (node.func.value, base), *zip(node.args, args, strict=True))
        if name == "update":
            return None
        if isinstance(base, MemberSet):
            sets.as_frozen(found, base)
        elif isinstance(found, Dictionary) and name == "copy":
            found.is_ordered = base.is_ordered  # type: ignore[misc]  # of this one, and not of the class
        return DictView(found) if name in dictionaries.VIEWS else found

    def _changed_by(self, node: ast.AugAssign, before: MemberSet | Dictionary, other: Any) -> Any:
        """Return a after ``a |= b`` of two sets or dicts, or ``a &= b`` or ``a -= b`` of two sets."""
        word = BINARY[type(node.op)][1].__name__
        sides = (node.target, before), (node.value, other)
        function = None
        if isinstance(before, MemberSet) and isinstance(other, MemberSet):
            function = (sets.OPERATORS if before.is_frozen else sets.IN_PLACE).get(word)
        elif isinstance(before, Dictionary) and isinstance(other, Dictionary):
            are_plain = not any(one.default is dictionaries.OF_COUNTER for one in (before, other))
            function = dictionaries.united if are_plain and word == "or_" else None
        if function is None:
            what = "changes a set or a dict; allowed: |=, &= and -= of two sets, |= of two dicts"
            raise self._refuse(node, f"{what}; write s = s ^ t in full")
        found = self._library(node, ListsCall(function, sides))
        return sets.as_frozen(found, before) if isinstance(before, MemberSet) else found

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

    def _topk(self, node: ast.Call, given: list[ast.expr]) -> Any:
        """Find the largest numbers of a row: where they are is waited for, and they are items of the row."""
        pairs = [*zip(_TOPK, given, strict=False), *((str(one.arg), one.value) for one in node.keywords)]
        call = topk_call({name: (one, self._value(one)) for name, one in pairs})
        if call is None:
            raise self._refuse(node, f"topk as it stands here; {_OF_TOPK}")
        values, places = self._library(node, call)
        import torch

        return Extremes(StackedRows(values) if values else values, WholeNumbers(map(torch.tensor, places)))

    def _check_pure(self, node: ast.Call, function: Any, named: Mapping[str, Any]) -> None:
        """Refuse functions that write into their arguments."""
        name = getattr(function, "__name__", "")
        if name.endswith("_") and not name.startswith("__"):
            raise self._refuse(node, f"{name} changes a tensor in place; allowed: {name.rstrip('_')}")
        if "out" in named or named.get("inplace"):
            raise self._refuse(node, "writes into a tensor that it is given; allowed: results that are new")


def _plain(numbers: Any) -> Any:
    return numbers.tolist() if is_tensor(numbers) else [_plain(one) for one in numbers]
