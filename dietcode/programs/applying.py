"""Functions that are values, and calls of them, as code."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dietcode.programs.code import Label
from dietcode.programs.values import KnownValue, Value
from dietcode.runtime.programs.code import RECORD_KINDS

if TYPE_CHECKING:
    from dietcode.programs.writing import FunctionWriter


def lower_applied(writer: FunctionWriter, node: ast.Call) -> Value:
    """Write a call of a function that is a value: each class has its own."""
    code, end = writer.code, Label()
    owner, found = (f"{word} {node.lineno} {node.col_offset}" for word in ("applied", " applied result"))
    code.write(owner, writer.value(node.func))
    known: dict[type, ast.expr] = writer.site(node).value
    for cls, call in known.items():
        other = Label()
        kind = code.emit("kind", (code.read(owner),))
        wanted = KnownValue(RECORD_KINDS + list(writer.records).index(cls.__name__))
        code.jump_unless(code.emit("binary", (kind, wanted), "=="), other)
        code.write(found, writer.value(call))
        code.jump(end)
        code.label(other)
    writer.fail("TypeError: no sample called such a function here; give samples that do")
    code.label(end)
    return code.read(found)


def lower_function(writer: FunctionWriter, node: ast.expr) -> Value:
    """Write a function as a value."""
    cls, given = writer.site(node).value
    fields: Sequence[str] = writer.records[cls.__name__]
    values = {name: writer.value(one) for name, one in given}
    made = [values.get(name, KnownValue(None)) for name in fields]
    return writer.code.emit("record", made, cls.__name__)
