"""What an operator or a call of a program's text is: tensor code, plain Python, or a call of a function."""

from __future__ import annotations

import abc
import ast
import dataclasses
import inspect
import math
import operator
import sysconfig
from collections.abc import Callable, Sequence
from typing import Any

from dietcode.programs import module as marks
from dietcode.programs.dictionaries import is_library
from dietcode.programs.nested_functions import NestedFunction
from dietcode.programs.sources import FunctionSource, is_module, is_tensor
from dietcode.runtime.programs.instances import characters, concatenated, find, parsed

BINARY: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
COMPARE: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
ORDERS = (operator.lt, operator.le, operator.gt, operator.ge)
UNARY: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.USub: ("neg", operator.neg),
    ast.Invert: ("invert", operator.invert),
}
MATH: dict[Callable[..., Any], str] = {
    own: own.__name__
    for own in (
        *(math.sqrt, math.exp, math.log, math.floor, math.ceil, math.tanh, math.sin, math.cos),
        *(math.log2, math.log10, math.log1p, math.expm1),
    )
}
LIST_METHODS = ("append", "pop")
OF_TEXTS: dict[Callable[..., Any], str] = {  # and the instructions that they are
    concatenated: "concatenate",
    characters: "characters",
    parsed: "parsed",
    ord: "ordinal",
    chr: "character",
}
BUILTINS = (len, int, float, bool, abs, min, max, list, tuple, round, find, *OF_TEXTS, *MATH)
_FLOW = (ast.If, ast.For, ast.While, ast.ListComp, ast.IfExp, ast.Try, ast.With, ast.Raise)
_OWN_WAYS = ("__new__", "__slots__", "__getattr__", "__getattribute__", "__setattr__")
_LIBRARY = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib"))


def role_of_call(function: Any, args: Sequence[Any], source_of: Callable[[Any], FunctionSource]) -> str:
    """Return what a call of something static is.

    ``tensor``; ``call`` of a function whose text is compiled too; ``builtin``; ``record`` for a new object;
    empty for what a program cannot have.

    Parameters
    ----------
    function : object
    args : sequence of object
        The values of all arguments.
    source_of : callable
        The source of a function.
    """
    of_type = {marks.MarkedBlock: "tensor", marks.Program: "call", NestedFunction: "call"}
    marked = of_type.get(type(function))
    if marked or any(function is one for one in BUILTINS):
        of_tensors = function is abs and any(map(is_tensor, args))
        return marked or ("tensor" if of_tensors else "builtin")
    if is_module(function):
        is_torch = not is_users_module(function)
        return "tensor" if is_torch or _is_straight_given(args) else "call"
    if isinstance(function, type):
        return "record" if _makes_records(function) else ""
    if (inspect.isfunction(function) or inspect.ismethod(function)) and is_users(function):
        is_straight = _is_straight_given(args)
        plain = function.__func__ if inspect.ismethod(function) else function
        return "tensor" if is_straight and _is_straight(source_of(plain)) else "call"
    if getattr(function, "__module__", "") == operator.add.__module__:
        return "tensor" if any(map(is_tensor, args)) else ""
    owner = getattr(function, "__module__", None) or repr(getattr(function, "__self__", ""))
    return "tensor" if callable(function) and "torch" in owner else ""


def initialiser_of(cls: type) -> Any:
    """Return the user's function that runs when an object of a class is made; None where there is none.

    It is the ``__post_init__`` of a dataclass, and the ``__init__`` of a class that is no dataclass.
    """
    if hasattr(cls, "_fields"):
        return None
    word = "__post_init__" if dataclasses.is_dataclass(cls) else "__init__"
    found = inspect.getattr_static(cls, word, None)
    return found if inspect.isfunction(found) else None


def _makes_records(cls: type) -> bool:
    """Whether a program may make objects of a class."""
    if issubclass(cls, BaseException):
        begin = inspect.getattr_static(cls, "__init__")
        return not inspect.isfunction(begin) or is_users(begin)
    return dataclasses.is_dataclass(cls) or hasattr(cls, "_fields") or _makes_plain_objects(cls)


def _makes_plain_objects(cls: type) -> bool:
    """Whether objects of a class have nothing but fields, methods and properties of the user's."""
    bases = cls.__mro__[:-1]
    bases = tuple(one for one in bases if one is not abc.ABC)
    if type(cls) not in (type, abc.ABCMeta) or not all(map(is_users, bases)):
        return False
    return not any(word in vars(one) for one in bases for word in _OWN_WAYS)


def is_users_module(function: Any) -> bool:
    """Whether something is a module whose text is the user's."""
    return is_module(function) and not type(function).__module__.startswith("torch.")


def is_users(function: Any) -> bool:
    """Whether a function's text is the user's or the library's, and not that of another installed package."""
    if is_library(function):
        return True
    try:
        file = inspect.getsourcefile(function) or ""
    except TypeError:
        return False
    return not file.startswith(_LIBRARY)


def _are_tensors(args: Sequence[Any]) -> bool:
    return all(
        is_tensor(one)
        or is_module(one)
        or isinstance(one, int | float | bool | str | None)
        or (isinstance(one, tuple | list) and _are_tensors(one))
        for one in args
    )


def _is_straight_given(args: Sequence[Any]) -> bool:
    """Whether arguments are as tensor code has them: a tensor, and no list or number that may decide."""
    if any(isinstance(one, int | str) for one in args):
        return False
    return _are_tensors(args) and any(map(is_tensor, args)) and not _has_list(args)


def _has_list(args: Sequence[Any]) -> bool:
    return any(isinstance(one, list) or (isinstance(one, tuple) and _has_list(one)) for one in args)


def _is_straight(source: FunctionSource) -> bool:
    """Whether a function is tensor code from its first to its last line."""
    for node in ast.walk(source.tree):
        if isinstance(node, _FLOW):
            return False
        if isinstance(node, ast.Attribute) and node.attr in ("item", "tolist", "topk"):
            return False
        if isinstance(node, ast.Name) and node.id not in source.stores:
            known, value = source.outside(node.id)
            if known and (isinstance(value, marks.Program) or value in (int, float, bool)):
                return False
            is_function = known and inspect.isfunction(value) and is_users(value)
            if is_function and (value is source.function or not _is_straight(FunctionSource(value))):
                return False
    return True
