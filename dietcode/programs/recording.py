"""Samples run expression by expression: what kind of value each one has, and what each call calls."""

from __future__ import annotations

import ast
import operator
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import module as marks
from dietcode.programs.kinds import Kind, is_tensor_kind, kind_of, tensors_in, words
from dietcode.programs.roles import BINARY, COMPARE, LIST_METHODS, UNARY, role_of_call
from dietcode.programs.sources import FunctionSource, Statics, is_frozen, is_tensor
from dietcode.workload.text import clip, one_line

_STACK_BYTES, _DEEPEST = 1 << 29, 200_000
Path = tuple[int, ...]
_NEXT, _BREAK, _CONTINUE = object(), object(), object()


@dataclass
class Site:
    """What one expression was, in one context.

    Attributes
    ----------
    kinds : set of Kind
    role : str
        Of an operation or call, see `dietcode.programs.roles`; empty for others.
    callees : dict of int to None
        The contexts that were called.
    is_made : bool
        Whether its tensors were ever computed; otherwise they came with the instance.
    value : object
        What an expression is that is the same in every instance, as the shape of a tensor.
    """

    kinds: set[Kind] = field(default_factory=set)
    role: str = ""
    callees: dict[int, None] = field(default_factory=dict)
    is_made: bool = False
    value: Any = None


@dataclass
class Context:
    """A function with what is static in it: weights, modules and functions that it is given.

    Attributes
    ----------
    number : int
    source : FunctionSource
    statics : dict of str to object
        Of parameters.
    sites : dict of (Path, node) to Site
        A path has the rounds of loops over modules, the outermost first.
    reached : set of (Path, node)
        The statements that samples reached.
    """

    number: int
    source: FunctionSource
    statics: dict[str, Any]
    sites: dict[tuple[Path, ast.AST], Site] = field(default_factory=dict)
    reached: set[tuple[Path, ast.AST]] = field(default_factory=set)


class Recording:
    """What samples show of a program.

    Parameters
    ----------
    function : function
        The program's.

    Attributes
    ----------
    contexts : list of Context
        The first is the program.
    records : dict of str to list of str
        The fields of each class whose objects the program reads, in order.
    """

    def __init__(self, function: Any) -> None:
        self.contexts: list[Context] = []
        self.records: dict[str, list[str]] = {}
        self.made: dict[int, Any] = {}
        self._known: dict[Any, int] = {}
        self._sources: dict[Any, FunctionSource] = {}
        self._kept: list[Any] = []
        self._function = function

    def run(self, samples: Sequence[Any]) -> None:
        """Run samples, each of them one instance.

        Raises
        ------
        ModelError
            The program has what cannot be compiled, or fails; names file and line.
        """
        problem: list[BaseException] = []

        def work() -> None:
            import torch

            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(_DEEPEST)
            try:
                with torch.no_grad():
                    for one in samples:
                        self.made.clear()
                        self.call(self._function, self.arguments(one), None)
            except BaseException as error:
                problem.append(error)
            finally:
                sys.setrecursionlimit(limit)

        before = threading.stack_size(_STACK_BYTES)
        thread = threading.Thread(target=work)
        thread.start()
        threading.stack_size(before)
        thread.join()
        if problem:
            raise problem[0]

    def arguments(self, instance: Any) -> list[Any]:
        """Return the arguments of an instance: itself, or its items where a program takes several."""
        many = len(self.source_of(self._function).parameters)
        if many == 1:
            return [instance]
        if not isinstance(instance, tuple) or len(instance) != many:
            name = self._function.__name__
            raise ModelError(
                f"--samples: given {clip(instance)}; allowed: tuples of {many}, which {name} takes"
            )
        return list(instance)

    def source_of(self, function: Any) -> FunctionSource:
        """Return the source of a function, read once."""
        if function not in self._sources:
            self._sources[function] = FunctionSource(function)
        return self._sources[function]

    def call(self, function: Any, args: Sequence[Any], statics: dict[str, Any] | None) -> tuple[Any, int]:
        """Return what a function returns, and the number of the context that computed it."""
        source = self.source_of(function)
        if len(args) != len(source.parameters):
            raise source.refusal(
                source.tree, f"given {len(args)} arguments; it takes {len(source.parameters)}"
            )
        given = statics or {}
        kinds = tuple(
            "static" if name in given else kind_of(one)
            for name, one in zip(source.parameters, args, strict=True)
        )
        key = (function, kinds, tuple(sorted((name, id(one)) for name, one in given.items())))
        if key not in self._known:
            self._kept.append(given)
            self._known[key] = len(self.contexts)
            self.contexts.append(Context(len(self.contexts), source, given))
        context = self.contexts[self._known[key]]
        run = _Activation(self, context, dict(zip(source.parameters, args, strict=True)))
        return run.result(), context.number


class _Activation:
    """A call of a function."""

    def __init__(self, recording: Recording, context: Context, values: dict[str, Any]) -> None:
        self._recording, self._context, self._values = recording, context, values
        self._source = context.source
        self._statics = Statics(context.source, context.statics)
        self._path: Path = ()

    def result(self) -> Any:
        found = self._body(self._source.tree.body)
        return None if found is _NEXT else found

    def _refuse(self, node: ast.AST, what: str) -> ModelError:
        return self._source.refusal(node, what)

    def _site(self, node: ast.AST) -> Site:
        return self._context.sites.setdefault((self._path, node), Site())

    # ---- Statements ----

    def _body(self, body: Sequence[ast.stmt]) -> Any:
        for node in body:
            self._context.reached.add((self._path, node))
            found = self._statement(node)
            if found is not _NEXT:
                return found
        return _NEXT

    def _statement(self, node: ast.stmt) -> Any:
        run = _STATEMENTS.get(type(node))
        if run is None:
            raise self._refuse(node, f"{_named(node)}; allowed: {ALLOWED}")
        return run(self, node)

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> Any:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None and not learn_static(self._statics, targets, node.value):
            value = self._value(node.value)
            for target in targets:
                self._store(target, value)
        return _NEXT

    def _augmented(self, node: ast.AugAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            raise self._refuse(node, "an assignment as x.y += z; write x.y = x.y + z")
        if type(node.op) not in BINARY:
            raise self._refuse(node, f"the operator {type(node.op).__name__}")
        before = self._values.get(node.target.id)
        site = self._site(node.target)
        site.kinds.add(kind_of(before))
        site.is_made |= any(id(one) in self._recording.made for one in tensors_in(before))
        if isinstance(before, list):
            raise self._refuse(node, "list += list, which changes the list; write append, or x = x + y")
        value = self._operated(node, BINARY[type(node.op)][1], [before, self._value(node.value)])
        self._store(node.target, value)
        return _NEXT

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
                target, f"assigns to {_named(target)}; allowed: names, items of lists, attributes"
            )

    def _expression(self, node: ast.Expr) -> Any:
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)
        return _NEXT

    def _if(self, node: ast.If) -> Any:
        return self._body(node.body if self._truth(node.test) else node.orelse)

    def _truth(self, node: ast.expr) -> bool:
        value = self._value(node)
        if is_tensor(value) and value.numel() != 1:
            raise self._refuse(node, f"is a condition of {words(kind_of(value))}; allowed: one number")
        return bool(value)

    def _while(self, node: ast.While) -> Any:
        if node.orelse:
            raise self._refuse(node, "a loop with else; write a variable that says so")
        while self._truth(node.test):
            found = self._body(node.body)
            if found is _BREAK:
                break
            if found is not _CONTINUE and found is not _NEXT:
                return found
        return _NEXT

    def _for(self, node: ast.For) -> Any:
        if node.orelse:
            raise self._refuse(node, "a loop with else; write a variable that says so")
        rounds = self._statics.unrolled(node)
        if rounds is None:
            return self._loop(node.target, node.iter, lambda: self._body(node.body))
        outer = self._path
        found = _NEXT
        for number, names in enumerate(rounds):
            self._path = (*outer, number)
            self._statics.names.update(names)
            found = self._body(node.body)
            if found is _BREAK or (found is not _NEXT and found is not _CONTINUE):
                break
        self._path = outer
        return _NEXT if found in (_BREAK, _CONTINUE) else found

    def _loop(self, target: ast.expr, iterable: ast.expr, body: Callable[[], Any]) -> Any:
        for one in self._items(iterable):
            self._store(target, one)
            found = body()
            if found is _BREAK:
                break
            if found is not _CONTINUE and found is not _NEXT:
                return found
        return _NEXT

    def _items(self, node: ast.expr) -> Any:
        """Return what a loop goes over."""
        if isinstance(node, ast.Call) and not node.keywords:
            function = self._statics.find(node.func)[1]
            if function is range:
                return range(*[self._value(one) for one in node.args])
            if function in (enumerate, zip, reversed):
                parts = [list(self._items(one)) for one in node.args]
                return list(function(*parts))
        value = self._value(node)
        if not isinstance(value, list | tuple):
            allowed = "range, lists, tuples, zip, enumerate and reversed of them; modules of a constant list"
            raise self._refuse(node, f"a loop over {words(kind_of(value))}; allowed: {allowed}")
        return value

    def _return(self, node: ast.Return) -> Any:
        return None if node.value is None else self._value(node.value)

    def _raise(self, node: ast.Raise) -> Any:
        raise self._refuse(node, "a sample raised this; samples are instances that a program computes")

    def _assert(self, node: ast.Assert) -> Any:
        if not self._truth(node.test):
            raise self._refuse(node, "a sample fails this assertion; samples are instances that are computed")
        return _NEXT

    def _pass(self, node: ast.stmt) -> Any:
        return {ast.Break: _BREAK, ast.Continue: _CONTINUE}.get(type(node), _NEXT)

    # ---- Expressions ----

    def _value(self, node: ast.expr) -> Any:
        known, value = self._statics.find(node)
        if not known:
            run = _EXPRESSIONS.get(type(node))
            if run is None:
                raise self._refuse(node, f"{_named(node)}; allowed: {ALLOWED}")
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
        return [self._value(one) for one in node.elts]

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
        return self._tensors(node, function, operands) if is_tensors else function(*operands)

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

    def _comprehension(self, node: ast.ListComp) -> Any:
        (loop,) = node.generators if len(node.generators) == 1 else (None,)
        if loop is None or loop.is_async:
            raise self._refuse(node, "loops within a comprehension; write loops")
        found: list[Any] = []

        def body() -> Any:
            if all(self._truth(one) for one in loop.ifs):
                found.append(self._value(node.elt))
            return _NEXT

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
        args = [self._value(one) for one in node.args]
        named = {str(one.arg): self._value(one.value) for one in node.keywords}
        return self._applied(node, function, args, named)

    def _applied(self, node: ast.Call, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        role = role_of_call(function, [*args, *named.values()], self._recording.source_of)
        if role == "tensor":
            target = function.function if isinstance(function, marks.Block) else function
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


def learn_static(statics: Statics, targets: Sequence[ast.expr], value: ast.expr) -> bool:
    """Note a name that is assigned once, to a module or a weight; returns whether it is one."""
    (target, *others) = targets
    if others or not isinstance(target, ast.Name) or statics.source.stores.get(target.id) != 1:
        return False
    known, found = statics.find(value)
    if not known or not is_frozen(found):
        return False
    statics.names[target.id] = found
    return True


def callable_of(function: Any) -> tuple[Any, list[Any]]:
    """Return the plain function that a call runs, and what it is bound to."""
    if isinstance(function, marks.Program):
        return function.function, []
    if hasattr(function, "forward"):
        function = function.forward
    if hasattr(function, "__self__"):
        return function.__func__, [function.__self__]
    return function, []


def static_arguments(
    statics: Statics, parameters: Sequence[str], nodes: Sequence[ast.expr | None], given: Sequence[Any]
) -> dict[str, Any]:
    """Return the arguments of a call that are modules, functions or weights, by the name of the parameter.

    Parameters
    ----------
    statics : Statics
        Of the caller.
    parameters : sequence of str
    nodes : sequence of expression or None
        None for what is bound, or left out.
    given : sequence of object
        The values.
    """
    found = {}
    for name, node, value in zip(parameters, nodes, given, strict=True):
        known = True if node is None else statics.find(node)[0]
        if known and is_frozen(value):
            found[name] = value
        elif kind_of(value) == "object" and value is not None:
            raise statics.source.refusal(node or statics.source.tree, f"{clip(value)} is chosen by values")
    return found


ALLOWED = (
    "functions, if, while, for, lists, tuples, dataclasses, numbers, comparisons, tensor code, "
    "dietcode.concurrent and dietcode.map"
)


def _named(node: ast.AST) -> str:
    return f"{type(node).__name__.lower()} `{clip(ast.unparse(node), 50)}`"


_STATEMENTS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Assign: _Activation._assign,
    ast.AnnAssign: _Activation._assign,
    ast.AugAssign: _Activation._augmented,
    ast.Expr: _Activation._expression,
    ast.If: _Activation._if,
    ast.While: _Activation._while,
    ast.For: _Activation._for,
    ast.Return: _Activation._return,
    ast.Raise: _Activation._raise,
    ast.Assert: _Activation._assert,
    ast.Pass: _Activation._pass,
    ast.Break: _Activation._pass,
    ast.Continue: _Activation._pass,
}
_EXPRESSIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Name: _Activation._name,
    ast.Tuple: _Activation._tuple,
    ast.List: _Activation._list,
    ast.IfExp: _Activation._conditional,
    ast.BoolOp: _Activation._bool,
    ast.UnaryOp: _Activation._unary,
    ast.BinOp: _Activation._binary,
    ast.Compare: _Activation._compare,
    ast.Subscript: _Activation._subscript,
    ast.Attribute: _Activation._attribute,
    ast.ListComp: _Activation._comprehension,
    ast.Call: _Activation._call,
}
