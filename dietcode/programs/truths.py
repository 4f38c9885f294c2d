"""The truth of objects whose classes say it, by ``__bool__`` or by ``__len__``."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from dietcode.programs.code import Label
from dietcode.programs.kinds import NUMBERS, is_tensor_kind
from dietcode.programs.statements import at, name_of
from dietcode.programs.trying import UNREACHED
from dietcode.programs.values import KnownValue, Register, Value
from dietcode.runtime.programs.machine import TENSOR

if TYPE_CHECKING:
    from dietcode.programs.sources import FunctionSource
    from dietcode.programs.writing import FunctionWriter

_WORDS = ("__bool__", "__len__")  # the first that a class has


def word_of(cls: type) -> str:
    """Return the method of the user's that says whether objects of a class are true; empty for none."""
    found = next((word for word in _WORDS if inspect.getattr_static(cls, word, None) is not None), "")
    is_users = inspect.isfunction(inspect.getattr_static(cls, found or "__bool__", None))
    return found if is_users else ""


def asked_name(node: ast.expr) -> str:
    """Return the name of what holds the value of an expression while its truth is asked for."""
    return name_of(node, "asked")


def truth_call(source: FunctionSource, node: ast.expr, word: str) -> ast.Call:
    """Return the call that says whether the value of an expression is true, which `asked_name` holds."""
    own = at(node, ast.Name(asked_name(node), ast.Load()))
    made = at(node, ast.Call(at(node, ast.Attribute(own, word, ast.Load())), [], []))
    found: ast.Call = source.chains.setdefault((node, hash(word)), made)
    return found


def lower_number(writer: FunctionWriter, node: ast.expr, value: Value) -> Value:
    """Return the number of a condition that is a tensor, for some instances at least; all else as it is."""
    code = writer.code
    others = {one for one in writer.site(node).kinds if not is_tensor_kind(one)}
    if others <= NUMBERS:
        return writer.number(value, "float")
    name, end = f" number {node.lineno} {node.col_offset}", Label()
    code.write(name, value)
    kind = code.emit("kind", (code.read(name),))
    code.jump_unless(code.emit("binary", (kind, KnownValue(TENSOR)), "=="), end)
    code.write(name, writer.number(code.read(name), "float"))
    code.label(end)
    return code.read(name)


def lower_truth(writer: FunctionWriter, node: ast.expr, value: Value) -> Value:
    """Return the truth of a value: that of an object as its class says, and all else as it is.

    Parameters
    ----------
    writer : FunctionWriter
    node : expression
        What the value is of.
    value : Value
    """
    code = writer.code
    owners = [cls for cls in writer.classes.values() if word_of(cls)]
    kinds = writer.site(node).kinds
    if not owners or not isinstance(value, Register) or all(isinstance(one, str) for one in kinds - {"none"}):
        return value
    asked, found = asked_name(node), f" truth {node.lineno} {node.col_offset}"
    code.write(asked, value)
    code.write(found, value)
    end = Label()
    for word in _WORDS:
        own = tuple(one for one in owners if word_of(one) == word)
        if not own:
            continue
        other = Label()
        code.jump_unless(writer.is_of(code.read(asked), own), other)
        call = truth_call(writer.source, node, word)
        if (writer.path, call) in writer.context.sites:
            code.write(found, writer.value(call))
        else:
            writer.fail(UNREACHED)
        code.jump(end)
        code.label(other)
    code.label(end)
    return code.read(found)
