"""Loops over iterators, alone or beside others: each round takes what comes next, from each in turn.

``zip(a, b)`` of iterators takes an item of ``a``, and may find that ``b`` has none: that item is gone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from dietcode.programs.code import Label
from dietcode.programs.iterators import ITERATOR, NUMBERS
from dietcode.programs.values import KnownValue, Several, Value

if TYPE_CHECKING:
    from dietcode.programs.writing import FunctionWriter

Take = Callable[[Label], Value]
"""Writes what takes the next item, or goes to a label where there is none."""
Counted = Callable[..., tuple[Value, Value, KnownValue, Callable[[Value], Value]]]
"""Returns start, stop and step of a loop's numbers, and its item for each: of a writer, a node and a mark."""


def has_iterator(writer: FunctionWriter, node: ast.expr) -> bool:
    """Whether a loop goes over an iterator, alone or beside others."""
    if _is_beside(writer, node):
        assert isinstance(node, ast.Call)  # as `_is_beside` says
        return any(has_iterator(writer, one) for one in node.args)
    return bool(_known(writer, node)[1] & {ITERATOR, NUMBERS})


def taker(writer: FunctionWriter, node: ast.expr, mark: str, counted: Counted) -> Take:
    """Begin a loop over something; returns what takes its items.

    Parameters
    ----------
    writer : FunctionWriter
    node : expression
    mark : str
        In the names of its variables, which no other loop has.
    counted : callable
        What begins a loop that has numbers.
    """
    code = writer.code
    if not has_iterator(writer, node):
        return _by_numbers(writer, *counted(writer, node, mark), f" at {mark}")
    if not _is_beside(writer, node):
        own, kinds = _known(writer, node)
        return _of_iterator(writer, writer.value(own), ITERATOR in kinds, f" iterator {mark}")
    assert isinstance(node, ast.Call)  # as `_is_beside` says
    if writer.statics.find(node.func)[1] is zip:
        parts = [taker(writer, one, f"{mark} {k}", counted) for k, one in enumerate(node.args)]
        names = [f" item {mark} {k}" for k in range(len(parts))]

        def take_all(end: Label) -> Value:
            for name, one in zip(names, parts, strict=True):
                code.write(name, one(end))
            return Several(tuple(map(code.read, names)))

        return take_all
    inner, name = taker(writer, node.args[0], f"{mark} 0", counted), f" number {mark}"
    code.write(name, writer.value(node.args[1]) if len(node.args) == 2 else KnownValue(0))

    def take_numbered(end: Label) -> Value:
        item = inner(end)
        number = code.read(name)
        kept = code.emit("binary", (number, KnownValue(0)), "+")
        code.write(name, code.emit("binary", (number, KnownValue(1)), "+"))
        return Several((kept, item))

    return take_numbered


def _is_beside(writer: FunctionWriter, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and writer.statics.find(node.func)[1] in (zip, enumerate)


def _known(writer: FunctionWriter, node: ast.expr) -> tuple[ast.expr, set[object]]:
    """Return what a loop goes over, as an object's class may say it, and its kinds."""
    site = writer.site(node)
    own: ast.expr = site.value if site.role == "written" else node
    return own, writer.site(own).kinds


def _of_iterator(writer: FunctionWriter, iterator: Value, is_of_list: bool, name: str) -> Take:
    code = writer.code
    code.write(name, iterator)

    def take(end: Label) -> Value:
        own = code.read(name)
        if not is_of_list:
            number, step = (code.emit("field", (own,), word) for word in ("number", "step"))
            code.emit("setfield", (own, code.emit("binary", (number, step), "+")), "number", writes=0)
            return number
        place, items = (code.emit("field", (own,), word) for word in ("place", "iterated"))
        code.jump_unless(code.emit("binary", (place, code.emit("len", (items,))), "<"), end)
        found = code.item(items, place)
        more = code.emit("binary", (place, KnownValue(1)), "+")
        code.emit("setfield", (code.read(name), more), "place", writes=0)
        return found

    return take


def _by_numbers(
    writer: FunctionWriter,
    start: Value,
    stop: Value,
    step: KnownValue,
    item: Callable[[Value], Value],
    name: str,
) -> Take:
    code = writer.code
    code.write(name, start)
    if not isinstance(stop, KnownValue):
        code.write(f"{name} stop", stop)

    def take(end: Label) -> Value:
        until = stop if isinstance(stop, KnownValue) else code.read(f"{name} stop")
        code.jump_unless(code.emit("binary", (code.read(name), until), "<" if step.value > 0 else ">"), end)
        number = code.emit(
            "binary", (code.read(name), KnownValue(0)), "+"
        )  # of its own: the next one is another
        code.write(name, code.emit("binary", (number, KnownValue(step.value)), "+"))
        return item(number)

    return take
