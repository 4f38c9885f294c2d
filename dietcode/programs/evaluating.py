"""Expressions of a program's text, run on samples: what kind of value each has, and what each call calls."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import module as marks
from dietcode.programs.calling import callable_of, static_arguments
from dietcode.programs.kinds import is_tensor_kind, kind_of, tensors_in, words
from dietcode.programs.roles import BINARY, COMPARE, LIST_METHODS, UNARY, role_of_call
from dietcode.programs.sites import ALLOWED, Context, Path, Recorder, Site, named
from dietcode.programs.sources import Statics, is_tensor
from dietcode.workload.text import clip, one_line

LOOPED = (range, enumerate, zip, reversed)
NEXT, BREAK, CONTINUE = object(), object(), object()  # what a statement does; else it returns


class Evaluation:
    """Expressions of a function, evaluated while what they are is noted."""

    def __init__(self, recording: Recorder, context: Context, values: dict[str, Any]) -> None:
        self._recording, self._context, self._values = recording, context, values
        self._source = context.source
        self._statics = Statics(context.source, context.statics)
        self._path: Path = ()

    def _refuse(self, node: ast.AST, what: str) -> ModelError:
        return self._source.refusal(node, what)

    def _site(self, node: ast.AST) -> Site:
        return self._context.sites.setdefault((self._path, node), Site())

    def _value(self, node: ast.expr) -> Any:
        known, value = self._statics.find(node)
        if not known:
            run = _EXPRESSIONS.get(type(node))
            if run is None:
                raise self._refuse(node, f"{named(node)}; allowed: {ALLOWED}")
            value = run(self, node)
        site = self._site(node)
        site.kinds.add(kind_of(value))
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
            items = self._value(one.value)
            if not isinstance(items, list):
                raise self._refuse(one, f"* of {words(kind_of(items))}; allowed: of lists")
            found += items
        return found

    def _conditional(self, node: ast.IfExp) -> Any:
        return self._value(node.body if self._truth(node.test) else node.orelse)

    def _bool(self, node: ast.BoolOp) -> Any:
        stops = isinstance(node.op, ast.Or)
        for one in node.values:
            value = self._value(one)
            if bool(value) == stops:
                break
        return value

    def _unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._truth(node.operand)
        if type(node.op) not in UNARY:
            raise self._refuse(node, f"the operator {type(node.op).__name__}")
        return self._operated(node, UNARY[type(node.op)][1], [self._value(node.operand)])

    def _binary(self, node: ast.BinOp) -> Any:
        known = {**BINARY, ast.MatMult: ("", operator.matmul)}
        if type(node.op) not in known:
            raise self._refuse(node, f"the operator {type(node.op).__name__}")
        return self._operated(
            node, known[type(node.op)][1], [self._value(node.left), self._value(node.right)]
        )

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1:
            raise self._refuse(node, "a chain of comparisons; write them with `and`")
        left, right = self._value(node.left), self._value(node.comparators[0])
        kind = type(node.ops[0])
        if kind in (ast.Is, ast.IsNot):
            return (left is right) == (kind is ast.Is)
        if kind not in COMPARE:
            raise self._refuse(node, f"the comparison {kind.__name__}; write a loop")
        return self._operated(node, COMPARE[kind][1], [left, right])

    def _operated(self, node: ast.AST, function: Callable[..., Any], operands: list[Any]) -> Any:
        is_tensors = any(is_tensor_kind(kind_of(one)) for one in operands)
        if is_tensors:
            return self._tensors(node, function, operands)
        found = function(*operands)
        return found.item() if is_tensor(found) else found  # of whole numbers that argmax gave

    def _tensors(self, node: ast.AST, function: Callable[..., Any], args: list[Any], **kwargs: Any) -> Any:
        """Compute tensors."""
        self._set_role(node, "tensor")
        try:
            found = function(*args, **kwargs)
        except Exception as error:
            what = one_line(f"{type(error).__name__}: {error}", 200)
            raise self._refuse(node, f"a sample fails: {what}") from error
        if isinstance(found, list):
            found = tuple(found)
        if getattr(function, "__name__", "") not in ("tensor", "as_tensor"):
            self._recording.made.update((id(one), one) for one in tensors_in(found))
        return found

    def _set_role(self, node: ast.AST, role: str) -> Site:
        site = self._site(node)
        if site.role not in ("", role):
            raise self._refuse(node, "is tensor code for one sample and plain Python for another")
        site.role = role
        return site

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self._value(node.value)
        if isinstance(node.slice, ast.Slice) and not is_tensor(base):
            if node.slice.step is not None:
                raise self._refuse(node, "a slice with a step; write a loop")
            low, high = (
                None if one is None else self._value(one) for one in (node.slice.lower, node.slice.upper)
            )
            return base[low:high]
        at = self._indices(node.slice) if is_tensor(base) else self._value(node.slice)
        if is_tensor(base):
            return self._tensors(node, operator.getitem, [base, at])
        if not isinstance(base, list | tuple | str):
            if self._site(node.value).value is not None:
                return base[at]
            raise self._refuse(node, f"reads an item of {words(kind_of(base))}; allowed: of lists and tuples")
        try:
            return base[at]
        except IndexError as error:
            raise self._refuse(node, f"a sample fails: {error}") from None

    def _indices(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._indices(one) for one in node.elts)
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if one is None else self._value(one) for one in ends))
        return self._value(node)

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self._value(node.value)
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
        kind = kind_of(base)
        if not isinstance(kind, tuple) or kind[0] != "record":
            raise self._refuse(node, f"reads {node.attr} of {words(kind)}; allowed: fields of records")
        self._field(base, node.attr)
        try:
            return getattr(base, node.attr)
        except AttributeError as error:
            raise self._refuse(node, f"a sample fails: {error}") from None

    def _field(self, base: Any, name: str) -> None:
        fields = self._recording.records.setdefault(type(base).__name__, [])
        if name not in fields:
            fields.append(name)

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._values[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = list(value)
            if len(items) != len(target.elts) or any(isinstance(one, ast.Starred) for one in target.elts):
                raise self._refuse(target, f"{len(target.elts)} names for {len(items)} values")
            for one, own in zip(target.elts, items, strict=True):
                self._store(one, own)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            base, at = self._value(target.value), self._value(target.slice)
            if not isinstance(base, list):
                raise self._refuse(target, f"writes into {words(kind_of(base))}; allowed: into lists")
            base[at] = value
        elif isinstance(target, ast.Attribute):
            base = self._value(target.value)
            if kind_of(base) == "object":
                raise self._refuse(target, "writes an attribute of a constant; allowed: of records")
            self._field(base, target.attr)
            setattr(base, target.attr, value)
        else:
            raise self._refuse(
                target, f"assigns to {named(target)}; allowed: names, items of lists, attributes"
            )

    def _truth(self, node: ast.expr) -> bool:
        value = self._value(node)
        if is_tensor(value) and value.numel() != 1:
            raise self._refuse(node, f"is a condition of {words(kind_of(value))}; allowed: one number")
        return bool(value)

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
        function = self._statics.find(node.func)[1] if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and function in LOOPED:
            strict = [one for one in node.keywords if one.arg == "strict" and function is zip]
            if len(strict) != len(node.keywords):
                raise self._refuse(
                    node, f"{function.__name__} with names of arguments; give them by position"
                )
            if function is range:
                return range(*[self._value(one) for one in node.args])
            parts = [list(self._items(one)) for one in node.args]
            is_strict = any(self._value(one.value) for one in strict)
            return list(zip(*parts, strict=is_strict) if function is zip else function(*parts))
        value = self._value(node)
        if not isinstance(value, list | tuple):
            allowed = "range, lists, tuples, zip, enumerate and reversed of them; modules of a constant list"
            raise self._refuse(node, f"a loop over {words(kind_of(value))}; allowed: {allowed}")
        return value

    def _comprehension(self, node: ast.ListComp) -> Any:
        (loop,) = node.generators if len(node.generators) == 1 else (None,)
        if loop is None or loop.is_async:
            raise self._refuse(node, "loops within a comprehension; write loops")
        found: list[Any] = []

        def body() -> Any:
            if all(self._truth(one) for one in loop.ifs):
                found.append(self._value(node.elt))
            return NEXT

        self._loop(loop.target, loop.iter, body)
        return found

    def _call(self, node: ast.Call) -> Any:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            raise self._refuse(node, "a call with * or **; write the arguments out")
        known, function = self._statics.find(node.func)
        if not known:
            return self._method(node)
        if function is marks.concurrent:
            self._set_role(node, "concurrent")
            return tuple(self._value(one) for one in node.args)
        if function is marks.map:
            return self._map(node)
        if function is list and len(node.args) == 1 and isinstance(node.args[0], ast.Call):
            inner = self._statics.find(node.args[0].func)[1]
            if inner in LOOPED:
                self._set_role(node, "listed")
                return list(self._items(node.args[0]))
        args = [self._value(one) for one in node.args]
        named = {str(one.arg): self._value(one.value) for one in node.keywords}
        return self._applied(node, function, args, named)

    def _applied(self, node: ast.Call, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        role = role_of_call(function, [*args, *named.values()], self._recording.source_of)
        if role == "tensor":
            target = function.function if isinstance(function, marks.MarkedBlock) else function
            return self._tensors(node, target, args, **named)
        if role == "":
            raise self._refuse(node, f"calls {clip(ast.unparse(node.func))}; allowed: {ALLOWED}")
        site = self._set_role(node, role)
        if role == "builtin":
            return function(*args, **named)
        if role == "record":
            made = function(*args, **named)
            for name in vars(made):
                self._field(made, name)
            return made
        target, bound = callable_of(function)
        source = self._recording.source_of(target)
        given = [*bound, *args]
        nodes: list[ast.expr | None] = [*([None] * len(bound)), *node.args]
        for at in range(len(given), len(source.parameters)):
            name = source.parameters[at]
            keyword = next((one.value for one in node.keywords if one.arg == name), None)
            try:
                given.append(named[name] if keyword is not None else source.default(at))
            except KeyError:
                raise self._refuse(node, f"leaves out {name} of {source.function.__name__}") from None
            nodes.append(keyword)
        statics = static_arguments(self._statics, source.parameters, nodes, given)
        result, number = self._recording.call(target, given, statics)
        site.callees[number] = None
        return result

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
        if is_tensor(base):
            if name in ("item", "tolist"):
                self._set_role(node, name)
                return getattr(base, name)()
            if name in ("size", "dim", "numel"):
                self._set_role(node, "constant").value = found = getattr(base, name)(*args)
                return found
            if name.endswith("_") and not name.endswith("__"):
                raise self._refuse(node, f"{name} changes a tensor in place; allowed: {name.rstrip('_')}")
            return self._tensors(node, getattr(type(base), name), [base, *args], **named)
        if isinstance(base, list) and name in LIST_METHODS and not named:
            self._set_role(node, f"list.{name}")
            return getattr(base, name)(*args)
        allowed = f"methods of tensors, and {', '.join(LIST_METHODS)} of lists"
        raise self._refuse(node, f"calls {name} of {words(kind_of(base))}; allowed: {allowed}")


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
    ast.Call: Evaluation._call,
}
