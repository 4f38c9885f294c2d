"""``super()`` in a method's text: which function of a parent class it is."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from dietcode.programs.statements import Outside, at, call, constant


def parent_method(node: ast.Call, tree: ast.FunctionDef, outside: Outside) -> ast.expr | None:
    """Return ``super().method(a)`` as a call of the function that the method's class inherits.

    Parameters
    ----------
    node : Call
    tree : FunctionDef
        The outermost function around it, whose first parameter is the object.
    outside : callable
        Whether a name that is not local stands for something, and that.

    Returns
    -------
    expression or None
        None for any other call, and for what a class of Python's or PyTorch's own in C does.
    """
    cls, name = _asked(node, outside)
    function = _inherited(cls, name)
    if not inspect.isfunction(function) or not tree.args.args:
        return None
    owner = at(node, ast.Name(tree.args.args[0].arg, ast.Load()))
    made = call(node, constant(function), owner, *node.args)
    assert isinstance(made, ast.Call)  # it is one
    made.keywords = node.keywords
    return made


def parent_initialiser(node: ast.Expr, tree: ast.FunctionDef, outside: Outside) -> ast.stmt | None:
    """Return what ``super().__init__(…)`` does in a class whose parents are Python's; None for any other.

    An exception keeps its arguments, and other objects get nothing.
    """
    given = node.value
    if not isinstance(given, ast.Call):
        return None
    cls, name = _asked(given, outside)
    function = _inherited(cls, name)
    if name != "__init__" or cls is None or inspect.isfunction(function) or not tree.args.args:
        return None
    if issubclass(cls, BaseException):
        owner = at(node, ast.Name(tree.args.args[0].arg, ast.Load()))
        target = at(node, ast.Attribute(owner, "args", ast.Store()))
        return at(node, ast.Assign([target], at(node, ast.Tuple(given.args, ast.Load()))))
    return at(node, ast.Pass()) if function is object.__init__ and not given.args else None


def _asked(node: ast.Call, outside: Outside) -> tuple[type | None, str]:
    """Return the class in which ``super().name`` is written, and the name."""
    own = node.func
    if not isinstance(own, ast.Attribute) or not isinstance(own.value, ast.Call):
        return None, ""
    begun = own.value
    is_plain = isinstance(begun.func, ast.Name) and begun.func.id == "super" and not begun.keywords
    cls = outside("__class__")[1] if is_plain else None
    if is_plain and begun.args and isinstance(begun.args[0], ast.Name):
        cls = outside(begun.args[0].id)[1]
    return (cls, own.attr) if isinstance(cls, type) else (None, "")


def _inherited(cls: type | None, name: str) -> Any:
    for parent in cls.__mro__[1:] if cls is not None else ():
        if name in vars(parent):
            return vars(parent)[name]
    return None
