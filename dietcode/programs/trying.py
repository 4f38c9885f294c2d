"""``try``, ``raise`` and ``finally`` of a program's text as code."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from dietcode.programs.classes import named_types
from dietcode.programs.code import ExceptionHandler, Label
from dietcode.programs.exceptions import ARGS, OF_MACHINE, FinalStatements, is_exception_class
from dietcode.programs.formats import specification_of
from dietcode.programs.roles import initialiser_of
from dietcode.programs.sites import is_of_library
from dietcode.programs.values import KnownValue, Value
from dietcode.runtime.programs.code import RECORD_KINDS
from dietcode.runtime.programs.machine import INT

if TYPE_CHECKING:
    from dietcode.programs.writing import FunctionWriter

_LEAVING = (ast.Return, ast.Break, ast.Continue)
UNREACHED = "RuntimeError: no sample reached this line; give samples that do"


def lower_try(writer: FunctionWriter, node: ast.Try) -> None:
    """Write a ``try``: what is behind ``finally`` runs behind all else, or before an exception goes on."""
    if not node.finalbody:
        _lower_taken(writer, node)
        return
    code, end = writer.code, Label()
    handler = ExceptionHandler(Label(), code.fresh())
    code.end_block()
    writer.pending.append(FinalStatements(node.finalbody, len(writer.loops), len(code.handlers)))
    code.handlers.append(handler)
    _lower_taken(writer, node)
    code.end_block()
    code.handlers.pop()
    writer.pending.pop()
    writer.body(node.finalbody)
    code.jump(end)
    name = _name(node, "passed")
    code.write(name, code.caught(handler))
    if any(isinstance(one, _LEAVING) for own in node.finalbody for one in ast.walk(own)):
        code.taken[handler] = (BaseException,)
    writer.body(node.finalbody)
    code.throw_again(code.read(name), handler)
    code.label(end)


def _lower_taken(writer: FunctionWriter, node: ast.Try) -> None:
    """Write what a ``try`` does, and what takes its exceptions."""
    if not node.handlers:
        writer.body(node.body)
        return
    code, end = writer.code, Label()
    handler = ExceptionHandler(Label(), code.fresh())
    code.end_block()
    code.handlers.append(handler)
    writer.body(node.body)
    code.end_block()
    code.handlers.pop()
    if node.orelse:
        writer.body(node.orelse)
    code.jump(end)
    name, key = _name(node, "caught"), _name(node, "class")
    code.write(name, code.caught(handler))
    _write_key(writer, name, key)
    writer.taken.append(name)
    for clause in node.handlers:
        other = Label()
        types = _types_of(writer, clause)
        code.taken[handler] = (*code.taken.get(handler, ()), *types)
        own = [-number for number, cls in OF_MACHINE if issubclass(cls, types)]
        records = enumerate(writer.classes.values())
        own += [RECORD_KINDS + k for k, cls in records if is_exception_class(cls) and issubclass(cls, types)]
        found = code.emit("lookup", (code.read(key), KnownValue(False)), dict.fromkeys(own, True))
        code.jump_unless(found, other)
        if clause.name is not None:
            _write_exception(writer, clause, types, name, key)
        writer.body(clause.body)
        code.jump(end)
        code.label(other)
    writer.taken.pop()
    code.throw_again(code.read(name), handler)
    code.label(end)


def _types_of(writer: FunctionWriter, clause: ast.ExceptHandler) -> tuple[type, ...]:
    if clause.type is None:
        return (BaseException,)
    return named_types(clause.type, writer.statics) or ()


def _write_key(writer: FunctionWriter, name: str, key: str) -> None:
    """Write the class of an exception: the kind of a record, or the negative of what the machine noticed."""
    code, known = writer.code, Label()
    kind = code.emit("kind", (code.read(name),))
    code.write(key, kind)
    code.jump_unless(code.emit("binary", (kind, KnownValue(INT)), "=="), known)
    code.write(key, code.emit("unary", (code.read(name),), "neg"))
    code.label(known)


def _write_exception(
    writer: FunctionWriter, clause: ast.ExceptHandler, types: tuple[type, ...], name: str, key: str
) -> None:
    """Write the variable of an exception that is taken, as an object."""
    code, variable = writer.code, clause.name
    assert variable is not None  # where it is called
    code.write(variable, code.read(name))
    nodes = (node for one in clause.body for node in ast.walk(one))
    if not any(isinstance(node, ast.Name) and node.id == variable for node in nodes):
        return
    for number, cls in OF_MACHINE:
        if issubclass(cls, types):
            other = Label()
            is_own = code.emit("binary", (code.read(key), KnownValue(-number)), "==")
            code.jump_unless(is_own, other)
            code.write(variable, _made(writer, cls, KnownValue(None)))
            code.label(other)


def _made(writer: FunctionWriter, cls: type, args: Value) -> Value:
    fields = [args if one == ARGS else KnownValue(None) for one in writer.records[cls.__name__]]
    return writer.code.emit("record", fields, cls.__name__)


def lower_thrown(writer: FunctionWriter, cls: Any, text: str) -> None:
    """Write an exception with a text, which ends the instance where nothing takes it."""
    if not writer.throws or cls.__name__ not in writer.records:
        writer.fail(f"{cls.__name__}: {text}" if text else cls.__name__)
        return
    args = writer.code.emit("tuple", (KnownValue(text),) if text else ())
    writer.code.emit("throw", (_made(writer, cls, args),), writes=0)


def lower_raise(writer: FunctionWriter, node: ast.Raise) -> None:
    """Write a ``raise``; where no sample came to it, with what its text says alone."""
    given, code = node.exc, writer.code
    if not writer.throws:
        writer.fail(_said(given))
    elif given is None:
        if not writer.taken:
            raise writer.refuse(node, "raise without an exception, outside of except; name one")
        code.emit("throw", (code.read(writer.taken[-1]),), writes=0)
    elif (writer.path, node) in writer.context.reached and not is_of_library(writer.source):
        code.emit("throw", (writer.value(given),), writes=0)
    elif isinstance(given, ast.Call):
        known, cls = writer.statics.find(given.func)
        if not known or not is_exception_class(cls) or initialiser_of(cls) is not None:
            writer.fail(UNREACHED)
            return
        args = [_unseen(writer, one) for one in given.args]
        known_args = [one for one in args if one is not None]
        is_known = len(known_args) == len(args) and not given.keywords
        made = (
            code.emit("tuple", known_args) if is_known else KnownValue(None)
        )  # which nobody reads as a text
        code.emit("throw", (_made(writer, cls, made),), writes=0)
    elif isinstance(given, ast.Name) and given.id in code.variables:
        code.emit("throw", (code.read(given.id),), writes=0)
    else:
        writer.fail(UNREACHED)


def _unseen(writer: FunctionWriter, node: ast.expr) -> Value | None:
    """Return an argument of an exception that no sample raised; None where its text has to be run."""
    parts = [node]
    if isinstance(node, ast.JoinedStr):
        parts = [one.value if isinstance(one, ast.FormattedValue) else one for one in node.values]
        forms = [one for one in node.values if isinstance(one, ast.FormattedValue)]
        if any(specification_of(one) is None or one.conversion not in (-1, 115) for one in forms):
            return None
    for one in parts:
        is_name = isinstance(one, ast.Name) and one.id in writer.code.variables
        if not is_name and not (isinstance(one, ast.Constant) and isinstance(one.value, str | int | float)):
            return None
    return writer.value(node)


def lower_pending(writer: FunctionWriter, num_loops: int) -> None:
    """Write what runs before one leaves every ``try`` that is within so many loops."""
    pending, handlers = writer.pending, writer.code.handlers
    for at in reversed(range(len(pending))):
        if pending[at].num_loops < num_loops:
            break
        writer.pending, writer.code.handlers = pending[:at], handlers[: pending[at].num_handlers]
        writer.body(pending[at].body)
    writer.pending, writer.code.handlers = pending, handlers


def _name(node: ast.AST, word: str) -> str:
    return f" {word} {getattr(node, 'lineno', 0)} {getattr(node, 'col_offset', 0)}"


def _said(node: ast.expr | None) -> str:
    """Return what an exception says that nothing takes."""
    if node is None:
        return "Exception"
    if not isinstance(node, ast.Call):
        return ast.unparse(node)
    text = ast.unparse(node.func)
    said = [_text_of(one) for one in node.args[:1]]
    return f"{text}: {said[0]}" if said else text


def _text_of(node: ast.expr) -> str:
    """Return the text of an error; what is put into it stays as it is written."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(one.value) if isinstance(one, ast.Constant) else f"{{{ast.unparse(one.value)}}}"
            for one in node.values
            if isinstance(one, ast.Constant | ast.FormattedValue)
        )
    return ast.unparse(node)
