"""Objects of a program's text, run on samples: how they are made, what their methods and properties are."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.programs import statements
from dietcode.programs.calling import static_arguments
from dietcode.programs.classes import named_types
from dietcode.programs.dictionaries import Dictionary
from dietcode.programs.evaluated_loops import LoopEvaluation
from dietcode.programs.exceptions import ARGS
from dietcode.programs.kinds import is_record_kind, kind_of
from dietcode.programs.roles import initialiser_of, is_users
from dietcode.programs.sets import MemberSet
from dietcode.programs.sources import FunctionSource
from dietcode.programs.statements import is_read_alone

_OF_TWO = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
OPERATORS: dict[Any, tuple[str, ...]] = {
    **{getattr(operator, f"__{name}__"): (f"__{name}__", f"__r{name}__") for name in _OF_TWO},
    operator.neg: ("__neg__",),
    operator.invert: ("__invert__",),
}
"""The methods that classes say operators by: of the left side, and of the right one."""


class ObjectEvaluation(LoopEvaluation):
    """Expressions of a function, those that make and use objects among them."""

    def _new_object(self, node: ast.Call, cls: type, args: list[Any], named: dict[str, Any]) -> Any:
        """Return an object of a dataclass, a named tuple, or a class with an ``__init__`` of its own."""
        self._set_role(node, "record")
        function = initialiser_of(cls)
        is_plain = function is not None and function.__name__ == "__init__"
        try:
            if function is None:
                made = cls(*args, **named)
            else:
                made = _empty(cls, args) if is_plain else _without_post_init(cls, args, named)
        except (TypeError, ValueError) as error:
            raise self._refuse(node, f"a sample fails: {type(error).__name__}: {error}") from None
        self._own_containers(node, made)
        self._fields(node, cls)
        own = (ARGS,) if isinstance(made, BaseException) else ()
        for name in (*own, *(getattr(made, "_fields", ()) or vars(made))):
            self._field(node, made, name)
        if function is not None:
            given = (args, named) if is_plain else ([], {})
            source = self._recording.source_of(function)
            nodes: list[ast.expr | None] = [node, *node.args] if is_plain else [node]
            values, nodes = self._in_order(node, source, [made, *given[0]], nodes, given[1])
            statics = static_arguments(self._statics, source, nodes, values)
            self._recording.call(function, values, statics, self._site(node).callees)
        return made

    def _own_containers(self, node: ast.Call, made: Any) -> None:
        """Give an object the program's dicts and sets for the empty ones that its class makes."""
        for name, value in vars(made).items() if dataclasses.is_dataclass(made) else ():
            if type(value) in (dict, set) and not value:
                own: Any = Dictionary([], []) if isinstance(value, dict) else MemberSet([])
                setattr(made, name, own)
                for field in vars(own):
                    self._field(node, own, field)

    def _method_of_record(self, node: ast.Call, base: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """Run a method of an object, of which each class may have another one."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        name, cls = node.func.attr, type(base)
        if name == "_replace" and hasattr(cls, "_fields") and not args:
            return self._with_fields(node, base, named, lambda: base._replace(**named))
        function = inspect.getattr_static(cls, name, None)
        if isinstance(function, classmethod):
            raise self._refuse(node, f"calls {name} of an object; name its class, {cls.__name__}.{name}(…)")
        plain = function.__func__ if isinstance(function, staticmethod) else function
        if not inspect.isfunction(plain) or not is_users(plain):
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

    def _says_itself(self, value: Any, word: str) -> bool:
        if not is_record_kind(kind_of(value)) or isinstance(value, Dictionary | MemberSet):
            return False
        found = inspect.getattr_static(type(value), word, None)
        return inspect.isfunction(found) and is_users(found) and found.__code__.co_filename != "<string>"

    def _operated_by_class(
        self, node: ast.AST, function: Callable[..., Any], operands: list[Any], nodes: list[ast.expr]
    ) -> tuple[Any] | None:
        words = OPERATORS.get(function)
        if words is None:
            return None
        if self._says_itself(operands[0], words[0]):
            return (self._by_name(node, words[0], nodes, operands),)
        if len(operands) == 2 and self._says_itself(operands[1], words[1]):
            if not is_read_alone(nodes[0]):
                raise self._refuse(node, f"{words[1]} beside what is computed here; give that a name before")
            return (self._by_name(node, words[1], nodes[::-1], operands[::-1]),)
        return None

    def _by_name(self, node: ast.AST, word: str, sides: list[ast.expr], values: list[Any]) -> Any:
        key = (node, hash(word))
        if key not in self._source.chains:
            read = statements.at(node, ast.Attribute(sides[0], word, ast.Load()))
            self._source.chains[key] = statements.at(node, ast.Call(read, sides[1:], []))
        call = self._source.chains[key]
        site = self._set_role(node, "written")
        if site.value not in (None, call):
            raise self._refuse(node, f"is {word} of an object in one sample, and something else in another")
        site.value = call
        function = inspect.getattr_static(type(values[0]), word)
        return self._of_class(call, values[0], function, values[1:], {})

    def _of_class(
        self, node: ast.Call, base: Any, function: Any, args: list[Any], named: dict[str, Any]
    ) -> Any:
        """Run a function that an object's class has for a name."""
        assert isinstance(node.func, ast.Attribute)  # where it is called
        cls = type(base)
        self._fields(node, cls)
        site = self._set_role(node, "method")
        site.value = site.value or {}
        is_static = isinstance(function, staticmethod)
        plain, owner = (function.__func__, []) if is_static else (function, [base])
        source = self._recording.source_of(plain)
        nodes: list[ast.expr | None] = [*([] if is_static else [node.func.value]), *node.args]
        given, nodes = self._in_order(node, source, [*owner, *args], nodes, named)
        statics = static_arguments(self._statics, source, nodes, given)
        callees = site.value.setdefault(cls.__name__, (function, {}))[1]
        return self._recording.call(plain, given, statics, callees)[0]

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
                given.append(named[name] if keyword is not None else self._default(source, at))
            except KeyError:
                what = f"leaves out {name} of {source.function.__name__}"
                if name in (source.rest, source.named_rest):
                    what = f"a method of an object that takes any number of {name}; give it parameters"
                raise self._refuse(node, what) from None
            nodes.append(keyword)
        return given, nodes

    def _default(self, source: FunctionSource, at: int) -> Any:
        """Return the default of a parameter, which all calls share."""
        found = source.default(at)
        self._recording.shared.note(found, lambda: source.changed_default(at))
        return found

    def _isinstance(self, node: ast.Call) -> bool:
        if len(node.args) != 2 or node.keywords:
            raise self._refuse(node, "isinstance takes a value and a class")
        value = self._value(node.args[0])
        types = named_types(node.args[1], self._statics)
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
        if hasattr(base, "__post_init__") or not all(one.init for one in dataclasses.fields(base)):
            what = f"{type(base).__name__} has __post_init__ or fields that it makes itself"
            raise self._refuse(node, f"{what}; allowed: dataclasses without")
        return self._with_fields(node, base, named, lambda: dataclasses.replace(base, **named))

    def _with_fields(
        self, node: ast.Call, base: Any, named: Mapping[str, Any], make: Callable[[], Any]
    ) -> Any:
        """Return an object with some fields that are others, and note its class."""
        site = self._set_role(node, "replaced")
        if site.value not in (None, type(base)):
            raise self._refuse(node, "replaces fields of another class in another sample; write two calls")
        site.value = type(base)
        try:
            made = make()
        except (TypeError, ValueError) as error:
            raise self._refuse(node, f"a sample fails: {error}") from None
        for name in getattr(made, "_fields", ()) or vars(made):
            self._field(node, made, name)
        return made


def _empty(cls: type, args: list[Any]) -> Any:
    """Return an object before its ``__init__`` has run."""
    return cls.__new__(cls, *args) if issubclass(cls, BaseException) else object.__new__(cls)


def _without_post_init(cls: type, args: list[Any], named: Mapping[str, Any]) -> Any:
    """Return an object of a dataclass before its ``__post_init__`` has run."""
    made: Any = object.__new__(cls)
    own = [one for one in dataclasses.fields(cls) if one.init]
    given = dict(zip((one.name for one in own), args, strict=False)) | dict(named)
    known = {one.name for one in own}
    if len(args) > len(own) or set(given) - known:
        raise TypeError(f"{cls.__name__} takes {', '.join(known)}")
    for one in own:
        if one.name in given:
            value = given[one.name]
        elif one.default is not dataclasses.MISSING:
            value = one.default
        elif one.default_factory is not dataclasses.MISSING:
            value = one.default_factory()
        else:
            raise TypeError(f"{cls.__name__} is made without {one.name}")
        object.__setattr__(made, one.name, value)
    for one in dataclasses.fields(cls):
        if not one.init and one.default_factory is not dataclasses.MISSING:
            object.__setattr__(made, one.name, one.default_factory())
    return made
