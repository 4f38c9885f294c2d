"""Loops of a program's text: over numbers, lists and tuples; over modules they are written out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dietcode.programs.code import Label
from dietcode.programs.dictionaries import DICT
from dietcode.programs.generators import is_generator
from dietcode.programs.shared_lists import is_changed_by
from dietcode.programs.taking import has_iterator, taker
from dietcode.programs.unrolling import rounds_of
from dietcode.programs.values import KnownValue, Several, Value
from dietcode.workload.text import one_line

if TYPE_CHECKING:
    from dietcode.programs.writing import FunctionWriter

_Item = Callable[[Value], Value]  # from the number of a round to what the loop's target is


def lower_for(lowering: FunctionWriter, node: ast.For) -> None:
    """Write a loop."""
    rounds = rounds_of(node, lowering.statics)
    if rounds is None:
        body = ast.Module(node.body, [])
        grows = isinstance(node.iter, ast.Name) and is_changed_by(body, node.iter.id)
        _loop(lowering, node.target, node.iter, lambda: lowering.body(node.body), str(node.lineno), grows)
        return
    outer, end = lowering.path, Label()
    for number, one in enumerate(rounds):
        again = Label()
        lowering.path = (*outer, number)
        if (lowering.path, node.body[0]) not in lowering.context.reached:
            lowering.fail("RuntimeError: no sample reached this round of the loop; give samples that do")
            break
        lowering.statics.names.update(one.names)
        for target, value in one.assigned:
            lowering.store(target, lowering.value(value))
        lowering.loops.append((again, end))
        lowering.body(node.body)
        lowering.loops.pop()
        lowering.code.label(again)
    lowering.path = outer
    lowering.code.label(end)


def lower_list_comprehension(lowering: FunctionWriter, node: ast.ListComp) -> Value:
    """Write a comprehension as a loop that appends."""
    before = lowering.code.generator
    if is_generator(node):
        text = re.sub(r"(?<=\w) \d+ \d+", "", ast.unparse(node)[1:-1])  # as the names were
        lowering.code.generator = f"{lowering.source.where(node)}: {one_line(text, 60)}"
    name = f" list {node.lineno} {node.col_offset}"
    lowering.code.write(name, lowering.code.emit("list", ()))

    def add() -> None:
        value = lowering.value(node.elt) if lowering.is_seen(node.elt) else KnownValue(None)
        lowering.code.emit("append", (lowering.code.read(name), value), writes=0)

    _rounds_of(lowering, node, 0, add)
    lowering.code.generator = before
    return lowering.code.read(name)


def _rounds_of(lowering: FunctionWriter, node: ast.ListComp, depth: int, body: Callable[[], None]) -> None:
    """Write the loops of a comprehension from a depth on."""
    loop = node.generators[depth]

    def inner() -> None:
        again = lowering.loops[-1][0]
        for one in loop.ifs:
            if not lowering.is_seen(one):
                return
            lowering.condition(one, lambda value: lowering.code.jump_unless(value, again))
        if depth < len(node.generators) - 1:
            _rounds_of(lowering, node, depth + 1, body)
        else:
            body()

    if depth and not lowering.is_seen(loop.iter):
        return
    _loop(lowering, loop.target, loop.iter, inner, f"{node.lineno} {node.col_offset} {depth}")


def lower_lazily(lowering: FunctionWriter, node: ast.Call, stops: bool) -> Value:
    """Write ``any`` (which stops at what is true) or ``all`` of a generator."""
    (given,) = node.args
    assert isinstance(given, ast.ListComp)  # as `simplified` writes it
    name, end = f" lazy {given.lineno} {given.col_offset}", Label()
    lowering.code.write(name, KnownValue(not stops))

    def look() -> None:
        if not lowering.is_seen(given.elt):
            return
        on = Label()
        value = lowering.truth(given.elt)
        lowering.code.jump_unless(
            lowering.code.emit("unary", (value,), "not") if stops is False else value, on
        )
        lowering.code.write(name, KnownValue(stops))
        lowering.code.jump(end)
        lowering.code.label(on)

    _rounds_of(lowering, given, 0, look)
    lowering.code.label(end)
    return lowering.code.read(name)


def lower_next(lowering: FunctionWriter, node: ast.Call) -> Value:
    """Write ``next`` of a generator: a loop that is left at its first item."""
    given, *otherwise = node.args
    assert isinstance(given, ast.ListComp)  # as `simplified` writes it
    name, end = f" next {given.lineno} {given.col_offset}", Label()
    for one in otherwise:
        lowering.code.write(name, lowering.value(one))

    def take() -> None:
        if lowering.is_seen(given.elt):
            lowering.code.write(name, lowering.value(given.elt))
            lowering.code.jump(end)

    _rounds_of(lowering, given, 0, take)
    if not otherwise:
        lowering.throw(StopIteration, "")
    lowering.code.label(end)
    return lowering.code.read(name)


def lower_listed(lowering: FunctionWriter, node: ast.Call) -> Value:
    """Write ``list`` of what a loop may go over."""
    code, name = lowering.code, f" listed {node.lineno} {node.col_offset}"
    code.write(name, code.emit("list", ()))

    def add(item: Value) -> None:
        code.emit("append", (code.read(name), item), writes=0)

    if has_iterator(lowering, node.args[0]):
        _taken(lowering, node.args[0], add, name)
        return code.read(name)
    start, stop, step, item = _rounds(lowering, node.args[0], f"listed {node.lineno} {node.col_offset}")
    _counted(lowering, f"{name} at", start, stop, step, lambda at: add(item(at)))
    return code.read(name)


def lower_map(lowering: FunctionWriter, node: ast.Call) -> Value:
    """Write calls that run side by side, and then a loop that waits for them."""
    mark = f"{node.lineno} {node.col_offset}"
    items, tasks, found = (f" {word} {mark}" for word in ("items", "tasks", "found"))
    lowering.code.write(items, lowering.value(node.args[1]))
    for one in (tasks, found):
        lowering.code.write(one, lowering.code.emit("list", ()))
    if not lowering.site(node).callees:
        raise lowering.refuse(
            node, "dietcode.map of tensor code, or of an empty list in all samples; write a list"
        )

    word = "spawn" if lowering.optimisations.concurrency else "call"

    def begin(item: Value) -> None:
        task = lowering.code.emit(word, (item,), lowering.callee(node))
        lowering.code.emit("append", (lowering.code.read(tasks), task), writes=0)

    def end(task: Value) -> None:
        result = lowering.code.emit("wait", (task,)) if word == "spawn" else task
        lowering.code.emit("append", (lowering.code.read(found), result), writes=0)

    _over(lowering, items, begin, f"begin {mark}")
    _over(lowering, tasks, end, f"end {mark}")
    return lowering.code.read(found)


def _over(lowering: FunctionWriter, items: str, body: Callable[[Value], None], mark: str) -> None:
    """Write a loop over the items of a list in a variable."""
    count = lowering.code.emit("len", (lowering.code.read(items),))
    _counted(
        lowering,
        f" {mark}",
        KnownValue(0),
        count,
        KnownValue(1),
        lambda at: body(lowering.code.item(lowering.code.read(items), at)),
    )


def _loop(
    lowering: FunctionWriter,
    target: ast.expr,
    iterable: ast.expr,
    body: Callable[[], None],
    mark: str,
    grows: bool = False,
) -> None:
    """Write a loop over something; what it goes over may be a list that its text changes."""
    if lowering.site(iterable).role == "written":  # by an object's class
        iterable = lowering.site(iterable).value
    if has_iterator(lowering, iterable):

        def run_with(found: Value) -> None:
            lowering.store(target, found)
            body()

        _taken(lowering, iterable, run_with, f"{mark} {len(lowering.loops)}")
        return
    start, stop, step, item = _rounds(lowering, iterable, f"{mark} {len(lowering.loops)}")

    def run(at: Value) -> None:
        lowering.store(target, item(at))
        body()

    name = f" over {mark} {len(lowering.loops)}"
    grows &= lowering.site(iterable).kinds == {"list"}
    until = (lambda: lowering.code.emit("len", (lowering.code.read(name),))) if grows else None
    _counted(lowering, f" at {mark} {len(lowering.loops)}", start, stop, step, run, until)


def _taken(lowering: FunctionWriter, iterable: ast.expr, body: Callable[[Value], None], mark: str) -> None:
    """Write a loop over iterators, of which the body may take items too."""
    code = lowering.code
    take = taker(lowering, iterable, mark, _rounds)
    again, end = Label(), Label()
    code.label(again)
    found = take(end)
    lowering.loops.append((again, end))
    body(found)
    lowering.loops.pop()
    code.jump(again)
    code.label(end)


def _counted(
    lowering: FunctionWriter,
    name: str,
    start: Value,
    stop: Value,
    step: KnownValue,
    body: Callable[[Value], None],
    stop_anew: Callable[[], Value] | None = None,
) -> None:
    """Write a loop over whole numbers; where it stops may be asked before each round."""
    code = lowering.code
    code.write(name, start)
    if not isinstance(stop, KnownValue):
        code.write(f"{name} stop", stop)
    test, again, end = Label(), Label(), Label()
    code.label(test)
    until = stop if isinstance(stop, KnownValue) else code.read(f"{name} stop")
    until = until if stop_anew is None else stop_anew()
    inside = code.emit("binary", (code.read(name), until), "<" if step.value > 0 else ">")
    code.jump_unless(inside, end)
    lowering.loops.append((again, end))
    body(code.read(name))
    lowering.loops.pop()
    code.label(again)
    code.write(name, code.emit("binary", (code.read(name), KnownValue(step.value)), "+"))
    code.jump(test)
    code.label(end)


def _rounds(lowering: FunctionWriter, node: ast.expr, mark: str) -> tuple[Value, Value, KnownValue, _Item]:
    """Return start, stop and step of a loop's numbers, and what the target is for each of them."""
    code = lowering.code
    function: Any = lowering.statics.find(node.func)[1] if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and function is range:
        args = [lowering.value(one) for one in node.args]
        start, stop = (KnownValue(0), args[0]) if len(args) == 1 else (args[0], args[1])
        step = args[2] if len(args) > 2 else KnownValue(1)
        if not isinstance(step, KnownValue):
            return _stepped(lowering, start, stop, step, mark)
        if not step.value:
            raise lowering.refuse(node, "a range in steps of 0; allowed: any other number")
        return start, stop, step, lambda at: at
    if isinstance(node, ast.Call) and function in (enumerate, zip):
        return _beside(lowering, node, function is enumerate, mark)
    if isinstance(node, ast.Call) and function is reversed:
        start, stop, step, item = _rounds(lowering, node.args[0], mark)
        if start != KnownValue(0) or step != KnownValue(1):
            raise lowering.refuse(node, "reversed of a range; write range(stop - 1, start - 1, -1)")
        return code.emit("binary", (stop, KnownValue(1)), "-"), KnownValue(-1), KnownValue(-1), item
    return _over_list(lowering, node, mark)


def _over_list(lowering: FunctionWriter, node: ast.expr, mark: str) -> tuple[Value, Value, KnownValue, _Item]:
    """Return the rounds of what has items: a list, a tuple, a text, a dict."""
    code = lowering.code
    value = lowering.items(node)
    kinds = lowering.site(node).kinds
    if "text" in kinds:
        if len(kinds) > 1:
            raise lowering.refuse(node, "goes over a text in one sample and over something else in another")
        value = code.emit("characters", (value,))
    if DICT in kinds:  # whose keys may be others in the loop
        value = code.emit("as", (value,), "list")
    name = f" over {mark}"
    code.write(name, value)
    stop = KnownValue(len(value.items)) if isinstance(value, Several) else code.emit("len", (value,))
    return KnownValue(0), stop, KnownValue(1), lambda at: code.item(code.read(name), at)


def _beside(
    lowering: FunctionWriter, node: ast.Call, is_counted: bool, mark: str
) -> tuple[Value, Value, KnownValue, _Item]:
    """Return the rounds of ``zip``, or of ``enumerate``."""
    code = lowering.code
    parts = [
        _from_zero(lowering, node, *_rounds(lowering, one, f"{mark} {number}"), f" first {mark} {number}")
        for number, one in enumerate(node.args[:1] if is_counted else node.args)
    ]
    stop = parts[0][0]
    is_strict = any(one.arg == "strict" and lowering.statics.find(one.value)[1] for one in node.keywords)
    for many, _ in parts[1:]:
        if is_strict:
            different, good = code.emit("binary", (stop, many), "!="), Label()
            code.jump_unless(different, good)
            lowering.throw(ValueError, "zip() of different lengths")
            code.label(good)
        stop = code.emit("binary", (stop, many), "min")
    items = [item for _, item in parts]
    if is_counted and len(node.args) == 2:
        code.write(f" begin {mark}", lowering.value(node.args[1]))

        def counted(at: Value) -> Value:
            number = code.emit("binary", (code.read(f" begin {mark}"), at), "+")
            return Several((number, items[0](at)))

        return KnownValue(0), stop, KnownValue(1), counted
    if is_counted:
        return KnownValue(0), stop, KnownValue(1), lambda at: Several((at, items[0](at)))
    return KnownValue(0), stop, KnownValue(1), lambda at: Several(tuple(one(at) for one in items))


def _stepped(
    lowering: FunctionWriter, start: Value, stop: Value, step: Value, mark: str
) -> tuple[Value, Value, KnownValue, _Item]:
    """Return the rounds of a range whose step depends on the instance: -((start - stop) // step) of them."""
    code, good = lowering.code, Label()
    names = [f" {word} {mark}" for word in ("start of", "stop of", "step of")]
    for name, value in zip(names, (start, stop, step), strict=True):
        code.write(name, value)
    code.jump_unless(code.emit("binary", (code.read(names[2]), KnownValue(0)), "=="), good)
    lowering.throw(ValueError, "range() arg 3 must not be zero")
    code.label(good)
    first, last, by = map(code.read, names)
    whole = code.emit("binary", (code.emit("binary", (first, last), "-"), by), "//")

    def item(at: Value) -> Value:
        steps = code.emit("binary", (at, code.read(names[2])), "*")
        return code.emit("binary", (code.read(names[0]), steps), "+")

    return KnownValue(0), code.emit("unary", (whole,), "neg"), KnownValue(1), item


def _from_zero(
    lowering: FunctionWriter,
    node: ast.expr,
    start: Value,
    stop: Value,
    step: KnownValue,
    item: _Item,
    name: str,
) -> tuple[Value, _Item]:
    """Return how many rounds a loop has, and its targets by the numbers of the rounds.

    Parameters
    ----------
    lowering : FunctionWriter
    node : expression
    start, stop, step, item
        As `_rounds` gives them.
    name : str
        Of a variable that keeps the start.
    """
    code = lowering.code
    if start == KnownValue(0) and step == KnownValue(1):
        return stop, item
    if step.value not in (1, -1):
        raise lowering.refuse(
            node, f"a range in steps of {step.value} beside others; write the loop over numbers"
        )
    word = "+" if step.value == 1 else "-"
    code.write(name, start)
    ends = (stop, start) if step.value == 1 else (start, stop)
    return code.emit("binary", ends, "-"), lambda at: item(code.emit("binary", (code.read(name), at), word))
